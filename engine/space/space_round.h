// SPDX-License-Identifier: Apache-2.0
//
// What one round of the space thread has found out so far. That thread's alone.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "cairn/status.h"

namespace cairn::engine {

class SpaceRound {
 public:
  enum class Kind : uint8_t {
    kBusy,
    kIdle,  // Nobody writes: what is less urgent, a little of it.
    kAll,   // Compact.
  };

  void Begin() {
    held_ = false;
    would_not_go_ = Status::Ok();
  }
  // Giving back begins.
  void BeginGivingBack() {
    damaged_tables_.clear();
    reclaimed_bytes_ = 0;
  }

  // Some of what the round would have given back readers have pinned.
  void NoteHeld(bool held) { held_ |= held; }
  bool held() const { return held_; }

  // A file or a branch that would not go keeps its space, and damage of the index keeps that from
  // being merged; nothing else is kept from being done. The round ends with what is said of the
  // first.
  void KeepGoing(Status failed) {
    if (would_not_go_.ok()) would_not_go_ = std::move(failed);
  }
  const Status& would_not_go() const { return would_not_go_; }

  // A table was found damaged, and is passed over from here on.
  void PassOver(uint64_t table) { damaged_tables_.insert(table); }
  bool IsPassedOver(uint64_t table) const { return damaged_tables_.contains(table); }

  // Written anew, or joined, about.
  void NoteReclaimed(uint64_t bytes) { reclaimed_bytes_ += bytes; }
  uint64_t reclaimed_bytes() const { return reclaimed_bytes_; }

 private:
  bool held_ = false;
  Status would_not_go_;
  std::set<uint64_t> damaged_tables_;
  uint64_t reclaimed_bytes_ = 0;
};

}  // namespace cairn::engine
