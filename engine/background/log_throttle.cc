// SPDX-License-Identifier: Apache-2.0
#include "engine/background/log_throttle.h"

#include <string>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"

namespace cairn::engine {

bool LogThrottle::Holds(uint64_t bytes) const {
  return CAIRN_KEPT(kBoundOfLog) && deps_.gate->Holds(deps_.log->live_bytes(), bytes) &&
         !deps_.rate_limiter->paused();
}

bool LogThrottle::IsFull() const { return Holds(deps_.options->segment_bytes); }

void LogThrottle::SlowDown(uint64_t bytes, uint64_t deadline_ns) {
  const uint64_t live_bytes = deps_.log->live_bytes();
  if (!deps_.gate->Slows(live_bytes) || deps_.rate_limiter->paused()) return;
  OnLogIsLong(live_bytes);
  const uint64_t waited_ns = deps_.gate->Slow(live_bytes, bytes, deadline_ns);
  if (waited_ns != 0) delay_.Add(waited_ns);
}

Status LogThrottle::Wait(uint64_t bytes, uint64_t deadline_ns) {
  const uint32_t seen = deps_.gate->word();
  if (!Holds(bytes)) return deps_.log->WaitForRoom(deadline_ns);
  CAIRN_RETURN_IF_ERROR(deps_.callbacks->CheckWritable());
  OnLogIsLong(deps_.log->live_bytes());
  deps_.signals->Wake();
  const uint64_t began_ns = deps_.world.scheduler->MonotonicNs();
  const bool in_time = deps_.gate->Await(seen, deadline_ns);
  delay_.Add(deps_.world.scheduler->MonotonicNs() - began_ns);
  if (in_time) return deps_.callbacks->CheckWritable();
  return Status(StatusCode::kDeadlineExceeded, "the log stayed as long as log_bytes_max allows: " +
                                                   std::to_string(deps_.log->live_bytes()) +
                                                   " bytes");
}

void LogThrottle::OnLogIsLong(uint64_t live_bytes) {
  if (!deps_.gate->BeginsEpisode()) return;
  deps_.counters->log_limits.fetch_add(1, std::memory_order_relaxed);
  static_cast<void>(CatchBadAlloc([&] {  // If there is no memory for the text it is only counted.
    deps_.callbacks->OnEvent(
        "log: " + std::to_string(live_bytes) + " bytes are live, of at most " +
        std::to_string(deps_.gauge->LogBytesHeld()) +
        ": appends are slowed, and wait at the limit, while the oldest are sealed");
  }));
}

}  // namespace cairn::engine
