// SPDX-License-Identifier: Apache-2.0
//
// Applies the records of a log to a tree again. Nothing is decided: ops hold the decisions.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "engine/commit/committer.h"
#include "engine/tree/memory/tree.h"
#include "wal/log.h"

namespace cairn::engine {

class Replayer {
 public:
  // The caller has the tree to itself. Its index has everything that was logged up to
  // `index_sequence`. Observers of `committer` learn of the replay. `lossy`: nodes may be lost;
  // what a seal moves of others still counts.
  Replayer(Tree* tree, Committer* committer, uint64_t index_sequence, bool lossy);

  // All of the record or nothing. kCorruption: it does not fit.
  Status Apply(const wal::RecordView& record);
  // Call after the last record: nodes that died since the index was written would count until then.
  Status DecideAll();

 private:
  Tree* const tree_;
  Committer* const committer_;
  const uint64_t index_sequence_;
  const bool observed_;
  const bool lossy_;
  Transaction transaction_;
  TreeChanges changes_{tree_, &transaction_};
  std::mutex alone_;  // Loading asks for a lock.
  Committer::Lock lock_{alone_};
  std::map<uint64_t, std::vector<Part>> open_units_;
};

}  // namespace cairn::engine
