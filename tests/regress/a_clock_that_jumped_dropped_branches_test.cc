// SPDX-License-Identifier: Apache-2.0
//
// The bug: expiry and the order of eviction went by the wall clock as it was at each moment. A
// clock that jumped ahead dropped what had a TTL; and what was used meanwhile stayed the newest,
// the last to go, until the clock came there again. Now time goes on from the opening by the
// monotonic clock, and a use that is recorded for later counts as one at the opening. Method: a
// wall clock that tests set, before and while a store is open.
#include "tests/engine/engine_test.h"
#include "tests/support/wrapped_scheduler.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kHourNs = 3'600'000'000'000, kYearNs = 365 * 24 * kHourNs;

class SetClock final : public WrappedScheduler {
 public:
  using WrappedScheduler::WrappedScheduler;
  uint64_t WallNs() override { return WrappedScheduler::WallNs() + ahead_ns; }
  std::atomic<uint64_t> ahead_ns{0};
};

class AClockThatJumped : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    ASSERT_OK(store_.Close());
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(io::World{memory_.files, clock_});
    ASSERT_OK_ASSIGN(store_, Store::Open(path_, options));
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(WideModel()));
  }
  Branch Make(const std::string& name, Keep keep = {}) {
    auto branch = store_.CreateBranch(model_, {.name = name, .ns = "t", .keep = keep});
    EXPECT_OK(branch);
    EXPECT_OK(AppendSome(*branch, WideModel(), 0, 8));
    return *branch;
  }
  bool IsThere(const std::string& name) { return store_.FindBranch(name, "t").ok(); }
  bool IsWhole(const std::string& name) {
    return store_.FindBranch(name, "t")->EvictedKv()->empty();
  }

  const io::World memory_ = io::MakeMemoryWorld();
  const std::shared_ptr<SetClock> clock_ = std::make_shared<SetClock>(memory_.scheduler);
  std::string path_ = "/store";
  ModelId model_{};
  Store store_;
};

TEST_F(AClockThatJumped, ExpiresNothing) {
  Make("chat", {.ttl_ns = kHourNs});
  clock_->ahead_ns = kYearNs;
  ASSERT_OK(store_.Compact());
  EXPECT_TRUE(IsThere("chat"));
  // A branch made now has the same hour.
  Make("later", {.ttl_ns = kHourNs});
  clock_->ahead_ns = 0;
  Reopen();
  ASSERT_OK(store_.Compact());
  EXPECT_TRUE(IsThere("chat") && IsThere("later"));
  clock_->ahead_ns = 2 * kHourNs;
  Reopen();
  ASSERT_OK(store_.Compact());
  EXPECT_TRUE(IsThere("chat") && IsThere("later")) << "an opening is a use";
}

// Branches are 64 KiB of KV each. Two leave more than an eighth of the cap, where eviction begins
// unasked; three are beyond the cap.
void KeepTwo(Store& store) {
  ASSERT_OK(store.SetNamespace("t", {.max_bytes = 160 << 10, .evict = Evict::kKv}));
}

TEST_F(AClockThatJumped, LeavesNoBranchTheNewest) {
  ASSERT_NO_FATAL_FAILURE(KeepTwo(store_));
  clock_->ahead_ns = kYearNs;
  Make("ahead");
  clock_->ahead_ns = 0;
  Make("second");
  Make("third");
  EXPECT_FALSE(IsWhole("ahead"));
  EXPECT_TRUE(IsWhole("second") && IsWhole("third"));
}

// With the clock wrong when the store was opened, and right again: in the log, and in the index.
TEST_F(AClockThatJumped, LeavesNoBranchTheNewestOverAnOpening) {
  for (const bool indexed : {false, true}) {
    const std::string name = indexed ? "indexed" : "logged";
    path_ = "/" + name;
    clock_->ahead_ns = kYearNs;
    Reopen();
    ASSERT_NO_FATAL_FAILURE(KeepTwo(store_));
    Make(name);
    Make(name + " with a time", {.ttl_ns = kHourNs});
    if (indexed) {
      ASSERT_OK(store_.Compact());
    }
    clock_->ahead_ns = 0;
    Reopen();
    ASSERT_OK(store_.Compact());
    EXPECT_LT(store_.FindBranch(name, "t")->Info()->used_at_ns, clock_->WallNs());
    Make(name + " second");
    EXPECT_FALSE(IsWhole(name));
    EXPECT_TRUE(IsWhole(name + " second"));
    Make(name + " third");
    EXPECT_TRUE(IsWhole(name + " second") && IsWhole(name + " third"));
  }
}

}  // namespace
}  // namespace cairn::testing
