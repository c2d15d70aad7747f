// SPDX-License-Identifier: Apache-2.0
#include "engine/background/log_gate.h"

#include <algorithm>

#include "engine/background/rate_limiter.h"
#include "engine/config/constants.h"

namespace cairn::engine {

namespace {
constexpr double kNsPerSecond = 1e9;
}

LogGate::LogGate(io::Scheduler& scheduler)
    : scheduler_(scheduler), bytes_per_second_(kReclaimRateFirst) {}

uint64_t LogGate::Slow(uint64_t live_bytes, uint64_t bytes, uint64_t deadline_ns) {
  const uint32_t seen = word_.load();
  const uint64_t now_ns = scheduler_.MonotonicNs();
  const uint64_t turn_ns = TurnNs(live_bytes, bytes, now_ns);
  if (turn_ns < now_ns + kSlowWaitNsMin) return 0;  // Too short to sleep: still owed.
  scheduler_.Wait(word_, seen, std::min(turn_ns, deadline_ns));
  return scheduler_.MonotonicNs() - now_ns;
}

// The time at which the turn of this many bytes ends.
uint64_t LogGate::TurnNs(uint64_t live_bytes, uint64_t bytes, uint64_t now_ns) {
  const uint64_t limit = limit_bytes_.load(), begins = begins_bytes_.load();
  const double left = static_cast<double>(limit - std::min(limit, live_bytes));
  const double beyond = static_cast<double>(live_bytes - std::min(begins, live_bytes));
  const MutexLock lock(&mutex_);
  next_ns_ = std::max(next_ns_, now_ns);
  if (beyond == 0) return next_ns_;
  const double rate = bytes_per_second_ * std::max(left / beyond, 1.0 / kSlowestShare);
  const double turn_ns = static_cast<double>(bytes) / rate * kNsPerSecond;
  next_ns_ += std::min(static_cast<uint64_t>(turn_ns), kSlowWaitNsMax);
  return next_ns_;
}

bool LogGate::Await(uint32_t seen, uint64_t deadline_ns) {
  return scheduler_.Wait(word_, seen, deadline_ns);
}

void LogGate::SetLimit(uint64_t bytes) {
  const uint64_t before = limit_bytes_.exchange(bytes);
  begins_bytes_.store(UrgencyBegins(bytes));
  // The log was longer before, or is held from the new limit on.
  if (held_from_bytes_.load() <= before) held_from_bytes_.store(bytes);
}

void LogGate::BeginReclaim() { begun_ns_ = scheduler_.MonotonicNs(); }

// Forgets what appends owed: that was computed for a longer log.
void LogGate::GaveBack(uint64_t bytes, uint64_t live_bytes) {
  const uint64_t now_ns = scheduler_.MonotonicNs();
  const double took_ns = static_cast<double>(std::max<uint64_t>(now_ns - begun_ns_, 1));
  begun_ns_ = now_ns;
  {
    const MutexLock lock(&mutex_);
    const double lately = static_cast<double>(bytes) / took_ns * kNsPerSecond;
    bytes_per_second_ += (lately - bytes_per_second_) / kReclaimRateShare;
    next_ns_ = now_ns;
  }
  held_from_bytes_.store(std::max(limit_bytes_.load(), live_bytes + bytes / 2 + 1));
  Shut();
  if (live_bytes <= begins_bytes_.load()) in_episode_.store(false);
  Wake();
}

void LogGate::Open() {
  open_.store(true);
  Wake();
}

void LogGate::Wake() {
  word_.fetch_add(1);
  scheduler_.WakeAll(word_);
}

void LogGate::End() {
  ended_.store(true);
  Open();
}

}  // namespace cairn::engine
