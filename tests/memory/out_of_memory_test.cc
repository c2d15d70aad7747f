// SPDX-License-Identifier: Apache-2.0
//
// Property: an allocation that fails costs the call that needed it and nothing else. The call says
// so with a Status, what was acknowledged is there afterwards, in this process and after opening
// again, and the store goes on; no thread of it dies.
// Method: scripts on a store in a simulated machine of one thread, where the N-th allocation of the
// store (operator new, through which Options::allocator goes as well) fails, or the N-th and all
// behind it, for rising N (here every third or fifth)
// until a run meets none. The machine's own allocations do not fail.
#include "tests/memory/out_of_memory.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace cairn::memory {
namespace {

class OutOfMemory : public ::testing::TestWithParam<std::string> {
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

TEST_P(OutOfMemory, Once) { Check(false, 3); }
TEST_P(OutOfMemory, FromThenOn) { Check(true, 5); }

INSTANTIATE_TEST_SUITE_P(, OutOfMemory, ::testing::ValuesIn(OutOfMemoryScripts()),
                         [](const auto& script) {
                           std::string name = script.param;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace cairn::memory
