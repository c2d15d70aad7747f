// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "base/codec/cos_sin.h"
#include "base/codec/cos_sin_lanes.h"

namespace cairn::internal {
namespace {

using Doubles [[gnu::vector_size(64)]] = double;
using Words [[gnu::vector_size(64)]] = uint64_t;
using Floats [[gnu::vector_size(32)]] = float;

}  // namespace

size_t CosSinAvx512(const double* angles, size_t count, float* cosines, float* sines) {
  return CosSinByVectors<Doubles, Words, Floats>(angles, count, cosines, sines);
}

}  // namespace cairn::internal
#endif
