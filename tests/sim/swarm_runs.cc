// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/swarm_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/support/test_seed.h"

namespace cairn::sim {
namespace {

std::string FirstDifference(const SwarmResult& one, const SwarmResult& two) {
  const size_t common = std::min(one.trace.size(), two.trace.size());
  const auto line = [](const SwarmResult& of, size_t i) {
    return i < of.trace.size() ? of.trace[i] : "nothing";
  };
  for (size_t i = 0; i <= common; ++i) {
    if (line(one, i) == line(two, i)) continue;
    return "line " + std::to_string(i) + ":\n  " + line(one, i) + "\n  " + line(two, i);
  }
  return "none";
}

}  // namespace

SwarmResult RunSeedsTwice(uint64_t seed, uint64_t count, SwarmOptions options) {
  SwarmResult all;
  for (options.seed = seed; options.seed < seed + count; ++options.seed) {
    const testing::Repeatable repeatable(options.seed);
    const SwarmResult one = RunSwarm(options);
    all.Add(one);
    EXPECT_EQ(one.violation, "") << one.config << "\nto repeat: " << repeatable.command();
    const SwarmResult two = RunSwarm(options);
    EXPECT_EQ(one.trace_hash, two.trace_hash)
        << "the same seed gave two runs, first in " << FirstDifference(one, two) << "\n"
        << one.config << "\nto repeat: " << repeatable.command();
    if (::testing::Test::HasFailure()) break;
  }
  std::printf("%s\n", all.Counts().c_str());
  ::testing::Test::RecordProperty("operations", std::to_string(all.operations));
  return all;
}

}  // namespace cairn::sim
