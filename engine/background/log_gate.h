// SPDX-License-Identifier: Apache-2.0
//
// Keeps the live log below its limit when data comes faster than the space thread gives back
// segments.
//
//   live log, of the limit   <= 3/4     7/8   15/16   >= 1
//   data is let through      at once    B     B / 3   not at all
//
// B is the rate at which the log was given back lately. From three quarters on, where the thread
// begins (rate_limiter.h), a caller that can wait goes on at B * (what is left) / (what is beyond
// three quarters): so the log settles where data comes at the rate of giving back. At the limit all
// data is held; callers that do not wait get an error.
//
// Nothing is held while no space is given back: when the space thread could not, has other work for
// long, and once it has ended. If the log exceeds its limit afterwards, new data may use half of
// the space that each round gives back, until the log is within its limit again.
//
// Thread-safe. Slow and Await wait, so no lock may be held around them.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::engine {

class LogGate {
 public:
  explicit LogGate(io::Scheduler& scheduler);
  LogGate(const LogGate&) = delete;
  LogGate& operator=(const LogGate&) = delete;

  // Whether data of this size must wait while the log has this many live bytes; and whether data is
  // slowed. Neither blocks.
  bool Holds(uint64_t live_bytes, uint64_t bytes) const {
    return live_bytes + bytes >= held_from_bytes_.load(std::memory_order_relaxed) && !open_.load();
  }
  bool Slows(uint64_t live_bytes) const {
    return live_bytes > begins_bytes_.load(std::memory_order_relaxed) &&
           live_bytes < limit_bytes_.load(std::memory_order_relaxed) && !open_.load();
  }
  // REQUIRES: Slows. Waits until the turn of this data comes, or space was given back, or the
  // deadline passes, which is no error here. Returns how long it has waited.
  uint64_t Slow(uint64_t live_bytes, uint64_t bytes, uint64_t deadline_ns);
  // For data that is held: sleeps until word() is not `seen` any more; then it may go on. False
  // when the deadline passed.
  uint32_t word() const { return word_.load(); }
  bool Await(uint32_t seen, uint64_t deadline_ns);
  // For data that is slowed or held: whether it is the first since the log was last short.
  bool BeginsEpisode() { return !in_episode_.exchange(true); }

  // For the space thread, and for the opening before there is one. `live_bytes`: live bytes that
  // are left.
  void SetLimit(uint64_t bytes);
  void BeginReclaim();
  void GaveBack(uint64_t bytes, uint64_t live_bytes);
  // Nothing is held until something is given back or the gate is shut.
  void Open();
  void Shut() { open_.store(ended_.load()); }
  // Wakes all held callers to look again.
  void Wake();
  void End();

 private:
  uint64_t TurnNs(uint64_t live_bytes, uint64_t bytes, uint64_t now_ns);

  io::Scheduler& scheduler_;
  std::atomic<uint64_t> limit_bytes_{UINT64_MAX}, begins_bytes_{UINT64_MAX};
  std::atomic<uint64_t> held_from_bytes_{UINT64_MAX};  // The limit, or more.
  std::atomic<bool> open_{false}, ended_{false};
  std::atomic<bool> in_episode_{false};
  std::atomic<uint32_t> word_{0};
  uint64_t begun_ns_ = 0;  // For the space thread.

  Mutex mutex_;
  double bytes_per_second_ CAIRN_GUARDED_BY(mutex_);  // B.
  uint64_t next_ns_ CAIRN_GUARDED_BY(mutex_) = 0;     // When the turn of earlier data ends.
};

}  // namespace cairn::engine
