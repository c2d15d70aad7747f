// SPDX-License-Identifier: Apache-2.0
//
// Metrics in C.
#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/results.h"
#include "engine/metrics/catalog.h"

using cairn::Status;
using cairn::StatusCode;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

struct AlarmAsC : cairn_alarm {
  explicit AlarmAsC(const cairn::Alarm& alarm) : cairn_alarm{} {
    struct_size = sizeof(cairn_alarm);
    name = alarm.name.c_str();
    value = alarm.value;
    limit = alarm.limit;
    message = alarm.message.c_str();
  }
};

struct HealthHolder : cairn_health {
  explicit HealthHolder(cairn::Health health) : cairn_health{}, all(std::move(health.alarms)) {
    struct_size = sizeof(cairn_health);
    ok = health.ok;
    alarms = all.data();
    alarm_count = all.size();
  }
  Items<cairn_alarm, AlarmAsC, cairn::Alarm> all;
};

// Null: there is none with that name.
const cairn::LatencyHistogram* FindHistogram(const cairn_metrics* metrics, const char* name) {
  if (metrics == nullptr) return nullptr;
  for (const cairn::engine::HistogramMetric& metric : cairn::engine::HistogramMetrics()) {
    if (metric.field == Text(name)) return &(metrics->value.*metric.value);
  }
  return nullptr;
}

}  // namespace

extern "C" {

cairn_code cairn_store_metrics(const cairn_store* store, cairn_metrics** metrics,
                               cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(metrics);
    CAIRN_C_NEED(store);
    CAIRN_RETURN_IF_ERROR(CheckProcess(*store));
    *metrics = new cairn_metrics{store->value.Metrics()};
    return Status::Ok();
  });
}
void cairn_metrics_free(cairn_metrics* metrics) { delete metrics; }

size_t cairn_metric_count(void) { return cairn::engine::Metrics().size(); }
const char* cairn_metric_name(size_t index) {
  return index < cairn_metric_count() ? cairn::engine::Metrics()[index].field.data() : nullptr;
}
bool cairn_metric_is_counter(size_t index) {
  return index < cairn_metric_count() &&
         cairn::engine::Metrics()[index].type == cairn::engine::MetricType::kCounter;
}
bool cairn_metrics_value_at(const cairn_metrics* metrics, size_t index, uint64_t* value) {
  if (metrics == nullptr || value == nullptr || index >= cairn_metric_count()) return false;
  *value = metrics->value.*cairn::engine::Metrics()[index].value;
  return true;
}
bool cairn_metrics_value(const cairn_metrics* metrics, const char* name, uint64_t* value) {
  for (size_t i = 0; i < cairn_metric_count(); ++i) {
    if (cairn::engine::Metrics()[i].field == Text(name)) {
      return cairn_metrics_value_at(metrics, i, value);
    }
  }
  return false;
}

cairn_code cairn_metrics_histogram(const cairn_metrics* metrics, const char* name,
                                   cairn_histogram* histogram, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(metrics);
    CAIRN_C_NEED(histogram);
    CAIRN_RETURN_IF_ERROR(CheckStructSize(histogram, sizeof(*histogram), "cairn_histogram"));
    const cairn::LatencyHistogram* const found = FindHistogram(metrics, name);
    if (found == nullptr) {
      return Status(StatusCode::kNotFound, "no histogram is called \"" + String(name) + "\"");
    }
    auto c = Sized<cairn_histogram>::Default();
    c.count = found->count;
    c.sum_ns = found->sum_ns;
    c.max_ns = found->max_ns;
    c.counts = found->counts.data();
    c.bucket_count = found->counts.size();
    Write(c, histogram);
    return Status::Ok();
  });
}
uint64_t cairn_metrics_quantile_ns(const cairn_metrics* metrics, const char* name,
                                   double quantile) {
  const cairn::LatencyHistogram* const found = FindHistogram(metrics, name);
  const bool exists = quantile >= 0 && quantile <= 1;  // False for a NaN, too.
  return found == nullptr || !exists ? 0 : found->QuantileNs(quantile);
}
uint64_t cairn_histogram_upper_ns(uint32_t bucket) {
  return bucket < cairn::LatencyHistogram::kBuckets ? cairn::LatencyHistogram::UpperNs(bucket) : 0;
}

uint64_t cairn_metrics_restored_bytes(const cairn_metrics* metrics) {
  return metrics == nullptr ? 0 : metrics->value.restored_bytes();
}
uint64_t cairn_metrics_restores_failed(const cairn_metrics* metrics) {
  return metrics == nullptr ? 0 : metrics->value.restores_failed();
}
double cairn_metrics_mean_chain(const cairn_metrics* metrics) {
  return metrics == nullptr ? 0 : metrics->value.mean_chain();
}
double cairn_metrics_stored_ratio(const cairn_metrics* metrics) {
  return metrics == nullptr ? 0 : metrics->value.stored_ratio();
}

cairn_code cairn_metrics_prometheus_text(const cairn_metrics* metrics, const char* store,
                                         char** text, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(text);
    CAIRN_C_NEED(metrics);
    *text = NewText(cairn::PrometheusText(metrics->value, Text(store)));
    return Status::Ok();
  });
}
cairn_code cairn_metrics_check_health(const cairn_metrics* metrics, cairn_health** health,
                                      cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(health);
    CAIRN_C_NEED(metrics);
    *health = std::make_unique<HealthHolder>(cairn::CheckHealth(metrics->value)).release();
    return Status::Ok();
  });
}
cairn_code cairn_store_prometheus_text(const cairn_store* store, const char* label, char** text,
                                       cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(text);
    CAIRN_C_NEED(store);
    CAIRN_RETURN_IF_ERROR(CheckProcess(*store));
    *text = NewText(store->value.PrometheusText(Text(label)));
    return Status::Ok();
  });
}
cairn_code cairn_store_health(const cairn_store* store, cairn_health** health,
                              cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(health);
    CAIRN_C_NEED(store);
    CAIRN_RETURN_IF_ERROR(CheckProcess(*store));
    *health = std::make_unique<HealthHolder>(store->value.Health()).release();
    return Status::Ok();
  });
}
void cairn_health_free(cairn_health* health) { delete static_cast<HealthHolder*>(health); }

}  // extern "C"
