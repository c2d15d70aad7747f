// SPDX-License-Identifier: Apache-2.0
//
// Keeps nodes in memory while the background works on them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/commit/committer.h"

namespace cairn::engine {

class UsedNodes {
 public:
  explicit UsedNodes(Committer* committer) : committer_(committer) {}
  UsedNodes(const UsedNodes&) = delete;
  ~UsedNodes() { End(); }

  // REQUIRES: the commit lock, and that it is in memory. May throw, and then it is not added.
  void Add(uint64_t node) {
    nodes_.push_back(node);
    committer_->tree().residency().AddUser(node);
  }
  // Takes the commit lock.
  void End() {
    std::lock_guard lock(committer_->mutex());
    // After a rollback the tree is another one, which knows nothing of it.
    if (!committer_->rolled_back()) {
      for (const uint64_t node : nodes_) committer_->tree().residency().RemoveUser(node);
    }
    nodes_.clear();
  }

 private:
  Committer* const committer_;
  std::vector<uint64_t> nodes_;
};

}  // namespace cairn::engine
