// SPDX-License-Identifier: Apache-2.0
//
// Chains of nodes with one child each, which drops leave behind, become one node (tree/join.cc)
// when something of them is about to be sealed: then what lay on several nodes goes into one
// fragment. Of what is sealed already long ones do so in idle time.
#include <algorithm>

#include "engine/store_core.h"

namespace cairn {

using engine::Op;
using engine::Tree;

// The node takes in its parent, if it is all that is left of it. It can wait, so it takes no room
// that giving back may need.
Result<bool> StoreCore::Join(uint64_t node) {
  if (gauge_.DataIsShort()) return false;
  const Result<Op> joined = Change(
      {.branches = {}, .nodes = {node}, .names = {}, .decided = true},
      [node](const Tree& tree) -> Result<Op> { return tree.ResolveJoin(node); },
      Durability::kMemory, wal::Log::Purpose::kData, /*waits_for_room=*/false);
  if (joined.ok()) {
    space_counters_.joined_nodes.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  const StatusCode code = joined.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kNoSpace) return false;
  return joined.status();
}

// A node that is about to be sealed: its only child takes it in, which is then to be sealed in its
// place and is returned. Else, and then it is 0, it takes in those above it.
Result<uint64_t> StoreCore::JoinAround(uint64_t node) {
  uint64_t child = 0;
  {
    Lock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(access_.Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
    child = tree_.OnlyChild(node);
  }
  if (child != 0) {
    CAIRN_ASSIGN_OR_RETURN(const bool joined, Join(child));
    if (joined) return child;
  }
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const bool joined, Join(node));
    if (!joined) return 0;
    CAIRN_RETURN_IF_ERROR(flusher_.DumpIfDue());
  }
}

// Long chains around the nodes that memory remembers as joinable.
Status StoreCore::JoinChains() {
  std::vector<uint64_t> nodes;
  {
    std::lock_guard lock(mutex_);
    nodes.assign(tree_.joinable().begin(), tree_.joinable().end());
    tree_.ForgetJoinable();
    joins_noted_ = false;
  }
  for (uint64_t node : nodes) {
    size_t length = 0;  // Nodes from this one on, each with one child.
    {
      Lock lock(mutex_);
      CAIRN_RETURN_IF_ERROR(access_.Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      for (uint64_t at = node; at != 0 && length < engine::kJoinChainMin; ++length) {
        at = tree_.OnlyChild(at);
      }
      const engine::Node* above = tree_.FindNode(node);
      while (above != nullptr && length < engine::kJoinChainMin) {
        const engine::Node* const parent = tree_.FindNode(above->parent);
        if (parent == nullptr || tree_.OnlyChild(parent->id) != above->id) break;
        above = parent;
        ++length;
      }
    }
    while (node != 0 && length >= engine::kJoinChainMin) {
      CAIRN_RETURN_IF_ERROR(pacer_.GoOn());
      CAIRN_RETURN_IF_ERROR(flusher_.DumpIfDue());
      const uint64_t before = space_counters_.joined_nodes.load();
      CAIRN_ASSIGN_OR_RETURN(node, JoinAround(node));
      round_.NoteReclaimed(space_counters_.joined_nodes.load() - before);
    }
  }
  return Status::Ok();
}

}  // namespace cairn
