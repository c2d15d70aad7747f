// SPDX-License-Identifier: Apache-2.0
//
// Sums over the channels of a row on the host.
#pragma once

#include <cstdint>
#include <span>

#include "base/core/check.h"
#include "base/shadow/shadow_math.h"

namespace cairn::shadow {

// Lane l adds x(l), x(l + 32), ... in this order to 0; then the lanes are added.
template <typename Of>
float WarpSum(uint32_t count, const Of& x) {
  float part[kLanes] = {};
  for (uint32_t i = 0; i < count; ++i) part[i % kLanes] += x(i);
  return AddLanes([&part](uint32_t lane) { return part[lane]; });
}

inline float Dot(std::span<const float> a, std::span<const float> b) {
  CAIRN_CHECK(a.size() == b.size());
  return WarpSum(static_cast<uint32_t>(a.size()), [&](uint32_t i) { return a[i] * b[i]; });
}

inline void Widen(bool fp16, std::span<const uint16_t> from, std::span<float> to) {
  CAIRN_CHECK(from.size() == to.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = Widened(fp16, from[i]);
}

}  // namespace cairn::shadow
