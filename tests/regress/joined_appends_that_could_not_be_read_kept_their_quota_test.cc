// SPDX-License-Identifier: Apache-2.0
//
// The bug: where the branch of coalesced appends could not be read any more their tickets ended,
// but the quota of its namespace went on counting their bytes until the store was opened again.
// Method: an index of more blocks than are kept, of which the branch's cannot be read.
#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "tests/support/faults.h"

namespace cairn::testing {
namespace {

TEST(JoinedAppendsThatCouldNotBeRead, GiveBackTheirQuota) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.tree_memory_bytes = 0;
  options.replay_records_max = 50;
  options.max_memory_bytes = 16 << 20;
  options.delta_batch_tokens = 8;
  options.delta_batch_wait_ns = 3'600'000'000'000;
  options.world = std::make_shared<io::World>(machine.world());
  const auto name = [](int i) { return "chat " + std::to_string(i) + std::string(200, '.'); };
  constexpr int kOthers = 6000;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(TokenModel()));
    ASSERT_OK(store.SetNamespace("t", {.max_bytes = 8, .evict = Evict::kNever}));
    ASSERT_OK(store.CreateBranch(id, {.name = "b", .ns = "t"}));
    for (int i = 0; i < kOthers; ++i) {
      ASSERT_OK(store.CreateBranch(id, {.name = name(i)}));
    }
    machine.scheduler->Sleep(2'000'000'000);  // The tree goes into the index.
  }
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(Branch branch, store.FindBranch("b", "t"));
  const std::vector<TokenId> two = Tokens(2);
  ASSERT_OK_ASSIGN(Ticket ticket, branch.Append(MakeDelta(std::span(two).first(1))));
  for (int i = 0; i < kOthers; ++i) ASSERT_OK(store.FindBranch(name(i)));
  machine.disk->AddFault(TableReadsFail());
  ASSERT_OK(store.Flush());
  ASSERT_FAILS(ticket.status(), StatusCode::kIoError);
  machine.disk->ClearFaults();
  EXPECT_OK(branch.AppendSync(MakeDelta(two)));
}

}  // namespace
}  // namespace cairn::testing
