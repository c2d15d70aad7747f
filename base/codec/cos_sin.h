// SPDX-License-Identifier: Apache-2.0
//
// Cosines and sines of many angles, for tables of turns: several at a time, in double, rounded once
// to fp32. All paths give the same bits, since they do the same operations in the same order.
//
// An angle is reduced by multiples of pi/2, subtracted in three parts of which the first two are
// exact; then Taylor's series, up to r^13 and r^14. The error before rounding is below 2^-44 of the
// result. Angles beyond kLargestAngle, which is far from most that occur, are left to libm.
#pragma once

#include <cstddef>
#include <span>

namespace cairn {

inline constexpr double kLargestAngle = 0x1p19;

// REQUIRES: room for as many cosines and sines.
void CosSin(std::span<const double> angles, float* cosines, float* sines);

namespace internal {

// For angles within kLargestAngle; the latter two for the first of them, as many as their vectors
// hold, of which they return the number.
void CosSinScalar(const double* angles, size_t count, float* cosines, float* sines);
size_t CosSinAvx2(const double* angles, size_t count, float* cosines, float* sines);
size_t CosSinAvx512(const double* angles, size_t count, float* cosines, float* sines);

}  // namespace internal

}  // namespace cairn
