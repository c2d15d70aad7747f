// SPDX-License-Identifier: Apache-2.0
//
// C API: reading branches. The C++ twins are cairn/branch.h and cairn/restore.h, where
// RestoreRequest::into has an example. "Errors of the index" are those of cairn/c/branch.h.
#pragma once

#include "cairn/c/branch.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::RestoreRequest, with the fields of GpuSync, which are for a view of GPU memory: elsewhere
// an event is CAIRN_INVALID_ARGUMENT, and `fall_back_to_host` does not count.
typedef struct cairn_restore_request {
  size_t struct_size;
  uint64_t begin;             // Positions [begin, end).
  uint64_t end;               // UINT64_MAX: the branch's length.
  uint32_t* tokens;           // Room for end - begin ids at least, or NULL.
  size_t token_count;         // How many there is room for.
  const cairn_kv_view* into;  // Groups, layers and positions there is room for; NULL: no KV.
  bool require_kv;            // KV must reach `end`, else CAIRN_EVICTED.
  bool fall_back_to_host;     // A window that the device refuses is unpacked on the host.
  uintptr_t gpu_ready;        // A cudaEvent_t, or 0.
  const uintptr_t* gpu_layer_events;  // One a (group, layer) of the view, or NULL.
  size_t gpu_layer_event_count;
  uint64_t timeout_ns;                  // UINT64_MAX: for ever.
  const cairn_completion_queue* queue;  // cairn_branch_restore_async; may be NULL.
  uint64_t user_data;                   // Handed back with the completion; not interpreted.
  // As cairn_append_options::released, of cairn_branch_restore_async: maybe a moment after the
  // ticket is over.
  void (*released)(void* context);
  void* released_context;
} cairn_restore_request;
CAIRN_API void cairn_restore_request_init(cairn_restore_request* request, size_t struct_size);

// cairn::RestoreResult: what a restore delivered. Free it with cairn_restore_result_free.
struct cairn_restore_result {
  size_t struct_size;
  uint64_t begin, end;      // Tokens.
  const uint64_t* kv_ends;  // One per group of the view: KV is in place up to here.
  size_t kv_end_count;
  // KV bytes delivered; of these from memory; of planes that are sealed with loss; and those that
  // were given as approximate.
  uint64_t bytes, hot_bytes, lossy_bytes, approximate_bytes;
};
CAIRN_API void cairn_restore_result_free(cairn_restore_result* result);

// Blocking: reads the disk for what memory does not hold, and may stand in line for memory, until
// timeout_ns. `progress` and `result` may be NULL; *result is freed with cairn_restore_result_free.
// Content that is being read is pinned: a rewind, an eviction or a drop meanwhile does not disturb
// it. On failure the target's contents are undefined.
//   CAIRN_INVALID_ARGUMENT: the range, the view, room for ids or layers, or the GPU.
//   CAIRN_EVICTED: positions that are missing, and up to which it would work; nothing was read.
//   CAIRN_CORRUPTION: names file, offset and the longest restorable prefix.
//   CAIRN_STALE: of a follower; retry.
//   CAIRN_DEADLINE_EXCEEDED, CAIRN_IO_ERROR (the disk's or the device's), and errors of the index.
CAIRN_API cairn_code cairn_branch_restore(const cairn_branch* branch,
                                          const cairn_restore_request* request,
                                          cairn_layer_progress* progress,
                                          cairn_restore_result** result, cairn_error** error);
// The same by a thread of the store; does not block. Token memory, KV memory, tables, events and
// `progress` are borrowed until the ticket is done; structs and the other arrays are not needed any
// more when the call returns. `progress` and `ticket` may be NULL. All errors of the restore are
// the ticket's; CAIRN_CANCELLED after cairn_ticket_cancel.
CAIRN_API cairn_code cairn_branch_restore_async(const cairn_branch* branch,
                                                const cairn_restore_request* request,
                                                cairn_layer_progress* progress,
                                                cairn_ticket** ticket, cairn_error** error);
// Hints; never block on the disk. The background brings content of [begin, end) that lies in tables
// into memory: into the page cache, or into the pinned memory of a GPU (by ordinal). Errors of the
// reading, a dropped branch included, are left to the restore.
//   CAIRN_BUSY: many prefetches are waiting; nothing is done.
//   CAIRN_INVALID_ARGUMENT: the range; or the store has no such GPU.
CAIRN_API cairn_code cairn_branch_prefetch(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                           cairn_error** error);
CAIRN_API cairn_code cairn_branch_prefetch_gpu(const cairn_branch* branch, uint64_t begin,
                                               uint64_t end, uint32_t gpu, cairn_error** error);

// The ids of [begin, end). Blocking, without a deadline. *count: how many there are.
// CAIRN_INVALID_ARGUMENT, with *count set, where `tokens` has no room for them. Errors of
// cairn_branch_restore.
CAIRN_API cairn_code cairn_branch_read_tokens(const cairn_branch* branch, uint64_t begin,
                                              uint64_t end, uint32_t* tokens, size_t capacity,
                                              size_t* count, cairn_error** error);

// cairn::Branch::StateAt. One of the two is NULL. Free it with cairn_state_at_free.
typedef struct cairn_state_at {
  size_t struct_size;
  uint64_t position;  // Number of tokens it belongs after.
  const cairn_sampler_state* sampler;
  const cairn_app_metadata* metadata;
} cairn_state_at;
// The newest state set at a position <= `position` tokens. Blocking: may read the disk; no
// deadline.
//   CAIRN_NOT_FOUND: none was set, or the branch was dropped.
//   CAIRN_CORRUPTION, CAIRN_IO_ERROR, CAIRN_STALE (of a follower)
CAIRN_API cairn_code cairn_branch_sampler_at(const cairn_branch* branch, uint64_t position,
                                             cairn_state_at** state, cairn_error** error);
CAIRN_API cairn_code cairn_branch_metadata_at(const cairn_branch* branch, uint64_t position,
                                              cairn_state_at** state, cairn_error** error);
CAIRN_API void cairn_state_at_free(cairn_state_at* state);

typedef struct cairn_content_spans {
  size_t struct_size;
  const cairn_content_span* items;
  size_t count;
} cairn_content_spans;
// Those with a position in [begin, end), whole, by position. Reads no content. *spans is freed with
// cairn_content_spans_free. CAIRN_INVALID_ARGUMENT: no such range; and errors of the index.
CAIRN_API cairn_code cairn_branch_spans(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                        cairn_content_spans** spans, cairn_error** error);
CAIRN_API void cairn_content_spans_free(cairn_content_spans* spans);

#ifdef __cplusplus
}  // extern "C"
#endif
