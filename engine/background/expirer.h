// SPDX-License-Identifier: Apache-2.0
//
// Drops branches whose time to live has ended, on the space thread: replay reads no clock. They are
// read from the index, in order (tree/records/tree_records.h, X), after a tree flush. No lock may
// be held around calls, except where that is said.
//
// A time to live counts from the last use or the opening, whichever came later: the wall clock may
// have been wrong when a use was recorded, and may be wrong at the opening. So the index has
// branches that are due by their last use and stay for now. They are looked at once, and again when
// the first of them expires.
#pragma once

#include <cstdint>

#include "engine/background/index_flusher.h"
#include "engine/background/space_deps.h"
#include "engine/background/space_requests.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

class Expirer {
 public:
  Expirer(const SpaceDeps& deps, IndexFlusher* flusher, const SpaceRequests* requests)
      : deps_(deps),
        mutex_(deps.mutex()),
        tree_(deps.tree()),
        flusher_(flusher),
        requests_(requests) {}
  Expirer(const Expirer&) = delete;
  Expirer& operator=(const Expirer&) = delete;

  Status DropExpired();
  // Call before anything is evicted or expires.
  Status CountFutureAsNow();
  // When the space thread must look again even if nobody wakes it; on the monotonic clock.
  uint64_t NextExpiry();

  // Any thread, under the commit lock: a time to live ends before the time that the space thread
  // waits for.
  bool BecomesDue();

 private:
  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  IndexFlusher* const flusher_;
  const SpaceRequests* const requests_;
  bool Stays(uint64_t branch, uint64_t now_ns);
  uint64_t DueAt(const Head& head) const;  // 0: never.
  void LookAgainAt(uint64_t at_ns);
  Status DropDue(uint64_t branch, uint64_t now_ns);
  Status DropDueFrom(TreeRecords::Expiring from, uint64_t now_ns, uint64_t* next_ns);

  bool counted_ = false;  // See CountFutureAsNow.
  // What the index has as due up to here stays, for now...
  uint64_t stays_to_ns_ = 0;
  // ...and this is when the first of that is to be looked at again. 0: there is none.
  uint64_t stays_until_ns_ = 0;
  uint64_t seen_ns_ = 0;  // The time that the space thread waits for; the commit lock guards it.
};

}  // namespace cairn::engine
