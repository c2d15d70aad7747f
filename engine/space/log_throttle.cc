// SPDX-License-Identifier: Apache-2.0
#include "engine/space/log_throttle.h"

#include <string>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"

namespace cairn::engine {

bool LogThrottle::Holds(uint64_t bytes) const {
  return CAIRN_KEPT(kBoundOfLog) && means_.gate->Holds(means_.log->live_bytes(), bytes) &&
         !means_.rate_limiter->paused();
}

bool LogThrottle::IsFull() const { return Holds(means_.options->segment_bytes); }

void LogThrottle::SlowDown(uint64_t bytes, uint64_t deadline_ns) {
  const uint64_t live_bytes = means_.log->live_bytes();
  if (!means_.gate->Slows(live_bytes) || means_.rate_limiter->paused()) return;
  OnLogIsLong(live_bytes);
  const uint64_t waited_ns = means_.gate->Slow(live_bytes, bytes, deadline_ns);
  if (waited_ns != 0) delay_.Add(waited_ns);
}

Status LogThrottle::Wait(uint64_t bytes, uint64_t deadline_ns) {
  const uint32_t seen = means_.gate->word();
  if (!Holds(bytes)) return means_.log->WaitForRoom(deadline_ns);
  CAIRN_RETURN_IF_ERROR(means_.host->CheckWritable());
  OnLogIsLong(means_.log->live_bytes());
  means_.signals->Wake();
  const uint64_t began_ns = means_.world.scheduler->MonotonicNs();
  const bool in_time = means_.gate->Await(seen, deadline_ns);
  delay_.Add(means_.world.scheduler->MonotonicNs() - began_ns);
  if (in_time) return means_.host->CheckWritable();
  return Status(StatusCode::kDeadlineExceeded, "the log stayed as long as log_bytes_max allows: " +
                                                   std::to_string(means_.log->live_bytes()) +
                                                   " bytes");
}

void LogThrottle::OnLogIsLong(uint64_t live_bytes) {
  if (!means_.gate->BeginsEpisode()) return;
  means_.counters->log_limits.fetch_add(1, std::memory_order_relaxed);
  static_cast<void>(Guarded([&] {  // If there is no memory for the text it is only counted.
    means_.host->OnEvent(
        "log: " + std::to_string(live_bytes) + " bytes are live, of at most " +
        std::to_string(means_.gauge->LogBytesHeld()) +
        ": appends are slowed, and wait at the limit, while the oldest are sealed");
  }));
}

}  // namespace cairn::engine
