// SPDX-License-Identifier: Apache-2.0
//
// Eviction, on the space thread. Its candidates are read from the index, in order
// (tree/records/tree_records.h, U), after a tree flush: so it costs no memory, however many
// branches there are. Changes of a branch since the tree flush are seen when it is loaded.
//
// Eviction changes the tree by log records alone. Space is reclaimed as always, when tables die or
// are rewritten and log segments are reclaimed. No lock may be held around calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/background/index_flusher.h"
#include "engine/background/space_deps.h"
#include "engine/background/space_requests.h"

namespace cairn::engine {

// Whether an error is about one branch, or its records in the index: others can still be evicted.
bool IsOfOneBranch(const wal::Log& log, const Status& status);

class Evictor {
 public:
  Evictor(const SpaceDeps& deps, IndexFlusher* flusher, SpaceRequests* requests)
      : deps_(deps),
        mutex_(deps.mutex()),
        tree_(deps.tree()),
        flusher_(flusher),
        requests_(requests) {}
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;

  // Evicts what this pass asks for: for namespaces beyond their cap, and for the store. An append
  // that has come through since it asked needs nothing any more. `stuck`: nothing could be given
  // back before this pass. `made`: there is room now for what was refused. `evicted`: some KV or
  // branch was evicted.
  Status EvictAsNeeded(const SpaceRequests::QuotaRequests& requests, bool stuck, bool* evicted,
                       bool* made);

 private:
  Status EvictBranch(uint64_t branch, bool whole, uint64_t* freed);
  Status EvictFrom(const std::vector<std::string>& namespaces, uint64_t goal_bytes,
                   uint64_t* freed);
  uint64_t DeadBytes() const;

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  IndexFlusher* const flusher_;
  SpaceRequests* const requests_;
  uint64_t spared_ = 0;  // Objects that got a second chance in this pass.
};

}  // namespace cairn::engine
