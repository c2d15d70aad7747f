// SPDX-License-Identifier: Apache-2.0
//
// The bug: where something may be evicted, a call that found no room waited for the background also
// while that was paused: for ever, if its caller was the one to resume it.
// Method: a store that fills up beside a paused background.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kLimitNs = 30'000'000'000;

class WaitingForRoomOutlivedAPause : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = TinyOptions();
    options.max_bytes = 4 << 20;
    options.evict = Evict::kKv;
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(branch_, store_.CreateBranch(id_));
    ASSERT_OK(store_.PauseBackground());
  }
  Status AppendSync() {
    const uint64_t length = *branch_.length();
    kv_.emplace(model_, Layout::kContiguous, length, 8);
    kv_->Write(kSeed, length, length + 8);
    return branch_.AppendSync(MakeDelta(tokens_, kv_->View(length, 8)), {.timeout_ns = kLimitNs})
        .status();
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const ModelSpec model_ = WideModel();
  const std::vector<TokenId> tokens_ = Tokens(8);
  std::optional<KvSet> kv_;
  Store store_;
  ModelId id_{};
  Branch branch_;
};

TEST_F(WaitingForRoomOutlivedAPause, WhenItBeganInThePause) {
  Status appended;
  while (appended.ok()) appended = AppendSync();
  EXPECT_FAILS(appended, StatusCode::kNoSpace, "the background is paused");
  Result<Branch> made = branch_;
  while (made.ok()) made = store_.CreateBranch(id_);
  EXPECT_FAILS(made, StatusCode::kNoSpace, "the background is paused");
  ASSERT_OK(store_.ResumeBackground());
  ASSERT_OK_ASSIGN(branch_, store_.CreateBranch(id_));
  EXPECT_OK(AppendSync());
}

TEST_F(WaitingForRoomOutlivedAPause, WhenItBeganBefore) {
  int told = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(store_.ResumeBackground());
    Status appended;
    auto thread = machine_.scheduler->StartThread("appends", [&] {
      while (appended.ok()) appended = AppendSync();
    });
    machine_.scheduler->Sleep(5'000'000 + 70'000 * i);
    ASSERT_OK(store_.PauseBackground());
    thread.reset();  // Waits for it.
    // Else the background found nothing to evict for it right before: it is the only branch.
    told += Fails(appended, StatusCode::kNoSpace, "the background is paused");
    EXPECT_FAILS(appended, StatusCode::kNoSpace);
  }
  EXPECT_GE(told, 5);
}

}  // namespace
}  // namespace cairn::testing
