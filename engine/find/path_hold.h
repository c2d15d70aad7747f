// SPDX-License-Identifier: Apache-2.0
//
// A lease of the time of one call, unless it is handed on. It holds nothing where others change the
// tree: a reader's is what it is shown, and a log that fails takes back what it had not
// acknowledged. Then what was true when the hold began is to be asked again.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

#include "base/core/mutation.h"
#include "engine/commit/write_deps.h"
#include "engine/find/constants.h"

namespace cairn::engine {

class PathHold {
 public:
  explicit PathHold(const WriteDeps& write) : write_(write) {}
  ~PathHold() {
    for (bool ended = lease_ == 0; !ended;) {
      const std::lock_guard lock(write_.mutex());
      ended = write_.tree().leases().ReleaseSome(lease_, kLeasedAtOnce);
    }
  }
  PathHold(const PathHold&) = delete;
  PathHold& operator=(const PathHold&) = delete;

  // --- Under the commit lock.
  void Begin(std::span<const LeasedPart> parts) {
    End();
    generation_ = write_.tree().generation();
    rolled_back_ = write_.committer->rolled_back();
    if (parts.empty() || !CAIRN_KEPT(kLeaseOfHit)) return;
    lease_ = write_.tree().leases().Grant(parts, UINT64_MAX);
  }
  // Holds these as well. REQUIRES: it has begun.
  void Add(std::span<const LeasedPart> parts) {
    if (parts.empty() || !CAIRN_KEPT(kLeaseOfHit)) return;
    // A lease of which everything was dropped is over.
    if (lease_ != 0 && write_.tree().leases().Extend(lease_, parts)) return;
    lease_ = write_.tree().leases().Grant(parts, UINT64_MAX);
  }
  // What the tree of that generation says is what it said when this began. A writer's has another
  // generation after each tree flush, with the same in it.
  bool Covers(uint64_t generation) const {
    if (write_.options->read_only) return generation == generation_;
    return write_.committer->rolled_back() == rolled_back_;
  }
  void End() { write_.tree().leases().Release(std::exchange(lease_, 0)); }

 private:
  const WriteDeps& write_;
  uint64_t lease_ = 0, generation_ = 0;
  bool rolled_back_ = false;
};

}  // namespace cairn::engine
