// SPDX-License-Identifier: Apache-2.0
//
// Property: with GpuSync::fall_back_to_host what a device refuses or fails to unpack is unpacked on
// the host and arrives bit for bit, once; without it, with a device that goes on failing, or where
// others may have read the layer, the restore fails whole. And launches keep to processors_max.
// Method: a simulated device whose launches fail, or whose packed memory is damaged, at every
// index.
#include <algorithm>
#include <utility>

#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kSealedTokens = 100, kTokens = 140;

class GpuFallbackTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    Fill(model_, 0, 1);
    for (uint64_t at = 0; at < kSealedTokens; at += 20) AppendPacked(model_, at, 20);
    ASSERT_OK(store_.Compact());
    for (uint64_t at = kSealedTokens; at < kTokens; at += 20) AppendPacked(model_, at, 20);
    Restart({});
    KvSet set(model_, Layout::kNhd, 0, kTokens);
    RestoreRequest request;
    request.into = set.View(0, kTokens);
    ASSERT_OK(chat_.Restore(request));
    want_ = set.pool(0).memory();
  }
  void Restart(gpu::SimDeviceOptions options) {
    options.fail_at = UINT64_MAX;  // Not while the target is made.
    Start(options);
    Find();
  }

  // How a restore ends; its rows and its report are checked.
  Status Restore(bool fall_back, uint64_t fail_at, uint64_t damage_at, bool events = false) {
    DeviceKv got(*gpu_, model_, Layout::kNhd, 0, kTokens);
    const LayerEvents layer_events(device_.get(), model_.groups[0].layers);
    GpuSync sync;
    sync.fall_back_to_host = fall_back;
    if (events) sync.layer_events = layer_events.handles();
    RestoreRequest request;
    request.into = got.View(0, kTokens);
    request.gpu = &sync;
    std::vector<std::atomic<uint32_t>> words(model_.groups[0].layers);
    LayerProgress progress{words};
    device_->FailAt(fail_at == UINT64_MAX ? fail_at : device_->calls() + fail_at);
    device_->DamageAt(damage_at);
    const auto result = chat_.Restore(request, &progress);
    device_->FailAt(UINT64_MAX);
    device_->DamageAt(UINT64_MAX);
    const std::vector<std::byte> after = got.Bytes(0);
    device_->RunAll();
    EXPECT_TRUE(after == got.Bytes(0)) << "touched after the end";
    EXPECT_TRUE(!result.ok() || after == want_);
    for (const auto& word : words) {
      EXPECT_TRUE(word.load() == kLayerComplete || (!result.ok() && word.load() == kLayerFailed));
    }
    return result.status();
  }

  const ModelSpec model_ = WideModel();
  std::vector<std::byte> want_;
};

// Damage in pinned memory is not served for ever: it is reported, and the page is read from the
// disk again.
TEST_F(GpuFallbackTest, APageThatRotsInPinnedMemoryIsDropped) {
  gpu_options_.pinned_bytes = 32 << 20;
  Restart({.seed = 3});
  ASSERT_OK(Restore(false, UINT64_MAX, UINT64_MAX));
  const uint64_t pinned = store_.Metrics().pinned_bytes;
  EXPECT_GT(pinned, 0u);
  const uint64_t before = store_.Metrics().restored_pinned_frames;
  EXPECT_FAILS(Restore(false, UINT64_MAX, 0), StatusCode::kCorruption, "did not decode");
  EXPECT_GT(store_.Metrics().restored_pinned_frames + 1, before);
  EXPECT_EQ(0u, store_.Metrics().pinned_bytes) << "nothing of that memory is trusted";
  ASSERT_OK(Restore(false, UINT64_MAX, UINT64_MAX));
  EXPECT_EQ(pinned, store_.Metrics().pinned_bytes);
}

TEST_F(GpuFallbackTest, LaunchesThatAreRefused) {
  for (const bool fall_back : {false, true}) {
    uint64_t index = 0;
    for (;; ++index) {
      Restart({.seed = index + 1, .fail_kinds = gpu::kFailLaunch});
      const uint64_t calls = device_->calls();
      const Status status = Restore(fall_back, index, UINT64_MAX);
      if (device_->calls() <= calls + index) break;
      if (fall_back) {
        EXPECT_OK(status);
      } else {
        EXPECT_FAILS(status, StatusCode::kIoError, "Launch, call");
      }
    }
    EXPECT_GT(index, 4U);
  }
  // For ever: the raw window is refused as well.
  Restart({.seed = 1, .fail_kinds = gpu::kFailLaunch, .fail_on = true});
  EXPECT_FAILS(Restore(true, 2, UINT64_MAX), StatusCode::kIoError, "Launch, call");
  Restart({.seed = 1, .fail_kinds = gpu::kFailLaunch, .fail_lost = true});
  EXPECT_FAILS(Restore(true, 2, UINT64_MAX), StatusCode::kIoError, "Launch, call 2");
}

TEST_F(GpuFallbackTest, FramesThatFaultAfterARightChecksum) {
  uint64_t index = 0;
  for (;; ++index) {
    Restart({.seed = index + 1});
    const Status status = Restore(false, UINT64_MAX, index);
    if (status.ok()) break;  // No launch was the one.
    EXPECT_FAILS(status, StatusCode::kCorruption, "gpu: a frame that was verified did not decode");
    EXPECT_OK(Restore(true, UINT64_MAX, index));
    // Work that waits for a layer's event may have read the rubbish of the fault.
    EXPECT_FAILS(Restore(true, UINT64_MAX, index, /*events=*/true), StatusCode::kCorruption,
                 "gpu: a frame that was verified did not decode");
    EXPECT_OK(Restore(true, UINT64_MAX, UINT64_MAX, /*events=*/true));
  }
  EXPECT_GT(index, 4U);
}

// Writing into a table that is in use gives an error, even if the table is right again later.
TEST_F(GpuFallbackTest, ATableThatLeadsOutIsNotTriedAgain) {
  DeviceKv got(*gpu_, model_, Layout::kNhd, 0, kTokens);
  GpuSync sync;
  sync.fall_back_to_host = true;
  RestoreRequest request;
  request.into = got.View(0, kTokens, /*tables=*/true);
  request.gpu = &sync;
  const BlockTable& table = got.groups()[0].table;
  auto* const entries = static_cast<int32_t*>(const_cast<void*>(table.entries));
  const std::vector<int32_t> right(entries, entries + table.count);
  device_->OnLaunch([&, first = true](gpu::Kernel kernel) mutable {
    if (kernel != gpu::Kernel::kDecodeScatter) return;
    std::copy(right.begin(), right.end(), entries);
    if (std::exchange(first, false)) std::fill_n(entries, right.size(), INT32_MAX);
  });
  EXPECT_FAILS(chat_.Restore(request), StatusCode::kCorruption, "led out of the view");
}

// The simulated card has four processors, eight windows share them, and a warp takes a frame.
TEST_F(GpuFallbackTest, LaunchesKeepToTheProcessorsThatTheyMayHave) {
  const struct {
    uint32_t processors_max, frames;
  } cases[] = {{0, 3}, {1, 3}, {2, 6}, {4, 12}, {1000, 12}};
  for (const auto& one : cases) {
    chat_ = {};
    ASSERT_OK(store_.Close());
    device_ = gpu::MakeSimDevice(sim_.scheduler, {.seed = 5});
    gpu_.emplace(device_, GpuOptions{.ordinal = kOrdinal, .processors_max = one.processors_max});
    Options options = TinyOptions();
    options.segment_bytes = 4 << 20;
    options.world = std::make_shared<io::World>(sim_.world());
    options.gpus = {*gpu_};
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    Find();
    EXPECT_OK(Restore(false, UINT64_MAX, UINT64_MAX));
    EXPECT_EQ(device_->frames_at_once(), one.frames) << one.processors_max;
  }
}

}  // namespace
}  // namespace cairn::testing
