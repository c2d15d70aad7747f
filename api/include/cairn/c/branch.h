// SPDX-License-Identifier: Apache-2.0
//
// C API: branches, and appends to them. The C++ twin is cairn/branch.h, where lengths, ranges,
// hybrid models and locks are explained at length. Restores are in cairn/c/restore.h.
//
// Errors that lists of calls name in short, beside those of convention 1 of cairn/c.h:
//
//   errors of the index: CAIRN_NOT_FOUND (the branch was dropped, or expired), CAIRN_CORRUPTION and
//     CAIRN_IO_ERROR (the index cannot be read). Every call about a branch may give them.
//   errors of a change: those, and CAIRN_READ_ONLY (a follower), CAIRN_POISONED (the log failed
//     earlier), CAIRN_NO_SPACE (max_bytes or the disk is full), CAIRN_IO_ERROR (no further log
//     segment can be made), and CAIRN_UNKNOWN_OUTCOME (the log failed after the change was given to
//     it: reopen the store and look).
//
// A call that is said to change something blocks until its record is as durable as `durability`
// says, and before that while space or log memory for the record is lacking; it has no deadline.
#pragma once

#include "cairn/c/completion.h"
#include "cairn/c/options.h"
#include "cairn/c/view.h"

#ifdef __cplusplus
extern "C" {
#endif

// A handle of a branch: cairn::Branch. Several may be of one branch, and all may be used at once.
// Freeing one drops nothing.
typedef struct cairn_branch cairn_branch;

// cairn::ContentSpan: an image, audio, or other content behind token ids. Never gets another field.
typedef struct cairn_content_span {
  uint64_t begin, end;  // Positions.
  uint64_t hash[2];     // The caller's hash of the content, compared as it is.
  bool atomic;          // No fork or rewind inside it.
} cairn_content_span;

typedef uint32_t cairn_generator_kind;  // cairn::GeneratorKind
enum {
  CAIRN_GENERATOR_NONE = 0,
  CAIRN_GENERATOR_PHILOX = 1,
  CAIRN_GENERATOR_MT19937 = 2,
  CAIRN_GENERATOR_NAMED = 3
};

// cairn::SamplerState: the sampler, so that the next token comes out the same. Every field is the
// caller's word and comes back as it was given.
typedef struct cairn_sampler_state {
  size_t struct_size;
  cairn_generator_kind generator;
  uint32_t blob_version;  // The caller's.
  uint32_t top_k;
  uint64_t philox_seed, philox_offset;  // CAIRN_GENERATOR_PHILOX.
  const char* blob_name;                // CAIRN_GENERATOR_NAMED: whose state `blob` is.
  cairn_bytes blob;                     // At most 16 MiB.
  double temperature, top_p, min_p, repetition_penalty;  // 1, 1, 0, 1
  const float* last_logits;  // Optional; of the last position, by token id.
  size_t last_logit_count;   // At most 4 Mi.
} cairn_sampler_state;
CAIRN_API void cairn_sampler_state_init(cairn_sampler_state* state, size_t struct_size);

// cairn::AppMetadata: what a program wants to keep beside a position; not interpreted.
typedef struct cairn_app_metadata {
  size_t struct_size;
  const char* content_type;  // "application/msgpack", ...
  cairn_bytes bytes;         // At most 16 MiB.
} cairn_app_metadata;
CAIRN_API void cairn_app_metadata_init(cairn_app_metadata* metadata, size_t struct_size);

// cairn::Delta: what one append adds; atomic. All zeros but struct_size is a delta without
// anything. Without tokens and KV it sets a state at the length that the branch has.
typedef struct cairn_delta {
  size_t struct_size;
  const uint32_t* tokens;              // The ids behind the branch's last one.
  size_t token_count;                  // At most 16 Mi.
  const cairn_kv_view* kv;             // Each group from its kv_length on; NULL: none.
  const cairn_sampler_state* sampler;  // As it is after these tokens; NULL: none.
  const cairn_app_metadata* metadata;  // The application's, at the same position.
  bool approximate;                 // `kv` is an approximation, which C++ says as `exact` = false.
  const cairn_content_span* spans;  // Within the new tokens, in order.
  size_t span_count;
} cairn_delta;
CAIRN_API void cairn_delta_init(cairn_delta* delta, size_t struct_size);

// cairn::Overload: whether an append that finds buffers full fails, or keeps its tokens alone.
typedef uint32_t cairn_overload;
enum { CAIRN_OVERLOAD_FAIL = 0, CAIRN_OVERLOAD_SHED_KV = 1 };

// cairn::AppendOptions: of appends, fills, commits of drafts and batches.
typedef struct cairn_append_options {
  size_t struct_size;
  cairn_durability durability;  // CAIRN_DURABILITY_PROCESS
  cairn_overload overload;      // cairn_branch_append, cairn_draft_commit
  bool has_expected_length;     // Whether `expected_length` is looked at.
  bool ends_turn;               // The last append of a turn (CAIRN_PERSIST_TURN_END).
  bool approximate;             // cairn_branch_fill
  uint64_t expected_length;     // Another length of the branch is CAIRN_CONFLICT.
  uint64_t timeout_ns;          // Nanoseconds; UINT64_MAX: for ever.
  uintptr_t gpu_ready;  // A cudaEvent_t, or 0. Borrowed until the call has returned or ended.
  const cairn_completion_queue* queue;  // Asynchronous calls; may be NULL.
  uint64_t user_data;                   // Handed back with the completion; not interpreted.
  // Asynchronous calls that return CAIRN_OK: called once, when nothing that the call borrowed is
  // read any more, mostly on a thread of the store, and then maybe a moment after the ticket is
  // over; until then the context is needed. May be NULL. See convention 9 of cairn/c.h.
  void (*released)(void* context);
  void* released_context;
} cairn_append_options;
CAIRN_API void cairn_append_options_init(cairn_append_options* options, size_t struct_size);

// cairn::BranchOptions, with the fields of Keep: how a new branch is called and kept.
typedef struct cairn_branch_options {
  size_t struct_size;
  const char* name;             // Unique in its namespace; empty: unnamed. At most 256 bytes.
  const char* ns;               // Namespace; likewise. Need not exist before.
  cairn_durability durability;  // CAIRN_DURABILITY_PROCESS
  bool pinned;                  // Neither evicted nor expired.
  uint8_t priority;             // The lower is evicted first.
  uint64_t ttl_ns;              // Dropped when unused for so long; 0: as its namespace says.
} cairn_branch_options;
CAIRN_API void cairn_branch_options_init(cairn_branch_options* options, size_t struct_size);

// cairn::BranchInfo: what a branch is at one moment. Free it with cairn_branch_info_free.
typedef struct cairn_branch_info {
  size_t struct_size;
  uint64_t id;
  const char* name;  // "" of an unnamed one.
  const char* ns;
  uint64_t model;
  uint64_t node;               // That the branch ends on; 0: none yet.
  uint64_t length;             // Tokens.
  const uint64_t* kv_lengths;  // Positions; one per layer group.
  size_t kv_length_count;
  uint64_t created_at_ns, updated_at_ns, used_at_ns;  // Since 1970.
  const cairn_keep* keep;
} cairn_branch_info;
CAIRN_API void cairn_branch_info_free(cairn_branch_info* info);

// cairn::KvHole: positions without KV. Never gets another field.
typedef struct cairn_kv_hole {
  uint64_t group;  // Index in cairn_model_spec::groups.
  uint64_t begin, end;
} cairn_kv_hole;
typedef struct cairn_kv_holes {
  size_t struct_size;
  const cairn_kv_hole* items;
  size_t count;
} cairn_kv_holes;
CAIRN_API void cairn_kv_holes_free(cairn_kv_holes* holes);

// cairn::PathStep: one stretch of the path from the root to the head. Never gets another field.
typedef struct cairn_path_step {
  uint64_t node, parent;  // A parent of 0: none.
  uint64_t begin, end;    // Positions of this path on the node.
  uint64_t owner;         // The branch that may extend it; 0: none.
} cairn_path_step;
typedef struct cairn_path {
  size_t struct_size;
  const cairn_path_step* items;  // Root first.
  size_t count;
} cairn_path;
CAIRN_API void cairn_path_free(cairn_path* path);

// --- What it is. These read no content; they may read the index, and with delta_batch_tokens wait
// for a write of the log while its memory is full. Errors of the index, and what is listed.
// Stable for the branch's life. Of NULL: 0. Never blocks.
CAIRN_API uint64_t cairn_branch_id(const cairn_branch* branch);
// All of it in one look. *info is freed with cairn_branch_info_free.
CAIRN_API cairn_code cairn_branch_get_info(const cairn_branch* branch, cairn_branch_info** info,
                                           cairn_error** error);
// Tokens, all that were applied: you read your writes.
CAIRN_API cairn_code cairn_branch_length(const cairn_branch* branch, uint64_t* length,
                                         cairn_error** error);
// Tokens that survive power loss; of a follower all that it shows.
CAIRN_API cairn_code cairn_branch_durable_length(const cairn_branch* branch, uint64_t* length,
                                                 cairn_error** error);
// *path is freed with cairn_path_free.
CAIRN_API cairn_code cairn_branch_path(const cairn_branch* branch, cairn_path** path,
                                       cairn_error** error);
// The evicted parts of [begin, end), by group and position; of hybrid models also positions that a
// restore needs and that were never given KV. `end` UINT64_MAX: the length. *holes is freed with
// cairn_kv_holes_free. CAIRN_INVALID_ARGUMENT: no such range.
CAIRN_API cairn_code cairn_branch_evicted_kv(const cairn_branch* branch, uint64_t begin,
                                             uint64_t end, cairn_kv_holes** holes,
                                             cairn_error** error);
// The largest position <= at_most (UINT64_MAX: any) that cairn_branch_restore can deliver; 0: none.
// Damage is not noticed.
CAIRN_API cairn_code cairn_branch_restorable_length(const cairn_branch* branch, uint64_t at_most,
                                                    uint64_t* length, cairn_error** error);

// --- Changes without content. Blocking, as said at the top. Errors of a change, and what is
// listed.
// Replaces priority, ttl and pin. Works where there is no room for data.
CAIRN_API cairn_code cairn_branch_set_keep(cairn_branch* branch, const cairn_keep* keep,
                                           cairn_durability durability, cairn_error** error);
// A new branch with this one's first `position` tokens, in constant time; nothing is copied. KV
// that lags, or was filled in later, is not passed on (cairn/branch.h).
//   CAIRN_INVALID_ARGUMENT: beyond the length, inside an atomic span, or no such name or namespace
//     can be.
//   CAIRN_ALREADY_EXISTS: the name is taken in its namespace.
CAIRN_API cairn_code cairn_branch_fork_at(const cairn_branch* branch, uint64_t position,
                                          const cairn_branch_options* options, cairn_branch** fork,
                                          cairn_error** error);
// Forgets everything from `length` tokens on; other branches keep what they share. Works where
// there is no room for data.
//   CAIRN_INVALID_ARGUMENT: beyond the branch's length, or inside an atomic span.
//   CAIRN_BUSY: a large append of this branch is under way.
CAIRN_API cairn_code cairn_branch_rewind(cairn_branch* branch, uint64_t length,
                                         cairn_durability durability, cairn_error** error);
// `name`: "" for none. The namespace stays.
//   CAIRN_INVALID_ARGUMENT: too long.
//   CAIRN_ALREADY_EXISTS: another branch has the name.
CAIRN_API cairn_code cairn_branch_rename(cairn_branch* branch, const char* name,
                                         cairn_durability durability, cairn_error** error);
// The branch is gone for all handles; content that no other branch needs is given back in the
// background. Works where there is no room for data.
//   CAIRN_BUSY: a large append of this branch is under way.
CAIRN_API cairn_code cairn_branch_drop(cairn_branch* branch, cairn_durability durability,
                                       cairn_error** error);
// Frees the handle alone.
CAIRN_API void cairn_branch_free(cairn_branch* branch);

// --- Appends
// Asynchronous; never blocks on the disk, but for the index. Tokens, KV memory, tables and
// `gpu_ready` are borrowed until the ticket is released; structs and the other arrays are not
// needed any more when the call returns. `ticket` may be NULL. Applied, in order, when this
// returns; an append above submit_copy_max_bytes, or from a GPU, when its ticket is released.
// Errors at once, without a ticket; then nothing was applied:
//   CAIRN_INVALID_ARGUMENT: the delta does not fit the model, the branch or a limit.
//   CAIRN_CONFLICT: expected_length.
//   CAIRN_BUSY: buffers are full, the log is as long as it may be, room is being made, or a large
//     append of this branch is under way. Retry later, or wait with cairn_branch_append_sync.
//   CAIRN_NO_SPACE, and the other errors of a change but CAIRN_UNKNOWN_OUTCOME
// The ticket ends with CAIRN_OK when `durability` is reached. Otherwise it was not applied:
//   CAIRN_CANCELLED, CAIRN_DEADLINE_EXCEEDED, CAIRN_POISONED
//   CAIRN_INVALID_ARGUMENT, CAIRN_BUSY, CAIRN_NO_SPACE, CAIRN_IO_ERROR, CAIRN_OUT_OF_MEMORY: what a
//     borrowed or coalesced append met later.
// or it was, and is not known to be as durable as asked:
//   CAIRN_UNKNOWN_OUTCOME: the log failed, the deadline passed, the ticket was cancelled, or the
//     store closed.
CAIRN_API cairn_code cairn_branch_append(cairn_branch* branch, const cairn_delta* delta,
                                         const cairn_append_options* options, cairn_ticket** ticket,
                                         cairn_error** error);
// Blocking: waits for room, and leads the group commit on this thread, until `durability` is
// reached or timeout_ns is over. `length`, which may be NULL: of the branch behind the append.
//   CAIRN_INVALID_ARGUMENT, CAIRN_CONFLICT: as of cairn_branch_append.
//   CAIRN_NO_SPACE: no room came.
//   CAIRN_DEADLINE_EXCEEDED: nothing was applied.
//   CAIRN_UNKNOWN_OUTCOME: applied, but not known to be durable; retry with expected_length.
//   CAIRN_BUSY: KV of a GPU, and staging memory is used up.
//   and the other errors of a change.
CAIRN_API cairn_code cairn_branch_append_sync(cairn_branch* branch, const cairn_delta* delta,
                                              const cairn_append_options* options, uint64_t* length,
                                              cairn_error** error);
// Attaches recomputed KV to positions that have none. Blocking, as cairn_branch_append_sync, and
// with its errors. KV beyond kv_length is one delta; positions below it get theirs in steps: when
// one fails, or in a crash, those before it survive.
//   CAIRN_CONFLICT: expected_length; or another call shortened the branch meanwhile.
CAIRN_API cairn_code cairn_branch_fill(cairn_branch* branch, const cairn_kv_view* kv,
                                       const cairn_append_options* options, cairn_error** error);

// Positions that are filled layer by layer: cairn::Draft. Puts of different (group, layer) pairs
// may go on at once; commit, abort and free have no other call of the draft beside them. It holds
// memory of the store, and is lost in a crash until it is committed.
typedef struct cairn_draft cairn_draft;
// Staging for `positions` behind the branch's length, and for those before it whose KV lags. Reads
// nothing but the index.
//   CAIRN_BUSY: staging memory, a share of max_memory_bytes, is used up.
//   CAIRN_INVALID_ARGUMENT: staging could never hold `positions`, or it is 0 or beyond 16 Mi.
//   CAIRN_READ_ONLY, CAIRN_POISONED, and errors of the index.
CAIRN_API cairn_code cairn_branch_begin_append(cairn_branch* branch, uint64_t positions,
                                               cairn_draft** draft, cairn_error** error);
// Copies one layer of the positions that the view describes. Nothing is kept of the view, which is
// of host memory and has one layer base a plane. Does not block.
//   CAIRN_INVALID_ARGUMENT: the view does not fit the model or the draft; or the group keeps
//     states, which are given to cairn_draft_commit.
//   CAIRN_BUSY: what is repeated is on its way from a GPU.
//   CAIRN_INVALID_STATE: committed or aborted.
CAIRN_API cairn_code cairn_draft_put(cairn_draft* draft, uint32_t layer,
                                     const cairn_group_view* view, cairn_error** error);
// The same out of the memory of a GPU, by a thread of the store when `ready` (a cudaEvent_t, or 0)
// was reached; does not wait for the device. The event, KV memory and tables are borrowed until the
// ticket of cairn_draft_commit is released, or cairn_draft_abort or _free returns. That ticket
// reports an error on the way. Errors of cairn_draft_put, and
//   CAIRN_INVALID_ARGUMENT: there is no such GPU, or the view has not one group.
//   CAIRN_IO_ERROR: the device refused.
CAIRN_API cairn_code cairn_draft_put_from_gpu(cairn_draft* draft, uint32_t layer,
                                              const cairn_kv_view* view, uintptr_t ready,
                                              cairn_error** error);
// Appends the first delta->token_count positions; the KV in `delta` is of groups that keep states
// alone. Does not block on the disk. `ticket` may be NULL. After an error the draft may be tried
// again. Errors of cairn_branch_append, and
//   CAIRN_CONFLICT: the branch was changed since cairn_branch_begin_append.
//   CAIRN_INVALID_ARGUMENT: more tokens than positions.
//   CAIRN_INVALID_STATE: committed or aborted before.
CAIRN_API cairn_code cairn_draft_commit(cairn_draft* draft, const cairn_delta* delta,
                                        const cairn_append_options* options, cairn_ticket** ticket,
                                        cairn_error** error);
// Ends the draft, and waits for layers that are being gathered from a GPU just now. A commit goes
// on.
CAIRN_API void cairn_draft_abort(cairn_draft* draft);
// Aborts it unless it was committed; so it may block as cairn_draft_abort.
CAIRN_API void cairn_draft_free(cairn_draft* draft);

#ifdef __cplusplus
}  // extern "C"
#endif
