// SPDX-License-Identifier: Apache-2.0
#include "engine/background/rate_limiter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

namespace {
constexpr double kNsPerSecond = 1e9;
}

double Urgency(uint64_t used, uint64_t limit) {
  if (used >= limit) return std::numeric_limits<double>::infinity();
  const uint64_t begin = UrgencyBegins(limit);
  if (used <= begin) return 1;
  return static_cast<double>(limit - begin) / static_cast<double>(limit - used);
}

RateLimiter::RateLimiter(io::Scheduler& scheduler, uint64_t bytes_per_second,
                         std::function<double()> urgency)
    : scheduler_(scheduler), bytes_per_second_(bytes_per_second), urgency_(std::move(urgency)) {}

Status RateLimiter::Begin() {
  while (!stopped_.load()) {
    const uint32_t seen = changed_.load();
    // Increment first, then check for a pause; Pause does it the other way round, so that one of
    // the two sees the other.
    working_.fetch_add(1);
    if (!paused()) return Status::Ok();
    End();
    if (!stopped_.load()) scheduler_.Wait(changed_, seen, io::kNoDeadline);
  }
  return closing_;
}

void RateLimiter::End() {
  CAIRN_CHECK(working_.fetch_sub(1) != 0);
  scheduler_.WakeAll(working_);
}

Status RateLimiter::Take(uint64_t read_bytes, uint64_t written_bytes) {
  read_bytes_.fetch_add(read_bytes, std::memory_order_relaxed);
  written_bytes_.fetch_add(written_bytes, std::memory_order_relaxed);
  {
    const double urgency = UrgencyNow();
    const MutexLock lock(&mutex_);
    (void)PayOff(urgency);  // Time before this call gives no credit.
    debt_bytes_ += static_cast<double>(read_bytes + written_bytes);
  }
  while (true) {
    const uint32_t seen = changed_.load();
    if (stopped_.load()) return closing_;
    if (paused()) {
      EnterIdle();
      if (Begin().ok()) continue;
      LeaveIdle();  // The caller will end.
      return closing_;
    }
    const double urgency = UrgencyNow();
    uint64_t until_ns = 0;
    {
      const MutexLock lock(&mutex_);
      const double wait_ns = PayOff(urgency);
      if (wait_ns <= 0) return Status::Ok();
      until_ns = paid_ns_ +
                 static_cast<uint64_t>(std::min(wait_ns, static_cast<double>(kPaceLookAgainNs)));
    }
    scheduler_.Wait(changed_, seen, until_ns);
  }
}

double RateLimiter::UrgencyNow() const {
  return bytes_per_second_ == 0 ? std::numeric_limits<double>::infinity() : urgency_();
}

// The debt that is left.
double RateLimiter::PayOff(double urgency) {
  const uint64_t now_ns = scheduler_.MonotonicNs();
  const double elapsed_ns = static_cast<double>(now_ns - std::exchange(paid_ns_, now_ns));
  if (urgency == std::numeric_limits<double>::infinity()) return debt_bytes_ = 0;
  const double bytes_per_ns = static_cast<double>(bytes_per_second_) * urgency / kNsPerSecond;
  debt_bytes_ = std::max(debt_bytes_ - elapsed_ns * bytes_per_ns,
                         -bytes_per_ns * static_cast<double>(kPaceCreditNs));
  return debt_bytes_ / bytes_per_ns;
}

void RateLimiter::Reconsider() {
  changed_.fetch_add(1);
  scheduler_.WakeAll(changed_);
}

void RateLimiter::Pause() {
  pauses_.fetch_add(1);
  Reconsider();
  for (uint32_t working = working_.load(); working != 0; working = working_.load()) {
    scheduler_.Wait(working_, working, io::kNoDeadline);
  }
}

bool RateLimiter::Resume() {
  uint32_t pauses = pauses_.load();
  while (pauses != 0 && !pauses_.compare_exchange_weak(pauses, pauses - 1)) {
  }
  if (pauses == 0) return false;
  Reconsider();
  return true;
}

void RateLimiter::Stop() {
  stopped_.store(true);
  Reconsider();
}

}  // namespace cairn::engine
