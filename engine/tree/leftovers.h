// SPDX-License-Identifier: Apache-2.0
//
// Nodes that a change left with less need for them than before, as far as memory noted them:
//   undecided  nothing in memory needs it, while the index may know something that does
//   loose      it may reach beyond the farthest that needs it, until it is cut (cut.cc)
//   joinable   one child is all that it is for (join.cc)
// liveness.h decides about them. Part of a Tree: the commit lock guards it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/tree/node.h"

namespace cairn::engine {

class Leftovers {
 public:
  // Room for `more` undecided and loose nodes each: they are noted where nothing can fail.
  void Reserve(size_t more);

  const std::vector<uint64_t>& undecided() const { return undecided_; }
  // REQUIRES: room.
  void NoteUndecided(uint64_t node) { undecided_.push_back(node); }
  bool EraseUndecided(uint64_t node);  // False: it was not undecided.

  // Each once; some may be gone, or cut in a replay. They survive dumps and reopening, until it is
  // known that they are not, or no longer, loose.
  std::span<const uint64_t> loose() const { return loose_; }
  // `bytes`: raw bytes that it will lose when it is cut. REQUIRES: room.
  void NoteLoose(uint64_t node, uint64_t bytes);
  void LoadLoose(uint64_t node) { loose_.push_back(node); }
  void EraseLoose(uint64_t node);  // Nothing, if it is none.
  uint64_t loose_bytes_noted() const { return loose_bytes_noted_; }

  // Nodes that were seen with one child and nothing else that needs them. Only the latest are kept,
  // and some of these may need no join any more.
  std::span<const uint64_t> joinable() const {
    return std::span(joinable_).first(std::min(joinable_noted_, joinable_.size()));
  }
  void NoteJoinable(uint64_t node) { joinable_[joinable_noted_++ % joinable_.size()] = node; }
  void ForgetJoinable() { joinable_noted_ = 0; }

 private:
  std::vector<uint64_t> undecided_;
  std::vector<uint64_t> loose_;
  uint64_t loose_bytes_noted_ = 0;
  std::array<uint64_t, kJoinableKept> joinable_{};  // A ring.
  size_t joinable_noted_ = 0;
};

}  // namespace cairn::engine
