// SPDX-License-Identifier: Apache-2.0
//
// Property and method of out_of_memory_test.cc, for every N.
#include "tests/memory/out_of_memory_fixture.h"

namespace cairn::memory {
namespace {

using OutOfMemorySlow = OutOfMemoryTest;

TEST_P(OutOfMemorySlow, Once) { Check(false, 1); }
TEST_P(OutOfMemorySlow, FromThenOn) { Check(true, 1); }

INSTANTIATE_TEST_SUITE_P(, OutOfMemorySlow, ::testing::ValuesIn(OutOfMemoryScripts()),
                         NameOfScript);

}  // namespace
}  // namespace cairn::memory
