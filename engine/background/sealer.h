// SPDX-License-Identifier: Apache-2.0
//
// Moves content into snapshot tables: out of the log, and out of tables of which little is needed.
//
//   choose    live content at the wanted places                  commit lock, a node at a time
//   tables    written, verified, and the tree names them         background/table_series.h
//
// Tree flushes that are due are made between its steps. For the space thread, except where marked.
// No lock may be held around calls. Errors: kNoSpace, kCorruption of what is read; what was sealed
// before stays sealed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "engine/background/dead_tables.h"
#include "engine/background/index_flusher.h"
#include "engine/background/joiner.h"
#include "engine/background/space_deps.h"
#include "engine/background/table_series.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn::engine {

class Sealer {
 public:
  Sealer(const SpaceDeps& deps, IndexFlusher* flusher, Joiner* joiner, DeadTables* dead_tables)
      : deps_(deps),
        mutex_(deps.mutex()),
        tree_(deps.tree()),
        flusher_(flusher),
        joiner_(joiner),
        dead_tables_(dead_tables) {}
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  // Seals everything in these segments of the log.
  Status Seal(const SegmentSet& segments);
  // Nodes that may have content in these segments.
  Result<std::vector<uint64_t>> NodesIn(const SegmentSet& segments) const {
    return ReadNodes(segments, /*keep=*/false);
  }
  // Seals conversations whose chains have become long, when they are worth a table.
  Status SealDue();
  // Seals the content of these nodes that lies at a wanted place. After each table it calls
  // `enough`, and ends when that is true.
  Status SealPlaces(
      std::span<const uint64_t> nodes, const std::function<bool(const Place&)>& wanted,
      const std::function<bool()>& enough = [] { return false; });

  // Any thread, under the commit lock: SealDue has got something to do just now.
  bool BecomesDue();

 private:
  Result<std::vector<uint64_t>> ReadNodes(const SegmentSet& segments, bool keep) const;
  Status Choose(uint64_t node, const std::function<bool(const Place&)>& wanted, SealBatch* batch);
  Status SealAll(std::set<uint64_t> left, const std::function<bool(const Place&)>& wanted,
                 const std::function<bool()>& enough, TableSeries* tables);

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  IndexFlusher* const flusher_;
  Joiner* const joiner_;
  std::vector<uint64_t> postponed_;  // Were due, and some may still be.
  DeadTables* const dead_tables_;
  std::atomic<bool> wanted_{false};
};

}  // namespace cairn::engine
