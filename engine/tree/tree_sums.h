// SPDX-License-Identifier: Apache-2.0
//
// What the tree holds in all, and what each namespace does: sums that every change keeps right, so
// that nothing has to walk over a million nodes. Part of a Tree: the commit lock guards it. No I/O.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/tree/node.h"

namespace cairn::engine {

// Bytes of one position of a lane, raw.
uint64_t PositionBytes(const ModelSpec& model, size_t lane);

class TreeSums {
 public:
  const TreeCounts& counts() const { return counts_; }
  using Namespaces = std::map<std::string, NamespaceUse, std::less<>>;
  const Namespaces& namespaces() const { return namespaces_; }
  // Null: nothing is in it, and it has no policy.
  const NamespaceUse* FindNamespace(std::string_view ns) const;
  // Made if it is not there. Stays where it is until it is empty and that is dumped.
  NamespaceUse* NamespaceOf(const std::string& ns) {
    return &namespaces_.try_emplace(ns).first->second;
  }

  // Of these none can fail. `sign`: 1 adds, -1 takes out.
  void CountBranch(NamespaceUse* use, int sign);
  void CountNode(NamespaceUse* use, int sign);
  // What lies on the node: before and after every change of its lanes (Recount).
  void CountLanes(const Node& node, const ModelSpec& model, int sign);

  // What nodes held that died, as NamespaceUse::bytes counts; since this tree was opened.
  uint64_t died_bytes() const { return died_bytes_; }
  void NoteDied(uint64_t bytes) { died_bytes_ += bytes; }
  void UndoDied(uint64_t bytes) { died_bytes_ -= bytes; }

  // So much room of a namespace is taken (1), or given back (-1), for what is still to be applied.
  void NoteJoined(const std::string& ns, uint64_t bytes, int sign);
  void NoteEviction(const std::string& ns);

  // The first branch to expire does so no earlier; 0: none does.
  uint64_t expires_from_ns() const { return expires_from_ns_; }
  void SetExpiresFrom(uint64_t ns) { expires_from_ns_ = ns; }
  void NoteExpiry(const Head& head);

  void Load(const TreeCounts& counts) { counts_ = counts; }
  // The index has all of it: what is empty goes. Cannot fail.
  void NoteDumped();

 private:
  TreeCounts counts_;
  Namespaces namespaces_;
  uint64_t died_bytes_ = 0;
  uint64_t expires_from_ns_ = 0;
};

}  // namespace cairn::engine
