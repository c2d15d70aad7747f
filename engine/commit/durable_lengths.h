// SPDX-License-Identifier: Apache-2.0
//
// Which length of a branch is durable, as long as that is not the one that it has. Lengths wait
// here for the sequence that brought them to become durable; a branch whose newest one did is
// forgotten, so that what is held follows from what is not durable yet and not from how many
// branches there are. The commit lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/store.h"

namespace cairn::engine {

class DurableLengths {
 public:
  // The branch has `length` tokens from this sequence on. `before`: those that it had; they count
  // as durable when nothing is known of it. `durable`: the sequence up to which the log is. Never
  // fails: it is too late for that. Without memory none of the branches that are not known here has
  // anything durable until the log is so up to this sequence; it may have more than it is told.
  void Note(BranchId branch, uint64_t before, uint64_t length, uint64_t sequence, uint64_t durable);
  // Nothing: all of it is.
  std::optional<uint64_t> Of(BranchId branch, uint64_t durable) const;
  // It was dropped.
  void Forget(BranchId branch) { branches_.erase(branch); }
  size_t branches() const { return branches_.size(); }

 private:
  struct Lengths {
    uint64_t durable = 0;
    // {sequence, length}, oldest first. Never empty.
    std::vector<std::pair<uint64_t, uint64_t>> pending{};
    void Advance(uint64_t sequence);
  };
  void NoteOrThrow(BranchId branch, uint64_t before, uint64_t length, uint64_t sequence,
                   uint64_t durable);
  void Sweep(uint64_t durable);

  std::unordered_map<BranchId, Lengths> branches_;
  // {a sequence before which it need not be looked at, branch}: one entry for each branch above,
  // and some of branches that were forgotten.
  std::deque<std::pair<uint64_t, BranchId>> to_look_at_;
  uint64_t unknown_until_ = 0;  // A sequence.
};

}  // namespace cairn::engine
