// SPDX-License-Identifier: Apache-2.0
//
// Nodes that a change left with less need for them than they had, as far as memory noted them:
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
  // Room for so many more undecided and loose ones each: they are noted where nothing can fail.
  void Reserve(size_t more);

  const std::vector<uint64_t>& undecided() const { return undecided_; }
  // REQUIRES: room.
  void NoteUndecided(uint64_t node) { undecided_.push_back(node); }
  bool EraseUndecided(uint64_t node);  // False: it was none.

  // Each once; some may be gone, or cut in a replay. They stay over dumps and openings, until it is
  // known that they are not loose, or not any more.
  std::span<const uint64_t> loose() const { return loose_; }
  // `bytes`: what it will lose when it is cut, raw. REQUIRES: room.
  void NoteLoose(uint64_t node, uint64_t bytes);
  void LoadLoose(uint64_t node) { loose_.push_back(node); }
  void EraseLoose(uint64_t node);  // Nothing, if it is none.
  uint64_t loose_bytes_noted() const { return loose_bytes_noted_; }

  // Nodes that were seen to have one child left and nothing else; some of the last, and some of
  // these are no longer so.
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
