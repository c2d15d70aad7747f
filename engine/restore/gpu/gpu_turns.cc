// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/gpu_turns.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace cairn::engine {

Result<std::unique_ptr<GpuTurns>> GpuTurns::Make(const GpuWaits* waits, DeviceStaging* pool,
                                                 std::unique_ptr<KeyTurns> turns) {
  if (turns->empty()) return std::unique_ptr<GpuTurns>();
  std::unique_ptr<GpuTurns> made(new GpuTurns(waits, pool, std::move(turns)));
  CAIRN_RETURN_IF_ERROR(made->Fill());
  return made;
}

GpuTurns::~GpuTurns() {
  if (staged_.bytes != 0) pool_->Return(staged_);
}

Status GpuTurns::Fill() {
  uint64_t bytes = 0;
  turns_->ForEach([&](const KeyTurns::Shifted& shifted) {
    for (const Range& range : shifted.ranges()) {
      stretches_.push_back({&shifted, range, bytes});
      bytes += (range.end - range.begin) * shifted.rotation().pairs() * sizeof(RotaryTurn);
    }
  });
  CAIRN_ASSIGN_OR_RETURN(staged_, pool_->Take(bytes));
  for (const Stretch& stretch : stretches_) {
    const uint32_t pairs = stretch.of->rotation().pairs();
    auto* turns = reinterpret_cast<RotaryTurn*>(staged_.pinned + stretch.at);
    for (uint64_t at = stretch.range.begin; at < stretch.range.end; ++at, turns += pairs) {
      stretch.of->TurnsOf(at, {turns, pairs});
    }
  }
  const gpu::CopyPiece piece{staged_.on_device, staged_.pinned, bytes};
  gpu::Device& device = waits_.device();
  CAIRN_RETURN_IF_ERROR(device.Copy(staged_.stream, {&piece, 1}));
  return device.Record(staged_.stream, staged_.copied);
}

std::optional<gpu::RowsToTurn> GpuTurns::RowsOf(const gpu::FrameToScatter& frame, uint32_t group,
                                                uint32_t plane, int64_t shift,
                                                uint64_t position) const {
  const KeyTurns::Shifted* const shifted = turns_->Find(group, plane, shift);
  if (shifted == nullptr) return std::nullopt;
  const auto stretch = std::find_if(stretches_.begin(), stretches_.end(), [&](const Stretch& one) {
    return one.of == shifted && one.range.begin <= position && position < one.range.end;
  });
  CAIRN_CHECK(stretch != stretches_.end() &&
              stretch->range.end - position >= frame.wanted.end - frame.wanted.first);
  const Rotation& rotation = shifted->rotation();
  const uint64_t turn = (position - stretch->range.begin) * rotation.pairs();
  return gpu::RowsToTurn{
      .base = frame.base,
      .turns = reinterpret_cast<const float*>(staged_.on_device + stretch->at) + 2 * turn,
      .wanted = frame.wanted,
      .view = frame.view,
      .pairs = rotation.pairs(),
      .window = rotation.first(),
      .adjacent = rotation.adjacent(),
      .fp16 = rotation.dtype() == Dtype::kF16,
      .unit = frame.unit};
}

}  // namespace cairn::engine
