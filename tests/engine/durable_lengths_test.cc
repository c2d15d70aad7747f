// SPDX-License-Identifier: Apache-2.0
//
// Property: the durable length of a branch is the newest of its lengths whose sequence is durable,
// and what is remembered follows from what is not durable yet, not from how many branches there
// are. Method: by hand, and random steps beside a list of everything.
#include "engine/commit/durable_lengths.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/config/constants.h"

namespace cairn::engine {
namespace {

constexpr BranchId kChat{7};

TEST(DurableLengths, ABranchThatIsNotKnownIsDurable) {
  EXPECT_FALSE(DurableLengths().Of(kChat, 0).has_value());
}

TEST(DurableLengths, WhatWasThereBeforeIsDurableUntilMoreIs) {
  DurableLengths lengths;
  lengths.Record(kChat, 10, 12, 5, 4);
  lengths.Record(kChat, 12, 3, 6, 4);
  EXPECT_EQ(10u, lengths.Of(kChat, 4));
  EXPECT_EQ(12u, lengths.Of(kChat, 5));
  EXPECT_FALSE(lengths.Of(kChat, 6).has_value()) << "all of it, whatever its length";
}

TEST(DurableLengths, LengthsOfABranchAreBounded) {
  DurableLengths lengths;
  for (uint64_t i = 1; i <= 10 * kLengthsTrackedMax; ++i) lengths.Record(kChat, i - 1, i, i, 0);
  EXPECT_EQ(0u, lengths.Of(kChat, 0));
  EXPECT_EQ(3u, lengths.Of(kChat, 3));
  EXPECT_LT(*lengths.Of(kChat, 10 * kLengthsTrackedMax - 1), uint64_t{kLengthsTrackedMax});
  EXPECT_FALSE(lengths.Of(kChat, 10 * kLengthsTrackedMax).has_value());
}

// A million branches, each appended to once, durable a thousand records later.
TEST(DurableLengths, BranchesAreForgottenWhenTheyAreDurable) {
  DurableLengths lengths;
  for (uint64_t i = 1; i <= 1'000'000; ++i) {
    lengths.Record(BranchId{i}, 0, 4, i, i < 1000 ? 0 : i - 1000);
    ASSERT_LE(lengths.branches(), 1002u);
  }
}

TEST(DurableLengths, AreThoseOfAListOfEverything) {
  std::mt19937_64 random(1);
  DurableLengths lengths;
  std::map<BranchId, std::vector<std::pair<uint64_t, uint64_t>>> all;
  uint64_t durable = 0;
  for (uint64_t sequence = 1; sequence < 100'000; ++sequence) {
    if (random() % 20 == 0) durable += random() % (sequence - durable);
    const BranchId branch{random() % 100};
    auto& of_branch = all[branch];
    if (random() % 50 == 0) {
      lengths.Forget(branch);
      of_branch.clear();
      continue;
    }
    // The previous length counts as durable when nothing is known of the branch.
    const uint64_t before = of_branch.empty() ? 0 : of_branch.back().second;
    const uint64_t length = random() % 1000;
    lengths.Record(branch, before, length, sequence, durable);
    of_branch.emplace_back(sequence, length);
    const BranchId asked{random() % 100};
    uint64_t newest = 0, expected = 0;
    for (const auto& [at, reached] : all[asked]) {
      newest = reached;
      if (at <= durable) expected = reached;
    }
    const uint64_t got = lengths.Of(asked, durable).value_or(newest);
    ASSERT_EQ(expected, got) << "branch " << static_cast<uint64_t>(asked) << " at " << sequence;
  }
}

}  // namespace
}  // namespace cairn::engine
