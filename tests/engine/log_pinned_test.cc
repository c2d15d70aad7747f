// SPDX-License-Identifier: Apache-2.0
//
// Property: what keeps the log's oldest segment from being given back is named: by the metrics, and
// by Compact, which waits a little for it and then is kBusy; when it ends, all goes on.
#include "engine/store/store_core.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class LogPinnedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(branch_, store_.CreateBranch(id));
    Fill();
  }
  // Some segments of the log.
  void Fill() {
    for (int i = 0; i < 20; ++i, length_ += 8) {
      ASSERT_OK(AppendSome(branch_, model_, length_, 8));
    }
  }
  std::unique_ptr<engine::Pins::Pin> Pin(engine::Pins::Holder holder, uint64_t segment) {
    return store_.core()->reader().pins().TakeFrom(holder, segment);
  }

  const ModelSpec model_ = WideModel();
  const io::SimWorld machine_ = io::MakeSimWorld(1);
  Store store_;
  Branch branch_;
  uint64_t length_ = 0;
};

TEST_F(LogPinnedTest, IsNamedByMetricsAndCompact) {
  EXPECT_EQ(0u, store_.Metrics().log_pinned_by);
  auto pin = Pin({engine::Pins::Of::kBranch, 17}, 1);
  machine_.scheduler->Sleep(5'000'000'000);
  StoreMetrics metrics = store_.Metrics();
  EXPECT_GE(metrics.log_pinned_ns, 5'000'000'000u);
  EXPECT_EQ(1u, metrics.log_pinned_segment);
  EXPECT_EQ(1u, metrics.log_pinned_by);
  EXPECT_EQ(17u, metrics.log_pinned_id);
  const uint64_t segments = metrics.log_segments;
  EXPECT_GT(segments, 3u);
  EXPECT_FAILS(store_.Compact(), StatusCode::kBusy, "a read of branch 17");
  EXPECT_EQ(0u, store_.Metrics().retired_segments);
  machine_.scheduler->Sleep(60'000'000'000);
  const Health health = store_.Health();
  ASSERT_EQ(1u, health.alarms.size());
  EXPECT_EQ("log_pinned", health.alarms[0].name);
  EXPECT_NE(std::string::npos, health.alarms[0].message.find("a read of branch 17 has needed"));
  pin.reset();
  EXPECT_TRUE(store_.Health().ok);
  ASSERT_OK(store_.Compact());
  metrics = store_.Metrics();
  EXPECT_EQ(0u, metrics.log_pinned_ns);
  EXPECT_LT(metrics.log_segments, segments);
}

// One that ends soon is waited for.
TEST_F(LogPinnedTest, IsWaitedForAShortTime) {
  auto pin = Pin({engine::Pins::Of::kNode, 5}, 1);
  const auto thread = machine_.scheduler->StartThread("reader", [&] {
    machine_.scheduler->Sleep(500'000'000);
    pin.reset();
  });
  ASSERT_OK(store_.Compact());
  EXPECT_GT(store_.Metrics().retired_segments, 2u);
}

// What needs only newer segments is none.
TEST_F(LogPinnedTest, IsNotByWhatNeedsTheNewest) {
  const uint64_t newest = store_.core()->space().newest_segment();
  const auto pin = Pin({engine::Pins::Of::kParts}, newest);
  ASSERT_OK(store_.Compact());
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_GT(metrics.retired_segments, 2u);
}

}  // namespace
}  // namespace cairn::testing
