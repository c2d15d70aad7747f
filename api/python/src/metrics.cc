// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/store.h"
#include "engine/metrics/catalog.h"

namespace cairn::python {

nb::dict MetricsDict(const StoreMetrics& metrics) {
  nb::dict dict;
  for (const engine::Metric& row : engine::Metrics()) {
    dict[nb::str(row.field.data(), row.field.size())] = metrics.*row.value;
  }
  for (const engine::HistogramMetric& row : engine::HistogramMetrics()) {
    const LatencyHistogram& histogram = metrics.*row.value;
    nb::dict of;
    of["count"] = histogram.count;
    of["sum_ns"] = histogram.sum_ns;
    of["max_ns"] = histogram.max_ns;
    of["p50_ns"] = histogram.QuantileNs(0.5);
    of["p95_ns"] = histogram.QuantileNs(0.95);
    of["p99_ns"] = histogram.QuantileNs(0.99);
    dict[nb::str(row.field.data(), row.field.size())] = of;
  }
  return dict;
}

}  // namespace cairn::python
