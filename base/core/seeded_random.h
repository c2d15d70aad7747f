// SPDX-License-Identifier: Apache-2.0
//
// Random numbers from a seed, the same on every machine and with every standard library: SplitMix64
// (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#pragma once

#include <cstdint>

namespace cairn {

class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, bound); 0 when bound is 0. The bias of the remainder does not matter here.
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Next() % bound; }
  // In [0, 1).
  double Fraction() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace cairn
