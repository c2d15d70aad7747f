// SPDX-License-Identifier: Apache-2.0
//
// Nodes that a change left with less need for them than before, as far as memory noted them:
//   undecided  nothing in memory needs it, while the index may know something that does
//   untrimmed  it may reach beyond the farthest that needs it, until it is trimmed (trim.cc)
//   joinable   one child is all that it is for (join.cc)
// liveness.h decides about them. Part of a Tree: the commit lock guards it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/tree/memory/node.h"

namespace cairn::engine {

class Leftovers {
 public:
  // Room for `more` undecided and untrimmed nodes each: they are noted where nothing can fail.
  void Reserve(size_t more);

  const std::vector<uint64_t>& undecided() const { return undecided_; }
  // REQUIRES: room.
  void AddUndecided(uint64_t node) { undecided_.push_back(node); }
  bool EraseUndecided(uint64_t node);  // False: it was not undecided.

  // Each once; some may be gone, or trimmed in a replay. They survive tree flushes and reopening,
  // until it is known that they are not, or no longer, untrimmed.
  std::span<const uint64_t> untrimmed() const { return untrimmed_; }
  // `bytes`: raw bytes that it will lose when it is trimmed. REQUIRES: room.
  void MarkUntrimmed(uint64_t node, uint64_t bytes);
  void LoadUntrimmed(uint64_t node) { untrimmed_.push_back(node); }
  void EraseUntrimmed(uint64_t node);  // Nothing, if it is none.
  uint64_t untrimmed_bytes() const { return untrimmed_bytes_; }

  // Nodes that were seen with one child and nothing else that needs them. Only the latest are kept,
  // and some of these may need no join any more.
  std::span<const uint64_t> joinable() const {
    return std::span(joinable_).first(std::min(joinable_noted_, joinable_.size()));
  }
  void AddJoinable(uint64_t node) { joinable_[joinable_noted_++ % joinable_.size()] = node; }
  void ForgetJoinable() { joinable_noted_ = 0; }

 private:
  std::vector<uint64_t> undecided_;
  std::vector<uint64_t> untrimmed_;
  uint64_t untrimmed_bytes_ = 0;
  std::array<uint64_t, kJoinableKept> joinable_{};  // A ring.
  size_t joinable_noted_ = 0;
};

}  // namespace cairn::engine
