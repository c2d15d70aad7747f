// SPDX-License-Identifier: Apache-2.0
//
// The bug: a search that met a branch which was dropped forgot its hints, and these were written
// and named by a manifest before the drop was durable. After a power loss the branch existed again,
// its hints did not, and the answer said that it was complete.
// Method: the disk as a power loss leaves it at every write behind the drop.
#include "sim/world.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

TEST(AHintWasForgottenBeforeTheDropWasDurable, WhatIsThereAgainIsFound) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = FindingOptions();
  options.reuse_memory_bytes =
      64 << 10;  // The least: they are flushed between the steps of a tree flush.
  options.segment_bytes = 64 << 20;
  options.replay_records_max = 2050;  // A tree flush begins soon behind the last of what it has.
  options.background_bytes_per_second = 1 << 20;
  options.world = std::make_shared<io::World>(machine.world());
  constexpr uint64_t kChats = 60;
  const auto ids_of = [](uint64_t chat) { return Tokens(300, 500 + chat); };
  std::vector<std::shared_ptr<io::SimDisk>> losses;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
    std::vector<Branch> chats;
    for (uint64_t i = 0; i < kChats; ++i) {
      ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = std::to_string(i)}));
      ASSERT_OK(chat.AppendSync(MakeDelta(ids_of(i)), {.durability = Durability::kPower}));
      chats.push_back(chat);
    }
    ASSERT_OK(store.Compact());
    const std::vector<TokenId> one = Tokens(1, 5);
    for (uint64_t i = 0; i < 1000; ++i) {  // The index has two seconds to write.
      const std::string name = std::string(200, 'n') + std::to_string(i);
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, {.name = name}));
      ASSERT_OK(branch.AppendSync(MakeDelta(one)));
    }
    machine.disk->set_on_operation([&](const io::SimOperation& operation) {
      if (operation.path.find("MANIFEST") == std::string::npos) return;
      io::CrashChoice nothing_unsynced;
      nothing_unsynced.lost = 1;
      nothing_unsynced.torn = 0;
      losses.push_back(machine.disk->CrashClone(nothing_unsynced));
    });
    for (uint64_t i = 0; i < kChats; ++i) {
      if (i < 5) {
        ASSERT_OK(store.Flush());  // The tree flush's content is durable, later content is not.
      }
      ASSERT_OK(chats[i].Drop());
      EXPECT_FALSE(AskOf(store, model, ids_of(i)).found());
      for (uint64_t more = 0; more < 3; ++more) {  // The hints are full.
        const std::vector<TokenId> other = Tokens(10'000, 20 + i * 4 + more);
        ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model));
        ASSERT_OK(branch.AppendSync(MakeDelta(other)));
        AskOf(store, model, other);
      }
      machine.scheduler->Sleep(100'000'000);
    }
    machine.disk->set_on_operation({});
  }
  ASSERT_GT(losses.size(), 3u);
  uint64_t alive = 0;
  for (size_t loss = 0; loss < losses.size(); ++loss) {
    SCOPED_TRACE(loss);
    options.world = std::make_shared<io::World>(
        io::World{.files = losses[loss], .scheduler = std::make_shared<io::SimScheduler>(2)});
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
    for (uint64_t i = 0; i < kChats; ++i) {
      if (!store.FindBranch(std::to_string(i)).ok()) continue;
      ++alive;
      const PrefixHit hit = AskOf(store, model, ids_of(i));
      EXPECT_TRUE(hit.matched == 300 || !hit.complete) << "chat " << i;
    }
  }
  EXPECT_GT(alive, 0u);
}

}  // namespace
}  // namespace cairn::testing
