// SPDX-License-Identifier: Apache-2.0
//
// Drops branches whose time to live has ended, on the space thread: replay reads no clock. They are
// read from the index, in order (tree/tree_records.h, X), after a tree flush. No lock may be held
// around calls, except where that is said.
#pragma once

#include <cstdint>

#include "engine/space/index_flusher.h"
#include "engine/space/space_means.h"
#include "engine/space/space_requests.h"

namespace cairn::engine {

class Expirer {
 public:
  Expirer(const SpaceMeans& means, IndexFlusher* flusher, const SpaceRequests* requests)
      : means_(means),
        mutex_(means.mutex()),
        tree_(means.tree()),
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
  const SpaceMeans& means_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  IndexFlusher* const flusher_;
  const SpaceRequests* const requests_;
  bool counted_ = false;  // See CountFutureAsNow.
  uint64_t seen_ns_ = 0;  // The time that the space thread waits for; the commit lock guards it.
};

}  // namespace cairn::engine
