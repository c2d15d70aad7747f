// SPDX-License-Identifier: Apache-2.0
//
// How the space thread and others wake each other: wakes mean that there is something to do, rounds
// that one has ended. A word is read before the state it stands for is looked at, so no change is
// missed between the look and the sleep. Thread-safe; Await... sleep, so no lock may be held.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/io/world.h"
#include "engine/background/rate_limiter.h"

namespace cairn::engine {

class SpaceSignals {
 public:
  SpaceSignals(io::Scheduler& scheduler, RateLimiter* rate_limiter)
      : scheduler_(scheduler), rate_limiter_(rate_limiter) {}
  SpaceSignals(const SpaceSignals&) = delete;
  SpaceSignals& operator=(const SpaceSignals&) = delete;

  void Wake() {
    Change(&wakes_);
    rate_limiter_->Reconsider();
  }
  uint32_t wakes() const { return wakes_.load(); }
  // False when the deadline passed.
  bool AwaitWake(uint32_t seen, uint64_t deadline_ns) {
    return scheduler_.Wait(wakes_, seen, deadline_ns);
  }

  // Or when something else changed that waiters for rounds must look at.
  void EndRound() { Change(&rounds_); }
  uint32_t rounds() const { return rounds_.load(); }
  bool AwaitRound(uint32_t seen, uint64_t deadline_ns) {
    return scheduler_.Wait(rounds_, seen, deadline_ns);
  }

 private:
  void Change(std::atomic<uint32_t>* word) {
    word->fetch_add(1);
    scheduler_.WakeAll(*word);
  }

  io::Scheduler& scheduler_;
  RateLimiter* const rate_limiter_;
  std::atomic<uint32_t> wakes_{0}, rounds_{0};
};

}  // namespace cairn::engine
