// SPDX-License-Identifier: Apache-2.0
//
// Takes a StoreMetrics of one moment from the counters that the parts of a store keep, the log's
// own and the sums of the tree. Holds the commit lock for a moment. Changes nothing but the counter
// of bytes written, which is brought up to date.
#pragma once

#include <cstdint>
#include <functional>

#include "cairn/metrics.h"
#include "cairn/options.h"
#include "engine/background/space_manager.h"
#include "engine/blend/planner.h"
#include "engine/commit/committer.h"
#include "engine/commit/ledger.h"
#include "engine/commit/tickets.h"
#include "engine/commit/write_deps.h"
#include "engine/find/indexer.h"
#include "engine/find/prefix_finder.h"
#include "engine/manifest/manifest_store.h"
#include "engine/metrics/commit_counters.h"
#include "engine/objects/object_space.h"
#include "engine/restore/reader.h"
#include "engine/sessions/sparse/sparse_counters.h"
#include "sstable/table_files.h"
#include "wal/log.h"

namespace cairn::engine {

struct MetricsSources {
  const Options* options = nullptr;
  Committer* committer = nullptr;
  const CommitCounters* commits = nullptr;
  const CallCounters* calls = nullptr;
  const Tickets* tickets = nullptr;
  Reader* reader = nullptr;
  SpaceManager* space = nullptr;
  const ObjectSpace* objects = nullptr;
  ManifestStore* manifest = nullptr;
  const ByteLedger* ledger = nullptr;
  const sstable::TableCounters* tables = nullptr;
  const Indexer* indexer = nullptr;  // Null: the store has none.
  const PrefixFinder* finder = nullptr;
  const BlendPlanner* blends = nullptr;
  const SparseTotals* sparse = nullptr;
  const MemoryBudget* budget = nullptr;
  const std::string* path = nullptr;  // The store's directory.
  const io::World* world = nullptr;
  const wal::Log* log = nullptr;       // Null: the store has none open.
  std::function<uint64_t()> now_ns{};  // The wall clock.
};

StoreMetrics CollectMetrics(const MetricsSources& from);

}  // namespace cairn::engine
