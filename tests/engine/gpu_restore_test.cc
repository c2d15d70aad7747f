// SPDX-License-Identifier: Apache-2.0
//
// Property: a restore into a GPU puts there what one into host memory puts there, bit for bit and
// not a byte beyond, wherever it is read from; what cannot be meant is refused by name, and nothing
// is written then. Method: a simulated device that runs what it was given as late as it may; or the
// card that was named (tests/gpu/card.h).
#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

class GpuRestoreTest : public GpuTest {
 protected:
  bool OnACard() const override { return CardIsNamed(); }
};

TEST_F(GpuRestoreTest, EveryLayoutFromEverySource) {
  const ModelSpec model = HybridModel();
  constexpr uint64_t kTokens = 150;
  Fill(model, kTokens, 40);
  const auto all = [&](const char* source) {
    for (const Layout layout : AllLayouts()) {
      EXPECT_TRUE(Restores(model, layout, 0, kTokens)) << source;
    }
    EXPECT_TRUE(Restores(model, Layout::kNhd, 37, 131)) << source;
  };
  all("hot tail");
  ASSERT_OK(store_.Flush());
  Start({.seed = 2});
  Find();
  all("log");
  ASSERT_OK(store_.Compact());
  all("tables");
  EXPECT_TRUE(HasKv(chat_, model, 0, kTokens));  // Into the page cache.
  EXPECT_TRUE(HasKv(chat_, model, 0, kTokens));
  all("page cache");
  EXPECT_TRUE(AppendSome(chat_, model, kTokens, 20).ok());
  EXPECT_TRUE(Restores(model, Layout::kHnd, 0, kTokens + 20)) << "all of these";
}

// Frames of several heads, of parts of a head, and of a few positions.
TEST_F(GpuRestoreTest, PackedRecordsAreUnpackedOnTheDevice) {
  if (BestCodecPath() == CodecPath::kScalar) GTEST_SKIP() << "this processor packs slowly";
  seed_ = kSeed | kPackable;
  ModelSpec heads = WideModel("heads"), one = WideModel("one");
  heads.groups = {LayerGroup::FullAttention(2, 6, 128, Dtype::kF16)};
  one.groups = {LayerGroup::Mla(2, 512, 64, Dtype::kBf16)};
  for (const ModelSpec& model : {heads, one}) {
    constexpr uint64_t kTokens = 150;
    Fill(model, kTokens, 110);
    for (const char* source : {"hot tail", "log"}) {
      SCOPED_TRACE(model.identity.name + std::string(", ") + source);
      for (const Layout layout : AllLayouts()) EXPECT_TRUE(Restores(model, layout, 0, kTokens));
      EXPECT_TRUE(Restores(model, Layout::kNhd, 37, 131));
      EXPECT_TRUE(Restores(model, Layout::kHnd, 107, 113)) << "three of each";
      Start({.seed = 2});
      Find();
    }
    ASSERT_OK(chat_.Drop());
  }
}

TEST_F(GpuRestoreTest, LargeFragmentsComeLayerByLayer) {
  const ModelSpec model = WideModel();
  constexpr uint64_t kTokens = 400;  // 3 MiB.
  Fill(model, kTokens, 100);
  ASSERT_OK(store_.Compact());
  Start({.seed = 3});
  Find();
  DeviceKv got(*gpu_, model, Layout::kNhd, 0, kTokens);
  std::vector<std::atomic<uint32_t>> words(model.groups[0].layers);
  LayerProgress progress{words};
  RestoreRequest request;
  request.into = got.View(0, kTokens);
  ASSERT_OK(chat_.Restore(request, &progress));
  EXPECT_TRUE(got.Holds(Layout::kNhd, 0, kTokens, 0, kTokens));
  for (const auto& word : words) EXPECT_EQ(kLayerComplete, word.load());
}

TEST_F(GpuRestoreTest, TablesOnTheDeviceAreCheckedBeforeAnythingIsWritten) {
  const ModelSpec model = TinyModel();
  Fill(model, 30, 30);
  for (const Layout layout : {Layout::kNhd, Layout::kHnd, Layout::kFused}) {
    EXPECT_TRUE(Restores(model, layout, 0, 30, /*tables=*/true));
    EXPECT_TRUE(Restores(model, layout, 5, 30, /*tables=*/true));
    DeviceKv got(*gpu_, model, layout, 0, 30);
    RestoreRequest request;
    request.into = got.View(0, 30, /*tables=*/true);
    GroupView& group = got.groups()[0];
    const auto put = [&](uint64_t index, int32_t entry) {
      const int64_t wide = entry;
      const uint64_t bytes = group.table.is_64_bit ? 8 : 4;
      auto* const at = static_cast<std::byte*>(const_cast<void*>(group.table.entries));
      ASSERT_OK(gpu_->CopyIn(at + index * bytes, reinterpret_cast<const std::byte*>(&wide), bytes));
    };
    put(4, 1000);
    EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "table entry 4");
    put(4, -1);
    EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "table entry 4");
    put(4, 2);
    put(5, 2);
    EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "names entry 2 twice");
    EXPECT_TRUE(got.Holds(layout, 0, 30, 0, 0)) << "untouched";
    group.blocks = 0;
    EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "blocks is 0");
  }
}

TEST_F(GpuRestoreTest, AGroupInTwoViews) {
  const ModelSpec model = TinyModel();
  Fill(model, 30, 30);
  for (const char* where : {"log", "tables"}) {
    SCOPED_TRACE(where);
    for (const bool tables : {false, true}) {
      DeviceKv got(*gpu_, model, Layout::kNhd, 0, 30);
      got.View(0, 7, tables);
      std::vector<std::atomic<uint32_t>> words(2 * model.groups[0].layers);
      LayerProgress progress{words};
      RestoreRequest request;
      request.into = got.View(9, 21, tables);
      ASSERT_EQ(2 * model.groups.size(), request.into->groups.size());
      ASSERT_OK(chat_.Restore(request, &progress));
      DeviceKv want(*gpu_, model, Layout::kNhd, 0, 30);
      want.Write(kSeed, 0, 7);
      want.Write(kSeed, 9, 30);
      for (uint32_t i = 0; i < model.groups.size(); ++i) EXPECT_EQ(want.Bytes(i), got.Bytes(i));
      for (const auto& word : words) EXPECT_EQ(kLayerComplete, word.load());
    }
    ASSERT_OK(store_.Compact());
  }
}

TEST_F(GpuRestoreTest, BadInputIsRefusedByName) {
  const ModelSpec model = TinyModel();
  Fill(model, 10, 10);
  DeviceKv got(*gpu_, model, Layout::kNhd, 0, 10);
  KvView view = *got.View(0, 10);
  RestoreRequest request;
  request.into = &view;
  view.device = 1;
  EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "device is 1");
  view.device = kOrdinal;
  GpuSync sync;
  request.gpu = &sync;
  const std::vector<uintptr_t> events(5);
  sync.layer_events = events;
  EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "5 layer_events");
  sync = {};
  if (!OnACard()) {  // CUDA takes any handle for granted.
    const auto other = gpu::MakeSimDevice(sim_.scheduler, {});
    ASSERT_OK_ASSIGN(const gpu::Event foreign, other->NewEvent());
    sync.ready = gpu::SimDevice::HandleOf(foreign);
    EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "of another device");
  }
  EXPECT_TRUE(got.Holds(Layout::kNhd, 0, 10, 0, 0)) << "untouched";
  KvSet host(model, Layout::kNhd, 0, 10);
  request.into = host.View(0, 10);
  EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "the view is of host memory");
  EXPECT_FAILS(Gpu::Open({.ordinal = 77}), StatusCode::kNotFound, "");
}

// A group without positions, or without a table, has none on the device either, whatever it says.
TEST_F(GpuRestoreTest, WhatNoTableIsNeededForIsNotLookedAt) {
  const ModelSpec model = TinyModel();
  Fill(model, 20, 20);
  DeviceKv got(*gpu_, model, Layout::kContiguous, 0, 20);
  RestoreRequest request;
  request.into = got.View(0, 20);
  GroupView& group = got.groups()[0];
  group.table.on_device = true;
  for (const uint64_t blocks : {0, 1'000'000}) {
    group.blocks = blocks;
    ASSERT_OK(chat_.Restore(request));
    EXPECT_TRUE(got.Holds(Layout::kContiguous, 0, 20, 0, 20));
  }
  DeviceKv none(*gpu_, model, Layout::kNhd, 0, 20);
  request.into = none.View(0, 20, /*tables=*/true);
  none.groups()[0].count = 0;
  none.groups()[0].blocks = 0;
  ASSERT_OK(chat_.Restore(request));
  EXPECT_TRUE(none.Holds(Layout::kNhd, 0, 20, 0, 0)) << "untouched";
}

}  // namespace
}  // namespace cairn::testing
