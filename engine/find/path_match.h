// SPDX-License-Identifier: Apache-2.0
//
// How far a node's path can serve a query whose ids it has: what its content spans, its provenance
// and its KV allow. Looks at the tree alone; the commit lock is held, and the node is in memory.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/branch_types.h"
#include "engine/tree/memory/tree.h"

namespace cairn::engine {

struct PathMatch {
  uint64_t node = 0;     // On the path, the one that `matched` lies on...
  uint64_t ns_seed = 0;  // ...of this namespace (SeedOf)...
  uint64_t kv_node = 0;  // ...and the one that `restorable` lies on; 0: that is 0.
  uint64_t matched = 0, restorable = 0, exact = 0;
  // So far ids, spans and provenance allow it. `matched` ends before an atomic span that this lies
  // within, so of two such positions the farther one may have what the nearer one has not.
  uint64_t agrees = 0;
};

// The path that ends with all of `node` and agrees with the query's ids up to `position`, if that
// is so far. `approximate`: KV that is not exact does not end it.
PathMatch MatchPath(const Tree& tree, const Node& node, uint64_t position,
                    std::span<const ContentSpan> spans, bool approximate);

// The node of the path that the last of `position` tokens lies on. REQUIRES: `position` is not 0.
const Node* NodeOf(const Tree& tree, const Node* node, uint64_t position);

// The first position below `limit`, in any group, of KV on this path that is not exact; `limit` if
// there is none.
uint64_t FirstApproximate(const Tree& tree, const Node& end, uint64_t limit);

// The raw bytes that a lease of the node counts: those on the node itself. The lease holds the
// nodes above it as well. Their bytes are not counted: most leases share them.
uint64_t BytesBelow(const Tree& tree, const Node& node, uint64_t position);

// The first position below `limit` at which two rows of spans, each in order, say different things;
// `limit` if there is none.
uint64_t FirstOtherSpan(std::span<const ContentSpan> a, std::span<const ContentSpan> b,
                        uint64_t limit);

}  // namespace cairn::engine
