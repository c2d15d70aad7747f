// SPDX-License-Identifier: Apache-2.0
#include "base/codec/cos_sin.h"

#include <algorithm>
#include <cmath>

#include "base/codec/cos_sin_lanes.h"
#include "base/core/cpu.h"

namespace cairn {

namespace internal {

void CosSinScalar(const double* angles, size_t count, float* cosines, float* sines) {
  for (size_t i = 0; i < count; ++i) {
    const Turned<double> of = CosSinOf<double, uint64_t>(angles[i]);
    cosines[i] = static_cast<float>(of.cos);
    sines[i] = static_cast<float>(of.sin);
  }
}

}  // namespace internal

namespace {

// How many of the angles were turned by vectors.
size_t ByVectors(const double* angles, size_t count, float* cosines, float* sines) {
#if defined(__x86_64__)
  if (CpuHasAvx512()) return internal::CosSinAvx512(angles, count, cosines, sines);
  if (CpuHasAvx2()) return internal::CosSinAvx2(angles, count, cosines, sines);
#endif
  static_cast<void>(angles), static_cast<void>(count), static_cast<void>(cosines);
  static_cast<void>(sines);
  return 0;
}

}  // namespace

void CosSin(std::span<const double> angles, float* cosines, float* sines) {
  const auto large = [](double angle) { return !(std::abs(angle) <= kLargestAngle); };
  for (size_t i = 0; i < angles.size();) {
    if (large(angles[i])) {
      cosines[i] = static_cast<float>(std::cos(angles[i]));
      sines[i] = static_cast<float>(std::sin(angles[i]));
      ++i;
      continue;
    }
    const auto rest = angles.subspan(i);
    const auto count =
        static_cast<size_t>(std::find_if(rest.begin(), rest.end(), large) - rest.begin());
    const size_t done = ByVectors(rest.data(), count, cosines + i, sines + i);
    internal::CosSinScalar(rest.data() + done, count - done, cosines + i + done, sines + i + done);
    i += count;
  }
}

}  // namespace cairn
