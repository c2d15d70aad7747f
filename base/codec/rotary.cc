// SPDX-License-Identifier: Apache-2.0
#include "base/codec/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/codec/float16.h"
#include "base/core/check.h"
#include "base/core/text.h"

namespace cairn {

namespace {

float Load(Dtype dtype, const std::byte* at) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return Widened(dtype == Dtype::kF16, bits);
}

void Store(Dtype dtype, float value, std::byte* at) {
  if (dtype == Dtype::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const uint16_t bits = Narrowed(dtype == Dtype::kF16, value);
  std::memcpy(at, &bits, sizeof(bits));
}

}  // namespace

uint32_t RotarySection(const RotarySpec& rotary, uint32_t pair) {
  const auto sections = static_cast<uint32_t>(rotary.sections.size());
  if (sections == 0) return 0;
  if (rotary.interleaved) {
    const uint32_t section = pair % sections;
    return pair / sections < rotary.sections[section] ? section : 0;
  }
  uint32_t section = 0;
  uint64_t end = rotary.sections[0];
  while (pair >= end && ++section < sections) end += rotary.sections[section];
  return section;
}

Result<Rotation> Rotation::Of(const LayerGroup& group, size_t index) {
  const Plane& plane = group.planes[index];
  const RotarySpec& rotary = plane.rotary;
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument,
                  "group " + Quoted(group.name) + ", plane " + Quoted(plane.name) + ": " + what);
  };
  if (rotary.state != RotaryState::kApplied && rotary.state != RotaryState::kBefore) {
    return bad(std::string("rotary.state is ") + RotaryStateName(rotary.state));
  }
  if (rotary.pairing == RotaryPairing::kUnset) return bad("rotary.pairing is unset");
  if (group.inv_freq.empty()) return bad("inv_freq of the group is empty");
  if (plane.dtype != Dtype::kF32 && plane.dtype != Dtype::kF16 && plane.dtype != Dtype::kBf16) {
    return bad(std::string("elements of ") + DtypeName(plane.dtype) + " cannot be rotated");
  }
  const uint64_t elements = plane.row_bytes / DtypeBytes(plane.dtype);
  const uint64_t width = rotary.width != 0 ? rotary.width : 2 * group.inv_freq.size();
  if (width != 2 * group.inv_freq.size() || rotary.first + width > elements) {
    return bad("inv_freq of the group has " + std::to_string(group.inv_freq.size()) +
               " numbers; a row has " + std::to_string(elements) + " elements, a window of " +
               std::to_string(width));
  }
  Rotation rotation;
  rotation.dtype_ = plane.dtype;
  rotation.adjacent_ = rotary.pairing == RotaryPairing::kAdjacent;
  rotation.first_ = rotary.first;
  rotation.mscale_ = group.mscale;
  rotation.inv_freq_ = group.inv_freq;
  rotation.positions_ = std::max(1u, static_cast<uint32_t>(rotary.sections.size()));
  for (uint32_t pair = 0; pair < rotation.pairs(); ++pair) {
    rotation.section_.push_back(RotarySection(rotary, pair));
    if (rotation.section_.back() >= rotation.positions_) {
      return bad("rotary.sections do not make up the window");
    }
  }
  return rotation;
}

float Rotation::Angle(size_t pair, uint64_t position) const {
  return static_cast<float>(position) * inv_freq_[pair];
}

void Rotation::At(std::span<const uint64_t> at, std::span<RotaryTurn> turns) const {
  CAIRN_CHECK(at.size() == positions_ && turns.size() >= inv_freq_.size());
  for (size_t i = 0; i < inv_freq_.size(); ++i) {
    const auto angle = static_cast<double>(Angle(i, at[section_[i]]));
    turns[i] = {static_cast<float>(std::cos(angle)) * mscale_,
                static_cast<float>(std::sin(angle)) * mscale_};
  }
}

void Rotation::Between(std::span<const uint64_t> from, std::span<const uint64_t> to,
                       std::span<RotaryTurn> turns) const {
  CAIRN_CHECK(from.size() == positions_ && to.size() == positions_);
  CAIRN_CHECK(turns.size() >= inv_freq_.size());
  for (size_t i = 0; i < inv_freq_.size(); ++i) {
    // Stored rows have the scale already.
    const double angle = static_cast<double>(Angle(i, to[section_[i]])) -
                         static_cast<double>(Angle(i, from[section_[i]]));
    turns[i] = {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
  }
}

void Rotation::Turn(std::span<const RotaryTurn> turns, std::span<const std::byte> row,
                    std::span<std::byte> into) const {
  CAIRN_CHECK(turns.size() >= inv_freq_.size() && row.size() == into.size());
  if (into.data() != row.data()) std::memcpy(into.data(), row.data(), row.size());
  const size_t element_bytes = DtypeBytes(dtype_);
  const size_t pairs = inv_freq_.size();
  CAIRN_CHECK((first_ + 2 * pairs) * element_bytes <= into.size());
  std::byte* const window = into.data() + first_ * element_bytes;
  for (size_t i = 0; i < pairs; ++i) {
    const RotaryTurn& turn = turns[i];
    if (turn.cos == 1.0F && turn.sin == 0.0F) continue;
    std::byte* const x_at = window + (adjacent_ ? 2 * i : i) * element_bytes;
    std::byte* const y_at = window + (adjacent_ ? 2 * i + 1 : i + pairs) * element_bytes;
    const float x = Load(dtype_, x_at), y = Load(dtype_, y_at);
    Store(dtype_, x * turn.cos - y * turn.sin, x_at);
    Store(dtype_, y * turn.cos + x * turn.sin, y_at);
  }
}

}  // namespace cairn
