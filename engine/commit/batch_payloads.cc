// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/batch_payloads.h"

#include <utility>

namespace cairn::engine {

void BatchPayloads::Clear() {
  payloads_.clear();
  deltas_.clear();
  models_.clear();
  strips_.clear();
}

std::vector<LaneRange> BatchPayloads::Add(std::shared_ptr<const ModelSpec> model,
                                          const Delta& delta, uint64_t length) {
  const ModelSpec& spec = *models_.emplace_back(std::move(model));
  const Delta& copy = deltas_.emplace_back(delta);
  auto payload =
      std::make_unique<DeltaPayload>(spec, copy, DeltaWindow::Whole(copy), StatesOf(copy));
  payload->SetLength(length);
  std::vector<LaneRange> lanes = payload->lanes();
  for (LaneRange& lane : lanes) lane.strip += static_cast<uint32_t>(strips_.size());
  strips_.insert(strips_.end(), payload->strips().begin(), payload->strips().end());
  payloads_.push_back(std::move(payload));
  return lanes;
}

void BatchPayloads::Seal() {
  hashes_.reserve(strips_.size());
  all_hashes_.reserve(strips_.size());
}

void BatchPayloads::Publish(wal::Log::Slot* slot, wal::Log* log) {
  size_t first_strip = 0;
  for (const auto& payload : payloads_) {
    payload->Fill(slot->payload,
                  std::span(slot->strip_offsets).subspan(first_strip, payload->strips().size()),
                  &hashes_, [](uint64_t) { return true; });
    all_hashes_.insert(all_hashes_.end(), hashes_.begin(), hashes_.end());
    first_strip += payload->strips().size();
  }
  log->Publish(*slot, all_hashes_);
}

}  // namespace cairn::engine
