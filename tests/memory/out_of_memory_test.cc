// SPDX-License-Identifier: Apache-2.0
//
// Property: an allocation that fails costs the call that needed it and nothing else. The call says
// so with a Status, what was acknowledged survives, in this process and after opening again, and
// the store goes on; no thread of it dies.
// Method: scripts on a store in a simulated machine of one thread, where the N-th allocation of the
// store (operator new, through which Options::allocator goes as well) fails, or the N-th and all
// behind it, for rising N (here every third or fifth) until a run meets none. The machine's own
// allocations do not fail.
#include "tests/memory/out_of_memory_fixture.h"

namespace cairn::memory {
namespace {

using OutOfMemory = OutOfMemoryTest;

TEST_P(OutOfMemory, Once) { Check(false, 3); }
TEST_P(OutOfMemory, FromThenOn) { Check(true, 5); }

INSTANTIATE_TEST_SUITE_P(, OutOfMemory, ::testing::ValuesIn(OutOfMemoryScripts()), NameOfScript);

}  // namespace
}  // namespace cairn::memory
