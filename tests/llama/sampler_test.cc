// SPDX-License-Identifier: Apache-2.0
//
// Property: a sampler draws from the distribution that its options describe, and its draws are a
// function of its state alone. Method: the published known answers of Philox; chi-squared over many
// draws; states saved, restored and stepped.

#include "tools/llama/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace cairn::llama {
namespace {

using Words = std::array<uint32_t, 4>;

// From the known-answer file of Random123, the authors' own library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            Words({0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
            Words({0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            Words({0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<float> RandomLogits(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = normal(generator);
  }
  return logits;
}

int32_t Draw(Sampler* sampler, const std::vector<float>& logits) {
  return sampler->Sample(std::span<const float>(logits));
}

TEST(Sampler, ContinuesFromASavedStateWithTheSameDraws) {
  const std::vector<float> logits = RandomLogits(200, 1);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{0xfffffff0}, ~uint64_t{0} - 500}) {
    Sampler sampler({.temperature = 0.9f, .top_p = 0.9f},
                    {.seed = 0x0123456789abcdef, .offset = offset});
    std::vector<int32_t> draws;
    std::vector<Sampler::State> states;
    for (int i = 0; i < 100; ++i) {
      states.push_back(sampler.state());
      draws.push_back(Draw(&sampler, logits));
    }
    EXPECT_EQ(sampler.state().offset, offset + 100);
    for (size_t i = 0; i < draws.size(); i += 7) {
      Sampler resumed(sampler.options(), states[i]);
      for (size_t j = i; j < draws.size(); ++j) {
        ASSERT_EQ(Draw(&resumed, logits), draws[j]);
      }
      EXPECT_EQ(resumed.state(), sampler.state());
    }
  }
}

TEST(Sampler, BothHalvesOfSeedAndOffsetMatter) {
  const std::vector<float> flat(1 << 16, 0.0f);
  std::set<int32_t> draws;
  for (const uint64_t seed : {uint64_t{5}, uint64_t{5} << 32}) {
    for (const uint64_t offset : {uint64_t{9}, uint64_t{9} << 32}) {
      Sampler sampler({}, {.seed = seed, .offset = offset});
      draws.insert(Draw(&sampler, flat));
    }
  }
  EXPECT_EQ(draws.size(), 4u);
}

TEST(Sampler, FollowsTheDistribution) {
  const std::vector<float> logits = RandomLogits(20, 2);
  const float temperature = 1.3f;
  std::vector<double> probabilities;
  double sum = 0;
  for (const float logit : logits) {
    probabilities.push_back(
        std::exp(static_cast<double>(logit) / static_cast<double>(temperature)));
    sum += probabilities.back();
  }
  constexpr int kDraws = 100000;
  std::vector<int> counts(logits.size());
  Sampler sampler({.temperature = temperature}, {.seed = 3});
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(Draw(&sampler, logits))];
  }
  double chi_squared = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = kDraws * probabilities[i] / sum;
    chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_squared,
            43.8);  // 19 degrees of freedom, p = 0.001; the draws are always the same ones
}

TEST(Sampler, TopKAndTopPKeepTheLikeliest) {
  // Probabilities 0.4, 0.3, 0.2, 0.1, out of order.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.4f), std::log(0.1f),
                                     std::log(0.3f)};
  const auto kept = [&](SamplerOptions options) {
    Sampler sampler(options, {.seed = 4});
    std::set<int32_t> seen;
    for (int i = 0; i < 2000; ++i) {
      seen.insert(Draw(&sampler, logits));
    }
    return seen;
  };
  using Set = std::set<int32_t>;
  EXPECT_EQ(kept({}), Set({0, 1, 2, 3}));
  EXPECT_EQ(kept({.top_k = 2}), Set({1, 3}));
  EXPECT_EQ(kept({.top_k = 9}), Set({0, 1, 2, 3}));
  EXPECT_EQ(kept({.top_p = 0.0f}), Set({1}));
  EXPECT_EQ(kept({.top_p = 0.39f}), Set({1}));
  EXPECT_EQ(kept({.top_p = 0.45f}), Set({1, 3}));
  EXPECT_EQ(kept({.top_p = 0.85f}), Set({0, 1, 3}));
  EXPECT_EQ(kept({.top_p = 0.85f, .top_k = 1}), Set({1}));
}

TEST(Sampler, TemperatureZeroTakesTheFirstOfTheLargestWithoutADraw) {
  Sampler sampler({.temperature = 0}, {.seed = 5, .offset = 6});
  EXPECT_EQ(Draw(&sampler, {1, 3, 2, 3}), 1);
  EXPECT_EQ(sampler.state(), (Sampler::State{5, 6}));
}

TEST(Sampler, EqualLogitsAreRankedByIndex) {
  Sampler sampler({.top_k = 2}, {.seed = 6});
  for (int i = 0; i < 200; ++i) {
    EXPECT_LT(Draw(&sampler, std::vector<float>(50, 1.0f)), 2);
  }
}

}  // namespace
}  // namespace cairn::llama
