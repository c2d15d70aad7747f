// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_seed.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/core/seeded_random.h"

#ifndef CAIRN_COMMIT
#define CAIRN_COMMIT 0
#endif

namespace cairn::testing {
namespace {

uint64_t Choose(uint64_t distance) {
  const uint64_t drawn = SeededRandom(CAIRN_COMMIT).Next() % 1'000'000'000;
  const uint64_t chosen = GivenSeed().value_or((CAIRN_COMMIT == 0 ? 1 : drawn) + distance);
  std::printf("CAIRN_TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
  std::fflush(stdout);  // A crash prints nothing more.
  return chosen;
}

std::string CommandFor(uint64_t seed) {
  char program[256] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) program[0] = '\0';
  std::string command = "CAIRN_TEST_SEED=" + std::to_string(seed) + " " + program;
  if (const auto* test = ::testing::UnitTest::GetInstance()->current_test_info()) {
    command += std::string(" --gtest_filter=") + test->test_suite_name() + "." + test->name();
  }
  return command;
}

}  // namespace

std::optional<uint64_t> GivenSeed() {
  const char* const given = std::getenv("CAIRN_TEST_SEED");
  if (given == nullptr) return std::nullopt;
  return std::strtoull(given, nullptr, 0);
}

uint64_t TestSeed() {
  static const uint64_t seed = Choose(0);
  return seed;
}

uint64_t QuickTestSeed() {
  static const uint64_t seed = Choose(500'000);
  return seed;
}

Repeatable::Repeatable(uint64_t seed)
    : command_(CommandFor(seed)), last_words_(STDERR_FILENO, "\nto repeat: " + command_ + "\n") {}

}  // namespace cairn::testing
