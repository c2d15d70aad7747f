// SPDX-License-Identifier: Apache-2.0
//
// The bug: the thread that seals looked whether to stop, and then took the value of the word that
// it sleeps on. A Close between the two was never noticed, and waited for ever.
// Method: stores that are closed as soon as they are open, on real threads.
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(CloseMissedTheSpaceThread, ClosingRightAway) {
  for (int i = 0; i < 500; ++i) {
    ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", TinyOptions()));
    ASSERT_OK(store.Close());
  }
}

}  // namespace
}  // namespace cairn::testing
