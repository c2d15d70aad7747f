// SPDX-License-Identifier: Apache-2.0
//
// The records of a log, applied to a tree again. Nothing is decided: ops say what was.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "engine/commit/committer.h"
#include "engine/tree/tree.h"
#include "wal/log.h"

namespace cairn::engine {

class Replayer {
 public:
  // Nobody else has the tree meanwhile. Its index has what was logged up to `index_sequence`.
  // Observers of `committer` are told.
  Replayer(Tree* tree, Committer* committer, uint64_t index_sequence);

  // All of the record or nothing. kCorruption: it does not fit.
  Status Apply(const wal::RecordView& record);
  // After the last: else what died since the index was written would count until somebody asked.
  Status DecideAll();

 private:
  Tree* const tree_;
  Committer* const committer_;
  const uint64_t index_sequence_;
  const bool observed_;
  Transaction transaction_;
  TreeChanges changes_{tree_, &transaction_};
  std::mutex alone_;  // Loading asks for a lock.
  Committer::Lock lock_{alone_};
  std::map<uint64_t, std::vector<Part>> open_units_;
};

}  // namespace cairn::engine
