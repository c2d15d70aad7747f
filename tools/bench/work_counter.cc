// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/work_counter.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/core/check.h"

namespace cairn::bench {

WorkCounter::WorkCounter() {
  perf_event_attr wanted{};
  wanted.size = sizeof(wanted);
  wanted.type = PERF_TYPE_HARDWARE;
  wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
  wanted.exclude_kernel = wanted.exclude_hv = 1;
  wanted.inherit = 1;
  const long fd = syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd >= 0) counter_ = io::UniqueFd(static_cast<int>(fd));
}

uint64_t WorkCounter::Read() const {
  if (counts_instructions()) {
    uint64_t count = 0;
    CAIRN_CHECK(read(counter_.get(), &count, sizeof(count)) == sizeof(count));
    return count;
  }
  timespec now{};
  CAIRN_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace cairn::bench
