// SPDX-License-Identifier: Apache-2.0
#include "engine/find/path_match.h"

#include <algorithm>
#include <vector>

#include "engine/find/prefix_hash.h"
#include "engine/restore/plan/plan.h"
#include "engine/restore/plan/restorable.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

namespace {

// Where a branch may end, at or before `position`.
uint64_t OutsideAtomic(std::span<const ContentSpan> spans, uint64_t position) {
  for (const ContentSpan& span : spans) {
    if (span.atomic && span.begin < position && position < span.end) return span.begin;
  }
  return position;
}

struct PathView {
  const Tree& tree;
  const Node& end;
  std::span<const ContentSpan> spans;  // The whole path's.
  bool approximate;
};

// How far a branch that ends on this node can be restored, up to `at_most`.
uint64_t RestorableOn(const PathView& path, const Node& node, uint64_t at_most, uint64_t* exact) {
  // Other KV than the path's own counts where the path leaves the node.
  if (&node != &path.end) {
    *exact = std::min(*exact, FirstApproximate(path.tree, node, at_most));
    if (!path.approximate) at_most = std::min(at_most, *exact);
  }
  const Head head = HeadOfNode(node);
  while (true) {
    const uint64_t restorable = RestorableLength(path.tree, head, at_most);
    at_most = OutsideAtomic(path.spans, restorable);
    if (at_most == restorable) return restorable;
  }
}

// A hit is restored from the node that `matched` lies on, and forked at any position before: then
// the fork ends on the node of that position, which need not have the KV that a child of it has.
// So both must have it.
void FindRestorable(const PathView& path, const Node& on, PathMatch* match) {
  match->restorable = RestorableOn(path, on, match->matched, &match->exact);
  while (match->restorable != 0) {
    const Node& forked = ForkedNode(path.tree, on, match->restorable);
    const uint64_t left = &forked == &on
                              ? match->restorable
                              : RestorableOn(path, forked, match->restorable, &match->exact);
    if (left == match->restorable) break;
    match->restorable = RestorableOn(path, on, left, &match->exact);
  }
  if (match->restorable != 0) match->kv_node = NodeOf(path.tree, &on, match->restorable)->id;
}

}  // namespace

// Searches the path below `limit`. What a node has behind where its child leaves is of other
// branches.
uint64_t FirstApproximate(const Tree& tree, const Node& end, uint64_t limit) {
  const Node* child = nullptr;
  for (const Node* node = &end; node != nullptr; node = tree.OnPath(node->parent)) {
    for (size_t i = kTokenLane + 1; i < node->lanes.size(); ++i) {
      const uint64_t left_at = child == nullptr ? limit : child->lanes[i].start;
      for (const Extent& extent : node->lanes[i].extents) {
        if (extent.begin >= std::min(limit, left_at)) break;
        if (!extent.exact && !extent.place.absent()) limit = extent.begin;
      }
    }
    child = node;
  }
  return limit;
}

const Node* NodeOf(const Tree& tree, const Node* node, uint64_t position) {
  while (node->lanes[kTokenLane].start >= position) node = tree.OnPath(node->parent);
  return node;
}

uint64_t FirstOtherSpan(std::span<const ContentSpan> a, std::span<const ContentSpan> b,
                        uint64_t limit) {
  for (size_t i = 0;; ++i) {
    const uint64_t a_begin = i < a.size() ? a[i].begin : limit;
    const uint64_t b_begin = i < b.size() ? b[i].begin : limit;
    if (std::min(a_begin, b_begin) >= limit) return limit;
    if (a_begin != b_begin) return std::min(a_begin, b_begin);
    if (!std::equal(a[i].hash, a[i].hash + 2, b[i].hash)) return a_begin;
    const uint64_t end = std::min(a[i].end, b[i].end);
    if (end >= limit) return limit;
    if (a[i].end != b[i].end) return end;
  }
}

PathMatch MatchPath(const Tree& tree, const Node& node, uint64_t position,
                    std::span<const ContentSpan> spans, bool approximate) {
  PathMatch match;
  const Head head = HeadOfNode(node);
  match.matched = std::min(position, head.lengths[kTokenLane]);
  // With what reaches beyond: a branch must not end within that.
  const std::vector<ContentSpan> here = CollectSpans(tree, head, 0, head.lengths[kTokenLane]);
  match.matched = FirstOtherSpan(here, spans, match.matched);
  match.exact = FirstApproximate(tree, node, match.matched);
  if (!approximate) match.matched = match.exact;
  match.agrees = match.matched;
  match.matched = OutsideAtomic(here, match.matched);
  if (match.matched != 0) {
    const Node* const on = NodeOf(tree, &node, match.matched);
    match.node = on->id;
    match.ns_seed = SeedOf(on->ns);
    FindRestorable({tree, node, here, approximate}, *on, &match);
  }
  match.exact = std::min(match.exact, match.matched);
  return match;
}

uint64_t BytesBelow(const Tree& tree, const Node& node, uint64_t position) {
  const uint64_t tokens = position - std::min(position, node.lanes[kTokenLane].start);
  return tokens * (sizeof(TokenId) + tree.ModelOf(node).token_bytes());
}

}  // namespace cairn::engine
