// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/key_rows.h"

#include <utility>

#include "base/codec/float16.h"
#include "base/core/check.h"

namespace cairn::engine {

Result<KeyRows> KeyRows::Of(const LayerGroup& group) {
  const Plane& keys = group.planes[0];
  KeyRows rows;
  rows.heads_ = keys.heads;
  rows.channels_ = keys.row_bytes / 2;
  rows.fp16_ = keys.dtype == Dtype::kF16;
  if (keys.rotary.state == RotaryState::kNone || keys.rotary.state == RotaryState::kBefore) {
    return rows;
  }
  LayerGroup wide = group;
  wide.planes[0].dtype = Dtype::kF32;
  wide.planes[0].row_bytes *= 2;
  auto rotation = Rotation::Of(wide, 0);
  if (!rotation.ok()) return rotation.status().WithContext("shadow: keys are low_rank");
  if (rotation->positions() != 1) {
    return Status(StatusCode::kInvalidArgument,
                  "shadow: keys are low_rank, and a token has several positions");
  }
  rows.window_ = keys.rotary.first;
  rows.is_adjacent_ = keys.rotary.pairing == RotaryPairing::kAdjacent;
  rows.rotation_.emplace(std::move(*rotation));
  return rows;
}

void KeyRows::TurnBack(uint64_t first, std::span<const uint16_t> keys,
                       std::span<float> rows) const {
  const size_t row_channels = size_t{heads_} * channels_, tokens = rows.size() / row_channels;
  CAIRN_CHECK(rows.size() == tokens * row_channels && keys.size() == rows.size());
  std::vector<RotaryTurn> turns(pairs());
  for (size_t t = 0; t < tokens; ++t) {
    if (rotation_.has_value()) {
      const uint64_t from = first + t, to = 0;
      rotation_->Between({&from, 1}, {&to, 1}, turns);
    }
    for (uint32_t head = 0; head < heads_; ++head) {
      const auto key = keys.subspan((head * tokens + t) * channels_, channels_);
      const auto row = rows.subspan(t * row_channels + size_t{head} * channels_, channels_);
      for (uint32_t c = 0; c < channels_; ++c) row[c] = Widened(fp16_, key[c]);
      if (!rotation_.has_value()) continue;
      const auto bytes = std::as_writable_bytes(row);
      rotation_->Turn(turns, bytes, bytes);
    }
  }
}

void KeyRows::Turns(uint64_t first, std::span<RotaryTurn> turns) const {
  for (size_t t = 0; pairs() != 0 && t < turns.size() / pairs(); ++t) {
    const uint64_t from = 0, to = first + t;
    rotation_->Between({&from, 1}, {&to, 1}, turns.subspan(t * pairs(), pairs()));
  }
}

}  // namespace cairn::engine
