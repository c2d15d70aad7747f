// SPDX-License-Identifier: Apache-2.0
//
// The bug: when a spare segment could not be made the next one, the pool tried again without a
// pause, and appends that needed it waited for as long as that went on instead of failing. Method:
// renames in the log fail from the second segment on; appends end as kIoError, in little time, and
// go on when renames work again.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(ASpareThatCouldNotBeRenamedMadeAppendsWait, TheyFailAndGoOnLater) {
  const io::SimWorld sim = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(sim.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(WideModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  sim.disk->AddFault(
      {.when = [](const io::SimOperation& operation) { return operation.op == io::SimOp::kRename; },
       .error = EIO,
       .persistent = true});
  const uint64_t begin_ns = sim.scheduler->MonotonicNs();
  const uint64_t operations = sim.disk->operations();
  const std::vector<TokenId> tokens = Tokens(4);
  const auto append = [&] {
    const uint64_t length = *chat.length();
    KvSet kv(WideModel(), Layout::kContiguous, length, 4);
    return chat.AppendSync({.tokens = tokens, .kv = kv.View(length, 4)}).status();
  };
  Status refused;
  for (int i = 0; i < 40 && refused.ok(); ++i) refused = append();
  EXPECT_FAILS(refused, StatusCode::kIoError, "rename");
  sim.scheduler->Sleep(1'000'000'000);
  EXPECT_LT(sim.scheduler->MonotonicNs() - begin_ns, 5'000'000'000U);
  EXPECT_LT(sim.disk->operations() - operations, 500U);

  sim.disk->ClearFaults();
  Status appended = append();
  for (int i = 0; i < 100 && !appended.ok(); ++i) {
    sim.scheduler->Sleep(20'000'000);
    appended = append();
  }
  EXPECT_OK(appended);
}

}  // namespace
}  // namespace cairn::testing
