// SPDX-License-Identifier: Apache-2.0
//
// Limits the rate of the thread that seals, rewrites and merges, and of those that read tables back
// for it, and pauses them. A leaky bucket: moved bytes are a debt that the rate pays off, and a
// thread goes on when it has no debt. So other users of the device meet single steps of these
// threads, not their sum.
//
//   rate = bytes_per_second * Urgency        0 bytes per second: no limit
//
// Urgency follows from the room that is left, of the log's limit and of max_bytes, and is 1 in the
// first three quarters. From there on it grows as 1 / (what is left), so that there is no limit
// where no room is left: pacing alone never makes the log outgrow its limit.
//
//   used, of the limit   <= 3/4   7/8   15/16   >= 1
//   urgency              1        2     4       no limit
//
// Begin, Take and End are for paced threads, the rest for all threads. No lock may be held around
// calls: Take and Pause wait. Lock order: `mutex_` is a leaf.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::engine {

// The factor by which work that makes room goes faster than its rate. No limit is +infinity.
double Urgency(uint64_t used, uint64_t limit);
// Where urgency begins, and where work that makes room should begin.
constexpr uint64_t UrgencyBegins(uint64_t limit) { return limit - limit / 4; }

class RateLimiter {
 public:
  // `urgency` is called at every step, by a paced thread.
  RateLimiter(io::Scheduler& scheduler, uint64_t bytes_per_second, std::function<double()> urgency);
  RateLimiter(const RateLimiter&) = delete;
  RateLimiter& operator=(const RateLimiter&) = delete;

  // Around all work of a paced thread. Begin waits while paused. kCancelled once stopped: then End
  // must not be called.
  Status Begin();
  void End();
  // Between Begin and End: around a wait for another paced thread, during which this one counts as
  // idle. Call GoOn next.
  void EnterIdle() { End(); }
  void LeaveIdle() { working_.fetch_add(1); }
  // Between Begin and End: this much was moved, or is about to be. Returns when it is paid for and
  // nothing is paused; kCancelled once stopped.
  Status Take(uint64_t read_bytes, uint64_t written_bytes);
  // Checks whether work may go on, and moves nothing.
  Status GoOn() { return Take(0, 0); }

  // Some thread is between Begin and End, and not idle.
  bool working() const { return working_.load() != 0; }

  // Call when urgency may have changed.
  void Reconsider();

  // Returns when all paced threads are idle; they stay so until there were as many Resumes.
  void Pause();
  // False when there was no Pause left to undo.
  bool Resume();
  bool paused() const { return pauses_.load() != 0; }

  // Begin and Take return kCancelled from here on, Pause returns.
  void Stop();
  bool stopped() const { return stopped_.load(); }

  uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }
  uint64_t written_bytes() const { return written_bytes_.load(std::memory_order_relaxed); }

 private:
  double UrgencyNow() const;
  double PayOff(double urgency) CAIRN_REQUIRES(mutex_);

  io::Scheduler& scheduler_;
  const uint64_t bytes_per_second_;
  const std::function<double()> urgency_;
  std::atomic<uint64_t> read_bytes_{0}, written_bytes_{0};

  Mutex mutex_;
  double debt_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t paid_ns_ CAIRN_GUARDED_BY(mutex_) = 0;  // The debt is paid off up to this time.

  std::atomic<uint32_t> pauses_{0};
  std::atomic<bool> stopped_{false};
  // Made in advance: a thread that gets it ends, and must not need memory for that.
  const Status closing_{StatusCode::kCancelled, "the store is closing"};
  std::atomic<uint32_t> changed_{0};  // Counts changes of the two above, and of urgency.
  std::atomic<uint32_t> working_{0};  // Threads between Begin and End that are not idle.
};

}  // namespace cairn::engine
