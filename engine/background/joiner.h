// SPDX-License-Identifier: Apache-2.0
//
// Drops leave behind chains of nodes with one child each. A chain becomes one node
// (tree/ops/join.cc) when a part of it is about to be sealed: then the content of several nodes
// goes into one fragment. Long chains of sealed nodes are joined in idle time.
//
// For the space thread, except where marked. No lock may be held around calls.
#pragma once

#include <cstdint>

#include "engine/background/index_flusher.h"
#include "engine/background/space_deps.h"

namespace cairn::engine {

class Joiner {
 public:
  Joiner(const SpaceDeps& deps, IndexFlusher* flusher)
      : deps_(deps), mutex_(deps.mutex()), tree_(deps.tree()), flusher_(flusher) {}
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // Joins around a node that is about to be sealed: its only child takes it in; that child must
  // then be sealed in its place and is returned. Otherwise returns 0, and the node takes in those
  // above it.
  Result<uint64_t> JoinAround(uint64_t node);
  // Joins long chains around the nodes that memory remembers as joinable.
  Status JoinChains();

  // Any thread, under the commit lock: whether there are enough of those...
  bool IsDue() const;
  // ...and there were not when this was last called.
  bool BecomesDue();

 private:
  Result<bool> Join(uint64_t node);

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  IndexFlusher* const flusher_;
  bool noted_ = false;  // The commit lock guards it.
};

}  // namespace cairn::engine
