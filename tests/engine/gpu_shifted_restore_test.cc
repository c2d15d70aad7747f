// SPDX-License-Identifier: Apache-2.0
//
// Property: a restore of several shifted sources puts into a GPU what it puts into host memory
// (tests/engine/shifted_restore_test.cc), bit for bit and not a byte beyond, wherever it is read
// from, whatever the device does first, and also where frames are unpacked on the host. Method: a
// simulated device that runs what it was given as late as it may; or the card that was named.
#include "engine/restore/plan/restore_item.h"
#include "engine/store/store_core.h"
#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

using engine::RestoreItem;
using engine::RestoreSource;

constexpr uint64_t kTokens = 300, kBase = 1000, kRoom = 290;

ModelSpec KeysModel(Dtype dtype, RotaryPairing pairing) {
  ModelSpec model;
  model.identity.name = std::string("keys ") + DtypeName(dtype) + RotaryPairingName(pairing);
  LayerGroup group = LayerGroup::FullAttention(2, 2, 40, dtype);
  group.inv_freq = RotaryFrequencies(32, 10'000.0);
  group.planes[0].rotary = {
      .state = RotaryState::kApplied, .pairing = pairing, .first = 4, .width = 32};
  model.groups = {group};
  return model;
}

class GpuShiftedRestoreTest : public GpuTest {
 protected:
  bool OnACard() const override { return CardIsNamed(); }

  std::vector<RestoreSource> Sources() const {
    return {{.branch = chat_.id(), .begin = 40, .end = 170, .shift = kBase - 40},
            {.branch = chat_.id(), .begin = 200, .end = 290, .shift = kBase + 140 - 200},
            {.branch = chat_.id(), .begin = 0, .end = 50, .shift = kBase + 230}};
  }
  RestoreItem Restore(const RestoreRequest& request) {
    RestoreItem item;
    item.sources = Sources();
    item.request = request;
    EXPECT_OK(chat_.core()->reads().RestoreMany({&item, 1}, UINT64_MAX));
    return item;
  }
  ::testing::AssertionResult IsAsOnTheHost(const ModelSpec& model, Layout layout,
                                           GpuSync sync = {}) {
    DeviceKv got(*gpu_, model, layout, kBase, kRoom);
    const RestoreItem item = Restore({.into = got.View(kBase, kRoom), .gpu = &sync});
    if (!item.status.ok()) return ::testing::AssertionFailure() << item.status.ToString();
    KvSet want(model, layout, kBase, kRoom);
    const RestoreItem host = Restore({.into = want.View(kBase, kRoom)});
    if (!host.status.ok()) return ::testing::AssertionFailure() << host.status.ToString();
    if (got.Bytes(0) != want.pool(0).memory()) {
      return ::testing::AssertionFailure() << LayoutName(layout) << ": bytes differ";
    }
    return ::testing::AssertionSuccess();
  }
};

TEST_F(GpuShiftedRestoreTest, EveryLayoutFromEverySource) {
  const ModelSpec models[] = {KeysModel(Dtype::kF32, RotaryPairing::kHalves),
                              KeysModel(Dtype::kF16, RotaryPairing::kAdjacent),
                              KeysModel(Dtype::kBf16, RotaryPairing::kHalves)};
  for (const ModelSpec& model : models) {
    SCOPED_TRACE(model.identity.name);
    Fill(model, kTokens, 100);
    EXPECT_TRUE(IsAsOnTheHost(model, Layout::kNhd)) << "hot tail";
    ASSERT_OK(store_.Flush());
    Start({.seed = 2});
    Find();
    EXPECT_TRUE(IsAsOnTheHost(model, Layout::kHnd)) << "log";
    ASSERT_OK(store_.Compact());
    Start({.seed = 3});
    Find();
    // The first comes from tables, the others from the page cache.
    for (const Layout layout : AllLayouts()) EXPECT_TRUE(IsAsOnTheHost(model, layout));
    ASSERT_OK(chat_.Drop());
  }
}

TEST_F(GpuShiftedRestoreTest, PinnedPagesAreTurnedOnTheirWay) {
  if (OnACard()) GTEST_SKIP() << "the store of a card has no pinned memory here";
  gpu_options_.pinned_bytes = 8 << 20;
  Start({.seed = 4});
  const ModelSpec model = KeysModel(Dtype::kBf16, RotaryPairing::kHalves);
  Fill(model, kTokens, 100);
  ASSERT_OK(store_.Compact());
  Start({.seed = 5});
  Find();
  const StoreMetrics before = store_.Metrics();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(IsAsOnTheHost(model, Layout::kNhd)) << i;
  EXPECT_GT(store_.Metrics().restored_pinned_bytes, before.restored_pinned_bytes);
}

// A load that ends with a fault is unpacked on the host and goes again: its rows are put in place
// once more, and turned once.
TEST_F(GpuShiftedRestoreTest, WhatGoesAgainIsTurnedOnce) {
  if (OnACard()) GTEST_SKIP() << "damages a frame on a simulated device";
  const ModelSpec model = KeysModel(Dtype::kBf16, RotaryPairing::kHalves);
  Fill(model, 0, 1);
  AppendPacked(model, 0, kTokens);
  ASSERT_OK(store_.Compact());
  Start({.seed = 6});
  Find();
  device_->DamageAt(0);
  DeviceKv got(*gpu_, model, Layout::kNhd, kBase, kRoom);
  EXPECT_FAILS(Restore({.into = got.View(kBase, kRoom)}).status, StatusCode::kCorruption,
               "did not decode");
  device_->DamageAt(0);
  EXPECT_TRUE(IsAsOnTheHost(model, Layout::kNhd, {.fall_back_to_host = true}));
}

TEST_F(GpuShiftedRestoreTest, WhateverTheDeviceDoesFirst) {
  if (OnACard()) GTEST_SKIP() << "draws the order of a simulated device";
  const ModelSpec model = KeysModel(Dtype::kF32, RotaryPairing::kAdjacent);
  Fill(model, kTokens, 100);
  ASSERT_OK(store_.Compact());
  for (uint64_t seed = 10; seed < 40; ++seed) {
    Start({.seed = seed});
    Find();
    EXPECT_TRUE(IsAsOnTheHost(model, Layout::kNhd)) << seed;
  }
}

// The memory for turns, its copy, the launches that turn.
TEST_F(GpuShiftedRestoreTest, EveryCallOfTheDeviceMayFail) {
  if (OnACard()) GTEST_SKIP() << "fails calls of a simulated device";
  const ModelSpec model = KeysModel(Dtype::kBf16, RotaryPairing::kHalves);
  Fill(model, kTokens, 100);
  uint64_t calls = 0, failed = 0;  // Calls of a restore.
  for (uint64_t call = 0; call <= calls; ++call) {
    Start({.seed = 7, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
    Find();
    DeviceKv got(*gpu_, model, Layout::kNhd, kBase, kRoom);
    const KvView* const into = got.View(kBase, kRoom);
    const uint64_t before = device_->calls();
    if (call > 0) device_->FailAt(before + call - 1);
    const RestoreItem item = Restore({.into = into});
    device_->FailAt(UINT64_MAX);
    if (call == 0) calls = device_->calls() - before;
    failed += item.status.ok() ? 0 : 1;
    EXPECT_NE(item.status.code(), StatusCode::kCorruption) << item.status.ToString();
  }
  EXPECT_GT(failed, 20u);
  EXPECT_TRUE(IsAsOnTheHost(model, Layout::kNhd));
}

}  // namespace
}  // namespace cairn::testing
