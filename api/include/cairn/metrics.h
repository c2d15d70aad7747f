// SPDX-License-Identifier: Apache-2.0
//
// Numbers about a running store: a plain snapshot, taken without stopping anything, and what can be
// made of one: text for Prometheus and a verdict. docs/metrics.md explains each number.
//
// Store::Metrics takes the snapshot. Everything here is a pure function of it: no store, no lock,
// no I/O, any thread. Functions that return texts may throw std::bad_alloc. The numbers of one
// snapshot are read one after the other while the store goes on, so sums of them may be off by what
// happened in between.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] cairn {

// Latencies in nanoseconds, in log-linear buckets: 16 a power of two, so a quantile is at most 6 %
// too high.
struct LatencyHistogram {
  static constexpr uint32_t kBuckets = 16 * 44;
  std::array<uint64_t, kBuckets> counts{};
  uint64_t count = 0;
  uint64_t sum_ns = 0;
  uint64_t max_ns = 0;
  // `quantile` from 0 to 1: the upper end of the bucket that it falls into, at most max_ns. 0 when
  // empty.
  uint64_t QuantileNs(double quantile) const;
  // The largest latency that falls into the bucket; UINT64_MAX of the last one, and beyond.
  static uint64_t UpperNs(uint32_t bucket);
};

// Counters begin with 0 when the store is opened; gauges show the present. Each number is a field
// here and a row of kMetrics in engine/metrics/catalog.cc, from which all texts are made; a row
// that is missing there or in docs/metrics.md fails the build or a test.
struct StoreMetrics {
  // --- Contents (gauges). A node that several branches share counts once.
  uint64_t branches = 0, nodes = 0, models = 0;
  uint64_t tokens = 0;     // Positions on all nodes.
  uint64_t raw_bytes = 0;  // Their KV as the models lay it out, and four bytes per token id.
  // Chains: the deltas that a restore has to read one by one. A lane is one layer group's KV on one
  // node; those without KV do not count.
  uint64_t chain_lanes = 0, chain_deltas = 0;

  // --- Calls (counters)
  uint64_t tokens_appended = 0, kv_bytes_appended = 0;
  uint64_t appends = 0, forks = 0, rewinds = 0, drops = 0;
  uint64_t busy = 0, cancelled = 0, kv_shed = 0;
  uint64_t restores = 0;  // Completed; reading tokens counts as well.
  // Records (of tables: frames) read and KV served by completed restores, by where they lay: in
  // memory, as part of the log or as frames of tables; in the log; in snapshot tables.
  uint64_t restored_hot_records = 0, restored_hot_bytes = 0;
  uint64_t restored_cached_frames = 0, restored_cached_bytes = 0;
  uint64_t restored_pinned_frames = 0, restored_pinned_bytes = 0;  // Into GPUs, from pinned memory.
  uint64_t restored_log_records = 0, restored_log_bytes = 0;
  uint64_t restored_table_frames = 0, restored_table_bytes = 0;
  uint64_t prefetches = 0;         // Hints carried out...
  uint64_t prefetches_failed = 0;  // ...and of these what was not brought in because of an error.
  // Restores that began and failed, by cause. Arguments that make no sense are none.
  uint64_t restores_failed_corruption = 0, restores_failed_io = 0, restores_failed_memory = 0;
  uint64_t restores_failed_deadline = 0, restores_failed_cancelled = 0, restores_failed_other = 0;

  // --- The log: counters, then gauges
  uint64_t log_groups = 0, log_records = 0, log_syncs = 0;
  uint64_t log_bytes_written = 0, log_bytes_prewritten = 0;
  // Stalls: a synced group took longer than a second; a record found the next segment still being
  // made; no further segment could be made; the live log passed three quarters of log_bytes_max,
  // and appends were slowed or held until it was back below (on_event reports each time once).
  uint64_t stalls_slow_group = 0, stalls_segment_late = 0, stalls_no_segment = 0;
  uint64_t stalls_log_limit = 0;
  uint64_t log_segments = 0, log_spare_segments = 0;
  // Full segments that have left the log and stay for the content that lies in them.
  uint64_t log_resting_segments = 0;
  uint64_t segment_bytes = 0;         // A full segment's size: Options::segment_bytes at creation.
  uint64_t log_groups_in_flight = 0;  // Being written or synced.
  uint64_t log_records_waiting = 0;   // Placed in the log and not yet written.
  uint64_t tickets_waiting = 0;       // Appends, by Append, not yet acknowledged.
  // What keeps the log's oldest segment from being given back, if anything does: since how long,
  // the first segment that it needs, its kind (1: a read of a branch; 2: one of a node, for a hit
  // or a search; 3: a large append under way; 4: verification; 5: reads after the log failed), and
  // the number of that branch or node. 0: nothing.
  uint64_t log_pinned_ns = 0, log_pinned_segment = 0;
  uint64_t log_pinned_by = 0, log_pinned_id = 0;
  uint64_t written_sequence = 0, durable_sequence = 0, last_sequence = 0;
  uint64_t poisoned = 0;  // 1: writes are refused until the store is reopened.

  // --- Sealing (counters)
  uint64_t seals = 0;             // Snapshot tables written.
  uint64_t sealed_bytes = 0;      // Their content, before it was packed.
  uint64_t retired_segments = 0;  // That left the log, to rest or to be used again.
  uint64_t rewritten_tables = 0;  // Because enough of them was dead.
  uint64_t merged_tables = 0;     // Small ones that were written into one with others.
  uint64_t packed_segments = 0;   // Full ones, resting or not, whose content went into tables.
  uint64_t joined_nodes = 0;      // Nodes merged into their only child (path compression).
  uint64_t cut_nodes = 0;         // Nodes trimmed to what branches still reach of them.
  // KV that was evicted, as it was stored; branches that were evicted whole, and that expired; KV
  // that Fill brought back, raw.
  uint64_t evicted_bytes = 0, evicted_branches = 0, expired_branches = 0, filled_bytes = 0;
  uint64_t missing_kv_bytes = 0;     // Raw KV that branches had and lack now.
  uint64_t table_bytes_written = 0;  // All tables: sealed, derived, of the index.
  // Bytes that background_bytes_per_second limits: read and written to seal, rewrite and merge.
  uint64_t background_read_bytes = 0, background_written_bytes = 0;
  // 1: the last round of sealing and giving back space failed, and not for want of room, so the log
  // may grow (gauge). on_event reported it.
  uint64_t background_failing = 0;

  // --- Space (gauges)
  // Files that hold contents: snapshot tables, and segments of the log without spare ones.
  uint64_t stored_bytes = 0;
  uint64_t tables = 0;                             // Snapshot tables.
  uint64_t table_bytes = 0, table_live_bytes = 0;  // Their files, and what is needed of them.
  // Blocks of all files, as counted against max_bytes. Of a store that is read only: of those it
  // reads, so without spare segments.
  uint64_t physical_bytes = 0;
  uint64_t max_bytes = 0;  // Options::max_bytes; UINT64_MAX: no cap.
  // The volume's size, and the part of it that this user may still take; 0 where it cannot be read.
  uint64_t disk_bytes = 0, disk_free_bytes = 0;
  // To files in the last 24 hours, by the wall clock: log with padding, segments made ready,
  // tables, index, MANIFEST. Kept in MANIFEST, so a store that is read only, or was reopened
  // after a crash, knows what it was at the last one.
  uint64_t written_bytes_day = 0;
  uint64_t hot_tail_bytes = 0;
  uint64_t page_cache_bytes = 0;  // Frames of tables in memory, with what keeping them costs.
  // Buffers and caches of this store, as Options::max_memory_bytes counts them; and the resident
  // memory of the whole process, with what others use.
  uint64_t memory_counted_bytes = 0, memory_resident_bytes = 0;

  // --- Pinned memory, of all GPUs (cairn/gpu.h)
  uint64_t pinned_bytes = 0;       // What frames of tables take of it (gauge).
  uint64_t pinned_misses = 0;      // Frames that were looked for there in vain (counters);
  uint64_t pinned_promotions = 0;  // that came in;
  uint64_t pinned_refusals = 0;    // and that were to come in, and found no room.

  // --- Objects (cairn/objects.h): counters, then gauges
  uint64_t objects_put = 0, object_bytes_put = 0;
  uint64_t objects_kept = 0;     // Puts that found their key there, and left it as it was.
  uint64_t objects_not_put = 0;  // Puts that failed: refused, cancelled, out of time, and so on.
  uint64_t objects_got = 0, object_bytes_got = 0;
  uint64_t objects_missed = 0;   // Gets of keys that are not there.
  uint64_t objects_unknown = 0;  // Keys of Exists that the index had to be asked for.
  // The directory that answers Exists: the objects that it knows, its memory, and 1 if it knows all
  // that exist.
  uint64_t object_directory_entries = 0, object_directory_bytes = 0;
  uint64_t object_directory_whole = 0;

  // --- Sparse sessions (cairn/sparse.h) and shadows (cairn/shadow_session.h), of all arenas:
  // counters, then a gauge
  uint64_t sparse_fetches = 0;   // Calls of Fetch, in one layer each.
  uint64_t sparse_wanted = 0;    // Pieces that they named.
  uint64_t sparse_faults = 0;    // Those of them that no page had.
  uint64_t sparse_left_out = 0;  // Those that a relaxed fetch did without.
  uint64_t sparse_pages_read = 0, sparse_page_bytes_read = 0;  // From the log and from tables.
  uint64_t shadows_made = 0;         // Tables of shadows that were made, or made longer.
  uint64_t shadow_tokens_read = 0;   // Tokens whose keys were read for that.
  uint64_t sparse_device_bytes = 0;  // Device memory of open sessions of both.

  // --- The tree
  uint64_t tree_memory_bytes = 0;  // Taken by branches and nodes (gauge).
  uint64_t tree_loads = 0;         // Branches and nodes read from the index (counter).
  uint64_t replayed_records = 0;   // That opening took from the log (gauge).

  // --- Finding (cairn/find.h)
  uint64_t finds = 0, find_hits = 0;  // Calls of FindPrefix; of these with a hit (counters).
  uint64_t hint_entries = 0;          // Of prefixes, written since the opening (counter).
  uint64_t hint_chunk_entries = 0;    // The same, of chunks (Index::kChunks).
  uint64_t hint_bytes = 0;            // Memory that the hints take (gauge).
  uint64_t hint_nodes_behind = 0;     // Changed, and not indexed yet (gauge).
  uint64_t hints_incomplete = 0;      // 1: FindPrefix may miss something (gauge).
  // Indexed and gone since, about: a sweep begins when they are a quarter of all (gauge).
  uint64_t hint_dead_tokens = 0;
  uint64_t hint_filter_filled = 0;        // 1: what is not there is known without a read (gauge).
  uint64_t leases = 0, leased_bytes = 0;  // Now; what they hold, raw (gauges).

  // --- Blending (cairn/blend.h; counters)
  uint64_t blend_plans = 0;  // Calls of PlanBlend that returned a plan.
  // Tokens of their prompts, by where they were found.
  uint64_t blend_prefix_tokens = 0, blend_full_tokens = 0, blend_partial_tokens = 0;
  uint64_t blend_unknown_tokens = 0;
  uint64_t blend_computed_tokens = 0;  // That plans leave to the engine, found or not.
  uint64_t blend_turned_bytes = 0;     // Keys that restores of plans brought to other positions.
  uint64_t blend_failed_checks = 0;    // Models whose stored keys do not turn as they say.

  LatencyHistogram save;     // Append called to acknowledged at the level asked for.
  LatencyHistogram restore;  // Restore called to complete.
  // Waits of calls for log_bytes_max: their number and total time.
  LatencyHistogram append_delay;

  uint64_t restored_bytes() const {
    return restored_hot_bytes + restored_cached_bytes + restored_pinned_bytes + restored_log_bytes +
           restored_table_bytes;
  }
  uint64_t restores_failed() const {
    return restores_failed_corruption + restores_failed_io + restores_failed_memory +
           restores_failed_deadline + restores_failed_cancelled + restores_failed_other;
  }
  double mean_chain() const;    // Deltas per lane; 0 when there are none.
  double stored_ratio() const;  // stored_bytes / raw_bytes; 0 when there are none.
};

// The text exposition format of Prometheus, version 0.0.4: what an HTTP server answers to a scrape
// with content type "text/plain; version=0.0.4". Names begin with cairn_; times are in seconds.
// `store`, unless it is empty, becomes a label of that name on every sample.
std::string PrometheusText(const StoreMetrics& metrics, std::string_view store = {});

// One limit that was passed.
struct Alarm {
  // Part of the interface: "poisoned", "background", "save_p95", "restore_p95", "stored_ratio",
  // "mean_chain", "restore_success", "log_pinned".
  std::string name;
  double value = 0, limit = 0;  // Seconds, or the plain ratio; the limit that was passed.
  std::string message;          // For people, one line.
};

// The verdict of CheckHealth.
struct Health {
  bool ok = true;  // No alarms.
  std::vector<Alarm> alarms;
};

// Looks at all that happened since the store was opened; for the last minutes only, let Prometheus
// evaluate docs/prometheus/cairn.rules.yml. An alarm needs something to judge from: 100 saves, 100
// restores (those cancelled by the caller count as neither success nor failure), 1 GiB of raw bytes
// for the ratio, ten lanes for the chain. The limits, and why, are in engine/metrics/constants.h:
// 50 ms of 19 saves in 20, 100 ms of 19 restores in 20, 0.1 to 4 of the ratio, 100 deltas per lane,
// one failed restore in 10,000, one minute for which the log's oldest segment is pinned.
Health CheckHealth(const StoreMetrics& metrics);

}  // namespace cairn
