// SPDX-License-Identifier: Apache-2.0
//
// C API: sparse sessions, which bring the pieces of KV that a step asks for into slots on a GPU.
// The C++ twin is cairn/sparse.h. The KV of a branch stays where it lies, in tables on the disk;
// pages of it come into pinned memory, which sessions share, and pieces of the pages into slots of
// a session on the device, where they stay until the slots are needed (LRU).
//
//   cairn_sparse_arena_options room;
//   cairn_sparse_arena_options_init(&room, sizeof room);
//   room.pinned_bytes = UINT64_C(8) << 30;
//   room.device_bytes = UINT64_C(4) << 30;
//   cairn_sparse_arena_make(store, gpu, &room, &arena, &error);
//   cairn_sparse_arena_open(arena, branch, NULL, &session, &error);
//   for each step, for each layer:
//     wanted.layer = layer;  // 512 pieces of each head.
//     cairn_sparse_session_fetch(session, &wanted, &view, &error);
//     attention<<<..., stream>>>(view.planes[0], view.slot_of, ...)
//
// Sizes are bytes; a piece is a number below cairn_sparse_session_pieces, and piece p has the
// tokens [p * piece_tokens, (p + 1) * piece_tokens) of one head. Structs are borrowed for the call.
//
// Handles may be freed in any order: a session keeps its arena, and the device; none keeps the
// store open. Freeing a session waits for the work that it has enqueued. The caller's kernels that
// read a view must have ended by then.
#pragma once

#include "cairn/c/branch.h"
#include "cairn/c/gpu.h"
#include "cairn/c/store.h"

#ifdef __cplusplus
extern "C" {
#endif

// Memory that sessions of one store on one GPU share; and a session. Both are thread-safe, but for
// their free.
typedef struct cairn_sparse_arena cairn_sparse_arena;
typedef struct cairn_sparse_session cairn_sparse_session;

// cairn::SparseArenaOptions: what an arena may take. Counts for no limit of the store.
typedef struct cairn_sparse_arena_options {
  size_t struct_size;
  uint64_t pinned_bytes;  // For pages. From 1 MiB; there is no default.
  uint64_t device_bytes;  // All sessions' bytes together; taken as they are opened.
} cairn_sparse_arena_options;
CAIRN_API void cairn_sparse_arena_options_init(cairn_sparse_arena_options* options,
                                               size_t struct_size);

// cairn::SparseOptions, where sizes are worked out by an example: which KV a session fetches, and
// how.
typedef struct cairn_sparse_options {
  size_t struct_size;
  uint32_t group;         // The model's group; it keeps all positions.
  uint32_t planes;        // 2: a bit for each plane, one or two of them.
  uint32_t piece_tokens;  // 4. A piece has a multiple of 16 bytes of each plane.
  uint32_t page_tokens;   // Read from the disk as one; 0: as many as make 64 KiB.
  uint32_t slots;         // 1024: pieces by layer and head; up to 65,536.
  uint32_t wanted_max;    // 512: pieces of a fetch by head; up to slots, and 4096.
  bool warm;              // true: begins with the pieces of the last saved session.
  uint64_t end;           // UINT64_MAX: tokens before it; the branch's length.
  uint64_t tokens_max;    // For cairn_sparse_session_extend; 0: no more room.
} cairn_sparse_options;
CAIRN_API void cairn_sparse_options_init(cairn_sparse_options* options, size_t struct_size);

// cairn::SparseMode, of pieces that no page has. STRICT reads them first, and blocks for it.
// RELAXED leaves them out of this step, reads them for the next, and does not block.
typedef uint32_t cairn_sparse_mode;
enum { CAIRN_SPARSE_STRICT = 0, CAIRN_SPARSE_RELAXED = 1 };

// cairn::SparseWanted: the pieces that one layer of a step asks for.
typedef struct cairn_sparse_wanted {
  size_t struct_size;
  uint32_t layer;
  cairn_sparse_mode mode;  // CAIRN_SPARSE_STRICT
  // Head h wants those at pieces[h * stride]. In host memory they are borrowed until the call
  // returns; in the device's, until the stream has come so far.
  const uint32_t* pieces;
  uint32_t count;       // Pieces of each head; up to wanted_max.
  uint32_t stride;      // Elements from a head to the next.
  bool on_device;       // `pieces` is device memory, written by the stream before.
  uintptr_t stream;     // In which pieces are brought. 0: the default stream.
  uint64_t timeout_ns;  // UINT64_MAX. Strict: CAIRN_DEADLINE_EXCEEDED; see prefetch.
} cairn_sparse_wanted;
CAIRN_API void cairn_sparse_wanted_init(cairn_sparse_wanted* wanted, size_t struct_size);

// Slot s of head h lies at base + h * head_stride + s * piece_bytes. Never gets another field.
typedef struct cairn_sparse_plane_slots {
  const void* base;      // NULL: no such plane.
  uint64_t head_stride;  // Bytes.
  uint64_t piece_bytes;  // piece_tokens rows, one behind the other.
} cairn_sparse_plane_slots;

// cairn::SparseView: where a step finds its pieces. All of it is device memory and the session's:
// valid, once the stream has come so far, until the next fetch of the layer, or until the session
// is freed.
typedef struct cairn_sparse_view {
  size_t struct_size;
  cairn_sparse_plane_slots planes[2];  // Those of cairn_sparse_options::planes.
  const int32_t* slot_of;              // Wanted piece i of head h: [h * stride + i]; -1: left out.
  uint64_t slot_of_stride;             // Elements from a head to the next.
} cairn_sparse_view;
CAIRN_API void cairn_sparse_view_init(cairn_sparse_view* view, size_t struct_size);

// cairn::SparseStats: counted since the session, or the arena, was made.
typedef struct cairn_sparse_stats {
  size_t struct_size;
  uint64_t fetches;          // Calls.
  uint64_t wanted;           // Pieces.
  uint64_t faults;           // Pieces that no page had when they were first asked for.
  uint64_t left_out;         // Those of these that relaxed fetches skipped.
  uint64_t pages_read;       // From tables and log.
  uint64_t page_bytes_read;  // Their bytes.
} cairn_sparse_stats;
CAIRN_API void cairn_sparse_stats_init(cairn_sparse_stats* stats, size_t struct_size);

// --- cairn::SparseArena
// `gpu`: one of cairn_options::gpus of the store. Blocking: pinned_bytes are allocated and
// registered with the device. *arena is freed with cairn_sparse_arena_free.
//   CAIRN_INVALID_ARGUMENT: another GPU, or pinned_bytes below 1 MiB.
//   CAIRN_OUT_OF_MEMORY: the system or the driver does not give it.
//   CAIRN_READ_ONLY, CAIRN_POISONED
CAIRN_API cairn_code cairn_sparse_arena_make(const cairn_store* store, const cairn_gpu* gpu,
                                             const cairn_sparse_arena_options* options,
                                             cairn_sparse_arena** arena, cairn_error** error);
// `branch`: of the same store; `options` may be NULL. Blocking: makes the session's buffers on the
// device, and with `warm` reads the pieces that a saved session had; an error of that reading costs
// a cold beginning alone. *session is freed with cairn_sparse_session_free. While it lives nothing
// evicts what it reads; a drop of the last branch that needs it still takes it.
//   CAIRN_INVALID_ARGUMENT: names the option; or the branch is of another store.
//   CAIRN_NOT_FOUND: the branch was dropped.
//   CAIRN_OUT_OF_MEMORY: device_bytes do not suffice, or the device has no more.
//   CAIRN_READ_ONLY, CAIRN_POISONED, CAIRN_IO_ERROR (the device's)
CAIRN_API cairn_code cairn_sparse_arena_open(cairn_sparse_arena* arena, const cairn_branch* branch,
                                             const cairn_sparse_options* options,
                                             cairn_sparse_session** session, cairn_error** error);
// In use by pages. Does not block, and may be asked when the store is closed, as the next two.
CAIRN_API uint64_t cairn_sparse_arena_pinned_bytes(const cairn_sparse_arena* arena);
// In use by sessions.
CAIRN_API uint64_t cairn_sparse_arena_device_bytes(const cairn_sparse_arena* arena);
// Sums over all sessions that it had. `stats` has its struct_size set.
CAIRN_API cairn_code cairn_sparse_arena_stats(const cairn_sparse_arena* arena,
                                              cairn_sparse_stats* stats, cairn_error** error);
// Its memory goes with the last session, too.
CAIRN_API void cairn_sparse_arena_free(cairn_sparse_arena* arena);

// --- cairn::SparseSession. Calls of one session wait for each other.
// Brings the wanted pieces into slots, in the stream. Blocking when strict: waits for the device,
// and for the disk where pages must be read. *view is written where the call returns CAIRN_OK
// alone; its struct_size is set before. A relaxed fetch skips a head with wrong pieces, and the
// layer's next strict fetch reports it.
//   CAIRN_INVALID_ARGUMENT: names the field, or head and piece: beyond the end, or twice.
//   CAIRN_DEADLINE_EXCEEDED: of strict ones; nothing was fetched.
//   CAIRN_BUSY: of relaxed ones: the layer's last fetch has not ended on the device; nothing was
//     enqueued.
//   CAIRN_NOT_FOUND: the branch was dropped, and the disk is needed.
//   CAIRN_EVICTED: KV of these positions was never given, or was gone before the session began.
//   CAIRN_OUT_OF_MEMORY: the arena is smaller than the pages of one piece.
//   CAIRN_CORRUPTION, CAIRN_IO_ERROR (the disk's, or the device's)
CAIRN_API cairn_code cairn_sparse_session_fetch(cairn_sparse_session* session,
                                                const cairn_sparse_wanted* wanted,
                                                cairn_sparse_view* view, cairn_error** error);
// The pages of these pieces are read in the background, after those that fetches need. Only
// `layer`, the pieces, which are in host memory, and timeout_ns count: pages whose reading has not
// begun by then are left. Never blocks.
//   CAIRN_BUSY: earlier ones are still under way; nothing is noted.
//   CAIRN_INVALID_ARGUMENT: names the field, or head and piece; or pieces in device memory.
CAIRN_API cairn_code cairn_sparse_session_prefetch(cairn_sparse_session* session,
                                                   const cairn_sparse_wanted* wanted,
                                                   cairn_error** error);
// Puts a relaxed fetch, of pieces in device memory, into the graph that wanted.stream is captured
// into. *view holds after each replay. The pieces stay where they are, and each capture of a layer
// has the same count. Nothing runs yet; never blocks. After an error the graph is of no use.
//   CAIRN_INVALID_ARGUMENT: names the field; strict; pieces in host memory; another count; or the
//     stream is not captured.
//   CAIRN_IO_ERROR (the device's)
CAIRN_API cairn_code cairn_sparse_session_capture(cairn_sparse_session* session,
                                                  const cairn_sparse_wanted* wanted,
                                                  cairn_sparse_view* view, cairn_error** error);
// Enqueues a graph, and gives 0, or another number when it could not.
typedef int (*cairn_sparse_launch)(void* context);
// Launches such a graph, or several that have all captured layers together: `launch(context)`
// enqueues them in `stream`, once, on this thread, without calling these sessions. `sessions`: the
// `count` that are captured in them, each once. They must be launched in no other way, nor when a
// session of them was freed. Blocking: waits until the last replay of each session has ended; what
// that left out is read in the background then. Where the launch fails, slots of captured layers
// are emptied.
//   CAIRN_INVALID_ARGUMENT: no sessions, one of them twice, of several GPUs; or the stream is
//     captured.
//   CAIRN_IO_ERROR: `launch` gave another number than 0, which is named; or the device's.
//   CAIRN_NOT_FOUND, CAIRN_EVICTED, CAIRN_CORRUPTION, CAIRN_OUT_OF_MEMORY: of a background read.
CAIRN_API cairn_code cairn_sparse_session_replay(cairn_sparse_session* const* sessions,
                                                 size_t count, uintptr_t stream,
                                                 cairn_sparse_launch launch, void* context,
                                                 cairn_error** error);
// The choice and the order of the pieces in slots become a state of the branch, with which the next
// session begins (`warm`). Blocking: waits for the device and the disk, and for other calls of the
// session. A crash that loses it costs a cold beginning. CAIRN_CONFLICT: the branch was rewound to
// before what the session has. CAIRN_NOT_FOUND: it was dropped. Errors of a change, and
// CAIRN_IO_ERROR of the device.
CAIRN_API cairn_code cairn_sparse_session_save(cairn_sparse_session* session, cairn_error** error);
// The branch has grown: of its tokens those before `end` may be wanted from here on; UINT64_MAX:
// all. Slots and pages keep what they have. Blocking: waits for the device, and for other calls of
// the session. After an error the session is as it was, unless it is the device's.
//   CAIRN_CONFLICT: the branch was rewound to before what the session has.
//   CAIRN_INVALID_ARGUMENT: more than tokens_max, or no such end.
//   CAIRN_NOT_FOUND, CAIRN_CORRUPTION, CAIRN_IO_ERROR (the device's, or the index's)
CAIRN_API cairn_code cairn_sparse_session_extend(cairn_sparse_session* session, uint64_t end,
                                                 cairn_error** error);
// Whole pieces of a head: those that may be wanted are below. Does not block, and may be asked when
// the store is closed, as the next two.
CAIRN_API uint64_t cairn_sparse_session_pieces(const cairn_sparse_session* session);
// That the session holds.
CAIRN_API uint64_t cairn_sparse_session_device_bytes(const cairn_sparse_session* session);
// `stats` has its struct_size set.
CAIRN_API cairn_code cairn_sparse_session_stats(const cairn_sparse_session* session,
                                                cairn_sparse_stats* stats, cairn_error** error);
// Blocks until the work that it has enqueued has ended.
CAIRN_API void cairn_sparse_session_free(cairn_sparse_session* session);

#ifdef __cplusplus
}  // extern "C"
#endif
