// SPDX-License-Identifier: Apache-2.0
//
// Counts what every layer of an item still lacks: by it a sink calls LayerDone.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/restore/plan/plan.h"

namespace cairn::engine {

class RestoreSink;

class LayerCounts {
 public:
  struct Target {
    const GroupView* view;
    const LayerGroup* group;
    size_t first_layer;                         // Counted over KvView::groups, in their order.
    std::vector<std::atomic<uint64_t>> pieces;  // Left to do, by layer of the view.
  };

  // `into` may be null: nothing is counted.
  LayerCounts(const RestorePlan& plan, const KvView* into, std::span<const OpenPiece> open);
  // By RecordPiece::view. Null: nothing is counted.
  Target* TargetOf(uint32_t view) {
    return view < targets_.size() ? targets_[view].get() : nullptr;
  }
  // One piece of the layer (of the view) is in place. Thread-safe.
  static void PieceDone(Target* target, uint32_t layer, RestoreSink* sink);

 private:
  std::vector<std::unique_ptr<Target>> targets_;
};

}  // namespace cairn::engine
