// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of base/codec/cos_sin.h, for one double or a vector of them. Only its .cc files
// include it: each has its own copy, compiled for its processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cairn::internal {
namespace {  // NOLINT: a copy in each file is what is wanted.

template <typename To, typename From>
To Bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename Doubles>
struct Turned {
  Doubles cos, sin;
};

// `Words`: as many 64-bit numbers.
template <typename Doubles, typename Words>
Turned<Doubles> CosSinOf(const Doubles& angle) {
  // The low bits of a number of this size are those of a whole number.
  constexpr double kWhole = 0x1.8p52, kTwoOverPi = 0x1.45f306dc9c883p-1;
  // pi/2, of which the first two parts have 33 bits: times up to 2^20 they are exact.
  constexpr double kPart1 = 0x1.921fb544p+0, kPart2 = 0x1.0b4611a6p-34,
                   kPart3 = 0x1.3198a2e037073p-69;
  const Doubles sum = angle * kTwoOverPi + kWhole;
  const Doubles quarters = sum - kWhole;
  const Words quarter = Bits<Words>(sum);
  const Doubles r = ((angle - quarters * kPart1) - quarters * kPart2) - quarters * kPart3;
  const Doubles z = r * r;
  Doubles s = z * (1.0 / 6227020800.0) - 1.0 / 39916800.0;
  s = z * s + 1.0 / 362880.0;
  s = z * s - 1.0 / 5040.0;
  s = z * s + 1.0 / 120.0;
  s = z * s - 1.0 / 6.0;
  s = r + r * (z * s);
  Doubles c = z * (1.0 / 479001600.0) - z * (z * (1.0 / 87178291200.0)) - 1.0 / 3628800.0;
  c = z * c + 1.0 / 40320.0;
  c = z * c - 1.0 / 720.0;
  c = z * c + 1.0 / 24.0;
  c = z * c - 0.5;
  c = 1.0 + z * c;
  // Each odd quarter exchanges the two; signs follow from the quarter, too.
  const Words odd = -(quarter & 1), sine = Bits<Words>(s), cosine = Bits<Words>(c);
  const Words cos = (cosine & ~odd) | (sine & odd), sin = (sine & ~odd) | (cosine & odd);
  return {Bits<Doubles>(cos ^ (((quarter + 1) & 2) << 62)),
          Bits<Doubles>(sin ^ ((quarter & 2) << 62))};
}

// Takes as many angles as fill vectors; returns how many these were.
template <typename Doubles, typename Words, typename Floats>
size_t CosSinByVectors(const double* angles, size_t count, float* cosines, float* sines) {
  constexpr size_t kLanes = sizeof(Doubles) / sizeof(double);
  size_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    Doubles angle;
    std::memcpy(&angle, angles + done, sizeof(angle));
    const Turned<Doubles> of = CosSinOf<Doubles, Words>(angle);
    const Floats cos = __builtin_convertvector(of.cos, Floats);
    const Floats sin = __builtin_convertvector(of.sin, Floats);
    std::memcpy(cosines + done, &cos, sizeof(cos));
    std::memcpy(sines + done, &sin, sizeof(sin));
  }
  return done;
}

}  // namespace
}  // namespace cairn::internal
