// SPDX-License-Identifier: Apache-2.0

#include "tools/llama/sampler.h"

#include <algorithm>
#include <numeric>

#include "tools/llama/arithmetic.h"

namespace cairn::llama {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

double Sampler::NextUniform() {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto high = [](uint64_t value) { return static_cast<uint32_t>(value >> 32); };
  const std::array<uint32_t, 4> words = Philox4x32({low(state_.offset), high(state_.offset), 0, 0},
                                                   {low(state_.seed), high(state_.seed)});
  ++state_.offset;
  const uint64_t bits = (uint64_t{words[1]} << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

template <typename Scalar>
int32_t Sampler::Sample(std::span<const Scalar> logits) {
  if (options_.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  ranked_.resize(logits.size());
  std::iota(ranked_.begin(), ranked_.end(), 0);
  const auto logit = [&](int32_t index) { return logits[static_cast<size_t>(index)]; };
  std::sort(ranked_.begin(), ranked_.end(), [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < ranked_.size()) {
    ranked_.resize(static_cast<size_t>(options_.top_k));
  }

  probabilities_.clear();
  for (const int32_t index : ranked_) {
    probabilities_.push_back(static_cast<double>(logit(index)) /
                             static_cast<double>(options_.temperature));
  }
  Softmax(probabilities_.data(), probabilities_.size());

  double kept_sum = 0;
  size_t kept = 0;
  while (kept < probabilities_.size() &&
         (kept == 0 || kept_sum < static_cast<double>(options_.top_p))) {
    kept_sum += probabilities_[kept++];
  }
  const double target = NextUniform() * kept_sum;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    sum += probabilities_[i];
    if (target < sum) {
      return ranked_[i];
    }
  }
  return ranked_[kept - 1];
}

template int32_t Sampler::Sample<float>(std::span<const float> logits);
template int32_t Sampler::Sample<double>(std::span<const double> logits);

}  // namespace cairn::llama
