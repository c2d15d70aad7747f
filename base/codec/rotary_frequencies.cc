// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "cairn/rotary.h"

namespace cairn {

namespace {

double Frequency(uint32_t pair, uint32_t width, double theta) {
  return std::pow(theta, -2.0 * pair / width);
}

}  // namespace

const char* RotaryStateName(RotaryState state) {
  switch (state) {
    case RotaryState::kUnset: return "unset";
    case RotaryState::kNone: return "none";
    case RotaryState::kApplied: return "applied";
    case RotaryState::kBefore: return "before";
  }
  return "unknown";
}

const char* RotaryPairingName(RotaryPairing pairing) {
  switch (pairing) {
    case RotaryPairing::kUnset: return "unset";
    case RotaryPairing::kHalves: return "halves";
    case RotaryPairing::kAdjacent: return "adjacent";
  }
  return "unknown";
}

std::vector<float> RotaryFrequencies(uint32_t width, double theta) {
  std::vector<float> inv_freq;
  for (uint32_t pair = 0; pair < width / 2; ++pair) {
    inv_freq.push_back(static_cast<float>(Frequency(pair, width, theta)));
  }
  return inv_freq;
}

std::vector<float> LinearFrequencies(std::vector<float> inv_freq, double factor) {
  for (float& one : inv_freq) one = static_cast<float>(double{one} / factor);
  return inv_freq;
}

std::vector<float> Llama3Frequencies(std::vector<float> inv_freq, const Llama3Scaling& scaling) {
  const double longest = scaling.original_positions / scaling.low_freq_factor;
  const double shortest = scaling.original_positions / scaling.high_freq_factor;
  for (float& one : inv_freq) {
    const double wave = 2.0 * std::numbers::pi / double{one};
    if (wave < shortest) continue;
    // The share of it that stays.
    const double stays = wave > longest
                             ? 0.0
                             : (scaling.original_positions / wave - scaling.low_freq_factor) /
                                   (scaling.high_freq_factor - scaling.low_freq_factor);
    one = static_cast<float>((1.0 - stays) * double{one} / scaling.factor + stays * double{one});
  }
  return inv_freq;
}

std::vector<float> YarnFrequencies(uint32_t width, double theta, const YarnScaling& scaling) {
  // The pair that turns this often in the original positions.
  const auto pair_of = [&](double turns) {
    return width * std::log(scaling.original_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(theta));
  };
  const double low = std::max(std::floor(pair_of(scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(scaling.beta_slow)), width - 1.0);
  if (low == high) high += 0.001;  // As engines do, so that the ramp has a slope.
  std::vector<float> inv_freq;
  for (uint32_t pair = 0; pair < width / 2; ++pair) {
    const double divided = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    const double frequency = Frequency(pair, width, theta);
    inv_freq.push_back(
        static_cast<float>(frequency / scaling.factor * divided + frequency * (1.0 - divided)));
  }
  return inv_freq;
}

float YarnMscale(double factor, double coefficient) {
  return factor <= 1.0 ? 1.0F : static_cast<float>(0.1 * coefficient * std::log(factor) + 1.0);
}

std::vector<float> LongRopeFrequencies(uint32_t width, double theta,
                                       const LongRopeScaling& scaling) {
  const std::vector<double>& factors = scaling.context_positions > scaling.original_positions
                                           ? scaling.long_factors
                                           : scaling.short_factors;
  const auto pairs = static_cast<uint32_t>(std::min<size_t>(width / 2, factors.size()));
  std::vector<float> inv_freq;
  for (uint32_t pair = 0; pair < pairs; ++pair) {
    inv_freq.push_back(static_cast<float>(Frequency(pair, width, theta) / factors[pair]));
  }
  return inv_freq;
}

float LongRopeMscale(double factor, uint32_t original_positions) {
  if (factor <= 1.0) return 1.0F;
  return static_cast<float>(
      std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original_positions))));
}

}  // namespace cairn
