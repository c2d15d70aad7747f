// SPDX-License-Identifier: Apache-2.0
#include "engine/space/pacer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/core/check.h"
#include "engine/constants.h"

namespace cairn::engine {

namespace {
constexpr double kNsPerSecond = 1e9;
}

double Haste(uint64_t used, uint64_t limit) {
  if (used >= limit) return std::numeric_limits<double>::infinity();
  const uint64_t begin = HasteBegins(limit);
  if (used <= begin) return 1;
  return static_cast<double>(limit - begin) / static_cast<double>(limit - used);
}

Pacer::Pacer(io::Scheduler& scheduler, uint64_t bytes_per_second, std::function<double()> haste)
    : scheduler_(scheduler), bytes_per_second_(bytes_per_second), haste_(std::move(haste)) {}

Status Pacer::Begin() {
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

void Pacer::End() {
  CAIRN_CHECK(working_.fetch_sub(1) != 0);
  scheduler_.WakeAll(working_);
}

Status Pacer::Take(uint64_t read_bytes, uint64_t written_bytes) {
  read_bytes_.fetch_add(read_bytes, std::memory_order_relaxed);
  written_bytes_.fetch_add(written_bytes, std::memory_order_relaxed);
  {
    const double haste = HasteNow();
    const MutexLock lock(&mutex_);
    (void)PayOff(haste);  // Time before this call gives no credit.
    debt_bytes_ += static_cast<double>(read_bytes + written_bytes);
  }
  while (true) {
    const uint32_t seen = changed_.load();
    if (stopped_.load()) return closing_;
    if (paused()) {
      StandStill();
      if (Begin().ok()) continue;
      StandNoMore();  // The caller will end.
      return closing_;
    }
    const double haste = HasteNow();
    uint64_t until_ns = 0;
    {
      const MutexLock lock(&mutex_);
      const double wait_ns = PayOff(haste);
      if (wait_ns <= 0) return Status::Ok();
      until_ns = paid_ns_ +
                 static_cast<uint64_t>(std::min(wait_ns, static_cast<double>(kPaceLookAgainNs)));
    }
    scheduler_.Wait(changed_, seen, until_ns);
  }
}

double Pacer::HasteNow() const {
  return bytes_per_second_ == 0 ? std::numeric_limits<double>::infinity() : haste_();
}

// The debt that is left.
double Pacer::PayOff(double haste) {
  const uint64_t now_ns = scheduler_.MonotonicNs();
  const double elapsed_ns = static_cast<double>(now_ns - std::exchange(paid_ns_, now_ns));
  if (haste == std::numeric_limits<double>::infinity()) return debt_bytes_ = 0;
  const double bytes_per_ns = static_cast<double>(bytes_per_second_) * haste / kNsPerSecond;
  debt_bytes_ = std::max(debt_bytes_ - elapsed_ns * bytes_per_ns,
                         -bytes_per_ns * static_cast<double>(kPaceCreditNs));
  return debt_bytes_ / bytes_per_ns;
}

void Pacer::Reconsider() {
  changed_.fetch_add(1);
  scheduler_.WakeAll(changed_);
}

void Pacer::Pause() {
  pauses_.fetch_add(1);
  Reconsider();
  for (uint32_t working = working_.load(); working != 0; working = working_.load()) {
    scheduler_.Wait(working_, working, io::kNoDeadline);
  }
}

bool Pacer::Resume() {
  uint32_t pauses = pauses_.load();
  while (pauses != 0 && !pauses_.compare_exchange_weak(pauses, pauses - 1)) {
  }
  if (pauses == 0) return false;
  Reconsider();
  return true;
}

void Pacer::Stop() {
  stopped_.store(true);
  Reconsider();
}

}  // namespace cairn::engine
