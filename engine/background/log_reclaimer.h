// SPDX-License-Identifier: Apache-2.0
//
// Gives back the oldest segments of the log: some of them are to rest (resting_segments.h). The
// live content of the others goes into tables, and the tree into the index. Then the manifest names
// a later start and those that rest, and the files of the others become spares.
//
// For the space thread, except where marked. No lock may be held around ReclaimOldest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/background/dead_tables.h"
#include "engine/background/index_flusher.h"
#include "engine/background/log_throttle.h"
#include "engine/background/resting_segments.h"
#include "engine/background/sealer.h"
#include "engine/background/space_deps.h"
#include "engine/background/space_requests.h"

namespace cairn::engine {

class LogReclaimer {
 public:
  LogReclaimer(const SpaceDeps& deps, Sealer* sealer, IndexFlusher* flusher,
               DeadTables* dead_tables, SpaceRequests* requests, LogThrottle* throttle,
               RestingSegments* resting)
      : deps_(deps),
        mutex_(deps.mutex()),
        sealer_(sealer),
        flusher_(flusher),
        dead_tables_(dead_tables),
        requests_(requests),
        throttle_(throttle),
        resting_(resting) {}
  LogReclaimer(const LogReclaimer&) = delete;
  LogReclaimer& operator=(const LogReclaimer&) = delete;

  // `reclaimed` is false when there is nothing to do: the oldest segment is still written to, or
  // read.
  Status ReclaimOldest(SpaceRound::Kind kind, bool* reclaimed);

  // Any thread, under the commit lock: segments below it are being given back. A reader of the
  // whole log begins here, with a pin that it takes under the same lock.
  uint64_t log_start() const { return log_start_; }
  // For the opening, and when a reader shows a new look; under the commit lock.
  void SetLogStart(uint64_t segment) {
    log_start_ = segment;
    deps_.tree().segment_usages().SetLogStart(segment);
  }

 private:
  uint64_t LastToReclaim(std::span<const wal::SegmentInfo> segments) const;
  bool IsHeld(uint64_t segment);
  Status ReclaimSegments(SpaceRound::Kind kind, std::span<const wal::SegmentInfo> segments,
                         bool* reclaimed);
  Status MoveStart(SpaceRound::Kind kind, std::span<const wal::SegmentInfo> leaving);
  Status Release(uint64_t end);
  std::vector<uint64_t> Resting() const;

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Sealer* const sealer_;
  IndexFlusher* const flusher_;
  DeadTables* const dead_tables_;
  SpaceRequests* const requests_;
  LogThrottle* const throttle_;
  RestingSegments* const resting_;
  uint64_t log_start_ = 1;  // The commit lock guards it.
  // Segments below log_start_ that are still in the log, and are to rest.
  std::vector<wal::RestingSegment> chosen_;
  // L records of segments from here on may have been put since the segments were sealed.
  uint64_t logged_from_ = 1;
};

}  // namespace cairn::engine
