// SPDX-License-Identifier: Apache-2.0
//
// Property: what a step attends to through C is what was appended: the chunk that its queries look
// for, sinks, the newest tokens, and those that the session was given; forks find the shadow, and
// what is wrong is refused by name. On a simulated device.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c_abi/check.h"

enum {
  kChannels = 16,
  kGroupQueries = 2,  // Query heads of a kv head.
  kTokens = 300,
  kCovered = 256,
  kChunkTokens = 4,
  kChunks = kCovered / kChunkTokens,
  kSinkTokens = 8,
  kBudgetChunks = 8,
  kRowBytes = 2 * kChannels,
  kAppended = 3,
  kResident = kSinkTokens + kTokens - kCovered,
  kPlanted = 37,  // The chunk that queries look for; of head 1 the next.
};

typedef struct Shadow {
  cairn_gpu* gpu;
  cairn_store* store;
  Model model;
  cairn_branch* branch;
  cairn_kv_buffer* kv;
  cairn_sparse_arena* arena;
  cairn_shadow_session* session;
  uint16_t* queries;  // On the device.
} Shadow;

// All exact: what a view shows is what was appended, bit for bit.
static cairn_shadow_spec ExactSpec(void) {
  cairn_shadow_spec spec;
  cairn_shadow_spec_init(&spec, sizeof spec);
  spec.keys = CAIRN_SHADOW_KEYS_EXACT;
  spec.landmark_bits = 16;
  spec.outlier_share = 0;
  spec.budget_tokens = kBudgetChunks * kChunkTokens;
  return spec;
}

static cairn_shadow_options OptionsOf(const cairn_shadow_spec* spec) {
  cairn_shadow_options options;
  cairn_shadow_options_init(&options, sizeof options);
  options.spec = spec;
  options.query_heads = kHeads * kGroupQueries;
  options.append_tokens = kAppended;
  return options;
}

static float ToFloat(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Rows of bf16 from 0.5 to 1, of both signs; but a planted chunk has keys of 4, which nothing else
// comes near to.
static void FillKv(cairn_kv_buffer* kv) {
  uint16_t* const elements = (uint16_t*)cairn_kv_buffer_data(kv);
  uint32_t seed = 9;
  for (size_t i = 0; i < cairn_kv_buffer_size(kv) / 2; ++i) {
    seed = seed * 1664525u + 1013904223u;
    elements[i] = (uint16_t)(0x3F00 | (seed >> 25) | (seed >> 24 & 1) << 15);
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      for (uint64_t token = 0; token < kChunkTokens; ++token) {
        uint16_t* const row = (uint16_t*)cairn_kv_buffer_row(
            kv, 0, layer, 0, head, (kPlanted + head) * kChunkTokens + token);
        for (int i = 0; i < kChannels; ++i) row[i] = 0x4080;
      }
    }
  }
}

static void MakeShadowModel(cairn_store* store, Model* model) {
  cairn_error* error = NULL;
  cairn_plane_init(&model->planes[0], sizeof model->planes[0]);
  cairn_plane_init(&model->planes[1], sizeof model->planes[1]);
  cairn_layer_group_init(&model->group, sizeof model->group);
  cairn_model_spec_init(&model->spec, sizeof model->spec);
  CHECK_OK(cairn_layer_group_full_attention(&model->group, model->planes, kLayers, kHeads,
                                            kChannels, CAIRN_DTYPE_BF16, &error));
  model->spec.name = "shadow";
  model->spec.groups = &model->group;
  model->spec.group_count = 1;
  CHECK_OK(cairn_store_register_model(store, &model->spec, CAIRN_DURABILITY_PROCESS, &model->id,
                                      &error));
}

static void AppendKv(const Shadow* s) {
  cairn_error* error = NULL;
  uint32_t tokens[kTokens];
  for (uint64_t i = 0; i < kTokens; ++i) tokens[i] = TokenAt(i);
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = tokens;
  delta.token_count = kTokens;
  delta.kv = cairn_kv_buffer_view(s->kv);
  CHECK_OK(cairn_branch_append_sync(s->branch, &delta, NULL, NULL, &error));
}

static void OpenShadow(Shadow* s) {
  cairn_error* error = NULL;
  memset(s, 0, sizeof *s);
  CHECK_OK(cairn_gpu_simulated(7, NULL, &s->gpu, &error));
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.create_if_missing = true;
  options.gpus = &s->gpu;
  options.gpu_count = 1;
  CHECK_OK(cairn_store_open(":memory:", &options, &s->store, &error));
  MakeShadowModel(s->store, &s->model);
  s->branch = CreateBranch(s->store, s->model.id, "chat");
  CHECK_OK(cairn_kv_buffer_new(&s->model.spec, kTokens, &s->kv, &error));
  FillKv(s->kv);
  AppendKv(s);
  cairn_sparse_arena_options arena;
  cairn_sparse_arena_options_init(&arena, sizeof arena);
  arena.pinned_bytes = 2 << 20;
  arena.device_bytes = 8 << 20;
  CHECK_OK(cairn_sparse_arena_make(s->store, s->gpu, &arena, &s->arena, &error));
  uint16_t queries[kHeads * kGroupQueries * kChannels];
  for (size_t i = 0; i < sizeof queries / sizeof queries[0]; ++i) queries[i] = 0x3F80;  // 1
  void* there = NULL;
  CHECK_OK(cairn_gpu_allocate(s->gpu, sizeof queries, &there, &error));
  CHECK_OK(cairn_gpu_copy_in(s->gpu, there, queries, sizeof queries, &error));
  s->queries = there;
}

static void CloseShadow(Shadow* s) {
  cairn_shadow_session_free(s->session);
  cairn_sparse_arena_free(s->arena);
  cairn_kv_buffer_free(s->kv);
  cairn_branch_free(s->branch);
  cairn_store_free(s->store);
  cairn_gpu_deallocate(s->gpu, s->queries);
  cairn_gpu_free(s->gpu);
}

// Bytes of the device are these.
static void CheckRow(const Shadow* s, const unsigned char* there, const void* want) {
  cairn_error* error = NULL;
  unsigned char got[kRowBytes];
  CHECK_OK(cairn_gpu_copy_out(s->gpu, got, there, sizeof got, &error));
  CHECK(memcmp(got, want, sizeof got) == 0);
}

static const void* Stored(const Shadow* s, uint32_t layer, uint32_t plane, uint32_t head,
                          uint64_t position) {
  return cairn_kv_buffer_row(s->kv, 0, layer, plane, head, position);
}

// One step of a layer. The fetch comes last: what was enqueued before it is done behind it.
static cairn_shadow_view Step(const Shadow* s, cairn_shadow_session* session, uint32_t layer) {
  cairn_error* error = NULL;
  cairn_shadow_query query;
  cairn_shadow_query_init(&query, sizeof query);
  query.layer = layer;
  query.queries = s->queries;
  CHECK_OK(cairn_shadow_session_select(session, &query, &error));
  CHECK_OK(cairn_shadow_session_rebuild(session, layer, 0, &error));
  cairn_shadow_fetch fetch;
  cairn_shadow_fetch_init(&fetch, sizeof fetch);
  fetch.layer = layer;
  CHECK_OK(cairn_shadow_session_fetch(session, &fetch, &error));
  cairn_shadow_view view;
  memset(&view, 0xAB, sizeof view);  // Its size alone is read.
  view.struct_size = sizeof view;
  CHECK_OK(cairn_shadow_session_view(session, layer, &view, &error));
  return view;
}

static void CheckResident(const Shadow* s, const cairn_shadow_view* view, uint32_t layer) {
  const unsigned char* const keys = view->resident_keys;
  const unsigned char* const values = view->resident_values;
  for (uint32_t head = 0; head < kHeads; ++head) {
    for (uint32_t i = 0; i < kResident; ++i) {
      const uint64_t position = i < kSinkTokens ? i : kCovered + i - kSinkTokens;
      CheckRow(s, keys + head * view->resident_key_stride + i * kRowBytes,
               Stored(s, layer, 0, head, position));
      CheckRow(s, values + head * view->resident_value_stride + i * kRowBytes,
               Stored(s, layer, 1, head, position));
    }
  }
}

// Every chunk has its rows; the planted one is among them. Keys that were coded are near theirs.
static void CheckSelected(const Shadow* s, const cairn_shadow_view* view, uint32_t layer,
                          bool exact) {
  cairn_error* error = NULL;
  CHECK(view->count == kBudgetChunks && view->stride >= kBudgetChunks);
  CHECK(view->keys.piece_bytes == kChunkTokens * kRowBytes);
  for (uint32_t head = 0; head < kHeads; ++head) {
    bool has_planted = false;
    for (uint32_t i = 0; i < view->count; ++i) {
      const uint64_t at = head * view->stride + i;
      uint32_t chunk = 0;
      int32_t slots[2] = {-1, -1};
      CHECK_OK(cairn_gpu_copy_out(s->gpu, &chunk, view->chunks + at, sizeof chunk, &error));
      CHECK_OK(cairn_gpu_copy_out(s->gpu, &slots[0], view->key_slot_of + at, 4, &error));
      CHECK_OK(cairn_gpu_copy_out(s->gpu, &slots[1], view->value_slot_of + at, 4, &error));
      CHECK(chunk >= kSinkTokens / kChunkTokens && chunk < kChunks);
      CHECK(slots[0] >= 0 && slots[1] >= 0);
      has_planted |= chunk == kPlanted + head;
      for (uint32_t plane = 0; plane < 2; ++plane) {
        const cairn_sparse_plane_slots* const of = plane == 0 ? &view->keys : &view->values;
        const unsigned char* const rows = (const unsigned char*)of->base + head * of->head_stride +
                                          (uint64_t)slots[plane] * of->piece_bytes;
        for (uint32_t token = 0; token < kChunkTokens; ++token) {
          const void* const want =
              Stored(s, layer, plane, head, (uint64_t)chunk * kChunkTokens + token);
          if (exact || plane == 1) {
            CheckRow(s, rows + token * kRowBytes, want);
            continue;
          }
          uint16_t got[kChannels], stored[kChannels];
          memcpy(stored, want, sizeof stored);
          CHECK_OK(cairn_gpu_copy_out(s->gpu, got, rows + token * kRowBytes, sizeof got, &error));
          for (int c = 0; c < kChannels; ++c) {
            // Half a step of 255 between -1 and 4, and a rounding.
            const float off = ToFloat(got[c]) - ToFloat(stored[c]);
            CHECK(off < 0.04f && off > -0.04f);
          }
        }
      }
    }
    CHECK(has_planted);
  }
}

static void CheckBranch(const Shadow* s) {
  cairn_error* error = NULL;
  const cairn_shadow_spec spec = ExactSpec();
  cairn_shadow_of of;
  cairn_shadow_of_init(&of, sizeof of);
  of.spec = &spec;
  cairn_shadow_info info;
  cairn_shadow_info_init(&info, sizeof info);
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_find_shadow(s->branch, &of, &info, &error));
  CHECK_OK(cairn_build_shadow(s->branch, &of, &info, &error));
  CHECK(info.tokens == kTokens && info.covered == kCovered && info.tokens_read == kCovered);
  CHECK(info.chunks == kChunks && info.always_chunks == kSinkTokens / kChunkTokens);
  CHECK(info.budget_chunks == kBudgetChunks && info.table_bytes > 0);
  CHECK_OK(cairn_build_shadow(s->branch, &of, &info, &error));
  CHECK(info.tokens_read == 0);
  cairn_branch* fork = NULL;
  CHECK_OK(cairn_branch_fork_at(s->branch, kTokens - 2, NULL, &fork, &error));
  CHECK_OK(cairn_find_shadow(fork, &of, NULL, &error));
  of.end = 200;  // Another one.
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_find_shadow(fork, &of, &info, &error));
  of.end = UINT64_MAX;
  CHECK_OK(cairn_drop_shadow(fork, &of, &error));
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_drop_shadow(s->branch, &of, &error));
  cairn_branch_free(fork);
  // All defaults.
  CHECK_OK(cairn_build_shadow(s->branch, NULL, &info, &error));
  CHECK(info.tokens_read == kCovered && info.always_chunks == 3);
  CHECK_OK(cairn_drop_shadow(s->branch, NULL, &error));
}

static void CheckSteps(Shadow* s) {
  cairn_error* error = NULL;
  cairn_shadow_spec spec = ExactSpec();
  cairn_shadow_options options = OptionsOf(&spec);
  CHECK_OK(cairn_shadow_session_open(s->arena, s->branch, &options, &s->session, &error));
  cairn_shadow_info info;
  cairn_shadow_info_init(&info, sizeof info);
  CHECK_OK(cairn_shadow_session_info(s->session, &info, &error));
  CHECK(info.covered == kCovered && info.tokens_read == kCovered);
  CHECK(cairn_shadow_session_device_bytes(s->session) == cairn_sparse_arena_device_bytes(s->arena));
  for (uint32_t step = 0; step < 2 * kLayers; ++step) {
    const uint32_t layer = step % kLayers;
    const cairn_shadow_view view = Step(s, s->session, layer);
    CHECK(view.resident_tokens == kResident);
    CheckResident(s, &view, layer);
    CheckSelected(s, &view, layer, true);
  }
  cairn_sparse_stats stats;
  cairn_sparse_stats_init(&stats, sizeof stats);
  CHECK_OK(cairn_shadow_session_stats(s->session, &stats, &error));
  CHECK(stats.fetches == 2 * kLayers && stats.left_out == 0);
  CHECK(stats.wanted == 2 * kLayers * kHeads * kBudgetChunks);
  CHECK_OK(cairn_shadow_session_save(s->session, &error));

  spec.keys = CAIRN_SHADOW_KEYS_INT8;
  cairn_shadow_session* coded = NULL;
  CHECK_OK(cairn_shadow_session_open(s->arena, s->branch, &options, &coded, &error));
  const cairn_shadow_view view = Step(s, coded, 1);
  CheckResident(s, &view, 1);
  CheckSelected(s, &view, 1, false);
  cairn_shadow_session_free(coded);
}

static void CheckAppend(Shadow* s) {
  cairn_error* error = NULL;
  enum { kBytes = 2 * kHeads * kRowBytes };
  unsigned char rows[kBytes];
  for (int i = 0; i < kBytes; ++i) rows[i] = (unsigned char)i;
  void* there = NULL;
  CHECK_OK(cairn_gpu_allocate(s->gpu, kBytes, &there, &error));
  CHECK_OK(cairn_gpu_copy_in(s->gpu, there, rows, kBytes, &error));
  cairn_shadow_rows token;
  cairn_shadow_rows_init(&token, sizeof token);
  // For each head its key, then its value.
  token.keys = there;
  token.values = (unsigned char*)there + kRowBytes;
  token.key_stride = token.value_stride = 2 * kRowBytes;
  for (uint32_t i = 0; i < kAppended; ++i) {
    CHECK_OK(cairn_shadow_session_append(s->session, &token, &error));
  }
  CHECK_CODE(CAIRN_BUSY, cairn_shadow_session_append(s->session, &token, &error));
  const cairn_shadow_view view = Step(s, s->session, 0);
  CHECK(view.resident_tokens == kResident + kAppended);
  CheckResident(s, &view, 0);
  for (uint32_t head = 0; head < kHeads; ++head) {
    for (uint32_t i = kResident; i < view.resident_tokens; ++i) {
      CheckRow(s,
               (const unsigned char*)view.resident_keys + head * view.resident_key_stride +
                   i * kRowBytes,
               rows + 2 * head * kRowBytes);
      CheckRow(s,
               (const unsigned char*)view.resident_values + head * view.resident_value_stride +
                   i * kRowBytes,
               rows + (2 * head + 1) * kRowBytes);
    }
  }
  const cairn_shadow_view other = Step(s, s->session, 1);
  CHECK(other.resident_tokens == kResident);
  cairn_gpu_deallocate(s->gpu, there);
}

// A session of the first half of the branch grows to all of it.
static void CheckExtend(Shadow* s) {
  cairn_error* error = NULL;
  const cairn_shadow_spec spec = ExactSpec();
  cairn_shadow_options options = OptionsOf(&spec);
  options.end = kTokens / 2;
  options.tokens_max = kTokens;
  cairn_shadow_session* session = NULL;
  CHECK_OK(cairn_shadow_session_open(s->arena, s->branch, &options, &session, &error));
  cairn_shadow_info info;
  cairn_shadow_info_init(&info, sizeof info);
  CHECK_OK(cairn_shadow_session_info(session, &info, &error));
  CHECK(info.tokens == kTokens / 2 && info.covered == 64);
  CHECK_OK(cairn_shadow_session_extend(session, UINT64_MAX, &error));
  CHECK_OK(cairn_shadow_session_info(session, &info, &error));
  CHECK(info.tokens == kTokens && info.covered == kCovered);
  const cairn_shadow_view view = Step(s, session, 1);
  CheckResident(s, &view, 1);
  CheckSelected(s, &view, 1, true);
  CHECK_CODE(CAIRN_CONFLICT, cairn_shadow_session_extend(session, kTokens - 1, &error));
  CHECK_REFUSED("end is", cairn_shadow_session_extend(session, kTokens + 1, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_extend(NULL, 1, &error));
  cairn_shadow_session_free(session);
}

static void CheckPrefetch(Shadow* s) {
  cairn_error* error = NULL;
  const uint32_t chunks[kHeads * 2] = {3, 4, /*head 1*/ 5, 6};
  CHECK_OK(cairn_shadow_session_prefetch(s->session, 1, chunks, 2, 2, &error));
  const uint32_t beyond[kHeads] = {3, kTokens / kChunkTokens};
  CHECK_REFUSED("head 1", cairn_shadow_session_prefetch(s->session, 1, beyond, 1, 1, &error));
}

static void CheckOptions(const Shadow* s) {
  cairn_error* error = NULL;
  const cairn_shadow_spec good_spec = ExactSpec();
  cairn_shadow_session* session = NULL;
#define REFUSED(words, spec_change, change)                                                    \
  do {                                                                                         \
    cairn_shadow_spec spec = good_spec;                                                        \
    cairn_shadow_options options = OptionsOf(&spec);                                           \
    spec_change;                                                                               \
    change;                                                                                    \
    CHECK_REFUSED(words,                                                                       \
                  cairn_shadow_session_open(s->arena, s->branch, &options, &session, &error)); \
    CHECK(session == NULL);                                                                    \
  } while (0)
  REFUSED("chunk_tokens is 3", spec.chunk_tokens = 3, (void)0);
  REFUSED("keys is 0", spec.keys = 0, (void)0);
  REFUSED("cairn_shadow_spec::keys", spec.keys = 5, (void)0);
  REFUSED("landmark_bits is 2", spec.landmark_bits = 2, (void)0);
  REFUSED("outlier_share", spec.outlier_share = 1.5, (void)0);
  REFUSED("rank is given", spec.rank = 8, (void)0);
  REFUSED("cairn_shadow_spec::struct_size", spec.struct_size = 9, (void)0);
  REFUSED("query_heads is 0", (void)0, options.query_heads = 0);
  REFUSED("query_heads is 3", (void)0, options.query_heads = 3);
  REFUSED("group is 1", (void)0, options.group = 1);
  REFUSED("end is 301", (void)0, options.end = kTokens + 1);
  REFUSED("cairn_shadow_options::struct_size", (void)0, options.struct_size = 17);
#undef REFUSED
  cairn_shadow_options options = OptionsOf(&good_spec);
  CHECK_REFUSED("arena is NULL",
                cairn_shadow_session_open(NULL, s->branch, &options, &session, &error));
  CHECK_REFUSED("branch is NULL",
                cairn_shadow_session_open(s->arena, NULL, &options, &session, &error));
  CHECK_REFUSED("session is NULL",
                cairn_shadow_session_open(s->arena, s->branch, &options, NULL, &error));
  CHECK_REFUSED("query_heads is 0",
                cairn_shadow_session_open(s->arena, s->branch, NULL, &session, &error));
  CHECK_REFUSED("branch is NULL", cairn_build_shadow(NULL, NULL, NULL, &error));
  CHECK_REFUSED("branch is NULL", cairn_find_shadow(NULL, NULL, NULL, &error));
  CHECK_REFUSED("branch is NULL", cairn_drop_shadow(NULL, NULL, &error));
  CHECK_REFUSED("spec is NULL", cairn_shadow_spec_published(1024, NULL, &error));
  options.build = false;
  CHECK_CODE(CAIRN_NOT_FOUND,
             cairn_shadow_session_open(s->arena, s->branch, &options, &session, &error));
  CHECK(session == NULL && cairn_sparse_arena_device_bytes(s->arena) == 0);
}

static void CheckWrong(Shadow* s) {
  cairn_error* error = NULL;
  cairn_shadow_session* const on = s->session;
  cairn_shadow_view view;
  cairn_shadow_view_init(&view, sizeof view);
  cairn_shadow_query query;
  cairn_shadow_query_init(&query, sizeof query);
  CHECK_REFUSED("queries is null", cairn_shadow_session_select(on, &query, &error));
  query.queries = s->queries;
  query.layer = kLayers;
  CHECK_REFUSED("layer is 2", cairn_shadow_session_select(on, &query, &error));
  query.layer = 0;
  CHECK_OK(cairn_shadow_session_select(on, &query, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_shadow_session_view(on, 0, &view, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_shadow_session_rebuild(on, 1, 0, &error));
  CHECK(view.resident_keys == NULL);  // Written after a success alone.
  cairn_shadow_fetch fetch;
  cairn_shadow_fetch_init(&fetch, sizeof fetch);
  fetch.layer = 1;
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_shadow_session_fetch(on, &fetch, &error));
  fetch.mode = 2;
  CHECK_REFUSED("cairn_shadow_fetch::mode", cairn_shadow_session_fetch(on, &fetch, &error));
  cairn_shadow_rows rows;
  cairn_shadow_rows_init(&rows, sizeof rows);
  CHECK_REFUSED("keys or values is null", cairn_shadow_session_append(on, &rows, &error));
  query.struct_size = 4104;
  CHECK_REFUSED("cairn_shadow_query::struct_size", cairn_shadow_session_select(on, &query, &error));
  view.struct_size = 3;
  CHECK_REFUSED("cairn_shadow_view::struct_size", cairn_shadow_session_view(on, 0, &view, &error));
  CHECK_REFUSED("query is NULL", cairn_shadow_session_select(on, NULL, &error));
  CHECK_REFUSED("fetch is NULL", cairn_shadow_session_fetch(on, NULL, &error));
  CHECK_REFUSED("view is NULL", cairn_shadow_session_view(on, 0, NULL, &error));
  CHECK_REFUSED("rows is NULL", cairn_shadow_session_append(on, NULL, &error));
  CHECK_REFUSED("info is NULL", cairn_shadow_session_info(on, NULL, &error));
  CHECK_REFUSED("stats is NULL", cairn_shadow_session_stats(on, NULL, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_select(NULL, NULL, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_fetch(NULL, &fetch, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_rebuild(NULL, 0, 0, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_view(NULL, 0, NULL, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_append(NULL, &rows, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_prefetch(NULL, 0, NULL, 0, 0, &error));
  CHECK_REFUSED("session is NULL", cairn_shadow_session_save(NULL, &error));
  CHECK(cairn_shadow_session_device_bytes(NULL) == 0);
  // A stream of nobody's.
  cairn_shadow_query_init(&query, sizeof query);
  query.queries = s->queries;
  query.stream = 12345;
  CHECK_CODE(CAIRN_INVALID_ARGUMENT, cairn_shadow_session_select(on, &query, &error));
}

// In a child of fork() nothing works, and all can be freed; the parent goes on.
static void CheckChild(Shadow* s) {
  cairn_error* error = NULL;
  cairn_shadow_query query;
  cairn_shadow_query_init(&query, sizeof query);
  query.queries = s->queries;
  const pid_t child = fork();
  if (child == 0) {
    g_failures = 0;
    CHECK_CODE(CAIRN_INVALID_STATE, cairn_shadow_session_select(s->session, &query, &error));
    CHECK_CODE(CAIRN_INVALID_STATE, cairn_build_shadow(s->branch, NULL, NULL, &error));
    cairn_shadow_session_free(s->session);
    cairn_sparse_arena_free(s->arena);
    cairn_branch_free(s->branch);
    cairn_store_free(s->store);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  Step(s, s->session, 0);
}

static void CheckClosed(Shadow* s) {
  cairn_error* error = NULL;
  const cairn_shadow_options options = OptionsOf(NULL);
  cairn_shadow_session* session = NULL;
  cairn_shadow_info info;
  cairn_shadow_info_init(&info, sizeof info);
  CHECK_OK(cairn_store_close(s->store, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_build_shadow(s->branch, NULL, NULL, &error));
  CHECK_CODE(CAIRN_INVALID_STATE,
             cairn_shadow_session_open(s->arena, s->branch, &options, &session, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_shadow_session_save(s->session, &error));
  cairn_shadow_view view;
  cairn_shadow_view_init(&view, sizeof view);
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_shadow_session_view(s->session, 0, &view, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_shadow_session_rebuild(s->session, 0, 0, &error));
  CHECK_OK(cairn_shadow_session_info(s->session, &info, &error));
  CHECK(session == NULL && info.covered == kCovered);
}

// Handles are freed in every order, with work enqueued.
static void CheckOrders(void) {
  enum { kHandles = 5 };
  for (int order = 0; order < 120; order += 7) {
    Shadow s;
    OpenShadow(&s);
    cairn_error* error = NULL;
    const cairn_shadow_spec spec = ExactSpec();
    const cairn_shadow_options options = OptionsOf(&spec);
    CHECK_OK(cairn_shadow_session_open(s.arena, s.branch, &options, &s.session, &error));
    cairn_shadow_query query;
    cairn_shadow_query_init(&query, sizeof query);
    query.queries = s.queries;
    CHECK_OK(cairn_shadow_session_select(s.session, &query, &error));
    int left[kHandles] = {0, 1, 2, 3, 4};
    for (int n = kHandles, rest = order; n > 0; rest /= n--) {
      const int at = rest % n, handle = left[at];
      memmove(&left[at], &left[at + 1], (size_t)(n - 1 - at) * sizeof left[0]);
      switch (handle) {
        case 0: cairn_shadow_session_free(s.session); break;
        case 1: cairn_sparse_arena_free(s.arena); break;
        case 2: cairn_branch_free(s.branch); break;
        case 3: cairn_store_free(s.store); break;
        default: cairn_kv_buffer_free(s.kv); break;
      }
    }
    cairn_gpu_deallocate(s.gpu, s.queries);
    cairn_gpu_free(s.gpu);
  }
}

void TestShadow(const char* directory) {
  (void)directory;
  Shadow s;
  OpenShadow(&s);
  CheckOptions(&s);
  CheckBranch(&s);
  CheckSteps(&s);
  CheckAppend(&s);
  CheckExtend(&s);
  CheckPrefetch(&s);
  CheckWrong(&s);
  CheckChild(&s);
  CheckClosed(&s);
  CloseShadow(&s);
  CheckOrders();
  cairn_shadow_session_free(NULL);
}
