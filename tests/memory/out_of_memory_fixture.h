// SPDX-License-Identifier: Apache-2.0
//
// Shared by the quick and the slow test of allocation failure: one script, given by name, whose
// every `stride`-th allocation fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/memory/out_of_memory.h"

namespace cairn::memory {

class OutOfMemoryTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Check(bool persistent, uint64_t stride) {
    const OutOfMemoryResult result =
        RunOutOfMemory({.script = GetParam(), .persistent = persistent, .stride = stride});
    std::printf("out of memory, %s: %s\n", GetParam().c_str(), result.ToString().c_str());
    EXPECT_EQ(result.violation, "");
    EXPECT_GT(result.runs, 0u);
    EXPECT_GT(result.calls_failed, 0u);
    EXPECT_EQ(result.poisoned, 0u);
    RecordProperty("runs", std::to_string(result.runs));
  }
};

// For INSTANTIATE_TEST_SUITE_P.
inline std::string NameOfScript(const ::testing::TestParamInfo<std::string>& script) {
  std::string name = script.param;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

}  // namespace cairn::memory
