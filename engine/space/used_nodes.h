// SPDX-License-Identifier: Apache-2.0
//
// Nodes that stay in memory while the background works on them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/store_core.h"

namespace cairn {

class StoreCore::UsedNodes {
 public:
  explicit UsedNodes(StoreCore* core) : core_(core) {}
  UsedNodes(const UsedNodes&) = delete;
  ~UsedNodes() { End(); }

  // REQUIRES: the commit lock, and that it is in memory. May throw, and then it is not added.
  void Add(uint64_t node) {
    nodes_.push_back(node);
    core_->tree_.Use(node);
  }
  // Takes the commit lock.
  void End() {
    std::lock_guard lock(core_->mutex_);
    // Else the tree is another by now, which does not know of it.
    if (!core_->committer_.rolled_back()) {
      for (const uint64_t node : nodes_) core_->tree_.Unuse(node);
    }
    nodes_.clear();
  }

 private:
  StoreCore* const core_;
  std::vector<uint64_t> nodes_;
};

}  // namespace cairn
