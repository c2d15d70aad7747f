// SPDX-License-Identifier: Apache-2.0
//
// C API: numbers about a running store. The C++ twin is cairn/metrics.h. A number is found by the
// name of its field there ("tokens_appended"), so a program meets new ones without a new header;
// docs/metrics.md explains each.
//
// Pure functions of a snapshot that cairn_store_metrics took: no store, no lock, no I/O, any
// thread. The numbers of one snapshot are read one after the other while the store goes on, so sums
// of them may be off by what happened in between. Counters begin with 0 when the store is opened.
#pragma once

#include "cairn/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// A snapshot: it never changes, and may be read by several threads. It outlives its store.
typedef struct cairn_metrics cairn_metrics;
// Frees the snapshot, and with it the `counts` of its histograms.
CAIRN_API void cairn_metrics_free(cairn_metrics* metrics);

// --- Numbers
// How many numbers there are. The `index` of the calls below is less than that.
CAIRN_API size_t cairn_metric_count(void);
// A static text; NULL beyond the last one.
CAIRN_API const char* cairn_metric_name(size_t index);
// True of a counter, false of a gauge and beyond the last one.
CAIRN_API bool cairn_metric_is_counter(size_t index);
// Writes the number to *value. False, and *value is untouched, if an argument is NULL or the index
// is beyond the last one.
CAIRN_API bool cairn_metrics_value_at(const cairn_metrics* metrics, size_t index, uint64_t* value);
// The same by name. False also of a name that does not exist.
CAIRN_API bool cairn_metrics_value(const cairn_metrics* metrics, const char* name, uint64_t* value);

// --- Latencies, by name: "save" (an append, from the call to its acknowledgement), "restore",
// "append_delay" (waits for log_bytes_max).
// cairn::LatencyHistogram, in nanoseconds: log-linear buckets, 16 for each power of two.
typedef struct cairn_histogram {
  size_t struct_size;              // Set before the call.
  uint64_t count, sum_ns, max_ns;  // How many, their sum, the longest.
  const uint64_t* counts;          // By bucket. Lives as long as the metrics.
  size_t bucket_count;             // Elements of `counts`.
} cairn_histogram;
CAIRN_API void cairn_histogram_init(cairn_histogram* histogram, size_t struct_size);
// Fills `histogram`. CAIRN_NOT_FOUND: none has that name.
CAIRN_API cairn_code cairn_metrics_histogram(const cairn_metrics* metrics, const char* name,
                                             cairn_histogram* histogram, cairn_error** error);
// `quantile`: 0 to 1. The upper end of the bucket that it falls into, at most 6 % too high. 0 if
// the histogram is empty, if none has that name, or if `quantile` is out of range.
CAIRN_API uint64_t cairn_metrics_quantile_ns(const cairn_metrics* metrics, const char* name,
                                             double quantile);
// The largest latency that falls into the bucket, for a program that draws `counts`. UINT64_MAX of
// the last bucket, 0 beyond it.
CAIRN_API uint64_t cairn_histogram_upper_ns(uint32_t bucket);

// --- Sums and ratios of the numbers above. 0 of NULL.
// KV that restores have served, from wherever it lay.
CAIRN_API uint64_t cairn_metrics_restored_bytes(const cairn_metrics* metrics);
// Restores that began and failed, for any cause.
CAIRN_API uint64_t cairn_metrics_restores_failed(const cairn_metrics* metrics);
// Deltas that a restore reads one by one, per lane (a layer group on a node).
CAIRN_API double cairn_metrics_mean_chain(const cairn_metrics* metrics);
// stored_bytes / raw_bytes: how much of the raw size the files take.
CAIRN_API double cairn_metrics_stored_ratio(const cairn_metrics* metrics);
// The text format of Prometheus, version 0.0.4, with times in seconds. *text is freed with
// cairn_text_free. `store`: the value of a label of that name on every sample; NULL or "": no
// label.
CAIRN_API cairn_code cairn_metrics_prometheus_text(const cairn_metrics* metrics, const char* store,
                                                   char** text, cairn_error** error);

// cairn::Alarm: one limit that was passed. A part of cairn_health; never freed alone.
typedef struct cairn_alarm {
  size_t struct_size;
  const char* name;     // "poisoned", "background", "save_p95", ...: cairn/metrics.h.
  double value, limit;  // Seconds, or a plain ratio; the limit that was passed.
  const char* message;  // For people, one line.
} cairn_alarm;
// cairn::Health: the verdict about all that happened since the store was opened.
typedef struct cairn_health {
  size_t struct_size;
  bool ok;                           // No alarms.
  const cairn_alarm* const* alarms;  // Live as long as the struct.
  size_t alarm_count;
} cairn_health;
// Judges the snapshot; the limits are in cairn/metrics.h. *health is freed with cairn_health_free.
// CAIRN_OK also where there are alarms.
CAIRN_API cairn_code cairn_metrics_check_health(const cairn_metrics* metrics, cairn_health** health,
                                                cairn_error** error);
// Frees the struct with its alarms.
CAIRN_API void cairn_health_free(cairn_health* health);

#ifdef __cplusplus
}  // extern "C"
#endif
