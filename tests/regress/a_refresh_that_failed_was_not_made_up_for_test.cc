// SPDX-License-Identifier: Apache-2.0
//
// The bug: a refresh that failed after its look at the hint, since a segment's length could not be
// read, remembered the hint. The next one took that for a sign that nothing was new, and showed
// what was old until the writer wrote again. Method: a refresh whose n-th disk operation fails, for
// every n, and another one.
#include "tests/engine/engine_test.h"
#include "tests/support/strike.h"

namespace cairn::testing {
namespace {

TEST(ARefreshThatFailed, IsMadeUpForByTheNext) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec model = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK(AppendSome(chat, model, 0, 1));
  ASSERT_OK(store.Flush());
  Options reading = options;
  reading.read_only = true;
  reading.create_if_missing = false;
  ASSERT_OK_ASSIGN(Store follower, Store::Open("/store", reading));
  uint64_t failed = 0, length = 1;
  bool met = true;
  for (uint64_t n = 0; met; ++n) {
    SCOPED_TRACE("operation " + std::to_string(n));
    ASSERT_OK(AppendSome(chat, model, length, 1));
    ++length;
    ASSERT_OK(store.Flush());
    machine.scheduler->Sleep(1'000'000'000);  // The hint is written, too.
    Status refreshed;
    {
      const Strike strike(*machine.disk, n);
      refreshed = follower.Refresh().status();
      met = strike.met();
    }
    failed += refreshed.ok() ? 0 : 1;
    ASSERT_OK(follower.Refresh());
    ASSERT_OK_ASSIGN(const Branch seen, follower.FindBranch("chat"));
    EXPECT_EQ(length, *seen.length()) << refreshed.ToString();
  }
  EXPECT_GT(failed, 5u);
}

}  // namespace
}  // namespace cairn::testing
