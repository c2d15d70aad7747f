// SPDX-License-Identifier: Apache-2.0
//
// HINT is only a hint: a writer that cannot write it goes on, a reader that cannot believe it goes
// by the log; and a log that became shorter than what was shown is damage. Method: faults and
// flipped bits on the simulated disk.
#include "engine/follow/hint.h"

#include <cerrno>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class HintTest : public ::testing::Test {
 protected:
  HintTest() { options_.world = std::make_shared<io::World>(sim_.world()); }
  void SetUp() override {
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat_, model_, 0, 5));
    ASSERT_OK(store_.Flush());
  }
  Result<Store> Follow() {
    Options options = options_;
    options.create_if_missing = false;
    options.read_only = true;
    return Store::Open("/store", options);
  }

  io::SimWorld sim_ = io::MakeSimWorld(3);
  Options options_ = TinyOptions();
  const ModelSpec model_ = TinyModel();
  Store store_;
  Branch chat_;
};

TEST_F(HintTest, AWriterThatCannotWriteItTakesItAwayAndGoesOn) {
  ASSERT_OK_ASSIGN(Store follower, Follow());
  sim_.disk->AddFault({.when =
                           [](const io::SimOperation& operation) {
                             return operation.op == io::SimOp::kWrite &&
                                    operation.path.ends_with(engine::kHintFile);
                           },
                       .error = EIO,
                       .persistent = true});
  ASSERT_OK(AppendSome(chat_, model_, 5, 1, kSeed, Durability::kPower));
  ASSERT_OK(AppendSome(chat_, model_, 6, 1, kSeed, Durability::kProcess));
  sim_.scheduler->Sleep(50'000'000);
  ASSERT_OK(store_.poisoned());
  EXPECT_FAILS(sim_.disk->Info(std::string("/store/") + engine::kHintFile), StatusCode::kNotFound);
  ASSERT_OK(follower.Refresh());
  EXPECT_EQ(6u, *follower.FindBranch("chat")->length()) << "what the group behind it proves";
  sim_.disk->ClearFaults();
  ASSERT_OK(store_.Flush());
  ASSERT_OK(follower.Refresh());
  EXPECT_EQ(7u, *follower.FindBranch("chat")->length());
}

TEST_F(HintTest, IsNotBelievedWhenDamagedOrOfAnotherStore) {
  StoreId store;
  const std::string path = std::string("/store/") + engine::kHintFile;
  ASSERT_OK_ASSIGN(const auto bytes, sim_.disk->ReadRaw(path));
  ASSERT_EQ(io::kBlockBytes, bytes.size());
  std::copy_n(bytes.begin() + 8, store.bytes.size(), reinterpret_cast<std::byte*>(&store.bytes));
  const auto hint = engine::ReadHint(*sim_.disk, "/store", store);
  ASSERT_TRUE(hint.has_value());
  EXPECT_EQ(store_.Metrics().durable_sequence, hint->durable);
  EXPECT_EQ(1u, hint->epoch);
  EXPECT_EQ(engine::Indexing::kOff, hint->indexing);
  EXPECT_EQ(UINT64_MAX, hint->max_bytes);
  for (const uint64_t offset : {0, 8, 24, 32, 40, 48, 56, 72, 80, 88, 96}) {
    ASSERT_OK(sim_.disk->FlipBit(path, offset, 1));
    EXPECT_FALSE(engine::ReadHint(*sim_.disk, "/store", store).has_value()) << offset;
    EXPECT_OK(Follow());
    ASSERT_OK(sim_.disk->FlipBit(path, offset, 1));
  }
  reinterpret_cast<std::byte*>(&store.bytes)[0] ^= std::byte{1};
  EXPECT_FALSE(engine::ReadHint(*sim_.disk, "/store", store).has_value());
}

TEST_F(HintTest, ALogThatBecameShorterIsDamage) {
  ASSERT_OK(AppendSome(chat_, model_, 5, 1, kSeed, Durability::kPower));
  ASSERT_OK(store_.Flush());
  ASSERT_OK_ASSIGN(Store follower, Follow());
  EXPECT_EQ(6u, *follower.FindBranch("chat")->length());
  // The last group's header, found from behind.
  ASSERT_OK_ASSIGN(const auto names, sim_.disk->List("/store/log"));
  ASSERT_OK_ASSIGN(const auto bytes, sim_.disk->ReadRaw("/store/log/" + names.front()));
  uint64_t last = 0;
  for (uint64_t at = 0; at < bytes.size(); at += io::kBlockBytes) {
    if (bytes[at] != std::byte{0}) last = at;
  }
  ASSERT_GT(last, 0u);
  ASSERT_OK(sim_.disk->FlipBit("/store/log/" + names.front(), last + 3, 2));
  ASSERT_OK(sim_.disk->Remove(std::string("/store/") + engine::kHintFile));
  EXPECT_FAILS(follower.Refresh(), StatusCode::kCorruption);
  EXPECT_EQ(6u, *follower.FindBranch("chat")->length()) << "what was shown stays";
}

}  // namespace
}  // namespace cairn::testing
