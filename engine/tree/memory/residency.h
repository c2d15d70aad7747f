// SPDX-License-Identifier: Apache-2.0
//
// The branches and nodes that are in memory, and how room is made among them. Entries here are
// newer than the index; dropped ones stay until the index knows. With a branch every node of its
// path is in memory; each node counts its users. Part of a Tree: the commit lock guards it. No I/O.
//
// Room is made by a clock: an entry that was used since the hand passed last gets another round. A
// node goes after its last user. A changed entry leaves the clock until it is flushed, so that the
// hand does not pass it again and again while most entries are changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/tree/memory/dirty_records.h"
#include "engine/tree/memory/node.h"

namespace cairn::engine {

class Residency {
 public:
  // --- Looking. Null: it is gone, or not in memory.
  const Head* FindHead(uint64_t branch) const;
  const Head* FindHead(std::string_view ns, std::string_view name) const;
  const Node* FindNode(uint64_t node) const;
  // It is in memory, or known to be gone: the index need not be asked.
  bool KnowsHead(uint64_t branch) const { return heads_.contains(branch); }
  bool KnowsNode(uint64_t node) const { return nodes_.contains(node); }
  // Heads in order of (namespace, name, id), from `from` on; false from `visit` ends.
  using NameKey = std::tuple<std::string, std::string, uint64_t>;
  void VisitNames(const NameKey& from, const std::function<bool(const NameKey&)>& visit) const;
  bool AnyUsedAfter(uint64_t at_ns) const;
  size_t bytes() const { return bytes_; }  // Approximate.
  uint64_t loads() const { return loads_; }
  size_t node_count() const { return nodes_.size(); }  // Also of those that are gone.

  // --- Changing entries
  Node* MutableNode(uint64_t node);
  Head* MutableHead(uint64_t branch);
  // Also when it is gone; null: not in memory.
  Node* NodeOrGone(uint64_t node);
  Head* HeadOrGone(uint64_t branch);
  // REQUIRES: it is in memory, maybe gone.
  Head& HeadAt(uint64_t branch) { return heads_.at(branch); }
  // Updates the memory charged for it after a change.
  void Charge(Node* node);
  void Charge(Head* head);
  // Names of the heads here. EraseName, ExtractName and InsertName cannot fail.
  using Names = std::set<NameKey>;
  void AddName(const NameKey& key) { names_.insert(key); }
  void InsertName(Names::node_type name) { names_.insert(std::move(name)); }
  Names::node_type ExtractName(const NameKey& key) { return names_.extract(key); }
  void EraseName(const NameKey& key) { names_.erase(key); }

  // --- Coming and going. Remember before adding: an entry that the clock lacks is never trimmed.
  void RememberHead(uint64_t branch) { clock_.emplace_back(true, branch); }
  void RememberNode(uint64_t node) { clock_.emplace_back(false, node); }
  // The same for everything that is off the clock. May throw.
  void RememberDirty(const DirtyRecords& dirty);
  // REQUIRES: its number is not known. Nothing is charged for it yet.
  Head* AddHead(Head head);
  Node* AddNode(std::unique_ptr<Node> node);
  void CountLoad() { ++loads_; }  // One of them came from the index.
  // Forgets it, if it is in memory. Its name, its users and its ref on its node are the caller's to
  // remove. Cannot fail.
  void RemoveHead(uint64_t branch);
  void RemoveNode(uint64_t node);

  // --- Making room
  // Keeps a node in memory, as long as it lives. REQUIRES: it is in memory.
  void AddUser(uint64_t node) { ++nodes_.at(node)->users; }
  void RemoveUser(uint64_t node);
  // Drops the least recently used entries that are unused now and unchanged since their tree flush,
  // until at most `max_bytes` are left or `steps` entries were examined.
  void Trim(size_t max_bytes, size_t steps = SIZE_MAX);
  void TrimRefs(uint64_t node);  // REQUIRES: the index has all of them.

 private:
  // A branch or node of the namespace comes or goes: it is charged as long as it has users.
  void AddUser(const NamespaceUsage* use);
  void RemoveUser(const NamespaceUsage* use);
  // Examines one entry of the clock. True: it stays on it.
  bool PassHead(uint64_t branch, size_t max_bytes);
  bool PassNode(uint64_t node, size_t max_bytes);

  std::unordered_map<uint64_t, std::unique_ptr<Node>> nodes_;
  std::unordered_map<uint64_t, Head> heads_;
  Names names_;
  std::deque<std::pair<bool, uint64_t>> clock_;  // {is a head, id}, next to be examined first.
  size_t bytes_ = 0;
  uint64_t loads_ = 0;
};

}  // namespace cairn::engine
