// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: sparse sessions, which bring the pieces of KV that a step asks for into slots on a
// GPU. The C++ twin is cairn/sparse.h, where arenas, pages, slots and modes are explained. Sizes
// are bytes; a piece is a number below cairn_sparse_session_pieces.
//
// Handles may be freed in any order: a session keeps its arena, and the device; none keeps the
// store open. Freeing a session waits for what it has enqueued, and nothing of a view may be read
// any more by then.
#pragma once

#include "cairn/c_branch.h"
#include "cairn/c_gpu.h"
#include "cairn/c_store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_sparse_arena cairn_sparse_arena;
typedef struct cairn_sparse_session cairn_sparse_session;

// cairn::SparseArenaOptions
typedef struct cairn_sparse_arena_options {
  size_t struct_size;
  uint64_t pinned_bytes;  // From 1 MiB; there is no default.
  uint64_t device_bytes;
} cairn_sparse_arena_options;
CAIRN_API void cairn_sparse_arena_options_init(cairn_sparse_arena_options* options,
                                               size_t struct_size);

// cairn::SparseOptions
typedef struct cairn_sparse_options {
  size_t struct_size;
  uint32_t group;
  uint32_t planes;        // 2
  uint32_t piece_tokens;  // 4
  uint32_t page_tokens;
  uint32_t slots;       // 1024
  uint32_t wanted_max;  // 512
  bool warm;            // true
  uint64_t end;         // UINT64_MAX
  uint64_t tokens_max;  // For cairn_sparse_session_extend; 0: there is no more room.
} cairn_sparse_options;
CAIRN_API void cairn_sparse_options_init(cairn_sparse_options* options, size_t struct_size);

typedef uint32_t cairn_sparse_mode;  // cairn::SparseMode
enum { CAIRN_SPARSE_STRICT = 0, CAIRN_SPARSE_RELAXED = 1 };

// cairn::SparseWanted
typedef struct cairn_sparse_wanted {
  size_t struct_size;
  uint32_t layer;
  cairn_sparse_mode mode;
  // Of head h those at pieces[h * stride]. In host memory they are borrowed until the call returns;
  // in the device's, until the stream has come so far.
  const uint32_t* pieces;
  uint32_t count;
  uint32_t stride;
  bool on_device;
  uintptr_t stream;     // 0: the default stream.
  uint64_t timeout_ns;  // UINT64_MAX
} cairn_sparse_wanted;
CAIRN_API void cairn_sparse_wanted_init(cairn_sparse_wanted* wanted, size_t struct_size);

// Slot s of head h lies at base + h * head_stride + s * piece_bytes. Never gets another field.
typedef struct cairn_sparse_plane_slots {
  const void* base;  // NULL: no such plane.
  uint64_t head_stride;
  uint64_t piece_bytes;
} cairn_sparse_plane_slots;

// cairn::SparseView. All of it is memory of the device and the session's, valid until the next
// fetch of the layer, or until the session is freed.
typedef struct cairn_sparse_view {
  size_t struct_size;
  cairn_sparse_plane_slots planes[2];
  const int32_t* slot_of;
  uint64_t slot_of_stride;
} cairn_sparse_view;
CAIRN_API void cairn_sparse_view_init(cairn_sparse_view* view, size_t struct_size);

// cairn::SparseStats
typedef struct cairn_sparse_stats {
  size_t struct_size;
  uint64_t fetches;
  uint64_t wanted;
  uint64_t faults;
  uint64_t left_out;
  uint64_t pages_read;
  uint64_t page_bytes_read;
} cairn_sparse_stats;
CAIRN_API void cairn_sparse_stats_init(cairn_sparse_stats* stats, size_t struct_size);

// --- cairn::SparseArena
// `gpu`: one of cairn_options::gpus of the store. Blocking: memory is pinned.
CAIRN_API cairn_code cairn_sparse_arena_make(const cairn_store* store, const cairn_gpu* gpu,
                                             const cairn_sparse_arena_options* options,
                                             cairn_sparse_arena** arena, cairn_error** error);
// `branch`: of the same store. Blocking: the session's buffers are made.
CAIRN_API cairn_code cairn_sparse_arena_open(cairn_sparse_arena* arena, const cairn_branch* branch,
                                             const cairn_sparse_options* options,
                                             cairn_sparse_session** session, cairn_error** error);
CAIRN_API uint64_t cairn_sparse_arena_pinned_bytes(const cairn_sparse_arena* arena);
CAIRN_API uint64_t cairn_sparse_arena_device_bytes(const cairn_sparse_arena* arena);
// Here as of a session: what was counted, also when the store is closed.
CAIRN_API cairn_code cairn_sparse_arena_stats(const cairn_sparse_arena* arena,
                                              cairn_sparse_stats* stats, cairn_error** error);
CAIRN_API void cairn_sparse_arena_free(cairn_sparse_arena* arena);

// --- cairn::SparseSession. Calls of one session wait for each other.
// Blocking when strict. *view is written where the call returns CAIRN_OK alone. CAIRN_BUSY, of
// relaxed ones: the layer's last fetch has not ended on the device; nothing was enqueued.
CAIRN_API cairn_code cairn_sparse_session_fetch(cairn_sparse_session* session,
                                                const cairn_sparse_wanted* wanted,
                                                cairn_sparse_view* view, cairn_error** error);
// Of `wanted` the layer and the pieces count, in host memory. Never blocks.
CAIRN_API cairn_code cairn_sparse_session_prefetch(cairn_sparse_session* session,
                                                   const cairn_sparse_wanted* wanted,
                                                   cairn_error** error);
// Blocking: waits for the device and the disk.
CAIRN_API cairn_code cairn_sparse_session_save(cairn_sparse_session* session, cairn_error** error);
// `end`: of the branch's tokens those before it may be wanted from here on; UINT64_MAX: all that
// there are. Blocking: waits for the device. CAIRN_CONFLICT: the branch was rewound to before what
// the session has.
CAIRN_API cairn_code cairn_sparse_session_extend(cairn_sparse_session* session, uint64_t end,
                                                 cairn_error** error);
CAIRN_API uint64_t cairn_sparse_session_pieces(const cairn_sparse_session* session);
CAIRN_API uint64_t cairn_sparse_session_device_bytes(const cairn_sparse_session* session);
CAIRN_API cairn_code cairn_sparse_session_stats(const cairn_sparse_session* session,
                                                cairn_sparse_stats* stats, cairn_error** error);
CAIRN_API void cairn_sparse_session_free(cairn_sparse_session* session);

#ifdef __cplusplus
}  // extern "C"
#endif
