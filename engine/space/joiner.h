// SPDX-License-Identifier: Apache-2.0
//
// Chains of nodes with one child each, which drops leave behind, become one node (tree/join.cc)
// when something of them is about to be sealed: then what lay on several nodes goes into one
// fragment. Of what is sealed already long ones do so in idle time.
//
// The space thread's, but for what is marked. No lock may be held around its calls.
#pragma once

#include <cstdint>

#include "engine/space/index_flusher.h"
#include "engine/space/space_means.h"

namespace cairn::engine {

class Joiner {
 public:
  Joiner(const SpaceMeans& means, IndexFlusher* flusher)
      : means_(means), mutex_(means.mutex()), tree_(means.tree()), flusher_(flusher) {}
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // A node that is about to be sealed: its only child takes it in, which is then to be sealed in
  // its place and is returned. Else, and then it is 0, it takes in those above it.
  Result<uint64_t> JoinAround(uint64_t node);
  // Long chains around the nodes that memory remembers as joinable.
  Status JoinChains();

  // Any thread, under the commit lock: whether there are enough of those...
  bool IsDue() const;
  // ...and were not when it was asked last.
  bool BecomesDue();

 private:
  Result<bool> Join(uint64_t node);

  const SpaceMeans& means_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  IndexFlusher* const flusher_;
  bool noted_ = false;  // The commit lock guards it.
};

}  // namespace cairn::engine
