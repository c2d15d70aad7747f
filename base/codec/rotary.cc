// SPDX-License-Identifier: Apache-2.0
#include "base/codec/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/codec/cos_sin.h"
#include "base/codec/float16.h"
#include "base/codec/rotary_loops.h"
#include "base/core/check.h"
#include "base/core/text.h"

namespace cairn {

namespace internal {
namespace {

template <Dtype kDtype>
float Load(const std::byte* at) {
  if constexpr (kDtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  } else {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    return Widened(kDtype == Dtype::kF16, bits);
  }
}

template <Dtype kDtype>
void Store(float value, std::byte* at) {
  if (value != value) value = FloatOfBits(kRotaryNan);
  if constexpr (kDtype == Dtype::kF32) {
    std::memcpy(at, &value, sizeof(value));
  } else {
    const uint16_t bits = Narrowed(kDtype == Dtype::kF16, value);
    std::memcpy(at, &bits, sizeof(bits));
  }
}

template <typename Byte>
struct PairAt {
  Byte *x = nullptr, *y = nullptr;
};

// `into` may be `from`.
template <Dtype kDtype>
void TurnPair(const RotaryTurn& turn, PairAt<const std::byte> from, PairAt<std::byte> into) {
  if (turn.cos == 1.0F && turn.sin == 0.0F) {
    constexpr size_t kBytes = kDtype == Dtype::kF32 ? 4 : 2;
    if (from.x == into.x) return;
    std::memcpy(into.x, from.x, kBytes);
    std::memcpy(into.y, from.y, kBytes);
    return;
  }
  const float x = Load<kDtype>(from.x), y = Load<kDtype>(from.y);
  Store<kDtype>(x * turn.cos - y * turn.sin, into.x);
  Store<kDtype>(y * turn.cos + x * turn.sin, into.y);
}

// The windows of a row, before and after, and the bytes from an element to the next.
struct Windows {
  const std::byte* from;
  std::byte* into;
  ptrdiff_t from_stride, into_stride;
};

// Turns pairs [begin, end) by turn_of(pair); `apart` elements lie between the two of a pair.
template <Dtype kDtype, typename TurnOf>
void TurnRange(uint32_t begin, uint32_t end, ptrdiff_t step, ptrdiff_t apart, const Windows& at,
               const TurnOf& turn_of) {
  for (uint32_t i = begin; i < end; ++i) {
    const ptrdiff_t x = i * step, y = x + apart;
    TurnPair<kDtype>(turn_of(i), {at.from + x * at.from_stride, at.from + y * at.from_stride},
                     {at.into + x * at.into_stride, at.into + y * at.into_stride});
  }
}

template <typename TurnOf>
void TurnWindow(Dtype dtype, bool adjacent, uint32_t begin, uint32_t pairs, const Windows& at,
                const TurnOf& turn_of) {
  const ptrdiff_t step = adjacent ? 2 : 1, apart = adjacent ? 1 : ptrdiff_t{pairs};
  if (dtype == Dtype::kF32) {
    TurnRange<Dtype::kF32>(begin, pairs, step, apart, at, turn_of);
  } else if (dtype == Dtype::kF16) {
    TurnRange<Dtype::kF16>(begin, pairs, step, apart, at, turn_of);
  } else {
    TurnRange<Dtype::kBf16>(begin, pairs, step, apart, at, turn_of);
  }
}

}  // namespace

void TurnPairs(const RotaryJob& job, const float* cos, const float* sin, const std::byte* from,
               std::byte* into, uint32_t begin) {
  const uint32_t second = job.layout.twice ? 1 : 0;
  TurnWindow(job.dtype, job.adjacent, begin, job.pairs,
             {from, into, job.from.element_stride, job.into.element_stride}, [&](uint32_t i) {
               const uint32_t place = job.layout.At(i) + second;
               return RotaryTurn{cos[place], sin[place]};
             });
}

}  // namespace internal

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
  if (rotary.pairing != RotaryPairing::kHalves && rotary.pairing != RotaryPairing::kAdjacent) {
    return bad(std::string("rotary.pairing is ") + RotaryPairingName(rotary.pairing));
  }
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
  for (size_t i = 0; i < group.inv_freq.size(); ++i) {
    if (!std::isfinite(group.inv_freq[i])) {
      return bad("inv_freq[" + std::to_string(i) + "] of the group is not finite");
    }
  }
  if (!std::isfinite(group.mscale)) return bad("mscale of the group is not finite");
  Rotation rotation;
  rotation.dtype_ = plane.dtype;
  rotation.adjacent_ = rotary.pairing == RotaryPairing::kAdjacent;
  rotation.first_ = rotary.first;
  rotation.elements_ = static_cast<uint32_t>(elements);
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

template <typename AngleOf>
void Rotation::Fill(const AngleOf& angle_of, float scale, std::span<RotaryTurn> turns) const {
  CAIRN_CHECK(turns.size() >= inv_freq_.size());
  constexpr size_t kAtOnce = 64;
  double angles[kAtOnce];
  float cosines[kAtOnce], sines[kAtOnce];
  for (size_t begin = 0; begin < inv_freq_.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, inv_freq_.size() - begin);
    for (size_t i = 0; i < count; ++i) angles[i] = angle_of(begin + i);
    CosSin({angles, count}, cosines, sines);
    for (size_t i = 0; i < count; ++i) turns[begin + i] = {cosines[i] * scale, sines[i] * scale};
  }
}

void Rotation::At(std::span<const uint64_t> at, std::span<RotaryTurn> turns) const {
  CAIRN_CHECK(at.size() == positions_);
  Fill([&](size_t i) { return double{Angle(i, at[section_[i]])}; }, mscale_, turns);
}

void Rotation::Between(std::span<const uint64_t> from, std::span<const uint64_t> to,
                       std::span<RotaryTurn> turns) const {
  CAIRN_CHECK(from.size() == positions_ && to.size() == positions_);
  // Stored rows have the scale already.
  Fill(
      [&](size_t i) {
        return double{Angle(i, to[section_[i]])} - double{Angle(i, from[section_[i]])};
      },
      1.0F, turns);
}

void Rotation::Turn(std::span<const RotaryTurn> turns, std::span<const std::byte> row,
                    std::span<std::byte> into) const {
  CAIRN_CHECK(turns.size() >= inv_freq_.size() && row.size() == into.size());
  if (into.data() != row.data()) std::memcpy(into.data(), row.data(), row.size());
  const ptrdiff_t bytes = DtypeBytes(dtype_);
  std::byte* const window = into.data() + first_ * bytes;
  CAIRN_CHECK((first_ + 2 * inv_freq_.size()) * static_cast<size_t>(bytes) <= into.size());
  internal::TurnWindow(dtype_, adjacent_, 0, pairs(), {window, window, bytes, bytes},
                       [&](uint32_t i) { return turns[i]; });
}

}  // namespace cairn
