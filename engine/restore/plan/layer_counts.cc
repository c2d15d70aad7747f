// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/layer_counts.h"

#include "engine/restore/plan/sink.h"

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
      for (const RecordPiece& piece : job.pieces) {
        pieces += piece.lane == 1 + view.group && piece.view == i;
      }
    }
    for (std::atomic<uint64_t>& left : target->pieces) left.store(pieces);
    targets_.push_back(std::move(target));
  }
  for (const OpenPiece& piece : open) {
    if (piece.piece.lane == kTokenLane) continue;
    Target* const target = TargetOf(piece.piece.view);
    if (target == nullptr) continue;
    for (uint32_t slice = piece.first_slice; slice < piece.end_slice; ++slice) {
      target->pieces[piece.layout.At(slice).layer - target->view->layer_begin].fetch_add(
          piece.end_page - piece.first_page);
    }
  }
}

void LayerCounts::PieceDone(Target* target, uint32_t layer, RestoreSink* sink) {
  if (target->pieces[layer].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  sink->LayerDone(target->first_layer + layer);
}

}  // namespace cairn::engine
