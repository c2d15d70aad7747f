// SPDX-License-Identifier: Apache-2.0
//
// A latency histogram that many threads add to at once without a lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "cairn/metrics.h"

namespace cairn {

class Histogram {
 public:
  void Add(uint64_t ns);
  LatencyHistogram Snapshot() const;

 private:
  std::array<std::atomic<uint64_t>, LatencyHistogram::kBuckets> counts_{};
  std::atomic<uint64_t> count_{0}, sum_ns_{0}, max_ns_{0};
};

}  // namespace cairn
