// SPDX-License-Identifier: Apache-2.0
#include "engine/store/collect_metrics.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "engine/config/constants.h"

namespace cairn::engine {

namespace {

void AddTree(const MetricsSources& from, StoreMetrics* metrics) {
  Tree& tree = from.committer->tree();
  std::lock_guard lock(from.committer->mutex());
  metrics->models = tree.models().size();
  for (const auto& [number, use] : tree.tables()) {
    // A table that nothing needs counts as gone: its file may be deleted before the index knows.
    if (use.live_bytes == 0) continue;
    ++metrics->tables;
    metrics->table_bytes += use.bytes;
    metrics->table_live_bytes += use.live_bytes;
  }
  const TreeCounts& counts = tree.counts();
  metrics->branches = counts.branches;
  metrics->leases = tree.leases().size();
  metrics->leased_bytes = tree.leases().bytes();
  metrics->tree_memory_bytes = tree.residency().bytes();
  metrics->tree_loads = tree.residency().loads();
  metrics->nodes = counts.nodes;
  metrics->tokens = counts.tokens;
  metrics->raw_bytes = counts.raw_bytes;
  metrics->missing_kv_bytes = counts.evicted_bytes;
  metrics->chain_lanes = counts.kv_lanes;
  metrics->chain_deltas = counts.kv_extents;
}

void AddCalls(const MetricsSources& from, StoreMetrics* metrics) {
  metrics->tickets_waiting = from.tickets->waiting();
  metrics->tokens_appended = from.commits->tokens();
  metrics->kv_bytes_appended = from.commits->kv_bytes();
  metrics->appends = from.commits->appends();
  metrics->forks = from.commits->forks();
  metrics->rewinds = from.commits->rewinds();
  metrics->drops = from.commits->drops();
  metrics->filled_bytes = from.commits->filled_bytes();
  metrics->busy = from.calls->busy.load();
  metrics->cancelled = from.calls->cancelled.load();
  metrics->kv_shed = from.calls->kv_shed.load();
  metrics->replayed_records = from.calls->replayed_records.load();
  metrics->save = from.tickets->save_latency().Snapshot();
}

void AddRestores(const MetricsSources& from, StoreMetrics* metrics) {
  const ReaderCounters& reads = from.reader->counters();
  metrics->restores = reads.restores.load();
  metrics->restored_hot_records = reads.hot_records.load();
  metrics->restored_hot_bytes = reads.hot_bytes.load();
  metrics->restored_log_records = reads.log_records.load();
  metrics->restored_log_bytes = reads.log_bytes.load();
  metrics->prefetches = reads.prefetches.load();
  metrics->prefetches_failed = reads.prefetches_failed.load();
  metrics->restored_cached_frames = reads.cached_frames.load();
  metrics->restored_cached_bytes = reads.cached_bytes.load();
  metrics->restored_pinned_frames = reads.pinned_frames.load();
  metrics->restored_pinned_bytes = reads.pinned_bytes.load();
  metrics->restored_table_frames = reads.frames.load();
  metrics->restored_table_bytes = reads.frame_bytes.load();
  metrics->restores_failed_corruption = reads.failed_corruption.load();
  metrics->restores_failed_io = reads.failed_io.load();
  metrics->restores_failed_memory = reads.failed_memory.load();
  metrics->restores_failed_deadline = reads.failed_deadline.load();
  metrics->restores_failed_cancelled = reads.failed_cancelled.load();
  metrics->restores_failed_other = reads.failed_other.load();
  metrics->restore = reads.latency.Snapshot();
  metrics->page_cache_bytes = from.reader->page_cache().bytes();
  from.reader->AddPinned(metrics);
}

void AddBackground(const MetricsSources& from, StoreMetrics* metrics) {
  const SpaceCounters& space = from.space->counters();
  metrics->seals = space.seals.load();
  metrics->sealed_bytes = space.sealed_bytes.load();
  metrics->evicted_bytes = space.evicted_bytes.load();
  metrics->evicted_branches = space.evicted_branches.load();
  metrics->expired_branches = space.expired_branches.load();
  metrics->table_bytes_written = from.tables->written_bytes.load();
  metrics->rewritten_tables = space.rewritten_tables.load();
  metrics->merged_tables = space.merged_tables.load();
  metrics->packed_segments = space.packed_segments.load();
  metrics->joined_nodes = space.joined_nodes.load();
  metrics->cut_nodes = space.cut_nodes.load();
  metrics->background_read_bytes = from.space->rate_limiter().read_bytes();
  metrics->background_written_bytes = from.space->rate_limiter().written_bytes();
  metrics->retired_segments = space.retired_segments.load();
  metrics->stalls_log_limit = space.log_limits.load(std::memory_order_relaxed);
  metrics->append_delay = from.space->throttle().delay().Snapshot();
}

void AddObjects(const MetricsSources& from, StoreMetrics* metrics) {
  const ObjectCounters& calls = from.objects->counters();
  metrics->objects_put = calls.put.load();
  metrics->object_bytes_put = calls.put_bytes.load();
  metrics->objects_kept = calls.kept.load();
  metrics->objects_not_put = calls.not_put.load();
  metrics->objects_got = calls.got.load();
  metrics->object_bytes_got = calls.got_bytes.load();
  metrics->objects_missed = calls.missed.load();
  metrics->objects_unknown = calls.unknown.load();
  const ObjectDirectory::Figures directory = from.objects->directory().figures();
  metrics->object_directory_entries = directory.entries;
  metrics->object_directory_bytes = directory.bytes;
  metrics->object_directory_whole = directory.whole ? 1 : 0;
}

void AddSparse(const MetricsSources& from, StoreMetrics* metrics) {
  const SparseStats stats = from.sparse->counters.Stats();
  metrics->sparse_fetches = stats.fetches;
  metrics->sparse_wanted = stats.wanted;
  metrics->sparse_faults = stats.faults;
  metrics->sparse_left_out = stats.left_out;
  metrics->sparse_pages_read = stats.pages_read;
  metrics->sparse_page_bytes_read = stats.page_bytes_read;
  metrics->shadows_made = from.sparse->shadows_made.load();
  metrics->shadow_tokens_read = from.sparse->shadow_tokens_read.load();
  metrics->sparse_device_bytes = from.sparse->device_bytes.load();
}

// What keeps the oldest segment.
void AddLogPinned(const MetricsSources& from, StoreMetrics* metrics) {
  const std::vector<wal::SegmentInfo> segments = from.log->Segments();
  if (segments.empty()) return;
  const auto held = from.reader->pins().HolderOf(segments.front().number);
  if (!held.has_value()) return;
  const uint64_t now_ns = from.world->scheduler->MonotonicNs();
  metrics->log_pinned_ns = now_ns - std::min(now_ns, held->since_ns);
  metrics->log_pinned_segment = held->segment;
  metrics->log_pinned_by = static_cast<uint64_t>(held->holder.of);
  metrics->log_pinned_id = held->holder.id;
}

// After the tree, whose figures of tables it sums up.
void AddLog(const MetricsSources& from, StoreMetrics* metrics) {
  const wal::Log::Counters log = from.log->counters();
  metrics->log_groups = log.groups;
  metrics->log_records = log.records;
  metrics->log_syncs = log.syncs;
  metrics->log_bytes_written = log.bytes_written;
  metrics->log_bytes_prewritten = log.bytes_prewritten;
  metrics->stalls_slow_group = log.slow_groups;
  metrics->stalls_segment_late = log.segment_late;
  metrics->stalls_no_segment = log.no_segment;
  metrics->log_segments = log.segments_live;
  AddLogPinned(from, metrics);
  metrics->log_spare_segments = log.segments_spare;
  metrics->log_resting_segments = log.segments_resting;
  metrics->segment_bytes = from.options->segment_bytes;
  metrics->log_groups_in_flight = log.groups_in_flight;
  metrics->poisoned = from.log->poisoned().ok() ? 0 : 1;
  metrics->background_failing = from.space->fails() ? 1 : 0;
  metrics->stored_bytes = log.segment_bytes_live + log.segment_bytes_resting + metrics->table_bytes;
  metrics->physical_bytes = from.ledger->used_bytes();
  if (from.options->read_only) {
    metrics->physical_bytes =
        kSmallFilesBytes + metrics->stored_bytes + from.manifest->IndexBytes();
    metrics->written_bytes_day = from.manifest->Copy().written.LastDay(from.now_ns());
  } else {
    metrics->written_bytes_day = from.manifest->CountWritten().LastDay(from.now_ns());
  }
  metrics->hot_tail_bytes = log.hot_bytes;
  metrics->written_sequence = from.log->written_sequence();
  metrics->durable_sequence = from.log->durable_sequence();
  metrics->last_sequence = from.log->last_reserved_sequence();  // Last: never below the other two.
  metrics->log_records_waiting = metrics->last_sequence - metrics->written_sequence;
}

void AddFinding(const MetricsSources& from, StoreMetrics* metrics) {
  metrics->finds = from.finder->finds();
  metrics->find_hits = from.finder->hits();
  const BlendCounters& blended = from.blends->counters();
  metrics->blend_plans = blended.plans;
  metrics->blend_prefix_tokens = blended.prefix_tokens;
  metrics->blend_full_tokens = blended.full_tokens;
  metrics->blend_partial_tokens = blended.partial_tokens;
  metrics->blend_unknown_tokens = blended.unknown_tokens;
  metrics->blend_computed_tokens = blended.computed_tokens;
  metrics->blend_turned_bytes = blended.turned_bytes;
  metrics->blend_failed_checks = blended.failed_checks;
  if (from.indexer == nullptr) return;
  metrics->hint_nodes_behind = from.indexer->behind();
  const std::shared_ptr<Hints> hints = from.indexer->hints();
  metrics->hints_incomplete = from.indexer->may_miss() ? 1 : 0;
  if (hints == nullptr) return;
  metrics->hint_entries = hints->entries_put();
  metrics->hint_chunk_entries = hints->chunks_put();
  metrics->hint_bytes = hints->memory_bytes();
  metrics->hint_dead_tokens = hints->dead_tokens();
  metrics->hint_filter_filled = hints->filter_ready() ? 1 : 0;
}

// What the machine says. In a child after fork() it may be asked as well.
void AddMachine(const MetricsSources& from, StoreMetrics* metrics) {
  metrics->max_bytes = from.options->max_bytes;
  if (const auto space = from.world->files->Space(*from.path); space.ok()) {
    metrics->disk_bytes = space->total_bytes;
    metrics->disk_free_bytes = space->free_bytes;
  }
  metrics->memory_counted_bytes = from.budget->used();
  metrics->memory_resident_bytes = from.world->scheduler->ResidentBytes();
}

}  // namespace

StoreMetrics CollectMetrics(const MetricsSources& from) {
  StoreMetrics metrics;
  AddTree(from, &metrics);
  AddCalls(from, &metrics);
  AddRestores(from, &metrics);
  AddBackground(from, &metrics);
  AddFinding(from, &metrics);
  AddObjects(from, &metrics);
  AddSparse(from, &metrics);
  AddMachine(from, &metrics);
  if (from.log != nullptr) AddLog(from, &metrics);  // It is closed in a child after fork().
  return metrics;
}

}  // namespace cairn::engine
