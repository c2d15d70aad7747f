// SPDX-License-Identifier: Apache-2.0
//
// C API: shadows, by which sparse attention chooses what it reads. The C++ twins are cairn/shadow.h
// and cairn/shadow_session.h; docs/shadow.md has the arithmetic. A shadow is a small stand-in for
// the keys of a long context, kept in a table beside them. It is derived: losing it loses nothing.
//
//   cairn_shadow_options options;
//   cairn_shadow_options_init(&options, sizeof options);
//   options.query_heads = 32;
//   cairn_shadow_session_open(arena, branch, &options, &session, &error);
//   for each step, for each layer:
//     cairn_shadow_session_append(session, &rows, &error);    // K and V of the new token.
//     cairn_shadow_session_select(session, &query, &error);   // Which chunks?
//     cairn_shadow_session_fetch(session, &fetch, &error);    // Their values.
//     cairn_shadow_session_rebuild(session, layer, stream, &error);  // Their keys.
//     cairn_shadow_session_view(session, layer, &view, &error);
//     attention<<<..., stream>>>(view)
//
// Counts are by kv head and layer; `chunks` are numbers of chunks of tokens. Streams are
// cudaStream_t as integers, 0 the default stream. Structs are borrowed for the call.
//
// Handles may be freed in any order: a session keeps its arena, and the device; none keeps the
// store open. Freeing a session waits for the work that it has enqueued. The caller's kernels that
// read a view must have ended by then.
#pragma once

#include "cairn/c/branch.h"
#include "cairn/c/sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::ShadowKeys: where the keys of selected chunks come from. On disk; never changes.
typedef uint32_t cairn_shadow_keys;
enum {
  CAIRN_SHADOW_KEYS_EXACT = 1,    // Fetched as they were stored, with the values.
  CAIRN_SHADOW_KEYS_INT8 = 2,     // 8 bits an element, by channel of 64 tokens.
  CAIRN_SHADOW_KEYS_INT4 = 3,     // 4 bits, likewise.
  CAIRN_SHADOW_KEYS_LOW_RANK = 4  // Coefficients of a basis that the heads of a layer share.
};
// "exact", "int8", "int4", "low_rank"; a static text. NULL of a number that is none.
CAIRN_API const char* cairn_shadow_keys_name(cairn_shadow_keys keys);

// cairn::ShadowSpec. A value that cannot be is CAIRN_INVALID_ARGUMENT, naming the field, in the
// calls that take a spec. One spec has one table; only the budget may change without another one
// being made.
typedef struct cairn_shadow_spec {
  size_t struct_size;
  uint32_t chunk_tokens;    // 4. 1, 2, 4, 8 or 16: selected and fetched as one.
  cairn_shadow_keys keys;   // CAIRN_SHADOW_KEYS_INT4
  uint32_t landmark_bits;   // 4. 16, 8 or 4 bits an element of a landmark.
  uint32_t local_tokens;    // 32: the newest, always attended to.
  uint32_t sink_tokens;     // 8: the first, always attended to.
  uint32_t outlier_chunks;  // Their number; if not 0, it overrides outlier_share.
  uint32_t budget_tokens;   // Selected in a step; 0: 2048, or an eighth of the context.
  uint32_t rank;            // LOW_RANK: directions; or rank_energy.
  double outlier_share;     // 0.003: chunks far from their landmark, always attended to.
  double rank_energy;       // LOW_RANK: the share of squares that is kept, up to 1.
} cairn_shadow_spec;
CAIRN_API void cairn_shadow_spec_init(cairn_shadow_spec* spec, size_t struct_size);
// Writes the setting that ShadowKV was published with. `key_channels`: kv heads times elements of a
// row. `spec` has its struct_size set. Does not block.
CAIRN_API cairn_code cairn_shadow_spec_published(uint32_t key_channels, cairn_shadow_spec* spec,
                                                 cairn_error** error);

// cairn::ShadowOf: which shadow of a branch.
typedef struct cairn_shadow_of {
  size_t struct_size;
  const cairn_shadow_spec* spec;  // NULL: all defaults.
  uint32_t group;                 // The model's group: K and V of bf16 or f16, all positions kept.
  uint64_t end;                   // UINT64_MAX: the tokens before it; the branch's length.
} cairn_shadow_of;
CAIRN_API void cairn_shadow_of_init(cairn_shadow_of* of, size_t struct_size);

// cairn::ShadowInfo: what is known of a shadow, or of a session's.
typedef struct cairn_shadow_info {
  size_t struct_size;
  uint64_t tokens;         // The context's length.
  uint64_t covered;        // Tokens that the shadow covers. 0: too few, attention is dense.
  uint32_t chunks;         // Covered, of one head of one layer, as the next two.
  uint32_t always_chunks;  // Sinks and outliers.
  uint32_t budget_chunks;  // Selected in a step.
  uint64_t table_bytes;    // On the disk. 0: there is no table.
  uint64_t tokens_read;    // Whose keys were read to make it. 0: it was there.
} cairn_shadow_info;
CAIRN_API void cairn_shadow_info_init(cairn_shadow_info* info, size_t struct_size);

// cairn::ShadowOptions: of a session.
typedef struct cairn_shadow_options {
  size_t struct_size;
  const cairn_shadow_spec* spec;  // NULL: all defaults.
  uint32_t group;                 // As in cairn_shadow_of.
  uint32_t query_heads;           // Per layer, a multiple of the kv heads. No default.
  uint32_t slots;                 // Chunks whose values stay on the device; 0: twice the budget.
  uint32_t append_tokens;         // 256: tokens appended before an extend.
  bool build;                     // true. Off: CAIRN_NOT_FOUND where there is no shadow.
  uint64_t end;                   // UINT64_MAX, as in cairn_shadow_of.
  uint64_t tokens_max;            // Longest context of an extend; 0: no more than there is.
} cairn_shadow_options;
CAIRN_API void cairn_shadow_options_init(cairn_shadow_options* options, size_t struct_size);

// cairn::ShadowQuery: the queries of one step, for one layer. Rows are in device memory: query head
// g of kv head h is row h * (query_heads / kv heads) + g, rotated as the model does.
typedef struct cairn_shadow_query {
  size_t struct_size;
  uint32_t layer;
  float scale;          // Multiplies scores. 0: 1 / sqrt(elements of a row).
  const void* queries;  // In fp32, or in the keys' dtype.
  bool is_fp32;
  uint64_t head_stride;  // Elements from a row to the next; 0: adjacent.
  uintptr_t stream;      // 0: the default stream; here and below.
} cairn_shadow_query;
CAIRN_API void cairn_shadow_query_init(cairn_shadow_query* query, size_t struct_size);

// cairn::ShadowFetch
typedef struct cairn_shadow_fetch {
  size_t struct_size;
  uint32_t layer;
  cairn_sparse_mode mode;  // CAIRN_SPARSE_STRICT
  uintptr_t stream;        // In which the values are brought.
  uint64_t timeout_ns;     // UINT64_MAX. Of strict ones: nanoseconds.
} cairn_shadow_fetch;
CAIRN_API void cairn_shadow_fetch_init(cairn_shadow_fetch* fetch, size_t struct_size);

// cairn::ShadowRows: the rows of one new token, for one layer. They are device memory, borrowed
// until the stream has come so far.
typedef struct cairn_shadow_rows {
  size_t struct_size;
  uint32_t layer;
  const void* keys;       // Head h at keys + h * key_stride.
  const void* values;     // Likewise.
  uint64_t key_stride;    // Bytes; 0: adjacent.
  uint64_t value_stride;  // Bytes; 0: adjacent.
  uintptr_t stream;
} cairn_shadow_rows;
CAIRN_API void cairn_shadow_rows_init(cairn_shadow_rows* rows, size_t struct_size);

// cairn::ShadowView: what a step attends to, `resident_tokens` rows of each kv head and `count`
// chunks. All of it is device memory and the session's: valid, once the stream has come so far,
// until the next call for the layer or the free. Chunk i of head h has the tokens from c *
// chunk_tokens on, c = chunks[h * stride + i].
typedef struct cairn_shadow_view {
  size_t struct_size;
  const void* resident_keys;        // Sinks, outliers, then the newest.
  const void* resident_values;      // In the same order.
  uint64_t resident_key_stride;     // Bytes from a head to the next.
  uint64_t resident_value_stride;   // Likewise.
  uint32_t resident_tokens;         // Rows of each head.
  uint32_t count;                   // Selected chunks of each head.
  uint32_t stride;                  // Elements per kv head in the three arrays.
  const uint32_t* chunks;           // [kv head][stride]
  const int32_t* key_slot_of;       // Slot of chunk i: [h * stride + i].
  const int32_t* value_slot_of;     // -1: a relaxed fetch left it out.
  cairn_sparse_plane_slots keys;    // Slots that key_slot_of names.
  cairn_sparse_plane_slots values;  // Slots that value_slot_of names.
} cairn_shadow_view;
CAIRN_API void cairn_shadow_view_init(cairn_shadow_view* view, size_t struct_size);

// --- Shadows of a branch. `of`: NULL for all defaults. `info`, where there is one, may be NULL.
// Makes the shadow where there is none, for this branch and for forks behind `covered`. CAIRN_OK
// with `covered` 0 where the context is too short for one. Blocking, without a deadline: reads the
// keys of the context and writes a table. A crash costs the table at most.
//   CAIRN_INVALID_ARGUMENT: names the field, or where a key is NaN, infinite or too large.
//   CAIRN_CONFLICT: the branch was rewound meanwhile.
//   CAIRN_EVICTED: KV of these positions is gone, or was never given.
//   CAIRN_READ_ONLY, CAIRN_NO_SPACE, CAIRN_POISONED, and as cairn_branch_restore.
CAIRN_API cairn_code cairn_build_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                                        cairn_shadow_info* info, cairn_error** error);
// Finds the shadow of this spec that covers the same tokens; makes none. Blocking: may read the
// head of its table, and the index. A follower may ask. CAIRN_NOT_FOUND: it was never made, or was
// lost. CAIRN_INVALID_ARGUMENT names the field.
CAIRN_API cairn_code cairn_find_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                                       cairn_shadow_info* info, cairn_error** error);
// Forgets it, also for the forks that share it; open sessions keep what they have. A change at
// CAIRN_DURABILITY_MEMORY: a crash may bring the shadow back. CAIRN_NOT_FOUND: there is none.
// Errors of a change.
CAIRN_API cairn_code cairn_drop_shadow(const cairn_branch* branch, const cairn_shadow_of* of,
                                       cairn_error** error);

// --- cairn::ShadowSession. Thread-safe: calls of one session wait for each other. Streams of
// several layers are the caller's to order, since layers share the memory of what a step selects.
// A stream that is captured into a graph is CAIRN_INVALID_ARGUMENT. Each call that enqueues gives
// CAIRN_IO_ERROR or CAIRN_OUT_OF_MEMORY of the device, and CAIRN_INVALID_STATE of a session whose
// extend failed.
typedef struct cairn_shadow_session cairn_shadow_session;

// `arena`: of the branch's store. Blocking: finds or makes the shadow, and copies it to the device,
// into room of the arena. *session is freed with cairn_shadow_session_free. It has a lease on the
// content that it reads. Errors of cairn_build_shadow and of cairn_sparse_arena_open, and
//   CAIRN_NOT_FOUND: `build` is off, and there is no shadow.
//   CAIRN_INVALID_ARGUMENT: the arena is of another store; or query_heads, slots or tokens_max do
//     not fit.
CAIRN_API cairn_code cairn_shadow_session_open(const cairn_sparse_arena* arena,
                                               const cairn_branch* branch,
                                               const cairn_shadow_options* options,
                                               cairn_shadow_session** session, cairn_error** error);
// Enqueues the choice of the chunks that the queries need; does not wait for the device.
// CAIRN_INVALID_ARGUMENT names the field.
CAIRN_API cairn_code cairn_shadow_session_select(cairn_shadow_session* session,
                                                 const cairn_shadow_query* query,
                                                 cairn_error** error);
// Brings the values of the selected chunks, and exact keys. Blocking when strict: waits for the
// device, and for the disk where pages must be read. Errors of cairn_sparse_session_fetch.
// CAIRN_INVALID_STATE: nothing is selected for the layer.
CAIRN_API cairn_code cairn_shadow_session_fetch(cairn_shadow_session* session,
                                                const cairn_shadow_fetch* fetch,
                                                cairn_error** error);
// Enqueues making the keys of the selected chunks from their codes; does not wait for the device.
// It needs no value, so it may run in another stream than the fetch, behind the selection.
// CAIRN_INVALID_STATE: nothing is selected for the layer.
CAIRN_API cairn_code cairn_shadow_session_rebuild(cairn_shadow_session* session, uint32_t layer,
                                                  uintptr_t stream, cairn_error** error);
// Writes *view where the call returns CAIRN_OK alone; its struct_size is set before. Does not wait
// for the device. CAIRN_INVALID_STATE: nothing was fetched for the layer.
CAIRN_API cairn_code cairn_shadow_session_view(const cairn_shadow_session* session, uint32_t layer,
                                               cairn_shadow_view* view, cairn_error** error);
// Enqueues that this layer attends to one more token from now on; does not wait for the device. The
// branch does not learn of it: append the token there as well, as approximate. CAIRN_BUSY:
// append_tokens were appended; extend makes room.
CAIRN_API cairn_code cairn_shadow_session_append(cairn_shadow_session* session,
                                                 const cairn_shadow_rows* rows,
                                                 cairn_error** error);
// The branch has grown: its tokens before `end` (UINT64_MAX: all) are the context from here on, and
// appended tokens that are not in it are gone. Kernels that read a view must have ended. Blocking:
// reads the new keys, and waits for the device; low-rank keys whose vectors do not serve the new
// ones come from a table, which is made where `build` says so. Errors of cairn_build_shadow, and
//   CAIRN_CONFLICT: the branch was rewound to before what the session has, or meanwhile.
//   CAIRN_INVALID_ARGUMENT: more than tokens_max, or no such end.
//   CAIRN_INVALID_STATE: low-rank keys, by rank_energy, need more vectors than there is room for;
//     open another session.
//   CAIRN_NOT_FOUND: low-rank keys need a table, and `build` is off.
// After these the session is as it was; after others it is of no use until an extend succeeds.
CAIRN_API cairn_code cairn_shadow_session_extend(cairn_shadow_session* session, uint64_t end,
                                                 cairn_error** error);
// Pages that a fetch of these chunks would read are read in the background. Head h wants those at
// chunks[h * stride], `count` of them, in host memory, borrowed for the call. Waits for other calls
// of the session, not for the disk.
//   CAIRN_BUSY: earlier ones are still under way; nothing is noted.
//   CAIRN_INVALID_ARGUMENT: names the field, or head and chunk.
CAIRN_API cairn_code cairn_shadow_session_prefetch(cairn_shadow_session* session, uint32_t layer,
                                                   const uint32_t* chunks, uint32_t count,
                                                   uint32_t stride, cairn_error** error);
// As cairn_sparse_session_save, of the slots of values.
CAIRN_API cairn_code cairn_shadow_session_save(cairn_shadow_session* session, cairn_error** error);
// As the session has it, also when the store is closed. Waits for other calls of the session, as
// the next two; no I/O.
CAIRN_API cairn_code cairn_shadow_session_info(const cairn_shadow_session* session,
                                               cairn_shadow_info* info, cairn_error** error);
// Bytes of the device that the session holds, with its slots. Of NULL: 0.
CAIRN_API uint64_t cairn_shadow_session_device_bytes(const cairn_shadow_session* session);
// Counts its fetches; also valid when the store is closed.
CAIRN_API cairn_code cairn_shadow_session_stats(const cairn_shadow_session* session,
                                                cairn_sparse_stats* stats, cairn_error** error);
// Blocks until the work that it has enqueued has ended.
CAIRN_API void cairn_shadow_session_free(cairn_shadow_session* session);

#ifdef __cplusplus
}  // extern "C"
#endif
