// SPDX-License-Identifier: Apache-2.0
//
// Property: an allocation that fails costs the call that needed it and nothing else. The call says
// so with a Status, what was acknowledged is there afterwards, in this process and after opening
// again, and the store goes on; no thread of it dies.
// Method: scripts on a store in a simulated machine of one thread, where the N-th allocation of the
// store (operator new, through which Options::allocator goes as well) fails, and the N-th and all
// behind it, for rising N until a run meets none. The machine's own allocations do not fail.
#include "tests/memory/out_of_memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace cairn::memory {
namespace {

class OutOfMemory : public ::testing::TestWithParam<std::string> {
 protected:
  void Check(bool persistent) {
    const char* stride = std::getenv("OOM_STRIDE");
    const OutOfMemoryResult result =
        RunOutOfMemory({.script = GetParam(),
                        .persistent = persistent,
                        .first = stride ? 1u : 1u,
                        .stride = stride ? strtoull(stride, nullptr, 10) : 1,
                        .violations_max = 100000});
    std::printf("out of memory, %s: %s\n", GetParam().c_str(), result.ToString().c_str());
    for (const std::string& violation : result.violations) std::printf("%s\n", violation.c_str());
    EXPECT_TRUE(result.violations.empty());
    EXPECT_GT(result.runs, 0u);
    RecordProperty("runs", std::to_string(result.runs));
  }
};

TEST_P(OutOfMemory, Once) { Check(false); }
TEST_P(OutOfMemory, FromThenOn) { Check(true); }

INSTANTIATE_TEST_SUITE_P(, OutOfMemory, ::testing::ValuesIn(OutOfMemoryScripts()),
                         [](const auto& script) {
                           std::string name = script.param;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace cairn::memory
