// SPDX-License-Identifier: Apache-2.0
//
// The durable length of a branch, while that is not its length. Lengths wait here until the
// sequence that brought them is durable. A branch whose newest length is durable is forgotten, so
// memory depends on how much is not durable yet and not on the number of branches. The commit lock
// guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/branch_types.h"

namespace cairn::engine {

class DurableLengths {
 public:
  // The branch has `length` tokens from this sequence on. `before`: its length until then, which
  // counts as durable if the branch is not known here. `durable`: the log is durable up to this
  // sequence. Never fails, since it is too late for that. If there is no memory, all branches that
  // are not known here count as having nothing durable until the log is durable up to this
  // sequence; they may have more.
  void Record(BranchId branch, uint64_t before, uint64_t length, uint64_t sequence,
              uint64_t durable);
  // Nothing: all of its length is durable.
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
  void RecordOrThrow(BranchId branch, uint64_t before, uint64_t length, uint64_t sequence,
                     uint64_t durable);
  void Sweep(uint64_t durable);

  std::unordered_map<BranchId, Lengths> branches_;
  // {sequence before which it need not be examined, branch}: one entry for each branch above, and
  // some of branches that were forgotten.
  std::deque<std::pair<uint64_t, BranchId>> to_look_at_;
  uint64_t unknown_until_ = 0;  // A sequence.
};

}  // namespace cairn::engine
