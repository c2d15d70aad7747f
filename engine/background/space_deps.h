// SPDX-License-Identifier: Apache-2.0
//
// Shared by the parts of the background: what they use, and their counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/core/block_arena.h"
#include "base/io/parallel_for.h"
#include "base/io/world.h"
#include "cairn/options.h"
#include "engine/background/log_gate.h"
#include "engine/background/rate_limiter.h"
#include "engine/background/space_callbacks.h"
#include "engine/background/space_gauge.h"
#include "engine/background/space_round.h"
#include "engine/background/space_signals.h"
#include "engine/commit/committer.h"
#include "engine/commit/ledger.h"
#include "engine/commit/tree_access.h"
#include "engine/find/indexer.h"
#include "engine/manifest/manifest_store.h"
#include "engine/restore/reader.h"
#include "sstable/lsm_index.h"
#include "wal/log.h"

namespace cairn::engine {

// They only grow.
struct SpaceCounters {
  std::atomic<uint64_t> seals{0}, sealed_bytes{0}, retired_segments{0}, rewritten_tables{0},
      merged_tables{0}, packed_segments{0}, joined_nodes{0}, cut_nodes{0};
  std::atomic<uint64_t> log_limits{0};  // Episodes in which appends were slowed or held.
  std::atomic<uint64_t> evicted_bytes{0}, evicted_branches{0}, expired_branches{0};
};

// The referenced objects outlive every part.
struct SpaceDeps {
  io::World world;
  std::string directory;             // The store's.
  const Options* options = nullptr;  // With the store's actual segment_bytes.
  SpaceCallbacks* callbacks = nullptr;
  Committer* committer = nullptr;
  TreeAccess* access = nullptr;
  ByteLedger* ledger = nullptr;
  ManifestStore* manifest = nullptr;
  const StoreOptionsFile* options_file = nullptr;
  Reader* reader = nullptr;
  Indexer* indexer = nullptr;   // Null: no prefixes are indexed.
  BlockArena* arena = nullptr;  // Lends all large buffers of the store.
  const SpaceGauge* gauge = nullptr;
  RateLimiter* rate_limiter = nullptr;
  LogGate* gate = nullptr;
  SpaceSignals* signals = nullptr;
  SpaceRound* round = nullptr;
  SpaceCounters* counters = nullptr;
  // From the opening of the log on...
  wal::Log* log = nullptr;
  io::ParallelFor* parallel_for = nullptr;
  // ...and in a store that writes, from the end of the replay.
  std::shared_ptr<sstable::LsmIndex> index{};

  std::mutex& mutex() const { return committer->mutex(); }
  Tree& tree() const { return committer->tree(); }
};

}  // namespace cairn::engine
