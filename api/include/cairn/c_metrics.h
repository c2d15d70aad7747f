// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: numbers about a running store. The C++ twin is cairn/metrics.h. A number is found
// by the name of its field there ("tokens_appended"), so a program meets new ones without a new
// header; docs/metrics.md explains each.
#pragma once

#include "cairn/c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// A snapshot; never changes.
typedef struct cairn_metrics cairn_metrics;
CAIRN_API void cairn_metrics_free(cairn_metrics* metrics);

// --- Numbers. `index` below cairn_metric_count(); NULL, or false, beyond.
CAIRN_API size_t cairn_metric_count(void);
CAIRN_API const char* cairn_metric_name(size_t index);
CAIRN_API bool cairn_metric_is_counter(size_t index);  // Or a gauge.
CAIRN_API bool cairn_metrics_value_at(const cairn_metrics* metrics, size_t index, uint64_t* value);
CAIRN_API bool cairn_metrics_value(const cairn_metrics* metrics, const char* name, uint64_t* value);

// --- Latencies: "save", "restore", "append_delay". cairn::LatencyHistogram, in nanoseconds.
typedef struct cairn_histogram {
  size_t struct_size;  // Set before the call.
  uint64_t count, sum_ns, max_ns;
  const uint64_t* counts;  // Lives as long as the metrics.
  size_t bucket_count;
} cairn_histogram;
CAIRN_API void cairn_histogram_init(cairn_histogram* histogram, size_t struct_size);
// CAIRN_NOT_FOUND: there is none of that name.
CAIRN_API cairn_code cairn_metrics_histogram(const cairn_metrics* metrics, const char* name,
                                             cairn_histogram* histogram, cairn_error** error);
// 0 of an empty one, and of a name that there is not.
CAIRN_API uint64_t cairn_metrics_quantile_ns(const cairn_metrics* metrics, const char* name,
                                             double quantile);
CAIRN_API uint64_t cairn_histogram_upper_ns(uint32_t bucket);  // The largest that falls into it.

// --- What follows from them. 0 of NULL.
CAIRN_API uint64_t cairn_metrics_restored_bytes(const cairn_metrics* metrics);
CAIRN_API uint64_t cairn_metrics_restores_failed(const cairn_metrics* metrics);
CAIRN_API double cairn_metrics_mean_chain(const cairn_metrics* metrics);
CAIRN_API double cairn_metrics_stored_ratio(const cairn_metrics* metrics);
// Text for Prometheus, to be freed by cairn_text_free. `store`: a label, or NULL.
CAIRN_API cairn_code cairn_metrics_prometheus_text(const cairn_metrics* metrics, const char* store,
                                                   char** text, cairn_error** error);

// cairn::Alarm, cairn::Health
typedef struct cairn_alarm {
  size_t struct_size;
  const char* name;
  double value, limit;
  const char* message;
} cairn_alarm;
typedef struct cairn_health {
  size_t struct_size;
  bool ok;  // No alarms.
  const cairn_alarm* const* alarms;
  size_t alarm_count;
} cairn_health;
CAIRN_API cairn_code cairn_metrics_check_health(const cairn_metrics* metrics, cairn_health** health,
                                                cairn_error** error);
CAIRN_API void cairn_health_free(cairn_health* health);

#ifdef __cplusplus
}  // extern "C"
#endif
