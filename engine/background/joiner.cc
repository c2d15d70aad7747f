// SPDX-License-Identifier: Apache-2.0
#include "engine/background/joiner.h"

#include <utility>
#include <vector>

#include "base/core/check.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

using Lock = Committer::Lock;

// The node takes in its parent, if that is needed by it alone. Joining can wait, so it takes no
// room that giving back may need.
Result<bool> Joiner::Join(uint64_t node) {
  if (deps_.gauge->DataIsShort()) return false;
  const Result<Op> joined = deps_.callbacks->Change(
      {.branches = {}, .nodes = {node}, .names = {}, .decided = true},
      [node](const Tree& tree) -> Result<Op> { return ResolveJoin(tree, node); },
      wal::Log::Purpose::kData);
  if (joined.ok()) {
    deps_.counters->joined_nodes.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  const StatusCode code = joined.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kNoSpace) return false;
  return joined.status();
}

Result<uint64_t> Joiner::JoinAround(uint64_t node) {
  uint64_t child = 0;
  {
    Lock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(
        deps_.access->Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
    child = OnlyChild(tree_, node);
  }
  if (child != 0) {
    CAIRN_ASSIGN_OR_RETURN(const bool joined, Join(child));
    if (joined) return child;
  }
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const bool joined, Join(node));
    if (!joined) return 0;
    CAIRN_RETURN_IF_ERROR(flusher_->FlushTreeIfDue());
  }
}

Status Joiner::JoinChains() {
  std::vector<uint64_t> nodes;
  {
    std::lock_guard lock(mutex_);
    nodes.assign(tree_.leftovers().joinable().begin(), tree_.leftovers().joinable().end());
    tree_.leftovers().ForgetJoinable();
    noted_ = false;
  }
  for (uint64_t node : nodes) {
    size_t length = 0;  // Nodes from this one on, each with one child.
    {
      Lock lock(mutex_);
      CAIRN_RETURN_IF_ERROR(
          deps_.access->Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      for (uint64_t at = node; at != 0 && length < kJoinChainMin; ++length) {
        at = OnlyChild(tree_, at);
      }
      const Node* above = tree_.FindNode(node);
      while (above != nullptr && length < kJoinChainMin) {
        const Node* const parent = tree_.FindNode(above->parent);
        if (parent == nullptr || OnlyChild(tree_, parent->id) != above->id) break;
        above = parent;
        ++length;
      }
    }
    while (node != 0 && length >= kJoinChainMin) {
      CAIRN_RETURN_IF_ERROR(deps_.rate_limiter->GoOn());
      CAIRN_RETURN_IF_ERROR(flusher_->FlushTreeIfDue());
      const uint64_t before = deps_.counters->joined_nodes.load();
      CAIRN_ASSIGN_OR_RETURN(node, JoinAround(node));
      deps_.round->CountReclaimed(deps_.counters->joined_nodes.load() - before);
    }
  }
  return Status::Ok();
}

bool Joiner::IsDue() const { return tree_.leftovers().joinable().size() >= kJoinChainMin; }

bool Joiner::BecomesDue() { return IsDue() && !std::exchange(noted_, true); }

}  // namespace cairn::engine
