// SPDX-License-Identifier: Apache-2.0
#include "base/core/histogram.h"

#include <algorithm>
#include <bit>

namespace cairn {

namespace {

constexpr uint32_t kSubBuckets = 16;

// Values below 16 have a bucket each; above, 16 buckets a power of two.
uint32_t BucketOf(uint64_t ns) {
  if (ns < kSubBuckets) return static_cast<uint32_t>(ns);
  const uint32_t power = static_cast<uint32_t>(std::bit_width(ns)) - 1;
  const auto sub = static_cast<uint32_t>(ns >> (power - 4)) & (kSubBuckets - 1);
  return std::min((power - 3) * kSubBuckets + sub, LatencyHistogram::kBuckets - 1);
}

}  // namespace

void Histogram::Add(uint64_t ns) {
  counts_[BucketOf(ns)].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  uint64_t seen = max_ns_.load(std::memory_order_relaxed);
  while (ns > seen && !max_ns_.compare_exchange_weak(seen, ns, std::memory_order_relaxed)) {
  }
}

LatencyHistogram Histogram::Snapshot() const {
  LatencyHistogram snapshot;
  for (uint32_t i = 0; i < LatencyHistogram::kBuckets; ++i) {
    snapshot.counts[i] = counts_[i].load(std::memory_order_relaxed);
    snapshot.count += snapshot.counts[i];
  }
  snapshot.sum_ns = sum_ns_.load(std::memory_order_relaxed);
  snapshot.max_ns = max_ns_.load(std::memory_order_relaxed);
  return snapshot;
}

uint64_t LatencyHistogram::UpperNs(uint32_t bucket) {
  if (bucket < kSubBuckets) return bucket;
  if (bucket >= kBuckets - 1) return UINT64_MAX;
  const uint32_t power = bucket / kSubBuckets + 3;
  const uint64_t sub = bucket % kSubBuckets;
  return ((kSubBuckets + sub + 1) << (power - 4)) - 1;
}

uint64_t LatencyHistogram::QuantileNs(double quantile) const {
  if (count == 0) return 0;
  const auto rank = static_cast<uint64_t>(quantile * static_cast<double>(count - 1)) + 1;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < kBuckets; ++i) {
    seen += counts[i];
    if (seen >= rank) return std::min(UpperNs(i), max_ns);
  }
  return max_ns;
}

}  // namespace cairn
