// SPDX-License-Identifier: Apache-2.0
//
// Property and method of out_of_memory_test.cc, for every N.
#include "tests/memory/out_of_memory.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace cairn::memory {
namespace {

class OutOfMemorySlow : public ::testing::TestWithParam<std::string> {
 protected:
  void Check(bool persistent, uint64_t stride) {
    const OutOfMemoryResult result =
        RunOutOfMemory({.script = GetParam(), .persistent = persistent, .stride = stride});
    std::printf("out of memory, %s: %s\n", GetParam().c_str(), result.ToString().c_str());
    for (const std::string& violation : result.violations) ADD_FAILURE() << violation;
    EXPECT_GT(result.runs, 0u);
    EXPECT_GT(result.calls_failed, 0u);
    EXPECT_EQ(result.poisoned, 0u);
    RecordProperty("runs", std::to_string(result.runs));
  }
};

TEST_P(OutOfMemorySlow, Once) { Check(false, 1); }
TEST_P(OutOfMemorySlow, FromThenOn) { Check(true, 1); }

INSTANTIATE_TEST_SUITE_P(, OutOfMemorySlow, ::testing::ValuesIn(OutOfMemoryScripts()),
                         [](const auto& script) {
                           std::string name = script.param;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace cairn::memory
