// SPDX-License-Identifier: Apache-2.0
//
// StoreMetrics in the text exposition format of Prometheus 0.0.4.
//
// A histogram here has 704 buckets. Prometheus keeps a series for each, so it gets every eighth
// edge, two a power of two, from about 1 us to 34 s: among them 50.33 ms and 100.66 ms, next to the
// limits of the alarms. Counts are cumulative, so leaving edges out only loses resolution. An edge
// is the largest latency of its bucket, so it is exact.
#include "engine/metrics/catalog.h"

namespace cairn {

namespace {

constexpr uint32_t kEdgeStep = 8;
constexpr uint32_t kFirstEdge = (10 - 3) * 16 - 1;  // Below 2^10 ns.
constexpr uint32_t kLastEdge = (35 - 3) * 16 - 1;   // Below 2^35 ns.
static_assert((kLastEdge - kFirstEdge) % kEdgeStep == 0);
static_assert(kLastEdge < LatencyHistogram::kBuckets);

std::string EscapeLabel(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') result += '\\';
    result += c;
  }
  return result;
}

std::string Seconds(uint64_t ns) {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  std::string fraction = std::to_string(ns % kSecondNs);
  fraction.insert(0, 9 - fraction.size(), '0');
  return std::to_string(ns / kSecondNs) + "." + fraction;
}

class Writer {
 public:
  explicit Writer(std::string_view store)
      : store_(store.empty() ? "" : "store=\"" + EscapeLabel(store) + "\"") {}

  // No help text here holds a character that the format escapes.
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    Put({"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"});
  }
  void Sample(std::string_view name, std::string_view suffix, std::string_view label,
              std::string_view value) {
    Put({name, suffix});
    const bool both = !store_.empty() && !label.empty();
    if (!store_.empty() || !label.empty()) Put({"{", store_, both ? "," : "", label, "}"});
    Put({" ", value, "\n"});
  }
  std::string Take() { return std::move(text_); }

 private:
  void Put(std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) text_ += part;
  }
  const std::string store_;
  std::string text_;
};

void WriteHistogram(const engine::HistogramMetric& metric, const LatencyHistogram& histogram,
                    Writer* writer) {
  writer->Family(metric.family, "histogram", metric.help);
  uint64_t seen = 0;
  uint32_t bucket = 0;
  for (uint32_t edge = kFirstEdge; edge <= kLastEdge; edge += kEdgeStep) {
    for (; bucket <= edge; ++bucket) seen += histogram.counts[bucket];
    writer->Sample(metric.family, "_bucket",
                   "le=\"" + Seconds(LatencyHistogram::UpperNs(edge)) + "\"", std::to_string(seen));
  }
  const std::string count = std::to_string(histogram.count);
  writer->Sample(metric.family, "_bucket", "le=\"+Inf\"", count);
  writer->Sample(metric.family, "_sum", "", Seconds(histogram.sum_ns));
  writer->Sample(metric.family, "_count", "", count);
}

}  // namespace

std::string PrometheusText(const StoreMetrics& metrics, std::string_view store) {
  Writer writer(store);
  std::string_view family;
  for (const engine::Metric& metric : engine::Metrics()) {
    if (metric.family != family) {
      family = metric.family;
      writer.Family(family, metric.type == engine::MetricType::kCounter ? "counter" : "gauge",
                    metric.help);
    }
    const uint64_t value = metrics.*metric.value;
    writer.Sample(
        family, "", metric.label,
        metric.type == engine::MetricType::kGaugeNs ? Seconds(value) : std::to_string(value));
  }
  for (const engine::HistogramMetric& metric : engine::HistogramMetrics()) {
    WriteHistogram(metric, metrics.*metric.value, &writer);
  }
  return writer.Take();
}

}  // namespace cairn
