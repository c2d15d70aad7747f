// SPDX-License-Identifier: Apache-2.0
//
// Property: each call takes a slot from one state to the next as cairn/kv_slots.h says, and what
// does not fit is refused by its code and changes nothing. Method: each transition once; calls in
// every state that they are not made for. kv_slots_order_test.cc explores orders.
#include "cairn/kv_slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/status.h"

namespace cairn::testing {
namespace {

class KvSlotsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_ASSIGN(slots_, MakeSlots()); }
  Result<std::optional<KvSlots>> MakeSlots() {
    auto made = KvSlots::Make(area_, 100, 2);
    if (!made.ok()) return made.status();
    return std::optional<KvSlots>(*made);
  }
  SlotUse Filled() {
    const auto use = slots_->BeginSave();
    EXPECT_OK(use);
    EXPECT_OK(slots_->Report(*use, 0, true));
    EXPECT_OK(slots_->Report(*use, 1, true));
    return *use;
  }
  void ExpectState(const SlotUse& use, SlotState state) {
    const auto is = slots_->StateOf(use);
    ASSERT_OK(is);
    EXPECT_EQ(*is, state) << SlotStateName(*is);
  }

  std::vector<std::byte> area_{300};  // Two slots of 128, and some bytes.
  std::optional<KvSlots> slots_;
};

TEST_F(KvSlotsTest, ASaveGoesThroughItsStates) {
  EXPECT_EQ(slots_->slots(), 2U);
  EXPECT_EQ(slots_->ranks(), 2U);
  EXPECT_EQ(slots_->slot_bytes(), 128U);
  ASSERT_OK_ASSIGN(const SlotUse use, slots_->BeginSave());
  ExpectState(use, SlotState::kFilling);
  ASSERT_OK_ASSIGN(const auto bytes, slots_->BytesOf(use));
  EXPECT_EQ(bytes.data(), area_.data() + use.slot * 128);
  EXPECT_EQ(bytes.size(), 128U);
  ASSERT_OK_ASSIGN(SlotNews news, slots_->Report(use, 1, true));
  EXPECT_FALSE(news.all_reported || news.all_copied);
  EXPECT_EQ(*slots_->MissingReports(use), 1U);
  ASSERT_OK_ASSIGN(news, slots_->Report(use, 0, true));
  EXPECT_TRUE(news.all_reported && news.all_copied);
  EXPECT_EQ(news.state, SlotState::kFilled);
  ASSERT_OK(slots_->BeginAppend(use));
  ExpectState(use, SlotState::kAppending);
  ASSERT_OK(slots_->EndAppend(use));
  EXPECT_FAILS(slots_->StateOf(use), StatusCode::kStale);
  EXPECT_EQ(slots_->Counts().free, 2U);
}

TEST_F(KvSlotsTest, ALoadGoesThroughItsStates) {
  ASSERT_OK_ASSIGN(const SlotUse use, slots_->BeginLoad());
  ExpectState(use, SlotState::kRestoring);
  EXPECT_FAILS(slots_->Report(use, 0, true), StatusCode::kInvalidState, "no report");
  ASSERT_OK_ASSIGN(const bool tell, slots_->EndRestore(use, true));
  EXPECT_TRUE(tell);
  ExpectState(use, SlotState::kEmptying);
  ASSERT_OK(slots_->Report(use, 0, true));
  ASSERT_OK_ASSIGN(const SlotNews news, slots_->Report(use, 1, true));
  EXPECT_EQ(news.state, SlotState::kFree);
  EXPECT_TRUE(news.all_copied);
  ASSERT_OK_ASSIGN(const SlotUse failed, slots_->BeginLoad());
  ASSERT_OK_ASSIGN(const bool tell_failed, slots_->EndRestore(failed, false));
  EXPECT_FALSE(tell_failed);
  EXPECT_EQ(slots_->Counts().free, 2U);
  EXPECT_EQ(slots_->Counts().failed, 1U);
}

TEST_F(KvSlotsTest, ARankThatFailsOrIsGoneFillsNothing) {
  ASSERT_OK_ASSIGN(const SlotUse failed, slots_->BeginSave());
  ASSERT_OK(slots_->Report(failed, 0, false));
  ASSERT_OK_ASSIGN(const SlotNews news, slots_->Report(failed, 1, true));
  EXPECT_TRUE(news.all_reported);
  EXPECT_FALSE(news.all_copied);
  EXPECT_EQ(news.state, SlotState::kFree);
  ASSERT_OK_ASSIGN(const SlotUse use, slots_->BeginSave());
  ASSERT_OK(slots_->Report(use, 0, true));
  ASSERT_OK(slots_->RankGone(1));
  EXPECT_FAILS(slots_->StateOf(use), StatusCode::kStale);
  EXPECT_FAILS(slots_->BeginSave(), StatusCode::kBusy, "1 of 2 ranks are gone");
  EXPECT_FAILS(slots_->BeginLoad(), StatusCode::kBusy, "gone");
  EXPECT_FAILS(slots_->RankGone(1), StatusCode::kConflict, "gone already");
  ASSERT_OK(slots_->RankCame(1));
  EXPECT_FAILS(slots_->RankCame(1), StatusCode::kConflict, "not gone");
  EXPECT_OK(slots_->BeginSave());
  EXPECT_EQ(slots_->Counts().failed, 2U);
}

TEST_F(KvSlotsTest, ARestoreThatEndsWhileARankIsGoneTellsNobody) {
  ASSERT_OK_ASSIGN(const SlotUse use, slots_->BeginLoad());
  ASSERT_OK(slots_->RankGone(0));
  ASSERT_OK_ASSIGN(const bool tell, slots_->EndRestore(use, true));
  EXPECT_FALSE(tell);
  EXPECT_EQ(slots_->Counts().free, 2U);
}

TEST_F(KvSlotsTest, AUseThatIsLeftKeepsItsSlotWhileItMayBeTouched) {
  ASSERT_OK_ASSIGN(const SlotUse save, slots_->BeginSave());
  ASSERT_OK_ASSIGN(const SlotUse load, slots_->BeginLoad());
  for (const SlotUse& use : {save, load}) {
    ASSERT_OK_ASSIGN(const SlotState state, slots_->Leave(use));
    EXPECT_EQ(state, SlotState::kLeft);
    ASSERT_OK_ASSIGN(const SlotState again, slots_->Leave(use));
    EXPECT_EQ(again, SlotState::kLeft);
  }
  EXPECT_FAILS(slots_->BeginSave(), StatusCode::kBusy, "none of 2 is free");
  EXPECT_EQ(slots_->Counts().left, 2U);
  EXPECT_FAILS(slots_->Report(load, 0, true), StatusCode::kInvalidState);
  EXPECT_FAILS(slots_->EndRestore(save, true), StatusCode::kInvalidState);
  ASSERT_OK_ASSIGN(const bool tell, slots_->EndRestore(load, true));
  EXPECT_FALSE(tell);
  ASSERT_OK(slots_->Report(save, 0, true));
  ASSERT_OK_ASSIGN(const SlotNews news, slots_->Report(save, 1, true));
  EXPECT_EQ(news.state, SlotState::kFree);
  EXPECT_TRUE(news.all_reported);
  EXPECT_FALSE(news.all_copied) << "nobody may append it";
  ASSERT_OK_ASSIGN(const SlotUse emptied, slots_->BeginLoad());
  ASSERT_OK(slots_->EndRestore(emptied, true));
  ASSERT_OK_ASSIGN(const SlotState left, slots_->Leave(emptied));
  EXPECT_EQ(left, SlotState::kLeft);
  EXPECT_EQ(slots_->Counts().refused, 1U);
}

TEST_F(KvSlotsTest, AFilledOneIsFreeAtOnceAndAnAppendGoesOn) {
  const SlotUse filled = Filled();
  ASSERT_OK_ASSIGN(SlotState state, slots_->Leave(filled));
  EXPECT_EQ(state, SlotState::kFree);
  EXPECT_FAILS(slots_->Leave(filled), StatusCode::kStale);
  const SlotUse appended = Filled();
  ASSERT_OK(slots_->BeginAppend(appended));
  ASSERT_OK_ASSIGN(state, slots_->Leave(appended));
  EXPECT_EQ(state, SlotState::kAppending);
  EXPECT_OK(slots_->EndAppend(appended));
}

TEST_F(KvSlotsTest, WhatDoesNotFitIsRefusedAndChangesNothing) {
  ASSERT_OK_ASSIGN(const SlotUse use, slots_->BeginSave());
  ASSERT_OK(slots_->Report(use, 0, true));
  EXPECT_FAILS(slots_->Report(use, 0, true), StatusCode::kConflict, "reported already");
  EXPECT_FAILS(slots_->Report(use, 2, true), StatusCode::kInvalidArgument, "rank 2 of 2");
  EXPECT_FAILS(slots_->Report({2, use.number}, 1, true), StatusCode::kInvalidArgument, "slot 2");
  EXPECT_FAILS(slots_->Report({use.slot, use.number + 1}, 1, true), StatusCode::kStale);
  EXPECT_FAILS(slots_->Report({use.slot, 0}, 1, true), StatusCode::kStale);
  EXPECT_FAILS(slots_->Report({1 - use.slot, use.number}, 1, true), StatusCode::kStale);
  EXPECT_EQ(slots_->Counts().strange, 6U);
  EXPECT_FAILS(slots_->BeginAppend(use), StatusCode::kInvalidState, "filling, not filled");
  EXPECT_FAILS(slots_->EndAppend(use), StatusCode::kInvalidState, "filling, not appending");
  EXPECT_FAILS(slots_->EndRestore(use, true), StatusCode::kInvalidState, "filling, not restoring");
  EXPECT_FAILS(slots_->RankGone(2), StatusCode::kInvalidArgument, "rank 2");
  EXPECT_FAILS(slots_->RankCame(2), StatusCode::kInvalidArgument, "rank 2");
  ExpectState(use, SlotState::kFilling);
  EXPECT_EQ(*slots_->MissingReports(use), 1U);
  const SlotUse none{.slot = 1 - use.slot, .number = 1};
  EXPECT_FAILS(slots_->BeginAppend(none), StatusCode::kStale);
  EXPECT_FAILS(slots_->EndAppend(none), StatusCode::kStale);
  EXPECT_FAILS(slots_->EndRestore(none, true), StatusCode::kStale);
  EXPECT_FAILS(slots_->Leave(none), StatusCode::kStale);
  EXPECT_FAILS(slots_->BytesOf(none), StatusCode::kStale);
  EXPECT_FAILS(slots_->MissingReports(none), StatusCode::kStale);
  const SlotUse filled = Filled();
  EXPECT_FAILS(slots_->Report(filled, 0, true), StatusCode::kInvalidState, "filled");
}

TEST_F(KvSlotsTest, BadSizesAreRefused) {
  EXPECT_FAILS(KvSlots::Make(area_, 0, 1), StatusCode::kInvalidArgument, "slot_bytes");
  EXPECT_FAILS(KvSlots::Make(area_, UINT64_MAX, 1), StatusCode::kInvalidArgument, "slot_bytes");
  EXPECT_FAILS(KvSlots::Make(area_, 321, 1), StatusCode::kInvalidArgument, "0 slots");
  EXPECT_FAILS(KvSlots::Make({}, 1, 1), StatusCode::kInvalidArgument, "0 slots");
  EXPECT_FAILS(KvSlots::Make(area_, 64, 0), StatusCode::kInvalidArgument, "ranks");
  EXPECT_FAILS(KvSlots::Make(area_, 64, kMaxSlotRanks + 1), StatusCode::kInvalidArgument, "ranks");
  const std::span<std::byte> endless(area_.data(), size_t{64} * (kMaxSlots + 1));
  EXPECT_FAILS(KvSlots::Make(endless, 64, 1), StatusCode::kInvalidArgument, "1048577 slots");
  EXPECT_OK(KvSlots::BytesOf(area_, 100, 1));
  EXPECT_FAILS(KvSlots::BytesOf(area_, 100, 2), StatusCode::kInvalidArgument, "slot 2");
  EXPECT_FAILS(KvSlots::BytesOf(area_, 0, 0), StatusCode::kInvalidArgument, "slot_bytes");
  EXPECT_FAILS(KvSlots::BytesOf(area_, 100, UINT32_MAX), StatusCode::kInvalidArgument);
  EXPECT_STREQ(SlotStateName(static_cast<SlotState>(99)), "unknown");
}

// A slot that was given up for another is not the one that was used before.
TEST_F(KvSlotsTest, ReportsOfAnEarlierUseOfTheSlotCountForNothing) {
  std::vector<SlotUse> uses;
  for (int i = 0; i < 5; ++i) {
    uses.push_back(Filled());
    EXPECT_OK(slots_->Leave(uses.back()));
  }
  ASSERT_OK_ASSIGN(const SlotUse now, slots_->BeginSave());
  for (const SlotUse& use : uses) {
    EXPECT_FAILS(slots_->Report({now.slot, use.number}, 0, true), StatusCode::kStale);
  }
  EXPECT_EQ(*slots_->MissingReports(now), 2U);
}

TEST_F(KvSlotsTest, ThreadsMayShareIt) {
  std::vector<std::thread> threads;
  std::atomic<uint64_t> appended{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto use = slots_->BeginSave();
        if (!use.ok()) continue;
        for (const uint32_t rank : {0U, 1U}) EXPECT_OK(slots_->Report(*use, rank, true));
        EXPECT_OK(slots_->BeginAppend(*use));
        EXPECT_OK(slots_->EndAppend(*use));
        ++appended;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(slots_->Counts().uses, appended.load());
  EXPECT_EQ(slots_->Counts().free, 2U);
}

}  // namespace
}  // namespace cairn::testing
