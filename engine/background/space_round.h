// SPDX-License-Identifier: Apache-2.0
//
// The findings of one round of the space thread. Used by that thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "cairn/status.h"
#include "engine/restore/pins.h"

namespace cairn::engine {

class SpaceRound {
 public:
  enum class Kind : uint8_t {
    kBusy,
    kIdle,  // Nobody writes: a little of the less urgent work.
    kAll,   // Compact.
  };

  void Begin() {
    held_ = false;
    would_not_go_ = Status::Ok();
  }
  // Giving back begins.
  void BeginReclaim() {
    damaged_tables_.clear();
    reclaimed_bytes_ = 0;
    log_holder_.reset();
  }

  // Readers have pinned some of what the round would have given back.
  void MarkHeld(bool held) { held_ |= held; }
  bool held() const { return held_; }
  // Who kept the log from being given back when that was last tried, if anybody did.
  void SetLogHolder(std::optional<Pins::Held> holder) { log_holder_ = holder; }
  const std::optional<Pins::Held>& log_holder() const { return log_holder_; }

  // A file or branch that cannot be deleted keeps its space, and a damaged index cannot be merged;
  // all other work goes on. The round ends with the first of these errors.
  void KeepGoing(Status failed) {
    if (would_not_go_.ok()) would_not_go_ = std::move(failed);
  }
  const Status& would_not_go() const { return would_not_go_; }

  // A table was found damaged, and is skipped from here on.
  void PassOver(uint64_t table) { damaged_tables_.insert(table); }
  bool IsPassedOver(uint64_t table) const { return damaged_tables_.contains(table); }

  // Bytes that were rewritten, or joined, about.
  void CountReclaimed(uint64_t bytes) { reclaimed_bytes_ += bytes; }
  uint64_t reclaimed_bytes() const { return reclaimed_bytes_; }

 private:
  bool held_ = false;
  std::optional<Pins::Held> log_holder_;
  Status would_not_go_;
  std::set<uint64_t> damaged_tables_;
  uint64_t reclaimed_bytes_ = 0;
};

}  // namespace cairn::engine
