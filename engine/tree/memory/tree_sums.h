// SPDX-License-Identifier: Apache-2.0
//
// The totals of the tree and of each namespace: sums that every change keeps up to
// date, so that nothing has to walk over a million nodes. Part of a Tree: the commit lock guards
// it. No I/O.
//
// A namespace without a policy goes out of memory with the last of its branches and nodes, at a
// flush of the tree; what loads one of these, or changes the sums, loads the namespace first
// (tree_loader.h). The policies of all are here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/tree/memory/node.h"

namespace cairn::engine {

// Bytes of one position of a lane, raw.
uint64_t PositionBytes(const ModelSpec& model, size_t lane);

class TreeSums {
 public:
  const TreeCounts& counts() const { return counts_; }
  using Namespaces = std::map<std::string, NamespaceUsage, std::less<>>;
  const Namespaces& namespaces() const { return namespaces_; }  // In memory.
  // How many the index has besides.
  uint64_t unloaded() const { return unloaded_; }
  // Null: it has no policy, and nothing of it is in memory.
  const NamespaceUsage* FindNamespace(std::string_view ns) const;
  // Made if it is not there. REQUIRES: the index does not have it then. Its address is stable as
  // long as it has users or a policy, and until the next flush.
  NamespaceUsage* NamespaceOf(const std::string& ns) {
    return &namespaces_.try_emplace(ns).first->second;
  }
  // As the index has it: at the opening, where it stays out of memory if it may; and when it is
  // needed. REQUIRES: it is not in memory.
  void TakeStock(std::string_view ns, const NamespaceUsage& use);
  void Load(const std::string& ns, const NamespaceUsage& use);
  // Bytes of all namespaces, in memory or not.
  uint64_t held_bytes() const { return held_bytes_; }
  void CountHeld(NamespaceUsage* use, uint64_t bytes) {  // Modulo 2^64.
    use->bytes += bytes;
    held_bytes_ += bytes;
  }

  // None of these can fail. `sign`: 1 adds, -1 subtracts.
  void CountBranch(NamespaceUsage* use, int sign);
  void CountNode(NamespaceUsage* use, int sign);
  // Content of the node: call before and after every change of its lanes (Recount).
  void CountLanes(const Node& node, const ModelSpec& model, int sign);

  // Content of nodes that died, as NamespaceUsage::bytes counts it; since this tree was opened.
  uint64_t died_bytes() const { return died_bytes_; }
  void CountDied(uint64_t bytes) { died_bytes_ += bytes; }
  void UndoDied(uint64_t bytes) { died_bytes_ -= bytes; }

  // Takes (1) or returns (-1) room of a namespace for appends that are still to be applied.
  void CountCoalesced(const std::string& ns, uint64_t bytes, int sign);
  void CountEviction(const std::string& ns);

  // No branch expires before this; 0: none expires.
  uint64_t expires_from_ns() const { return expires_from_ns_; }
  void SetExpiresFrom(uint64_t ns) { expires_from_ns_ = ns; }
  void RecordExpiry(const Head& head);

  void Load(const TreeCounts& counts) { counts_ = counts; }
  // The index has all of it: namespaces that may go are removed. Cannot fail.
  void MarkFlushed();

 private:
  TreeCounts counts_;
  Namespaces namespaces_;
  uint64_t unloaded_ = 0, held_bytes_ = 0;
  uint64_t died_bytes_ = 0;
  uint64_t expires_from_ns_ = 0;
};

}  // namespace cairn::engine
