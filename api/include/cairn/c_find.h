// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: the longest prefix of a prompt that a branch holds. The C++ twin is cairn/find.h;
// the calls are those of cairn/store.h.
#pragma once

#include "cairn/c_restore.h"
#include "cairn/c_store.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::PrefixQuery. Borrowed for the call.
typedef struct cairn_prefix_query {
  size_t struct_size;
  uint64_t model;
  const uint32_t* tokens;
  size_t token_count;
  const cairn_content_span* spans;
  size_t span_count;
  const char* ns;
  const char* const* also;  // Other namespaces that the caller may see.
  size_t also_count;
  bool memory_only;
  bool confirm;      // true
  bool approximate;
  uint64_t lease_ns;
} cairn_prefix_query;
CAIRN_API void cairn_prefix_query_init(cairn_prefix_query* query, size_t struct_size);

// cairn::PrefixHit. A plain value; may be copied, and lives as long as its caller likes.
typedef struct cairn_prefix_hit {
  size_t struct_size;   // Set before the call.
  uint64_t node;        // 0: nothing was found.
  uint64_t matched;     // Positions, as the next two.
  uint64_t restorable;
  uint64_t exact;
  bool confirmed;
  bool complete;
  uint64_t lease;       // 0: none.
  uint64_t seen[5];     // Not for callers.
} cairn_prefix_hit;
CAIRN_API void cairn_prefix_hit_init(cairn_prefix_hit* hit, size_t struct_size);

// Blocking, unless memory_only is on. No hit is no error.
CAIRN_API cairn_code cairn_store_find_prefix(const cairn_store* store,
                                             const cairn_prefix_query* query, cairn_prefix_hit* hit,
                                             cairn_error** error);
// CAIRN_CONFLICT or CAIRN_NOT_FOUND when the hit is no longer true.
CAIRN_API cairn_code cairn_store_fork(cairn_store* store, const cairn_prefix_hit* hit,
                                      uint64_t position, const cairn_branch_options* options,
                                      cairn_branch** branch, cairn_error** error);
// As cairn_branch_restore, of positions up to `matched`.
CAIRN_API cairn_code cairn_store_restore(const cairn_store* store, const cairn_prefix_hit* hit,
                                         const cairn_restore_request* request,
                                         cairn_layer_progress* progress,
                                         cairn_restore_result** result, cairn_error** error);
// From now on for so long. CAIRN_NOT_FOUND: the lease is over.
CAIRN_API cairn_code cairn_store_renew(cairn_store* store, uint64_t lease, uint64_t lease_ns,
                                       cairn_error** error);
CAIRN_API cairn_code cairn_store_release(cairn_store* store, uint64_t lease, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
