// SPDX-License-Identifier: Apache-2.0
//
// Choosing the next token. The randomness is counter-based, so a sampler's whole state is two
// numbers: saved with a conversation and put back, it continues with the same draws.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace cairn::llama {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): a bijection of the counter under the key, word 0 being the least significant.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

struct SamplerOptions {
  float temperature = 1.0f;  // 0: the likeliest token, without a draw
  float top_p = 1.0f;  // keep the likeliest tokens until their probabilities reach this sum; 1: all
  int top_k = 0;       // keep this many of the likeliest tokens; 0: all
};

class Sampler {
 public:
  // `seed` is the key; draw number `offset` is made from the counter `offset`.
  struct State {
    uint64_t seed = 0;
    uint64_t offset = 0;
    bool operator==(const State&) const = default;
  };

  Sampler(const SamplerOptions& options, State state) : options_(options), state_(state) {}

  const SamplerOptions& options() const { return options_; }
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

  // The index of the chosen logit; `logits` is not empty and holds no NaN. Equal logits are ranked
  // by index. Takes one draw, whatever the outcome, unless the temperature is 0.
  template <typename Scalar>
  int32_t Sample(std::span<const Scalar> logits);

 private:
  double NextUniform();  // in [0, 1), 53 bits

  SamplerOptions options_;
  State state_;
  std::vector<int32_t> ranked_;        // scratch: indices of logits, likeliest first
  std::vector<double> probabilities_;  // scratch: theirs
};

extern template int32_t Sampler::Sample<float>(std::span<const float> logits);
extern template int32_t Sampler::Sample<double>(std::span<const double> logits);

}  // namespace cairn::llama
