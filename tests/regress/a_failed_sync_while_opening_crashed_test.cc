// SPDX-License-Identifier: Apache-2.0
//
// The bug: when the directory of the log could not be synced while a store was being made, the
// process ended: the poisoned store replayed a tree that was not there yet. Method: each operation
// of the making fails in turn; opening says so, and works when it is tried again.
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(AFailedSyncWhileOpeningCrashed, OpeningFailsAndCanBeTriedAgain) {
  uint64_t failed = 0;
  for (uint64_t at = 0;; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    const io::SimWorld sim = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    sim.disk->AddFault({.when = {}, .at_index = at, .error = EIO});
    auto opened = Store::Open("/store", options);
    if (sim.disk->faults_struck() == 0) break;
    if (!opened.ok()) {
      ++failed;
      EXPECT_EQ(StatusCode::kIoError, opened.status().code()) << opened.status().ToString();
      sim.disk->ClearFaults();
      opened = Store::Open("/store", options);
    }
    ASSERT_OK(opened);
    static_cast<void>(opened->Close());
  }
  EXPECT_GT(failed, 5U);
}

}  // namespace
}  // namespace cairn::testing
