// SPDX-License-Identifier: Apache-2.0
#include "tests/model/histories.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <optional>

#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

constexpr auto kShrinkFor = std::chrono::seconds(60);
constexpr int kTriesAgain = 20;  // For worlds with threads.

void Add(const RunResult& one, HistoriesResult* all) {
  all->operations += one.operations;
  all->sums.joined += one.joined;
  all->sums.evicted_bytes += one.evicted_bytes;
  all->sums.seals += one.seals;
  all->sums.refused += one.refused;
  all->sums.tables_rewritten += one.tables_rewritten;
  all->sums.segments_retired += one.segments_retired;
  all->sums.loads += one.loads;
  all->sums.approximate_bytes += one.approximate_bytes;
  all->sums.found += one.found;
  all->sums.chunks_found += one.chunks_found;
  all->sums.planned += one.planned;
}

void Report(const std::string& failure, const Script& script, const OptionSet& set, uint64_t seed,
            const char* profile) {
  std::printf("CAIRN_TEST_SEED=%llu, profile \"%s\", options \"%s\": %s\n",
              static_cast<unsigned long long>(seed), profile, set.name.c_str(), failure.c_str());
  std::fflush(stdout);
  const auto until = std::chrono::steady_clock::now() + kShrinkFor;
  std::string last;
  const auto fails = [&](const Script& shorter) {
    if (std::chrono::steady_clock::now() > until) return false;
    const std::string found = FailureOf(shorter, set, seed);
    if (!found.empty()) last = found;
    return !found.empty();
  };
  bool again = false;
  for (int i = 0; i < kTriesAgain && !again; ++i) again = fails(script);
  if (!again) {
    ADD_FAILURE() << failure << "; not when it was tried again, so it is not shrunk";
    return;
  }
  const Script shrunk = Shrink(script, fails);
  ADD_FAILURE() << failure << "\nshrunk to " << shrunk.size() << " operations, which give: " << last
                << "\n"
                << ToString(shrunk);
}

}  // namespace

HistoriesResult RunHistories(uint64_t seed, uint64_t operations_wanted, size_t length) {
  const std::optional<uint64_t> given = GivenSeed();
  seed = given.value_or(seed);
  HistoriesResult all;
  std::vector<const OptionSet*> sets;
  for (const OptionSet& set : OptionSets()) {
    if (set.world != "threads") sets.push_back(&set);  // Ten times as slow.
  }
  for (; all.operations < operations_wanted; ++seed) {
    const OptionSet& set = *sets[seed % sets.size()];
    const Profile& profile = Profiles()[(seed + seed / sets.size()) % Profiles().size()];
    const Script script = GenerateScript(seed, profile, length);
    RunResult result;
    if (given.has_value()) {
      result.failure = FailureOf(script, set, seed);
      result.operations = script.size();
    } else {
      result = RunScript(script, set, seed);
    }
    Add(result, &all);
    if (result.failure.empty()) continue;
    Report(result.failure, script, set, seed, profile.name);
    break;
  }
  return all;
}

void ExpectThatMostHappened(const HistoriesResult& all) {
  if (GivenSeed().has_value()) return;  // Each ran in a child, which only says how it failed.
  const RunResult& sums = all.sums;
  EXPECT_GT(sums.joined, 0u);
  EXPECT_GT(sums.evicted_bytes, 0u);
  EXPECT_GT(sums.seals, 0u);
  EXPECT_GT(sums.refused, 0u);
  EXPECT_GT(sums.tables_rewritten, 0u);
  EXPECT_GT(sums.segments_retired, 0u);
  EXPECT_GT(sums.loads, 0u);
  EXPECT_GT(sums.approximate_bytes, 0u);
  EXPECT_GT(sums.found, 0u);
  EXPECT_GT(sums.chunks_found, 0u);
  EXPECT_GT(sums.planned, 0u);
}

HistoriesResult RunEverywhere(uint64_t seed, const Profile& profile, size_t length) {
  const Script script = GenerateScript(seed, profile, length);
  HistoriesResult all;
  std::optional<uint64_t> digest;
  for (const OptionSet& set : OptionSets()) {
    const RunResult result = RunScript(script, set, seed);
    Add(result, &all);
    if (!result.failure.empty()) {
      Report(result.failure, script, set, seed, profile.name);
      return all;
    }
    if (!digest.has_value()) digest = result.digest;
    EXPECT_EQ(*digest, result.digest) << "what was read differs under \"" << set.name << "\"; seed "
                                      << seed << ", \"" << profile.name << "\"";
  }
  return all;
}

}  // namespace cairn::testing
