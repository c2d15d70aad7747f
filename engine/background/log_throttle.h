// SPDX-License-Identifier: Apache-2.0
//
// Callers that wait for the log to become shorter: those that are slowed, and those that are held
// (background/log_gate.h says when). Thread-safe; SlowDown and Wait sleep, so no lock may be held
// around them.
#pragma once

#include <cstdint>

#include "base/core/histogram.h"
#include "engine/background/space_deps.h"

namespace cairn::engine {

class LogThrottle {
 public:
  explicit LogThrottle(const SpaceDeps& deps) : deps_(deps) {}
  LogThrottle(const LogThrottle&) = delete;
  LogThrottle& operator=(const LogThrottle&) = delete;

  // Whether data of this size must wait. Not while the background is paused: then the log grows.
  bool Holds(uint64_t bytes) const;
  bool IsFull() const;  // Some data may be held.
  // For calls that can wait, before they reserve data of this size.
  void SlowDown(uint64_t bytes, uint64_t deadline_ns);
  // For data that was refused. kDeadlineExceeded.
  Status Wait(uint64_t bytes, uint64_t deadline_ns);

  const Histogram& delay() const { return delay_; }

 private:
  void OnLogIsLong(uint64_t live_bytes);

  const SpaceDeps& deps_;
  Histogram delay_;
};

}  // namespace cairn::engine
