// SPDX-License-Identifier: Apache-2.0
//
// Keeps the live log below its limit when data comes faster than the space thread gives back.
//
//   live log, of the limit   <= 3/4     7/8   15/16   >= 1
//   data is let through      at once    B     B / 3   not at all
//
// B is the rate at which the log was given back lately. From three quarters on, where the thread
// begins (pacer.h), a caller that can wait goes on at B * (what is left) / (what is beyond three
// quarters): so the log settles where as much comes as goes. At the limit all data is held, and
// what does not wait is told so.
//
// Nothing is held as long as nobody gives back: when the space thread could not, has something else
// to do for long, and once it ends. A log that is longer than its limit afterwards gets half of
// what is given back of it for new data, until it is short again.
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

  // Whether data of so many bytes must wait while the log has so many live ones; and whether data
  // is slowed. Never block.
  bool Holds(uint64_t live_bytes, uint64_t bytes) const {
    return live_bytes + bytes >= held_from_bytes_.load(std::memory_order_relaxed) && !open_.load();
  }
  bool Slows(uint64_t live_bytes) const {
    return live_bytes > begins_bytes_.load(std::memory_order_relaxed) &&
           live_bytes < limit_bytes_.load(std::memory_order_relaxed) && !open_.load();
  }
  // REQUIRES: Slows. Waits until it is the turn of data of so many bytes, or somebody gave back, or
  // the deadline, which is no error here. How long it has waited.
  uint64_t Slow(uint64_t live_bytes, uint64_t bytes, uint64_t deadline_ns);
  // For data that is held: sleeps until word() is not `seen` any more, since it may go on then.
  // False when the deadline passed.
  uint32_t word() const { return word_.load(); }
  bool Await(uint32_t seen, uint64_t deadline_ns);
  // For data that is slowed or held: whether it is the first since the log was last short.
  bool BeginsEpisode() { return !in_episode_.exchange(true); }

  // The space thread's, and of the opening, before there is one. `live_bytes`: what is
  // left.
  void SetLimit(uint64_t bytes);
  void BeginGivingBack();
  void GaveBack(uint64_t bytes, uint64_t live_bytes);
  // Nothing is held, until something is given back or it is shut.
  void Open();
  void Shut() { open_.store(ended_.load()); }
  // All that are held look again.
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
  uint64_t begun_ns_ = 0;  // The space thread's.

  Mutex mutex_;
  double bytes_per_second_ CAIRN_GUARDED_BY(mutex_);  // B.
  uint64_t next_ns_ CAIRN_GUARDED_BY(mutex_) = 0;     // When the turn of what came before ends.
};

}  // namespace cairn::engine
