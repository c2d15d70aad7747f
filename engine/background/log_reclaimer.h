// SPDX-License-Identifier: Apache-2.0
//
// Gives back the oldest segments of the log: their live content goes into tables, the tree into the
// index, then the manifest names a later start, and the files become spares.
//
// For the space thread, except where marked. No lock may be held around ReclaimOldest.
#pragma once

#include <cstdint>
#include <span>

#include "engine/background/dead_tables.h"
#include "engine/background/index_flusher.h"
#include "engine/background/log_throttle.h"
#include "engine/background/sealer.h"
#include "engine/background/space_deps.h"
#include "engine/background/space_requests.h"

namespace cairn::engine {

class LogReclaimer {
 public:
  LogReclaimer(const SpaceDeps& deps, Sealer* sealer, IndexFlusher* flusher,
               DeadTables* dead_tables, SpaceRequests* requests, LogThrottle* throttle)
      : deps_(deps),
        mutex_(deps.mutex()),
        sealer_(sealer),
        flusher_(flusher),
        dead_tables_(dead_tables),
        requests_(requests),
        throttle_(throttle) {}
  LogReclaimer(const LogReclaimer&) = delete;
  LogReclaimer& operator=(const LogReclaimer&) = delete;

  // `reclaimed` is false when there is nothing to do: the oldest segment is still written to, or
  // read.
  Status ReclaimOldest(bool* reclaimed);

  // Any thread, under the commit lock: segments below it are being given back. A reader of the
  // whole log begins here, with a pin that it takes under the same lock.
  uint64_t log_start() const { return log_start_; }
  // For the opening, and when a reader shows a new look; under the commit lock.
  void SetLogStart(uint64_t segment) { log_start_ = segment; }

 private:
  uint64_t LastToReclaim(std::span<const wal::SegmentInfo> segments) const;
  bool IsHeld(uint64_t segment);
  Status ReclaimSegments(std::span<const wal::SegmentInfo> segments, bool* reclaimed);

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Sealer* const sealer_;
  IndexFlusher* const flusher_;
  DeadTables* const dead_tables_;
  SpaceRequests* const requests_;
  LogThrottle* const throttle_;
  uint64_t log_start_ = 1;  // The commit lock guards it.
};

}  // namespace cairn::engine
