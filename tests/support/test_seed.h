// SPDX-License-Identifier: Apache-2.0
//
// Where a test that draws begins: CAIRN_TEST_SEED if that is set, else a number that follows from
// the commit that was built, so that every commit tries other runs; without a repository 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/support/last_words.h"

namespace cairn::testing {

std::optional<uint64_t> GivenSeed();  // CAIRN_TEST_SEED.
uint64_t TestSeed();                  // Printed when it is first asked for.
// For the quick form of a test, far from where the slow one begins.
uint64_t QuickTestSeed();

// As long as this lives: a failed check, or a crash, says how to run the same again.
class Repeatable {
 public:
  explicit Repeatable(uint64_t seed);
  // "CAIRN_TEST_SEED=7 .../cairn_sim_test --gtest_filter=Swarm.X"
  const std::string& command() const { return command_; }

 private:
  const std::string command_;
  const LastWords last_words_;
};

}  // namespace cairn::testing
