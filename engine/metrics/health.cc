// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cairn/metrics.h"
#include "engine/metrics/constants.h"
#include "engine/restore/pins.h"

namespace cairn {

namespace {

std::string Number(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

void CheckLatency(const LatencyHistogram& histogram, double limit, const std::string& what,
                  Health* health) {
  const double p95 = static_cast<double>(histogram.QuantileNs(0.95)) / 1e9;
  if (histogram.count < engine::kMinLatencySamples || p95 <= limit) return;
  health->alarms.push_back({what + "_p95", p95, limit,
                            "one " + what + " in twenty took " + Number(p95 * 1e3, 1) +
                                " ms or more; the limit is " + Number(limit * 1e3, 0) + " ms"});
}

void CheckRatio(const StoreMetrics& metrics, Health* health) {
  const double ratio = metrics.stored_ratio();
  if (metrics.raw_bytes < engine::kMinRatioRawBytes) return;
  if (ratio >= engine::kStoredRatioMin && ratio <= engine::kStoredRatioMax) return;
  const bool high = ratio > engine::kStoredRatioMax;
  health->alarms.push_back(
      {"stored_ratio", ratio, high ? engine::kStoredRatioMax : engine::kStoredRatioMin,
       "files hold " + Number(ratio, 2) + " times the raw bytes of the contents; expected are " +
           Number(engine::kStoredRatioMin, 1) + " to " + Number(engine::kStoredRatioMax, 1)});
}

void CheckChain(const StoreMetrics& metrics, Health* health) {
  const double mean = metrics.mean_chain();
  if (metrics.chain_lanes < engine::kMinChainLanes || mean <= engine::kMeanChainLimit) return;
  health->alarms.push_back({"mean_chain", mean, engine::kMeanChainLimit,
                            "a KV lane consists of " + Number(mean, 0) +
                                " deltas in the mean; the limit is " +
                                Number(engine::kMeanChainLimit, 0)});
}

void CheckRestores(const StoreMetrics& metrics, Health* health) {
  const uint64_t failed = metrics.restores_failed() - metrics.restores_failed_cancelled;
  const uint64_t all = metrics.restores + failed;
  if (all < engine::kMinRestores) return;
  const double success = static_cast<double>(metrics.restores) / static_cast<double>(all);
  if (success >= engine::kRestoreSuccessLimit) return;
  health->alarms.push_back({"restore_success", success, engine::kRestoreSuccessLimit,
                            std::to_string(failed) + " of " + std::to_string(all) +
                                " restores failed; at least " +
                                Number(engine::kRestoreSuccessLimit * 100, 2) + " % must succeed"});
}

void CheckLogPinned(const StoreMetrics& metrics, Health* health) {
  const double seconds = static_cast<double>(metrics.log_pinned_ns) / 1e9;
  if (seconds <= engine::kLogPinnedLimitSeconds) return;
  const engine::Pins::Holder holder{static_cast<engine::Pins::Of>(metrics.log_pinned_by),
                                    metrics.log_pinned_id};
  health->alarms.push_back({"log_pinned", seconds, engine::kLogPinnedLimitSeconds,
                            holder.ToString() + " has needed segment " +
                                std::to_string(metrics.log_pinned_segment) + " of the log for " +
                                Number(seconds, 0) +
                                " s, so nothing from there on is given back; the limit is " +
                                Number(engine::kLogPinnedLimitSeconds, 0) + " s"});
}

double Quotient(uint64_t a, uint64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

}  // namespace

double StoreMetrics::mean_chain() const { return Quotient(chain_deltas, chain_lanes); }
double StoreMetrics::stored_ratio() const { return Quotient(stored_bytes, raw_bytes); }

Health CheckHealth(const StoreMetrics& metrics) {
  Health health;
  if (metrics.poisoned != 0) {
    health.alarms.push_back(
        {"poisoned", 1, 0, "the log failed: writes are refused until the store is reopened"});
  }
  if (metrics.background_failing != 0) {
    health.alarms.push_back({"background", 1, 0,
                             "sealing and giving back space fail, so the log may grow: the events "
                             "and `cairn verify` tell why"});
  }
  CheckLatency(metrics.save, engine::kSaveP95LimitSeconds, "save", &health);
  CheckLatency(metrics.restore, engine::kRestoreP95LimitSeconds, "restore", &health);
  CheckRatio(metrics, &health);
  CheckChain(metrics, &health);
  CheckRestores(metrics, &health);
  CheckLogPinned(metrics, &health);
  health.ok = health.alarms.empty();
  return health;
}

}  // namespace cairn
