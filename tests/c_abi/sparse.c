// SPDX-License-Identifier: Apache-2.0
//
// Property: what a step is given through C is what was appended, strict and relaxed, from host and
// device; what cannot be wanted is refused by name; handles go in any order. On a simulated device.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c_abi/check.h"

enum {
  kTokens = 96,
  kPieceTokens = 4,
  kPieces = kTokens / kPieceTokens,
  kSlots = 12,
  kWanted = 6,
  kRowBytes = 2 * kHeadDim,
  kPieceBytes = kPieceTokens * kRowBytes,
  kSeed = 5,
  kLooks = 5000  // Each a millisecond long, at what is read in the background.
};

typedef struct Sparse {
  cairn_gpu* gpu;
  cairn_store* store;
  Model model;
  cairn_branch* branch;
  cairn_kv_buffer* kv;  // The KV of the branch.
  cairn_sparse_arena* arena;
  cairn_sparse_session* session;
} Sparse;

static cairn_sparse_arena_options ArenaOptions(void) {
  cairn_sparse_arena_options options;
  cairn_sparse_arena_options_init(&options, sizeof options);
  options.pinned_bytes = 1 << 20;
  options.device_bytes = 1 << 20;
  return options;
}

static cairn_sparse_options SessionOptions(void) {
  cairn_sparse_options options;
  cairn_sparse_options_init(&options, sizeof options);
  options.planes = 3;
  options.piece_tokens = kPieceTokens;
  options.page_tokens = 16;
  options.slots = kSlots;
  options.wanted_max = kWanted;
  return options;
}

static cairn_sparse_wanted Wanted(uint32_t layer, const uint32_t* pieces, uint32_t count) {
  cairn_sparse_wanted wanted;
  cairn_sparse_wanted_init(&wanted, sizeof wanted);
  wanted.layer = layer;
  wanted.pieces = pieces;
  wanted.count = count;
  wanted.stride = count;
  return wanted;
}

static cairn_store* OpenWith(cairn_gpu* gpu) {
  cairn_error* error = NULL;
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.create_if_missing = true;
  options.gpus = &gpu;
  options.gpu_count = 1;
  cairn_store* store = NULL;
  CHECK_OK(cairn_store_open(":memory:", &options, &store, &error));
  return store;
}

static void OpenSparse(Sparse* s) {
  cairn_error* error = NULL;
  const cairn_sparse_arena_options arena = ArenaOptions();
  const cairn_sparse_options options = SessionOptions();
  memset(s, 0, sizeof *s);
  CHECK_OK(cairn_gpu_simulated(11, NULL, &s->gpu, &error));
  s->store = OpenWith(s->gpu);
  MakeModel(s->store, "m", &s->model);
  s->branch = CreateBranch(s->store, s->model.id, "chat");
  AppendTokens(s->branch, &s->model, 0, kTokens, kSeed);
  s->kv = MakeKv(&s->model, kTokens, kSeed);
  CHECK_OK(cairn_sparse_arena_make(s->store, s->gpu, &arena, &s->arena, &error));
  CHECK_OK(cairn_sparse_arena_open(s->arena, s->branch, &options, &s->session, &error));
}

static void CloseSparse(Sparse* s) {
  cairn_sparse_session_free(s->session);
  cairn_sparse_arena_free(s->arena);
  cairn_kv_buffer_free(s->kv);
  cairn_branch_free(s->branch);
  cairn_store_free(s->store);
  cairn_gpu_free(s->gpu);
}

static cairn_sparse_stats StatsOf(const cairn_sparse_session* session) {
  cairn_error* error = NULL;
  cairn_sparse_stats stats;
  cairn_sparse_stats_init(&stats, sizeof stats);
  CHECK_OK(cairn_sparse_session_stats(session, &stats, &error));
  return stats;
}

// Every piece that has a slot has its bytes there. How many have none.
static uint32_t CheckView(const Sparse* s, const cairn_sparse_view* view,
                          const cairn_sparse_wanted* wanted, const uint32_t* pieces) {
  cairn_error* error = NULL;
  uint32_t left_out = 0;
  for (uint32_t head = 0; head < kHeads; ++head) {
    for (uint32_t i = 0; i < wanted->count; ++i) {
      int32_t slot = -2;
      CHECK_OK(cairn_gpu_copy_out(s->gpu, &slot, view->slot_of + head * view->slot_of_stride + i,
                                  sizeof slot, &error));
      CHECK(slot >= -1 && slot < kSlots);
      if (slot < 0) ++left_out;
      for (uint32_t plane = 0; plane < 2 && slot >= 0; ++plane) {
        const cairn_sparse_plane_slots* const at = &view->planes[plane];
        CHECK(at->piece_bytes == kPieceBytes && at->head_stride == kSlots * kPieceBytes);
        unsigned char got[kPieceBytes];
        CHECK_OK(cairn_gpu_copy_out(s->gpu, got,
                                    (const unsigned char*)at->base + head * at->head_stride +
                                        (uint64_t)slot * at->piece_bytes,
                                    sizeof got, &error));
        for (uint32_t token = 0; token < kPieceTokens; ++token) {
          const uint64_t position =
              (uint64_t)pieces[head * wanted->stride + i] * kPieceTokens + token;
          CHECK(memcmp(got + token * kRowBytes,
                       cairn_kv_buffer_row(s->kv, 0, wanted->layer, plane, head, position),
                       kRowBytes) == 0);
        }
      }
    }
  }
  return left_out;
}

static void CheckArenas(const Sparse* s) {
  cairn_error* error = NULL;
  cairn_sparse_arena* arena = NULL;
  cairn_sparse_arena_options options = ArenaOptions();
  CHECK_REFUSED("pinned_bytes", cairn_sparse_arena_make(s->store, s->gpu, NULL, &arena, &error));
  CHECK_REFUSED("store is NULL", cairn_sparse_arena_make(NULL, s->gpu, &options, &arena, &error));
  CHECK_REFUSED("gpu is NULL", cairn_sparse_arena_make(s->store, NULL, &options, &arena, &error));
  CHECK_REFUSED("arena is NULL", cairn_sparse_arena_make(s->store, s->gpu, &options, NULL, &error));
  cairn_gpu* other = NULL;
  CHECK_OK(cairn_gpu_simulated(1, NULL, &other, &error));
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_arena_make(s->store, other, &options, &arena, &error));
  cairn_gpu_free(other);
  options.struct_size = 3;
  CHECK_REFUSED("cairn_sparse_arena_options::struct_size",
                cairn_sparse_arena_make(s->store, s->gpu, &options, &arena, &error));
  options = ArenaOptions();
  options.device_bytes = 100;
  CHECK_OK(cairn_sparse_arena_make(s->store, s->gpu, &options, &arena, &error));
  cairn_sparse_session* session = s->session;
  CHECK_CODE(CAIRN_OUT_OF_MEMORY,
             cairn_sparse_arena_open(arena, s->branch, NULL, &session, &error));
  CHECK(session == NULL && cairn_sparse_arena_device_bytes(arena) == 0);
  cairn_sparse_arena_free(arena);
}

static void CheckOptions(const Sparse* s) {
  cairn_error* error = NULL;
  cairn_sparse_session* session = NULL;
  const cairn_sparse_options good = SessionOptions();
#define REFUSED(words, assignment)                                                           \
  do {                                                                                       \
    cairn_sparse_options options = good;                                                     \
    options.assignment;                                                                      \
    CHECK_REFUSED(words,                                                                     \
                  cairn_sparse_arena_open(s->arena, s->branch, &options, &session, &error)); \
    CHECK(session == NULL);                                                                  \
  } while (0)
  REFUSED("group is 1", group = 1);
  REFUSED("planes is 0", planes = 0);
  REFUSED("planes is 4", planes = 4);
  REFUSED("piece_tokens is 0", piece_tokens = 0);
  REFUSED("no multiple of 16", piece_tokens = 1);
  REFUSED("page_tokens is 6", page_tokens = 6);
  REFUSED("slots is 0", slots = 0);
  REFUSED("slots is 65537", slots = 65537);
  REFUSED("wanted_max is 13", wanted_max = kSlots + 1);
  REFUSED("end is 97", end = kTokens + 1);
  REFUSED("whole pieces", end = kPieceTokens - 1);
  REFUSED("cairn_sparse_options::struct_size", struct_size = 17);
#undef REFUSED
  CHECK_REFUSED("arena is NULL", cairn_sparse_arena_open(NULL, s->branch, &good, &session, &error));
  CHECK_REFUSED("branch is NULL", cairn_sparse_arena_open(s->arena, NULL, &good, &session, &error));
  CHECK_REFUSED("session is NULL",
                cairn_sparse_arena_open(s->arena, s->branch, &good, NULL, &error));
  cairn_store* elsewhere = OpenStore(":memory:");
  Model model;
  MakeModel(elsewhere, "m", &model);
  cairn_branch* foreign = CreateBranch(elsewhere, model.id, "chat");
  CHECK_REFUSED("another store",
                cairn_sparse_arena_open(s->arena, foreign, &good, &session, &error));
  cairn_branch_free(foreign);
  cairn_store_free(elsewhere);
}

static void CheckStrict(Sparse* s) {
  cairn_error* error = NULL;
  CHECK(cairn_sparse_session_pieces(s->session) == kPieces);
  CHECK(cairn_sparse_session_device_bytes(s->session) == cairn_sparse_arena_device_bytes(s->arena));
  const uint32_t pieces[] = {0, 1, 23, /*head 1*/ 7, 20, 21};
  const cairn_sparse_wanted wanted = Wanted(1, pieces, 3);
  cairn_sparse_view view;
  memset(&view, 0xAB, sizeof view);  // Its size alone is read.
  view.struct_size = sizeof view;
  for (int again = 0; again < 2; ++again) {
    CHECK_OK(cairn_sparse_session_fetch(s->session, &wanted, &view, &error));
    CHECK(CheckView(s, &view, &wanted, pieces) == 0);
    const cairn_sparse_stats stats = StatsOf(s->session);
    CHECK(stats.fetches == 1u + (unsigned)again && stats.wanted == 6u * (unsigned)(again + 1));
    CHECK(stats.faults == 6 && stats.pages_read == 4 && stats.left_out == 0);
    CHECK(stats.page_bytes_read == 4 * 2 * 16 * kRowBytes);
  }
  CHECK(cairn_sparse_arena_pinned_bytes(s->arena) > 0);
  // An older program's view has no room for the slots: it gets what it knows.
  view.struct_size = offsetof(cairn_sparse_view, slot_of);
  view.slot_of = (const int32_t*)pieces;
  CHECK_OK(cairn_sparse_session_fetch(s->session, &wanted, &view, &error));
  CHECK(view.slot_of == (const int32_t*)pieces && view.planes[1].base != NULL);
  cairn_sparse_stats all;
  cairn_sparse_stats_init(&all, sizeof all);
  CHECK_OK(cairn_sparse_arena_stats(s->arena, &all, &error));
  CHECK(all.fetches == 3 && all.faults == 6);
}

// The ids of a step lie in device memory; a fetch takes them from there.
static void CheckOnDevice(Sparse* s) {
  cairn_error* error = NULL;
  const uint32_t pieces[] = {5, 2, /*head 1*/ 3, 9};
  void* there = NULL;
  CHECK_OK(cairn_gpu_allocate(s->gpu, sizeof pieces, &there, &error));
  CHECK_OK(cairn_gpu_copy_in(s->gpu, there, pieces, sizeof pieces, &error));
  cairn_sparse_wanted wanted = Wanted(0, there, 2);
  wanted.on_device = true;
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  CHECK_OK(cairn_sparse_session_fetch(s->session, &wanted, &view, &error));
  CHECK(CheckView(s, &view, &wanted, pieces) == 0);
  CHECK_REFUSED("host memory", cairn_sparse_session_prefetch(s->session, &wanted, &error));
  cairn_gpu_deallocate(s->gpu, there);
}

static void CheckWrong(Sparse* s) {
  cairn_error* error = NULL;
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  uint32_t pieces[] = {0, 1, /*head 1*/ 2, kPieces};
  cairn_sparse_wanted wanted = Wanted(0, pieces, 2);
  cairn_sparse_session* const on = s->session;
  CHECK_REFUSED("head 1: piece 24 is beyond",
                cairn_sparse_session_fetch(on, &wanted, &view, &error));
  CHECK_REFUSED("head 1: piece 24 is beyond", cairn_sparse_session_prefetch(on, &wanted, &error));
  pieces[3] = pieces[2];
  CHECK_REFUSED("head 1: piece 2 is wanted twice",
                cairn_sparse_session_fetch(on, &wanted, &view, &error));
  CHECK(view.slot_of == NULL && view.planes[0].base == NULL);  // Written after a success alone.
  pieces[3] = 3;
  wanted.mode = 2;
  CHECK_REFUSED("cairn_sparse_wanted::mode",
                cairn_sparse_session_fetch(on, &wanted, &view, &error));
  wanted = Wanted(kLayers, pieces, 2);
  CHECK_REFUSED("layer is 2", cairn_sparse_session_fetch(on, &wanted, &view, &error));
  wanted = Wanted(0, pieces, kWanted + 1);
  CHECK_REFUSED("count is 7", cairn_sparse_session_fetch(on, &wanted, &view, &error));
  wanted = Wanted(0, pieces, 2);
  wanted.stride = 1;
  CHECK_REFUSED("stride is 1", cairn_sparse_session_fetch(on, &wanted, &view, &error));
  wanted = Wanted(0, NULL, 2);
  CHECK_REFUSED("pieces is null", cairn_sparse_session_fetch(on, &wanted, &view, &error));
  wanted = Wanted(0, pieces, 2);
  wanted.struct_size = 4104;
  CHECK_REFUSED("cairn_sparse_wanted::struct_size",
                cairn_sparse_session_fetch(on, &wanted, &view, &error));
  wanted = Wanted(0, pieces, 2);
  CHECK_REFUSED("session is NULL", cairn_sparse_session_fetch(NULL, &wanted, &view, &error));
  CHECK_REFUSED("wanted is NULL", cairn_sparse_session_fetch(on, NULL, &view, &error));
  CHECK_REFUSED("view is NULL", cairn_sparse_session_fetch(on, &wanted, NULL, &error));
  CHECK_REFUSED("wanted is NULL", cairn_sparse_session_prefetch(on, NULL, &error));
  CHECK_REFUSED("stats is NULL", cairn_sparse_session_stats(on, NULL, &error));
  CHECK_REFUSED("session is NULL", cairn_sparse_session_save(NULL, &error));
  view.struct_size = 3;
  CHECK_REFUSED("cairn_sparse_view::struct_size",
                cairn_sparse_session_fetch(on, &wanted, &view, &error));
  // A stream of nobody's.
  cairn_sparse_view_init(&view, sizeof view);
  wanted.stream = 12345;
  CHECK_CODE(CAIRN_INVALID_ARGUMENT, cairn_sparse_session_fetch(on, &wanted, &view, &error));
}

// Behind it all that was enqueued before is done.
static void AwaitStream(Sparse* s) {
  cairn_error* error = NULL;
  const cairn_sparse_wanted nothing = Wanted(1, NULL, 0);
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  CHECK_OK(cairn_sparse_session_fetch(s->session, &nothing, &view, &error));
}

static void CheckRelaxed(Sparse* s) {
  cairn_error* error = NULL;
  const uint32_t pieces[] = {12, 16, /*head 1*/ 13, 23};
  cairn_sparse_wanted wanted = Wanted(0, pieces, 2);
  wanted.mode = CAIRN_SPARSE_RELAXED;
  const cairn_sparse_stats before = StatsOf(s->session);
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  CHECK_OK(cairn_sparse_session_fetch(s->session, &wanted, &view, &error));
  AwaitStream(s);
  uint32_t left_out = CheckView(s, &view, &wanted, pieces);
  CHECK(left_out == 4);
  for (int i = 0; i < kLooks && left_out != 0; ++i) {
    poll(NULL, 0, 1);
    const cairn_code code = cairn_sparse_session_fetch(s->session, &wanted, &view, NULL);
    CHECK(code == CAIRN_OK || code == CAIRN_BUSY);
    if (code != CAIRN_OK) continue;
    AwaitStream(s);
    left_out = CheckView(s, &view, &wanted, pieces);
  }
  CHECK(left_out == 0);
  const cairn_sparse_stats after = StatsOf(s->session);
  CHECK(after.left_out >= 4 && after.pages_read - before.pages_read == 4);
}

static void CheckPrefetch(Sparse* s) {
  cairn_error* error = NULL;
  const cairn_sparse_options options = SessionOptions();
  cairn_sparse_session* session = NULL;
  CHECK_OK(cairn_sparse_arena_open(s->arena, s->branch, &options, &session, &error));
  // The page of the last piece is there since CheckStrict: sessions share it.
  const uint32_t pieces[] = {12, 10, /*head 1*/ 11, 22};
  const uint64_t missing = 3;
  const cairn_sparse_wanted wanted = Wanted(1, pieces, 2);
  CHECK_OK(cairn_sparse_session_prefetch(session, &wanted, &error));
  for (int i = 0; i < kLooks && StatsOf(session).pages_read < missing; ++i) poll(NULL, 0, 1);
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  CHECK_OK(cairn_sparse_session_fetch(session, &wanted, &view, &error));
  CHECK(CheckView(s, &view, &wanted, pieces) == 0);
  const cairn_sparse_stats stats = StatsOf(session);
  CHECK(stats.pages_read == missing && stats.fetches == 1 && stats.left_out == 0);
  cairn_sparse_session_free(session);
}

// In a child of fork() nothing works, and all can be freed; the parent goes on.
static int CountLaunch(void* context) { return ++*(int*)context == 1 ? 0 : 7; }

// A simulated device has no graphs that a C program can make.
static void CheckReplay(Sparse* s) {
  cairn_error* error = NULL;
  const uint32_t pieces[] = {0, 1};
  cairn_sparse_wanted wanted = Wanted(0, pieces, 1);
  wanted.mode = CAIRN_SPARSE_RELAXED;
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_session_capture(s->session, &wanted, &view, &error));
  wanted.on_device = true;
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_session_capture(s->session, &wanted, &view, &error));
  cairn_sparse_session* sessions[2] = {s->session, s->session};
  int launches = 0;
  CHECK_OK(cairn_sparse_session_replay(sessions, 1, 0, CountLaunch, &launches, &error));
  CHECK(launches == 1);
  CHECK_CODE(CAIRN_IO_ERROR,
             cairn_sparse_session_replay(sessions, 1, 0, CountLaunch, &launches, &error));
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_session_replay(sessions, 2, 0, CountLaunch, &launches, &error));
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_session_replay(sessions, 0, 0, CountLaunch, &launches, &error));
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_session_replay(NULL, 1, 0, CountLaunch, &launches, &error));
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_session_replay(sessions, 1, 0, NULL, &launches, &error));
  sessions[0] = NULL;
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_sparse_session_replay(sessions, 1, 0, CountLaunch, &launches, &error));
  CHECK(launches == 2);
}

static void CheckChild(Sparse* s) {
  cairn_error* error = NULL;
  const uint32_t pieces[] = {0, 1};
  const cairn_sparse_wanted wanted = Wanted(0, pieces, 1);
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  const pid_t child = fork();
  if (child == 0) {
    g_failures = 0;
    cairn_sparse_session* session = NULL;
    CHECK_CODE(CAIRN_INVALID_STATE, cairn_sparse_session_fetch(s->session, &wanted, &view, &error));
    CHECK_CODE(CAIRN_INVALID_STATE, cairn_sparse_session_prefetch(s->session, &wanted, &error));
    CHECK_CODE(CAIRN_INVALID_STATE,
               cairn_sparse_arena_open(s->arena, s->branch, NULL, &session, &error));
    cairn_sparse_session_free(s->session);
    cairn_sparse_arena_free(s->arena);
    cairn_branch_free(s->branch);
    cairn_store_free(s->store);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK_OK(cairn_sparse_session_fetch(s->session, &wanted, &view, &error));
}

// Extends from the first half of the branch to all of it.
static void CheckExtend(void) {
  Sparse s;
  OpenSparse(&s);
  cairn_error* error = NULL;
  const uint64_t all = cairn_sparse_session_pieces(s.session);
  cairn_sparse_session_free(s.session);
  s.session = NULL;
  cairn_sparse_options options = SessionOptions();
  options.end = all / 2 * options.piece_tokens;
  options.tokens_max = all * options.piece_tokens;
  CHECK_OK(cairn_sparse_arena_open(s.arena, s.branch, &options, &s.session, &error));
  CHECK(cairn_sparse_session_pieces(s.session) == all / 2);
  const uint32_t last = (uint32_t)all - 1;
  const uint32_t pieces[2 * 2] = {1, last, last, 4};
  cairn_sparse_wanted wanted = Wanted(0, pieces, 2);
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  CHECK_REFUSED("is beyond the last",
                cairn_sparse_session_fetch(s.session, &wanted, &view, &error));
  CHECK_OK(cairn_sparse_session_extend(s.session, UINT64_MAX, &error));
  CHECK(cairn_sparse_session_pieces(s.session) == all);
  CHECK_OK(cairn_sparse_session_fetch(s.session, &wanted, &view, &error));
  CHECK(CheckView(&s, &view, &wanted, pieces) == 0);
  CHECK_REFUSED("end is", cairn_sparse_session_extend(s.session, UINT64_MAX - 1, &error));
  CHECK_REFUSED("session is NULL", cairn_sparse_session_extend(NULL, 1, &error));
  CloseSparse(&s);
}

// The next session begins with what was saved.
static void CheckSave(void) {
  Sparse s;
  OpenSparse(&s);
  cairn_error* error = NULL;
  const uint32_t pieces[2 * 2] = {1, 2, 3, 4};
  cairn_sparse_wanted wanted = Wanted(0, pieces, 2);
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  CHECK_OK(cairn_sparse_session_fetch(s.session, &wanted, &view, &error));
  CHECK_OK(cairn_sparse_session_save(s.session, &error));
  for (int warm = 0; warm < 2; ++warm) {
    cairn_sparse_session_free(s.session);
    s.session = NULL;
    cairn_sparse_options options = SessionOptions();
    options.warm = warm != 0;
    CHECK_OK(cairn_sparse_arena_open(s.arena, s.branch, &options, &s.session, &error));
    const uint64_t begun_with = StatsOf(s.session).faults;
    CHECK(warm != 0 || begun_with == 0);
    CHECK_OK(cairn_sparse_session_fetch(s.session, &wanted, &view, &error));
    CHECK(CheckView(&s, &view, &wanted, pieces) == 0);
    CHECK(warm == 0 || StatsOf(s.session).faults == begun_with);
  }
  CloseSparse(&s);
}

// Handles are freed in every order, after a fetch and with pages on their way.
static void CheckOrders(void) {
  enum { kHandles = 5 };
  for (int order = 0; order < 120; ++order) {
    Sparse s;
    OpenSparse(&s);
    const uint32_t pieces[] = {0, 8, /*head 1*/ 16, 23};
    cairn_sparse_wanted wanted = Wanted(0, pieces, 2);
    cairn_sparse_view view;
    cairn_sparse_view_init(&view, sizeof view);
    cairn_error* error = NULL;
    wanted.mode = order % 2 == 0 ? CAIRN_SPARSE_STRICT : CAIRN_SPARSE_RELAXED;
    CHECK_OK(cairn_sparse_session_fetch(s.session, &wanted, &view, &error));
    wanted.layer = 1;
    CHECK_OK(cairn_sparse_session_prefetch(s.session, &wanted, &error));
    int left[kHandles] = {0, 1, 2, 3, 4};
    for (int n = kHandles, rest = order; n > 0; rest /= n--) {
      const int at = rest % n, handle = left[at];
      memmove(&left[at], &left[at + 1], (size_t)(n - 1 - at) * sizeof left[0]);
      switch (handle) {
        case 0: cairn_sparse_session_free(s.session); break;
        case 1: cairn_sparse_arena_free(s.arena); break;
        case 2: cairn_branch_free(s.branch); break;
        case 3: cairn_store_free(s.store); break;
        default: cairn_gpu_free(s.gpu); break;
      }
    }
    cairn_kv_buffer_free(s.kv);
  }
}

static void CheckClosed(Sparse* s) {
  cairn_error* error = NULL;
  const uint32_t pieces[] = {0, 1};
  const cairn_sparse_wanted wanted = Wanted(0, pieces, 1);
  cairn_sparse_view view;
  cairn_sparse_view_init(&view, sizeof view);
  cairn_sparse_session* session = NULL;
  const uint64_t fetches = StatsOf(s->session).fetches;
  CHECK_OK(cairn_store_close(s->store, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_sparse_session_fetch(s->session, &wanted, &view, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_sparse_session_prefetch(s->session, &wanted, &error));
  CHECK_CODE(CAIRN_INVALID_STATE,
             cairn_sparse_arena_open(s->arena, s->branch, NULL, &session, &error));
  CHECK(session == NULL && StatsOf(s->session).fetches == fetches);
}

void TestSparse(const char* directory) {
  (void)directory;
  Sparse s;
  OpenSparse(&s);
  CheckArenas(&s);
  CheckOptions(&s);
  CheckStrict(&s);
  CheckOnDevice(&s);
  CheckWrong(&s);
  CheckRelaxed(&s);
  CheckPrefetch(&s);
  CheckReplay(&s);
  CheckChild(&s);
  CheckClosed(&s);
  CloseSparse(&s);
  CheckSave();
  CheckExtend();
  CheckOrders();
  cairn_sparse_session_free(NULL);
  cairn_sparse_arena_free(NULL);
  CHECK(cairn_sparse_session_pieces(NULL) == 0 && cairn_sparse_session_device_bytes(NULL) == 0);
  CHECK(cairn_sparse_arena_pinned_bytes(NULL) == 0 && cairn_sparse_arena_device_bytes(NULL) == 0);
}
