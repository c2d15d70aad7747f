// SPDX-License-Identifier: Apache-2.0
//
// Property: an engine that keeps the KV of long contexts off the device, and brings in the tokens
// that an indexer chose, finds everything that its coordinator needs in sparse sessions (HiSparse
// in SGLang and vLLM are such engines). That coordinator is called for each layer of a decode step,
// with the lengths and wanted tokens of the requests of a batch; it answers in which rows these
// are. Method: a list of such calls is replayed, a session for each request, a fetch for each row
// of a call. Every row has the bytes that were appended, and tokens that the last step of a layer
// wanted are still in the same row.
//
// The engine itself removes the padding of a row of ids, and the tokens that it decoded since the
// request was admitted, which lie in rows of its own.
#include "tests/c_abi/check.h"

enum {
  kMlaLayers = 2,
  kLatent = 64,
  kRotary = 16,
  kTopK = 8,
  kHot = 2 * kTopK,  // Rows of a request on the device.
  kPlaces = 3,       // In the pool of requests.
  kRowsMax = 3,
  kBranches = 3,
  kNone = -1
};

typedef struct Row {
  int32_t place;  // kNone: pads the batch of a captured graph.
  uint32_t length;
  int32_t ids[kTopK];
} Row;

typedef enum What { kAdmit, kSwapIn, kFinish } What;

typedef struct Event {
  What what;
  uint32_t place, branch;  // kAdmit, kFinish.
  uint32_t layer;          // kSwapIn, and what follows.
  bool on_device;          // The indexer has just written the ids there.
  Row rows[kRowsMax];
} Event;

#define PAD         \
  {                 \
    kNone, 0, { 0 } \
  }

// Two long requests and a short one. Ids are unique in a row, in the order in which the indexer
// ranked them; the newest token of each row is its own.
static const Event kEvents[] = {
    {.what = kAdmit, .place = 0, .branch = 0},
    {.what = kAdmit, .place = 2, .branch = 1},
    // A step of both, with a row that pads.
    {.what = kSwapIn,
     .layer = 0,
     .rows = {{0, 65, {0, 64, 17, 3, 50, 51, 8, 33}},
              {2, 65, {64, 1, 0, 45, 44, 39, 40, 12}},
              PAD}},
    {.what = kSwapIn,
     .layer = 1,
     .rows = {{0, 65, {0, 1, 2, 64, 63, 62, 9, 30}}, {2, 65, {64, 63, 0, 41, 38, 37, 2, 5}}, PAD}},
    // The next, in another order; most of what is wanted was wanted before.
    {.what = kSwapIn,
     .layer = 0,
     .rows = {{2, 66, {65, 64, 0, 1, 45, 43, 40, 22}},
              {0, 66, {65, 0, 17, 3, 50, 52, 8, 34}},
              PAD}},
    {.what = kSwapIn,
     .layer = 1,
     .rows = {{2, 66, {65, 63, 0, 41, 38, 36, 2, 6}}, {0, 66, {65, 0, 1, 2, 63, 61, 9, 31}}, PAD}},
    // One that is shorter than what may be wanted joins: all of it, and the rest is padding.
    {.what = kAdmit, .place = 1, .branch = 2},
    {.what = kSwapIn,
     .layer = 0,
     .rows = {{0, 67, {66, 0, 17, 4, 50, 53, 8, 35}},
              {1, 6, {0, 1, 2, 3, 4, 5, kNone, kNone}},
              {2, 67, {66, 65, 0, 2, 45, 43, 40, 23}}}},
    {.what = kSwapIn,
     .layer = 1,
     .rows = {{0, 67, {0, 1, 3, 63, 60, 9, 32, 66}},
              {1, 6, {0, 1, 2, 3, 4, 5, kNone, kNone}},
              {2, 67, {63, 0, 41, 38, 35, 2, 7, 66}}}},
    // Ids in memory of the device: of the part that was there when the request was admitted.
    {.what = kSwapIn,
     .layer = 0,
     .on_device = true,
     .rows = {{0, 68, {0, 17, 4, 50, 54, 8, 36, 63}},
              {1, 7, {4, 3, 2, 1, 0, kNone, kNone, kNone}},
              {2, 68, {0, 2, 45, 43, 40, 24, 63, 62}}}},
    {.what = kSwapIn,
     .layer = 1,
     .on_device = true,
     .rows = {{0, 68, {0, 1, 3, 63, 59, 9, 33, 20}},
              {1, 7, {0, 1, 2, 3, 4, kNone, kNone, kNone}},
              {2, 68, {63, 0, 41, 38, 34, 2, 8, 19}}}},
    // A request ends, and its place is given to one that goes on from the same prefix.
    {.what = kFinish, .place = 0},
    {.what = kAdmit, .place = 0, .branch = 1},
    {.what = kSwapIn, .layer = 0, .rows = {{0, 65, {0, 17, 39, 40, 41, 63, 10, 11}}, PAD, PAD}},
    {.what = kSwapIn,
     .layer = 1,
     .rows = {{2, 69, {68, 67, 66, 65, 64, 63, 0, 41}},
              {0, 65, {64, 41, 42, 38, 0, 1, 2, 3}},
              PAD}},
    {.what = kFinish, .place = 2},
    {.what = kFinish, .place = 1},
    {.what = kFinish, .place = 0},
};

// The engine's coordinator in this test.
typedef struct Coordinator {
  cairn_gpu* gpu;
  cairn_branch* branches[kBranches];
  uint64_t lengths[kBranches];
  cairn_kv_buffer* kv[kBranches];
  cairn_sparse_arena* arena;
  uint32_t* ids_there;  // [row][kTopK], on the device.
  struct Request {
    cairn_sparse_session* session;
    uint32_t branch;
    struct {
      bool is_known;
      int32_t ids[kTopK], rows[kTopK];
    } last[kMlaLayers];
  } requests[kPlaces];
  uint64_t repeated;  // Ids that the last step wanted, too.
} Coordinator;

static void Admit(Coordinator* c, const Event* event) {
  cairn_error* error = NULL;
  cairn_sparse_options options;
  cairn_sparse_options_init(&options, sizeof options);
  options.planes = 3;
  options.piece_tokens = 1;
  options.page_tokens = 8;
  options.slots = kHot;
  options.wanted_max = kTopK;
  struct Request* const request = &c->requests[event->place];
  memset(request, 0, sizeof *request);
  request->branch = event->branch;
  CHECK_OK(cairn_sparse_arena_open(c->arena, c->branches[event->branch], &options,
                                   &request->session, &error));
  CHECK(cairn_sparse_session_pieces(request->session) == c->lengths[event->branch]);
}

// The rows of one request's ids: those of its session; kHot and above, of the engine's own; kNone.
static void SwapIn(Coordinator* c, const Event* event, uint32_t at, cairn_sparse_view* view,
                   int32_t* rows) {
  cairn_error* error = NULL;
  const Row* const row = &event->rows[at];
  struct Request* const request = &c->requests[row->place];
  const int32_t stored = (int32_t)c->lengths[request->branch];
  uint32_t wanted_ids[kTopK], places[kTopK], count = 0;
  for (uint32_t i = 0; i < kTopK; ++i) {
    const int32_t id = row->ids[i];
    CHECK(id < (int32_t)row->length);
    rows[i] = id < stored ? kNone : kHot + id - stored;
    if (id < 0 || id >= stored) continue;
    places[count] = i;
    wanted_ids[count++] = (uint32_t)id;
  }
  cairn_sparse_wanted wanted;
  cairn_sparse_wanted_init(&wanted, sizeof wanted);
  wanted.layer = event->layer;
  wanted.count = count;
  wanted.stride = kTopK;
  wanted.pieces = wanted_ids;
  if (event->on_device) {
    wanted.on_device = true;
    wanted.pieces = c->ids_there + at * kTopK;
    CHECK(memcmp(wanted_ids, row->ids, count * sizeof wanted_ids[0]) == 0);
  }
  CHECK_OK(cairn_sparse_session_fetch(request->session, &wanted, view, &error));
  int32_t slots[kTopK];
  CHECK_OK(cairn_gpu_copy_out(c->gpu, slots, view->slot_of, sizeof slots, &error));
  for (uint32_t i = 0; i < count; ++i) {
    CHECK(slots[i] >= 0 && slots[i] < kHot);
    rows[places[i]] = slots[i];
  }
}

static void CheckBytes(const Coordinator* c, const Event* event, const Row* row,
                       const cairn_sparse_view* view, const int32_t* rows) {
  cairn_error* error = NULL;
  const uint64_t sizes[] = {kLatent, kRotary};
  const uint32_t branch = c->requests[row->place].branch;
  for (uint32_t i = 0; i < kTopK; ++i) {
    for (uint32_t plane = 0; plane < 2 && rows[i] >= 0 && rows[i] < kHot; ++plane) {
      unsigned char got[kLatent];
      CHECK(view->planes[plane].piece_bytes == sizes[plane]);
      CHECK_OK(cairn_gpu_copy_out(
          c->gpu, got,
          (const unsigned char*)view->planes[plane].base + (uint64_t)rows[i] * sizes[plane],
          sizes[plane], &error));
      // A fork's tokens before its begin are those of the branch that it came from.
      const uint32_t of = branch == 1 && row->ids[i] < 40 ? 0 : branch;
      CHECK(memcmp(got,
                   cairn_kv_buffer_row(c->kv[of], 0, event->layer, plane, 0, (uint64_t)row->ids[i]),
                   sizes[plane]) == 0);
    }
  }
}

// Those of the last step are there still: nothing was copied for them.
static void CheckRows(Coordinator* c, const Event* event, const Row* row, const int32_t* rows) {
  struct Request* const request = &c->requests[row->place];
  for (uint32_t i = 0; i < kTopK; ++i) {
    for (uint32_t j = 0; j < i; ++j) CHECK(rows[i] == kNone || rows[i] != rows[j]);
    for (uint32_t j = 0; j < kTopK && request->last[event->layer].is_known; ++j) {
      if (row->ids[i] == kNone || row->ids[i] != request->last[event->layer].ids[j]) continue;
      CHECK(rows[i] == request->last[event->layer].rows[j]);
      ++c->repeated;
    }
  }
  request->last[event->layer].is_known = true;
  memcpy(request->last[event->layer].ids, row->ids, sizeof row->ids);
  memcpy(request->last[event->layer].rows, rows, kTopK * sizeof rows[0]);
}

static void Replay(Coordinator* c, const Event* event) {
  cairn_error* error = NULL;
  if (event->what == kAdmit) {
    Admit(c, event);
    return;
  }
  if (event->what == kFinish) {
    cairn_sparse_session_free(c->requests[event->place].session);
    return;
  }
  for (uint32_t at = 0; at < kRowsMax; ++at) {
    if (event->rows[at].place == kNone) continue;
    if (event->on_device) {
      CHECK_OK(cairn_gpu_copy_in(c->gpu, c->ids_there + at * kTopK, event->rows[at].ids,
                                 kTopK * sizeof(int32_t), &error));
    }
    int32_t rows[kTopK];
    cairn_sparse_view view;
    cairn_sparse_view_init(&view, sizeof view);
    SwapIn(c, event, at, &view, rows);
    CheckBytes(c, event, &event->rows[at], &view, rows);
    CheckRows(c, event, &event->rows[at], rows);
  }
}

static void MakeMla(cairn_store* store, Model* model) {
  cairn_error* error = NULL;
  cairn_plane_init(&model->planes[0], sizeof model->planes[0]);
  cairn_plane_init(&model->planes[1], sizeof model->planes[1]);
  cairn_layer_group_init(&model->group, sizeof model->group);
  cairn_model_spec_init(&model->spec, sizeof model->spec);
  CHECK_OK(cairn_layer_group_mla(&model->group, model->planes, kMlaLayers, kLatent, kRotary,
                                 CAIRN_DTYPE_BF16, &error));
  model->spec.name = "mla";
  model->spec.groups = &model->group;
  model->spec.group_count = 1;
  CHECK_OK(cairn_store_register_model(store, &model->spec, CAIRN_DURABILITY_PROCESS, &model->id,
                                      &error));
}

void TestSparseCalls(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  Coordinator c;
  memset(&c, 0, sizeof c);
  CHECK_OK(cairn_gpu_simulated(3, NULL, &c.gpu, &error));
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.create_if_missing = true;
  options.gpus = &c.gpu;
  options.gpu_count = 1;
  cairn_store* store = NULL;
  CHECK_OK(cairn_store_open(":memory:", &options, &store, &error));
  Model model;
  MakeMla(store, &model);
  // A conversation, another that goes on from its first 40 tokens, and a short one.
  c.branches[0] = CreateBranch(store, model.id, "first");
  AppendTokens(c.branches[0], &model, 0, 64, 1);
  CHECK_OK(cairn_branch_fork_at(c.branches[0], 40, NULL, &c.branches[1], &error));
  AppendTokens(c.branches[1], &model, 40, 64, 2);
  c.branches[2] = CreateBranch(store, model.id, "short");
  AppendTokens(c.branches[2], &model, 0, 5, 3);
  for (uint32_t i = 0; i < kBranches; ++i) {
    c.lengths[i] = i == 2 ? 5 : 64;
    c.kv[i] = MakeKv(&model, c.lengths[i], i + 1);
  }
  cairn_sparse_arena_options arena;
  cairn_sparse_arena_options_init(&arena, sizeof arena);
  arena.pinned_bytes = 2 << 20;
  arena.device_bytes = 1 << 20;
  CHECK_OK(cairn_sparse_arena_make(store, c.gpu, &arena, &c.arena, &error));
  void* ids = NULL;
  CHECK_OK(cairn_gpu_allocate(c.gpu, kRowsMax * kTopK * sizeof(uint32_t), &ids, &error));
  c.ids_there = ids;
  for (size_t i = 0; i < sizeof kEvents / sizeof kEvents[0]; ++i) Replay(&c, &kEvents[i]);
  CHECK(c.repeated > 40 && cairn_sparse_arena_device_bytes(c.arena) == 0);
  cairn_gpu_deallocate(c.gpu, ids);
  cairn_sparse_arena_free(c.arena);
  for (uint32_t i = 0; i < kBranches; ++i) {
    cairn_kv_buffer_free(c.kv[i]);
    cairn_branch_free(c.branches[i]);
  }
  cairn_store_free(store);
  cairn_gpu_free(c.gpu);
}
