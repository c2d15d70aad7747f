// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/layer_counts.h"

#include "engine/restore/sink.h"

namespace cairn::engine {

LayerCounts::LayerCounts(const RestorePlan& plan, const KvView* into,
                         std::span<const OpenPiece> open) {
  size_t next_layer = 0;
  for (size_t i = 0; into != nullptr && i < into->groups.size(); ++i) {
    const GroupView& view = into->groups[i];
    auto target = std::make_unique<Target>();
    target->view = &view;
    target->group = &plan.model->groups[view.group];
    target->first_layer = next_layer;
    target->pieces = std::vector<std::atomic<uint64_t>>(view.planes[0].layer_bases.size());
    next_layer += target->pieces.size();
    uint64_t pieces = 0;
    for (const RecordJob& job : plan.jobs) {
      for (const RecordPiece& piece : job.pieces) pieces += piece.lane == 1 + view.group;
    }
    for (std::atomic<uint64_t>& left : target->pieces) left.store(pieces);
    targets_.push_back(std::move(target));
  }
  for (const OpenPiece& piece : open) {
    Target* const target = TargetOf(piece.piece.lane);
    if (target == nullptr) continue;
    for (uint32_t slice = piece.first_slice; slice < piece.end_slice; ++slice) {
      target->pieces[piece.layout.At(slice).layer - target->view->layer_begin].fetch_add(
          piece.end_page - piece.first_page);
    }
  }
}

LayerCounts::Target* LayerCounts::TargetOf(uint32_t lane) {
  for (const std::unique_ptr<Target>& one : targets_) {
    if (1 + one->view->group == lane) return one.get();
  }
  return nullptr;
}

void LayerCounts::PieceDone(Target* target, uint32_t layer, RestoreSink* sink) {
  if (target->pieces[layer].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  sink->LayerDone(target->first_layer + layer);
}

}  // namespace cairn::engine
