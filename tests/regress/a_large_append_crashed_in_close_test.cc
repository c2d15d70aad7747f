// SPDX-License-Identifier: Apache-2.0
//
// The bug: Close crashed beside an asynchronous large append: the jobs that pack it found no
// executor any more, for the store had let go of it before it had ended. Method: such an
// append on a simulated machine, and Close at many moments of it.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(ALargeAppendCrashedInClose, CloseWaits) {
  const ModelSpec model = WideModel();
  int ended = 0;
  for (uint64_t moment = 0; moment < 60; ++moment) {
    SCOPED_TRACE("moment " + std::to_string(moment));
    const io::SimWorld machine = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine.world());
    options.submit_copy_max_bytes = 4 << 10;
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    constexpr uint64_t kCount = 300;
    KvSet kv(model, Layout::kContiguous, 0, kCount);
    kv.Write(kSeed, 0, kCount);
    const std::vector<TokenId> tokens = Tokens(kCount);
    ASSERT_OK_ASSIGN(Ticket ticket, chat.Append(MakeDelta(tokens, kv.View(0, kCount))));
    machine.scheduler->Sleep(moment * 40'000);
    EXPECT_OK(store.Close());
    EXPECT_TRUE(ticket.done());
    ended += ticket.status().ok() ? 1 : 0;
    ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
    if (ticket.status().ok()) {
      EXPECT_EQ(kCount, *chat.length());
    }
    EXPECT_TRUE(HasKv(chat, model, 0, *chat.length()));
  }
  EXPECT_GT(ended, 0);
}

}  // namespace
}  // namespace cairn::testing
