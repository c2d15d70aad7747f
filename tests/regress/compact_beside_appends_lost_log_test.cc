// SPDX-License-Identifier: Apache-2.0
//
// The bug: Compact listed the nodes with content in the log, sealed them, and then forgot every
// note of content in the log, also of what was appended meanwhile; the segments with that were
// given back, and the content was gone. So was content that was not noted because the newest note,
// about to be forgotten, said the same. Method: on the simulated machine, for many seeds, one
// thread appends while another compacts; everything is read back.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(CompactBesideAppends, LosesNothing) {
  const ModelSpec model = WideModel();
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const auto world = TestWorld::Make("simulated", seed);
    ASSERT_OK_ASSIGN(Store store, world->Open());
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    uint64_t length = 0;
    auto writer = world->world().scheduler->StartThread("writer", [&] {
      for (; length < 300; length += 3) ASSERT_OK(AppendSome(chat, model, length, 3));
    });
    for (int i = 0; i < 3; ++i) ASSERT_OK(store.Compact());
    writer.reset();
    ASSERT_OK(store.Compact());
    EXPECT_TRUE(HasKv(chat, model, 0, length));
  }
}

}  // namespace
}  // namespace cairn::testing
