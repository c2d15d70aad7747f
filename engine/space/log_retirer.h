// SPDX-License-Identifier: Apache-2.0
//
// Gives back the oldest segments of the log: their live content goes into tables, the tree into the
// index, then the manifest names a later start, and the files become spares.
//
// For the space thread, except where marked. No lock may be held around RetireOldest.
#pragma once

#include <cstdint>
#include <span>

#include "engine/space/dead_tables.h"
#include "engine/space/index_flusher.h"
#include "engine/space/log_throttle.h"
#include "engine/space/room_asks.h"
#include "engine/space/sealer.h"
#include "engine/space/space_means.h"

namespace cairn::engine {

class LogRetirer {
 public:
  LogRetirer(const SpaceMeans& means, Sealer* sealer, IndexFlusher* flusher,
             DeadTables* dead_tables, RoomAsks* asks, LogThrottle* throttle)
      : means_(means),
        mutex_(means.mutex()),
        sealer_(sealer),
        flusher_(flusher),
        dead_tables_(dead_tables),
        asks_(asks),
        throttle_(throttle) {}
  LogRetirer(const LogRetirer&) = delete;
  LogRetirer& operator=(const LogRetirer&) = delete;

  // `retired` is false when there is nothing to do: the oldest segment is still written to, or
  // read.
  Status RetireOldest(bool* retired);

  // Any thread, under the commit lock: segments below it are being given back. A reader of the
  // whole log begins here, with a pin that it takes under the same lock.
  uint64_t log_start() const { return log_start_; }
  // For the opening, and when a reader shows a new look; under the commit lock.
  void SetLogStart(uint64_t segment) { log_start_ = segment; }

 private:
  uint64_t LastToRetire(std::span<const wal::SegmentInfo> segments) const;
  Status RetireSome(std::span<const wal::SegmentInfo> segments, bool* retired);

  const SpaceMeans& means_;
  std::mutex& mutex_;  // The commit lock.
  Sealer* const sealer_;
  IndexFlusher* const flusher_;
  DeadTables* const dead_tables_;
  RoomAsks* const asks_;
  LogThrottle* const throttle_;
  uint64_t log_start_ = 1;  // The commit lock guards it.
};

}  // namespace cairn::engine
