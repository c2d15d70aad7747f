// SPDX-License-Identifier: Apache-2.0
//
// Keys without their positions: what low-rank keys are made of, and the turns that give positions
// back (docs/shadow.md, base/codec/rotary.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/codec/rotary.h"
#include "cairn/model.h"

namespace cairn::engine {

class KeyRows {
 public:
  // kInvalidArgument: it is not said how keys are rotated, or a token has several positions.
  static Result<KeyRows> Of(const LayerGroup& group);

  // Turns keys back to position 0: of tokens from `first` on, stored as [heads][tokens][channels],
  // into rows [tokens][heads * channels].
  void TurnBack(uint64_t first, std::span<const uint16_t> keys, std::span<float> rows) const;
  // Returns the turns from position 0 to their positions, [tokens][pairs()].
  void Turns(uint64_t first, std::span<RotaryTurn> turns) const;

  uint32_t pairs() const { return rotation_.has_value() ? rotation_->pairs() : 0; }
  uint32_t window() const { return window_; }  // Elements before the first that is turned.
  bool is_adjacent() const { return is_adjacent_; }

 private:
  KeyRows() = default;

  uint32_t heads_ = 0, channels_ = 0, window_ = 0;
  bool fp16_ = false, is_adjacent_ = false;
  std::optional<Rotation> rotation_;  // Turns rows of fp32. None: keys are not rotated.
};

}  // namespace cairn::engine
