// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: branches, and what is appended to them. The C++ twin is cairn/branch.h, which tells
// of each call what it does, costs and returns; here stands what differs. Restores are in
// cairn/c_restore.h.
#pragma once

#include "cairn/c_completion.h"
#include "cairn/c_options.h"
#include "cairn/c_view.h"

#ifdef __cplusplus
extern "C" {
#endif

// A handle of a branch: cairn::Branch. Several may be of one branch. Freeing it drops nothing.
typedef struct cairn_branch cairn_branch;

// cairn::ContentSpan. Never gets another field.
typedef struct cairn_content_span {
  uint64_t begin, end;  // Positions.
  uint64_t hash[2];
  bool atomic;
} cairn_content_span;

typedef uint32_t cairn_generator_kind;  // cairn::GeneratorKind
enum {
  CAIRN_GENERATOR_NONE = 0,
  CAIRN_GENERATOR_PHILOX = 1,
  CAIRN_GENERATOR_MT19937 = 2,
  CAIRN_GENERATOR_NAMED = 3
};

// cairn::SamplerState
typedef struct cairn_sampler_state {
  size_t struct_size;
  cairn_generator_kind generator;
  uint32_t blob_version;
  uint32_t top_k;
  uint64_t philox_seed, philox_offset;
  const char* blob_name;
  cairn_bytes blob;
  double temperature, top_p, min_p, repetition_penalty;  // 1, 1, 0, 1
  const float* last_logits;
  size_t last_logit_count;
} cairn_sampler_state;
CAIRN_API void cairn_sampler_state_init(cairn_sampler_state* state, size_t struct_size);

// cairn::AppMetadata
typedef struct cairn_app_metadata {
  size_t struct_size;
  const char* content_type;
  cairn_bytes bytes;
} cairn_app_metadata;
CAIRN_API void cairn_app_metadata_init(cairn_app_metadata* metadata, size_t struct_size);

// cairn::Delta. All zeros but struct_size is a delta without anything.
typedef struct cairn_delta {
  size_t struct_size;
  const uint32_t* tokens;
  size_t token_count;
  const cairn_kv_view* kv;
  const cairn_sampler_state* sampler;
  const cairn_app_metadata* metadata;
  bool approximate;  // `kv` is an approximation, which C++ says as `exact` = false.
  const cairn_content_span* spans;
  size_t span_count;
} cairn_delta;
CAIRN_API void cairn_delta_init(cairn_delta* delta, size_t struct_size);

typedef uint32_t cairn_overload;  // cairn::Overload
enum { CAIRN_OVERLOAD_FAIL = 0, CAIRN_OVERLOAD_SHED_KV = 1 };

// cairn::AppendOptions
typedef struct cairn_append_options {
  size_t struct_size;
  cairn_durability durability;  // CAIRN_DURABILITY_PROCESS
  cairn_overload overload;      // cairn_branch_append
  bool has_expected_length;
  bool ends_turn;
  bool approximate;  // cairn_branch_fill
  uint64_t expected_length;
  uint64_t timeout_ns;  // UINT64_MAX: for ever.
  uintptr_t gpu_ready;  // A cudaEvent_t, or 0.
  const cairn_completion_queue* queue;  // Asynchronous calls; may be NULL.
  uint64_t user_data;
  // Asynchronous calls that return CAIRN_OK: called once, when nothing that the call borrowed is
  // read any more, mostly on a thread of the store. May be NULL. See convention 9 of cairn/c.h.
  void (*released)(void* context);
  void* released_context;
} cairn_append_options;
CAIRN_API void cairn_append_options_init(cairn_append_options* options, size_t struct_size);

// cairn::BranchOptions, with the fields of Keep.
typedef struct cairn_branch_options {
  size_t struct_size;
  const char* name;
  const char* ns;
  cairn_durability durability;  // CAIRN_DURABILITY_PROCESS
  bool pinned;
  uint8_t priority;
  uint64_t ttl_ns;
} cairn_branch_options;
CAIRN_API void cairn_branch_options_init(cairn_branch_options* options, size_t struct_size);

// cairn::BranchInfo
typedef struct cairn_branch_info {
  size_t struct_size;
  uint64_t id;
  const char* name;
  const char* ns;
  uint64_t model;
  uint64_t node;
  uint64_t length;  // Tokens.
  const uint64_t* kv_lengths;
  size_t kv_length_count;
  uint64_t created_at_ns, updated_at_ns, used_at_ns;  // Since 1970.
  const cairn_keep* keep;
} cairn_branch_info;
CAIRN_API void cairn_branch_info_free(cairn_branch_info* info);

// cairn::KvHole, cairn::PathStep. Neither gets another field.
typedef struct cairn_kv_hole {
  uint64_t group;
  uint64_t begin, end;
} cairn_kv_hole;
typedef struct cairn_kv_holes {
  size_t struct_size;
  const cairn_kv_hole* items;
  size_t count;
} cairn_kv_holes;
CAIRN_API void cairn_kv_holes_free(cairn_kv_holes* holes);

typedef struct cairn_path_step {
  uint64_t node, parent;
  uint64_t begin, end;
  uint64_t owner;
} cairn_path_step;
typedef struct cairn_path {
  size_t struct_size;
  const cairn_path_step* items;  // Root first.
  size_t count;
} cairn_path;
CAIRN_API void cairn_path_free(cairn_path* path);

// --- What it is
CAIRN_API uint64_t cairn_branch_id(const cairn_branch* branch);  // Of NULL: 0.
CAIRN_API cairn_code cairn_branch_get_info(const cairn_branch* branch, cairn_branch_info** info,
                                           cairn_error** error);
CAIRN_API cairn_code cairn_branch_length(const cairn_branch* branch, uint64_t* length,
                                         cairn_error** error);
CAIRN_API cairn_code cairn_branch_durable_length(const cairn_branch* branch, uint64_t* length,
                                                 cairn_error** error);
CAIRN_API cairn_code cairn_branch_path(const cairn_branch* branch, cairn_path** path,
                                       cairn_error** error);
CAIRN_API cairn_code cairn_branch_evicted_kv(const cairn_branch* branch, uint64_t begin,
                                             uint64_t end, cairn_kv_holes** holes,
                                             cairn_error** error);
CAIRN_API cairn_code cairn_branch_restorable_length(const cairn_branch* branch, uint64_t at_most,
                                                    uint64_t* length, cairn_error** error);

// --- Changes. Blocking: until what was asked for is as durable as that.
CAIRN_API cairn_code cairn_branch_set_keep(cairn_branch* branch, const cairn_keep* keep,
                                           cairn_durability durability, cairn_error** error);
CAIRN_API cairn_code cairn_branch_fork_at(const cairn_branch* branch, uint64_t position,
                                          const cairn_branch_options* options, cairn_branch** fork,
                                          cairn_error** error);
CAIRN_API cairn_code cairn_branch_rewind(cairn_branch* branch, uint64_t length,
                                         cairn_durability durability, cairn_error** error);
CAIRN_API cairn_code cairn_branch_rename(cairn_branch* branch, const char* name,
                                         cairn_durability durability, cairn_error** error);
CAIRN_API cairn_code cairn_branch_drop(cairn_branch* branch, cairn_durability durability,
                                       cairn_error** error);
CAIRN_API void cairn_branch_free(cairn_branch* branch);

// --- Appends
// Asynchronous; never blocks on the disk. Tokens, KV memory and tables are borrowed until the
// ticket is released; structs and the other arrays are not needed any more when the call returns.
// `ticket` may be NULL.
CAIRN_API cairn_code cairn_branch_append(cairn_branch* branch, const cairn_delta* delta,
                                         const cairn_append_options* options, cairn_ticket** ticket,
                                         cairn_error** error);
// Blocking. `length`, which may be NULL: of the branch behind the append.
CAIRN_API cairn_code cairn_branch_append_sync(cairn_branch* branch, const cairn_delta* delta,
                                              const cairn_append_options* options, uint64_t* length,
                                              cairn_error** error);
// Blocking.
CAIRN_API cairn_code cairn_branch_fill(cairn_branch* branch, const cairn_kv_view* kv,
                                       const cairn_append_options* options, cairn_error** error);

// Positions that are filled layer by layer: cairn::Draft. Puts of different (group, layer) pairs
// may go on at once; commit, abort and free have no other call of the draft beside them.
typedef struct cairn_draft cairn_draft;
CAIRN_API cairn_code cairn_branch_begin_append(cairn_branch* branch, uint64_t positions,
                                               cairn_draft** draft, cairn_error** error);
// Copies; nothing is kept of the view.
CAIRN_API cairn_code cairn_draft_put(cairn_draft* draft, uint32_t layer,
                                     const cairn_group_view* view, cairn_error** error);
// KV memory and tables are borrowed until the ticket of cairn_draft_commit is released, or
// cairn_draft_abort or _free returns. `ready`: a cudaEvent_t, or 0.
CAIRN_API cairn_code cairn_draft_put_from_gpu(cairn_draft* draft, uint32_t layer,
                                              const cairn_kv_view* view, uintptr_t ready,
                                              cairn_error** error);
// `ticket` may be NULL. After an error the draft may be tried again.
CAIRN_API cairn_code cairn_draft_commit(cairn_draft* draft, const cairn_delta* delta,
                                        const cairn_append_options* options, cairn_ticket** ticket,
                                        cairn_error** error);
CAIRN_API void cairn_draft_abort(cairn_draft* draft);
// Aborts it unless it was committed.
CAIRN_API void cairn_draft_free(cairn_draft* draft);

#ifdef __cplusplus
}  // extern "C"
#endif
