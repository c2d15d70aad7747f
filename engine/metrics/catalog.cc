// SPDX-License-Identifier: Apache-2.0
#include "engine/metrics/catalog.h"

#include <array>

namespace cairn::engine {

namespace {

using M = StoreMetrics;
constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;

constexpr auto kMetrics = std::to_array<Metric>({
    {"branches", "cairn_branches", "", kGauge, "Branches.", &M::branches},
    {"nodes", "cairn_nodes", "", kGauge, "Nodes of the conversation trees.", &M::nodes},
    {"models", "cairn_models", "", kGauge, "Registered models.", &M::models},
    {"tokens", "cairn_tokens", "", kGauge, "Positions on all nodes.", &M::tokens},
    {"raw_bytes", "cairn_raw_bytes", "", kGauge,
     "KV on all nodes as the models lay it out, and token ids.", &M::raw_bytes},
    {"chain_lanes", "cairn_chain_lanes", "", kGauge, "KV lanes that hold something.",
     &M::chain_lanes},
    {"chain_deltas", "cairn_chain_deltas", "", kGauge, "Deltas in all KV lanes.", &M::chain_deltas},

    {"tokens_appended", "cairn_appended_tokens_total", "", kCounter, "Token ids appended.",
     &M::tokens_appended},
    {"kv_bytes_appended", "cairn_appended_kv_bytes_total", "", kCounter, "KV appended.",
     &M::kv_bytes_appended},
    {"appends", "cairn_appends_total", "", kCounter, "Deltas appended.", &M::appends},
    {"forks", "cairn_forks_total", "", kCounter, "Forks.", &M::forks},
    {"rewinds", "cairn_rewinds_total", "", kCounter, "Rewinds.", &M::rewinds},
    {"drops", "cairn_drops_total", "", kCounter, "Branches dropped.", &M::drops},
    {"busy", "cairn_busy_total", "", kCounter,
     "Times that an append found the log full or its branch taken.", &M::busy},
    {"cancelled", "cairn_cancelled_total", "", kCounter, "Appends cancelled.", &M::cancelled},
    {"kv_shed", "cairn_kv_shed_total", "", kCounter, "Appends that kept the tokens alone.",
     &M::kv_shed},
    {"restores", "cairn_restores_total", "", kCounter, "Restores completed.", &M::restores},
    {"restored_hot_records", "cairn_restored_records_total", "tier=\"hot_tail\"", kCounter,
     "Records read by restores, by where they lay.", &M::restored_hot_records},
    {"restored_log_records", "cairn_restored_records_total", "tier=\"log\"", kCounter, "",
     &M::restored_log_records},
    {"restored_table_frames", "cairn_restored_records_total", "tier=\"table\"", kCounter, "",
     &M::restored_table_frames},
    {"restored_hot_bytes", "cairn_restored_bytes_total", "tier=\"hot_tail\"", kCounter,
     "KV served by restores, by where it lay.", &M::restored_hot_bytes},
    {"restored_log_bytes", "cairn_restored_bytes_total", "tier=\"log\"", kCounter, "",
     &M::restored_log_bytes},
    {"restored_table_bytes", "cairn_restored_bytes_total", "tier=\"table\"", kCounter, "",
     &M::restored_table_bytes},
    {"restores_failed_corruption", "cairn_restores_failed_total", "cause=\"corruption\"", kCounter,
     "Restores failed, by cause.", &M::restores_failed_corruption},
    {"restores_failed_io", "cairn_restores_failed_total", "cause=\"io\"", kCounter, "",
     &M::restores_failed_io},
    {"restores_failed_memory", "cairn_restores_failed_total", "cause=\"memory\"", kCounter, "",
     &M::restores_failed_memory},
    {"restores_failed_deadline", "cairn_restores_failed_total", "cause=\"deadline\"", kCounter, "",
     &M::restores_failed_deadline},
    {"restores_failed_cancelled", "cairn_restores_failed_total", "cause=\"cancelled\"", kCounter,
     "", &M::restores_failed_cancelled},
    {"restores_failed_other", "cairn_restores_failed_total", "cause=\"other\"", kCounter, "",
     &M::restores_failed_other},

    {"log_groups", "cairn_log_groups_total", "", kCounter, "Groups written.", &M::log_groups},
    {"log_records", "cairn_log_records_total", "", kCounter, "Records placed in the log.",
     &M::log_records},
    {"log_syncs", "cairn_log_syncs_total", "", kCounter, "Syncs, durable writes included.",
     &M::log_syncs},
    {"log_bytes_written", "cairn_log_written_bytes_total", "", kCounter,
     "Groups with their padding.", &M::log_bytes_written},
    {"log_bytes_prewritten", "cairn_log_prewritten_bytes_total", "", kCounter,
     "Zeros written to make segments ready.", &M::log_bytes_prewritten},
    {"stalls_slow_group", "cairn_stalls_total", "cause=\"slow_group\"", kCounter,
     "Stalls of the log, by cause.", &M::stalls_slow_group},
    {"stalls_segment_late", "cairn_stalls_total", "cause=\"segment_late\"", kCounter, "",
     &M::stalls_segment_late},
    {"stalls_no_segment", "cairn_stalls_total", "cause=\"no_segment\"", kCounter, "",
     &M::stalls_no_segment},
    {"log_segments", "cairn_log_segments", "", kGauge, "Segments of the log.", &M::log_segments},
    {"log_spare_segments", "cairn_log_spare_segments", "", kGauge, "Segments kept ready.",
     &M::log_spare_segments},
    {"log_groups_in_flight", "cairn_log_groups_in_flight", "", kGauge,
     "Groups being written or synced.", &M::log_groups_in_flight},
    {"log_records_waiting", "cairn_log_records_waiting", "", kGauge,
     "Records placed in the log and not yet written.", &M::log_records_waiting},
    {"tickets_waiting", "cairn_tickets_waiting", "", kGauge,
     "Asynchronous appends not yet acknowledged.", &M::tickets_waiting},
    {"last_sequence", "cairn_log_sequence", "stage=\"placed\"", kGauge,
     "Sequence of the newest record, by how far it has got.", &M::last_sequence},
    {"written_sequence", "cairn_log_sequence", "stage=\"written\"", kGauge, "",
     &M::written_sequence},
    {"durable_sequence", "cairn_log_sequence", "stage=\"durable\"", kGauge, "",
     &M::durable_sequence},
    {"poisoned", "cairn_poisoned", "", kGauge, "1 when writes are refused until a reopening.",
     &M::poisoned},

    {"seals", "cairn_seals_total", "", kCounter, "Snapshot tables written.", &M::seals},
    {"sealed_bytes", "cairn_sealed_bytes_total", "", kCounter,
     "What went into tables, before it was packed.", &M::sealed_bytes},
    {"retired_segments", "cairn_retired_segments_total", "", kCounter,
     "Segments of the log that were given back.", &M::retired_segments},
    {"rewritten_tables", "cairn_rewritten_tables_total", "", kCounter,
     "Tables rewritten because little of them was needed.", &M::rewritten_tables},
    {"ingests", "cairn_ingests_total", "", kCounter,
     "Appends that went into a table of their own instead of the log.", &M::ingests},
    {"ingested_bytes", "cairn_ingested_bytes_total", "", kCounter,
     "What they put there, before it was packed.", &M::ingested_bytes},
    {"evicted_bytes", "cairn_evicted_bytes_total", "", kCounter,
     "KV that was evicted, as it was stored.", &M::evicted_bytes},
    {"evicted_branches", "cairn_evicted_branches_total", "", kCounter,
     "Branches that were evicted whole.", &M::evicted_branches},
    {"expired_branches", "cairn_expired_branches_total", "", kCounter,
     "Branches whose time to live was over.", &M::expired_branches},
    {"filled_bytes", "cairn_filled_bytes_total", "", kCounter,
     "KV that came back where it had been evicted, or later than its tokens.", &M::filled_bytes},
    {"missing_kv_bytes", "cairn_missing_kv_bytes", "", kGauge,
     "Raw KV that branches had and lack now.", &M::missing_kv_bytes},
    {"table_bytes_written", "cairn_table_written_bytes_total", "", kCounter,
     "Tables written, those of the index included.", &M::table_bytes_written},
    {"background_read_bytes", "cairn_background_bytes_total", "direction=\"read\"", kCounter,
     "Moved by sealing, rewriting and merging (which is taken to read what it writes).",
     &M::background_read_bytes},
    {"background_written_bytes", "cairn_background_bytes_total", "direction=\"written\"", kCounter,
     "", &M::background_written_bytes},
    {"stored_bytes", "cairn_stored_bytes", "", kGauge, "Files that hold contents, without spares.",
     &M::stored_bytes},
    {"tables", "cairn_tables", "", kGauge, "Snapshot tables.", &M::tables},
    {"table_bytes", "cairn_table_bytes", "", kGauge, "Their files.", &M::table_bytes},
    {"table_live_bytes", "cairn_table_live_bytes", "", kGauge, "What of them is still needed.",
     &M::table_live_bytes},
    {"physical_bytes", "cairn_physical_bytes", "", kGauge,
     "Blocks of all files, as counted against max_bytes.", &M::physical_bytes},
    {"hot_tail_bytes", "cairn_hot_tail_bytes", "", kGauge, "Newest part of the log in memory.",
     &M::hot_tail_bytes},
    {"tree_memory_bytes", "cairn_tree_memory_bytes", "", kGauge,
     "Branches and nodes that are in memory.", &M::tree_memory_bytes},
    {"tree_loads", "cairn_tree_loads_total", "", kCounter,
     "Branches and nodes read from the index.", &M::tree_loads},
    {"replayed_records", "cairn_replayed_records", "", kGauge,
     "Records of the log that opening replayed.", &M::replayed_records},
});

constexpr auto kHistograms = std::to_array<HistogramMetric>({
    {"save", "cairn_save_seconds", "From the call of an append to its acknowledgement.", &M::save},
    {"restore", "cairn_restore_seconds", "From the call of a restore to its end.", &M::restore},
});

static_assert(sizeof(StoreMetrics) == kMetrics.size() * sizeof(uint64_t) +
                                          kHistograms.size() * sizeof(LatencyHistogram),
              "a field of StoreMetrics has no row here");

}  // namespace

std::span<const Metric> Metrics() { return kMetrics; }
std::span<const HistogramMetric> HistogramMetrics() { return kHistograms; }

}  // namespace cairn::engine
