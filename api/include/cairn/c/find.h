// SPDX-License-Identifier: Apache-2.0
//
// C API: finds the longest prefix of a prompt that a branch holds. The C++ twin is cairn/find.h;
// the calls are those of cairn/store.h. docs/reuse.md goes from a prompt to a branch.
//
//   cairn_prefix_query query;
//   cairn_prefix_query_init(&query, sizeof query);
//   query.model = model;
//   query.tokens = prompt;
//   query.token_count = prompt_count;
//   query.lease_ns = 5000000000;  // Nothing evicts the hit for 5 seconds.
//   cairn_prefix_hit hit;
//   cairn_prefix_hit_init(&hit, sizeof hit);
//   if (cairn_store_find_prefix(store, &query, &hit, &error) == CAIRN_OK && hit.node != 0) {
//     code = cairn_store_fork(store, &hit, hit.restorable, NULL, &branch, &error);
//     cairn_store_release(store, hit.lease, NULL);
//   }
//
// Prefixes are looked for in blocks of 64 tokens; a shorter one is not found. All calls of this
// file may be made from any thread.
#pragma once

#include "cairn/c/restore.h"
#include "cairn/c/store.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::PrefixQuery: what to look for. The struct and everything that it points to are borrowed
// for the call.
typedef struct cairn_prefix_query {
  size_t struct_size;
  uint64_t model;                   // Id. State of other models, variants or shards is never found.
  const uint32_t* tokens;           // The prompt.
  size_t token_count;               // Up to 2^31 - 1.
  const cairn_content_span* spans;  // Images and audio among these tokens, in order.
  size_t span_count;                // A prefix must have the same spans with the same hashes.
  const char* ns;                   // The caller's namespace; NULL: the one without a name.
  const char* const* also;          // Other namespaces that the caller may see. There is no "all".
  size_t also_count;                // With `ns` 16 at most.
  bool memory_only;                 // Never touches the disk: CAIRN_BUSY where it would have to.
  bool confirm;                     // true. Off: matched by hash alone, and no lease.
  bool approximate;                 // KV that was appended as approximate counts, too.
  uint64_t lease_ns;                // Nanoseconds that nothing evicts the hit; 0: no lease.
} cairn_prefix_query;
CAIRN_API void cairn_prefix_query_init(cairn_prefix_query* query, size_t struct_size);

// cairn::PrefixHit: where a branch has the first tokens of the prompt. A plain value: it may be
// copied and kept, and used from any thread. Only its lease holds content. Lengths are positions.
typedef struct cairn_prefix_hit {
  size_t struct_size;   // Set before the call.
  uint64_t node;        // 0: nothing was found.
  uint64_t matched;     // Token ids and spans are the same up to here.
  uint64_t restorable;  // KV up to here can be restored; a fork here has it.
  uint64_t exact;       // No KV up to here was appended as approximate.
  bool confirmed;       // Ids and spans were compared one by one.
  bool complete;        // Off: the index is behind, and there may be a better hit.
  uint64_t lease;       // For cairn_store_renew and _release. 0: none.
  uint64_t seen[5];     // Not for callers.
  // The longest match of ids that the search met, perhaps of another node, which may have less KV.
  uint64_t longest_node, longest_matched;
} cairn_prefix_hit;
CAIRN_API void cairn_prefix_hit_init(cairn_prefix_hit* hit, size_t struct_size);

// The place of which most can be restored of what begins as the prompt does in these namespaces,
// then the one that matches more of it, then the newest. Looked at are the places that agree on the
// last whole block of 64 positions that any of them has; and where none of them can be restored up
// to there, on two shallower blocks at most. No hit is no error: `hit` then has node 0.
//
// Blocking, unless memory_only is on: it indexes up to 256 nodes that were appended to before (else
// the hit is not `complete`), and reads the index and the token ids that it confirms. No deadline.
// A follower answers from the state that it shows, if its writer indexes, and gives no leases. A
// crash loses nothing: the index is made again.
//   CAIRN_INVALID_ARGUMENT: names the field.
//   CAIRN_NOT_FOUND: there is no such model.
//   CAIRN_INVALID_STATE: the store indexes nothing (cairn_options::index).
//   CAIRN_BUSY: with memory_only, the answer is not in memory.
//   CAIRN_CORRUPTION, CAIRN_IO_ERROR: the index or the ids cannot be read.
CAIRN_API cairn_code cairn_store_find_prefix(const cairn_store* store,
                                             const cairn_prefix_query* query, cairn_prefix_hit* hit,
                                             cairn_error** error);
// Makes a branch that begins with the first `position` tokens of the hit, up to `matched`.
// `options` may be NULL; *branch is freed with cairn_branch_free. The hit may be old: then ids are
// read again, and the branch never has other tokens. Blocking, as a change (top of
// cairn/c/branch.h).
//   CAIRN_CONFLICT: other tokens have taken the place since.
//   CAIRN_NOT_FOUND: it was dropped.
//   CAIRN_INVALID_ARGUMENT: the hit found nothing, or `position` is beyond `matched`; and as
//     cairn_branch_fork_at.
//   CAIRN_ALREADY_EXISTS: the name is taken in its namespace.
//   CAIRN_INVALID_STATE: the store indexes nothing.
//   and errors of a change.
CAIRN_API cairn_code cairn_store_fork(cairn_store* store, const cairn_prefix_hit* hit,
                                      uint64_t position, const cairn_branch_options* options,
                                      cairn_branch** branch, cairn_error** error);
// As cairn_branch_restore (blocking, with its errors and borrowing), of positions up to `matched`,
// which is also the `end` that is left out. `queue`, `user_data` and `released` of the request do
// not count. `progress` and `result` may be NULL. No branch counts as used. Before anything is
// written it gives the errors of cairn_store_fork, and
//   CAIRN_STALE: the tree changes faster than it is read; retry.
CAIRN_API cairn_code cairn_store_restore(const cairn_store* store, const cairn_prefix_hit* hit,
                                         const cairn_restore_request* request,
                                         cairn_layer_progress* progress,
                                         cairn_restore_result** result, cairn_error** error);
// The lease lasts `lease_ns` nanoseconds from now on, cairn_options::max_lease_ns at most. Does no
// I/O. CAIRN_NOT_FOUND: the lease is over, and the content may be gone; or it was dropped, of
// objects all of it.
CAIRN_API cairn_code cairn_store_renew(cairn_store* store, uint64_t lease, uint64_t lease_ns,
                                       cairn_error** error);
// Ends the lease. A lease that is over, or 0, is fine. Does no I/O.
CAIRN_API cairn_code cairn_store_release(cairn_store* store, uint64_t lease, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
