// SPDX-License-Identifier: Apache-2.0
//
// The bug: a ttl counted from the recorded use alone. A branch that was used while the clock was
// behind was dropped once it was right, and a clock that was ahead at an opening dropped at once
// what had a ttl. Now it counts from the later of use and opening. Method: a wall clock that tests
// set while the store is closed.
#include "tests/engine/engine_test.h"
#include "tests/support/wrapped_scheduler.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kHourNs = 3'600'000'000'000, kYearNs = 365 * 24 * kHourNs;

class SetClock final : public WrappedScheduler {
 public:
  using WrappedScheduler::WrappedScheduler;
  uint64_t WallNs() override { return WrappedScheduler::WallNs() + ahead_ns; }
  std::atomic<uint64_t> ahead_ns{2 * kYearNs};
};

class AClockThatWasBehind : public ::testing::Test {
 protected:
  void SetUp() override {
    Reopen(2 * kYearNs);
    for (const auto& [name, ttl_ns] : {std::pair{"hour", kHourNs}, {"two", 2 * kHourNs}}) {
      ASSERT_OK_ASSIGN(Branch branch,
                       store_.CreateBranch(model_, {.name = name, .keep = {.ttl_ns = ttl_ns}}));
      ASSERT_OK(AppendSome(branch, WideModel(), 0, 8));
    }
  }
  void Reopen(uint64_t ahead_ns) {
    ASSERT_OK(store_.Close());
    clock_->ahead_ns = ahead_ns;
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(io::World{machine_.disk, clock_});
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(WideModel()));
    ASSERT_OK(store_.Compact());
  }
  bool IsThere(const std::string& name) { return store_.FindBranch(name).ok(); }
  void Wait(uint64_t ns) { machine_.scheduler->Sleep(ns); }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const std::shared_ptr<SetClock> clock_ = std::make_shared<SetClock>(machine_.scheduler);
  ModelId model_{};
  Store store_;
};

TEST_F(AClockThatWasBehind, DropsNothingOnceItIsRight) {
  Reopen(kYearNs);
  ASSERT_OK_ASSIGN(Branch branch, store_.FindBranch("hour"));
  EXPECT_TRUE(HasKv(branch, WideModel(), 0, 8));
  Reopen(2 * kYearNs);
  EXPECT_TRUE(IsThere("hour") && IsThere("two"));
  Wait(kHourNs - 60'000'000'000);
  EXPECT_TRUE(IsThere("hour"));
  Wait(120'000'000'000);
  EXPECT_FALSE(IsThere("hour"));
  EXPECT_TRUE(IsThere("two"));
  Wait(kHourNs);
  EXPECT_FALSE(IsThere("two"));
  EXPECT_EQ(2u, store_.Metrics().expired_branches);
}

TEST_F(AClockThatWasBehind, OrIsAheadAtAnOpeningDropsNothingForOneTtl) {
  Reopen(3 * kYearNs);
  EXPECT_TRUE(IsThere("hour") && IsThere("two"));
  Reopen(2 * kYearNs);
  EXPECT_TRUE(IsThere("hour") && IsThere("two"));
  Wait(kHourNs + 60'000'000'000);
  EXPECT_FALSE(IsThere("hour"));
  EXPECT_TRUE(IsThere("two"));
}

// What stays for now is not looked at with each that expires, and a new time is not missed.
TEST_F(AClockThatWasBehind, DropsOthersInTimeMeanwhile) {
  Reopen(3 * kYearNs);
  for (const uint64_t seconds : {30, 20, 40}) {
    ASSERT_OK(store_.CreateBranch(model_, {.name = "new " + std::to_string(seconds),
                                           .keep = {.ttl_ns = seconds * 1'000'000'000}}));
  }
  Wait(25'000'000'000);
  EXPECT_FALSE(IsThere("new 20"));
  EXPECT_TRUE(IsThere("new 30"));
  ASSERT_OK_ASSIGN(Branch two, store_.FindBranch("two"));
  ASSERT_OK(two.SetKeep({.ttl_ns = 60'000'000'000}));
  Wait(20'000'000'000);
  EXPECT_FALSE(IsThere("new 30") || IsThere("new 40"));
  EXPECT_TRUE(IsThere("hour") && IsThere("two"));
  Wait(60'000'000'000);
  EXPECT_FALSE(IsThere("two"));
  EXPECT_TRUE(IsThere("hour"));
}

}  // namespace
}  // namespace cairn::testing
