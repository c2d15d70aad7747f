// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: reading branches. The C++ twin is cairn/branch.h.
#pragma once

#include "cairn/c_branch.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::RestoreRequest, with the fields of GpuSync, which count for a view of GPU memory.
typedef struct cairn_restore_request {
  size_t struct_size;
  uint64_t begin;
  uint64_t end;      // UINT64_MAX: the branch's length.
  uint32_t* tokens;  // Room for end - begin ids, or NULL.
  size_t token_count;
  const cairn_kv_view* into;
  bool require_kv;
  bool fall_back_to_host;
  uintptr_t gpu_ready;                  // A cudaEvent_t, or 0.
  const uintptr_t* gpu_layer_events;    // One a (group, layer) of the view, or NULL.
  size_t gpu_layer_event_count;
  uint64_t timeout_ns;                  // UINT64_MAX: for ever.
  const cairn_completion_queue* queue;  // cairn_branch_restore_async; may be NULL.
  uint64_t user_data;
  // As cairn_append_options::released, of cairn_branch_restore_async.
  void (*released)(void* context);
  void* released_context;
} cairn_restore_request;
CAIRN_API void cairn_restore_request_init(cairn_restore_request* request, size_t struct_size);

// cairn::RestoreResult
struct cairn_restore_result {
  size_t struct_size;
  uint64_t begin, end;       // Tokens.
  const uint64_t* kv_ends;   // One a group of the view.
  size_t kv_end_count;
  uint64_t bytes, hot_bytes, lossy_bytes, approximate_bytes;
};
CAIRN_API void cairn_restore_result_free(cairn_restore_result* result);

// Blocking. `progress` and `result` may be NULL.
CAIRN_API cairn_code cairn_branch_restore(const cairn_branch* branch,
                                          const cairn_restore_request* request,
                                          cairn_layer_progress* progress,
                                          cairn_restore_result** result, cairn_error** error);
// Token memory, KV memory, tables, events and `progress` are borrowed until the ticket is done;
// structs and the other arrays are not needed any more when the call returns. `progress` and
// `ticket` may be NULL.
CAIRN_API cairn_code cairn_branch_restore_async(const cairn_branch* branch,
                                                const cairn_restore_request* request,
                                                cairn_layer_progress* progress,
                                                cairn_ticket** ticket, cairn_error** error);
// Hints; never block on the disk. The second is of a GPU's pinned memory.
CAIRN_API cairn_code cairn_branch_prefetch(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                           cairn_error** error);
CAIRN_API cairn_code cairn_branch_prefetch_gpu(const cairn_branch* branch, uint64_t begin,
                                               uint64_t end, uint32_t gpu, cairn_error** error);

// Blocking. *count: how many there are. CAIRN_INVALID_ARGUMENT, with *count set, where `tokens` has
// no room for them.
CAIRN_API cairn_code cairn_branch_read_tokens(const cairn_branch* branch, uint64_t begin,
                                              uint64_t end, uint32_t* tokens, size_t capacity,
                                              size_t* count, cairn_error** error);

// cairn::Branch::StateAt. One of the two is NULL.
typedef struct cairn_state_at {
  size_t struct_size;
  uint64_t position;
  const cairn_sampler_state* sampler;
  const cairn_app_metadata* metadata;
} cairn_state_at;
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
CAIRN_API cairn_code cairn_branch_spans(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                        cairn_content_spans** spans, cairn_error** error);
CAIRN_API void cairn_content_spans_free(cairn_content_spans* spans);

#ifdef __cplusplus
}  // extern "C"
#endif
