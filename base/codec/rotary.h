// SPDX-License-Identifier: Apache-2.0
//
// Rotates rows of keys (cairn/rotary.h), one after the other, without vector instructions: the
// reference that any faster way must equal bit for bit. Many rows: base/codec/rotary_table.h.
//
//   angle of pair i at position p    a_i(p) = fl32(fl32(p) * inv_freq[i]), as engines compute it
//   at a position                    turn = cosine and sine of a_i(p), each times mscale
//   from position p to q             turn = cosine and sine of a_i(q) - a_i(p), which is exact in
//                                    double. Not of (q - p) * inv_freq[i]: that leaves the engine's
//                                    own angles, by several roundings at positions beyond 2^17.
//   the pair (x, y)                  x' = x * cos - y * sin, y' = y * cos + x * sin, in fp32, four
//                                    products and two sums, each rounded on its own
//   stored                           rounded once to the element's type, to nearest even
//
// Cosines and sines are computed in double (base/codec/cos_sin.h) and rounded once to fp32. A pair
// that is not turned (cosine 1, sine 0) is copied bit for bit, whatever it holds; so are elements
// outside the window. Where a turn gives a NaN it is the quiet one without sign and payload: which
// operand's payload survives would depend on the order in which a compiler puts them.
//
// The bound. Let r be the pair rotated by the same angle without any rounding. The stored pair
// differs from r by at most
//
//   (u + 4 * 2^-24) * |r| + t      u = 2^-24 (f32), 2^-11 (f16), 2^-8 (bf16)
//
// in the Euclidean norm, mscale aside; t = 2 * 2^-25 for f16 and 2 * 2^-134 for bf16 and f32 is the
// loss of subnormal numbers. It does not grow with positions. It does grow with repeated turns:
// always turn the row that was stored first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/model.h"
#include "cairn/status.h"

namespace cairn {

// The index of the token's position by which a pair turns; 0 without sections. May be beyond the
// sections of a description whose sections do not add up.
uint32_t RotarySection(const RotarySpec& rotary, uint32_t pair);

// The turn of one pair of a row.
struct RotaryTurn {
  float cos = 1.0F, sin = 0.0F;
};

class Rotation {
 public:
  // How rows of this plane of this group are rotated. kInvalidArgument naming the field: the plane
  // is not rotated, pairing or angles are unset or not finite, or elements are none of f32, f16,
  // bf16.
  // REQUIRES: the group has such a plane.
  static Result<Rotation> Of(const LayerGroup& group, size_t plane);

  Dtype dtype() const { return dtype_; }
  bool adjacent() const { return adjacent_; }
  uint32_t first() const { return first_; }        // Elements before the window.
  uint32_t elements() const { return elements_; }  // Elements of a row.
  uint32_t pairs() const { return static_cast<uint32_t>(inv_freq_.size()); }
  // Positions that a token has: one, or one per section.
  uint32_t positions() const { return positions_; }

  // Turns of a row that was stored before rotation, for the token's positions `at`.
  void At(std::span<const uint64_t> at, std::span<RotaryTurn> turns) const;
  // Turns of a row that was rotated at `from` and is wanted at `to`.
  // REQUIRES: positions() of them, and room for pairs() turns; here and in At.
  void Between(std::span<const uint64_t> from, std::span<const uint64_t> to,
               std::span<RotaryTurn> turns) const;
  // One row, a head of a token. `into` may be `row`. REQUIRES: row_bytes of the plane.
  void Turn(std::span<const RotaryTurn> turns, std::span<const std::byte> row,
            std::span<std::byte> into) const;

 private:
  Rotation() = default;
  float Angle(size_t pair, uint64_t position) const;
  // Turns by angle_of(pair), each times `scale`.
  template <typename AngleOf>
  void Fill(const AngleOf& angle_of, float scale, std::span<RotaryTurn> turns) const;

  Dtype dtype_{};
  bool adjacent_ = false;
  uint32_t first_ = 0, elements_ = 0;
  uint32_t positions_ = 1;
  float mscale_ = 1.0F;
  std::vector<float> inv_freq_;
  std::vector<uint32_t> section_;  // By pair.
};

}  // namespace cairn
