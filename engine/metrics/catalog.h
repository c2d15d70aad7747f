// SPDX-License-Identifier: Apache-2.0
//
// Every number of StoreMetrics once: its name as a field and as a sample for Prometheus. All texts
// about metrics are made from this table. To add a number: a field in cairn/metrics.h, a row in
// catalog.cc beside those of its family, a row in docs/metrics.md, and the line in
// engine::CollectMetrics that fills it.
#pragma once

#include <span>
#include <string_view>

#include "cairn/metrics.h"

namespace cairn::engine {

enum class MetricType : uint8_t {
  kCounter,
  kGauge,
  kGaugeNs,  // Nanoseconds as a field, seconds for Prometheus.
};

// A family is a run of rows of one name, which differ in their label; the first has the help text.
struct Metric {
  std::string_view field;   // As in StoreMetrics.
  std::string_view family;  // "cairn_stalls_total"
  std::string_view label;   // "cause=\"no_segment\"", or empty.
  MetricType type;
  std::string_view help;
  uint64_t StoreMetrics::* value;
};
std::span<const Metric> Metrics();

struct HistogramMetric {
  std::string_view field, family, help;
  LatencyHistogram StoreMetrics::* value;
};
std::span<const HistogramMetric> HistogramMetrics();

}  // namespace cairn::engine
