// SPDX-License-Identifier: Apache-2.0
//
// Numbers about a running store: a plain snapshot, taken without stopping anything.
#pragma once

#include <array>
#include <cstdint>

namespace [[gnu::visibility("default")]] cairn {

// Latencies in nanoseconds, in log-linear buckets: 16 a power of two, so a quantile is at most
// 6 % off.
struct LatencyHistogram {
  static constexpr uint32_t kBuckets = 16 * 44;
  std::array<uint64_t, kBuckets> counts{};
  uint64_t count = 0;
  uint64_t sum_ns = 0;
  uint64_t max_ns = 0;
  uint64_t QuantileNs(double quantile) const;  // 0 when empty.
};

struct StoreMetrics {
  uint64_t branches = 0, nodes = 0, models = 0;
  uint64_t tokens_appended = 0, kv_bytes_appended = 0;
  uint64_t appends = 0, forks = 0, rewinds = 0, drops = 0, restores = 0;
  uint64_t restored_bytes = 0, restored_hot_bytes = 0;  // KV served, and of it from memory.
  uint64_t restores_failed = 0, busy = 0, cancelled = 0, kv_shed = 0;

  uint64_t log_groups = 0, log_records = 0, log_syncs = 0;
  uint64_t log_bytes_written = 0, log_bytes_prewritten = 0;
  uint64_t log_segments = 0, log_spare_segments = 0;
  uint64_t physical_bytes = 0;  // Blocks of all files, as counted against max_bytes.
  uint64_t hot_tail_bytes = 0;
  uint64_t written_sequence = 0, durable_sequence = 0, last_sequence = 0;

  LatencyHistogram save;     // Append called to acknowledged at the level asked for.
  LatencyHistogram restore;  // Restore called to complete.
};

}  // namespace cairn
