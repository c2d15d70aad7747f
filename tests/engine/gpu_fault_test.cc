// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever a device does, and however a restore into it ends, nothing is told complete
// that is not there, nothing is touched once the call returned, and the store goes on. Method: any
// call of a simulated device fails, once or for ever, or the device is lost there; cancels.
#include <cstring>

#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

class GpuEndTest : public GpuTest {};

// A table may be overwritten after it was checked. The kernel writes nowhere else, and tells.
TEST_F(GpuEndTest, ATableThatLeadsOutAfterItsCheckIsTold) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kTokens = 40;
  Fill(model, kTokens, 40);
  DeviceKv got(*gpu_, model, Layout::kNhd, 0, kTokens);
  RestoreRequest request;
  request.into = got.View(0, kTokens, /*tables=*/true);
  const GroupView& group = got.groups()[0];
  auto* const table = static_cast<std::byte*>(const_cast<void*>(group.table.entries));
  std::vector<std::atomic<uint32_t>> words(model.groups[0].layers);
  LayerProgress progress{words};
  device_->OnLaunch([&](gpu::Kernel kernel) {
    if (kernel == gpu::Kernel::kDecodeScatter) std::memset(table, 0x7f, sizeof(int32_t));
  });
  EXPECT_FAILS(chat_.Restore(request, &progress), StatusCode::kCorruption, "led out of the view");
  for (const auto& word : words) EXPECT_EQ(kLayerFailed, word.load());
}

// However a restore ends, early, late or in the middle: what is told is there, and nothing is
// touched afterwards. Windows of large fragments are read over while earlier ones are copied.
TEST_F(GpuEndTest, CancelledAnywhereNothingIsTouchedAfterwards) {
  const ModelSpec model = WideModel();
  constexpr uint64_t kTokens = 3000;  // 24 MiB: more windows than there are buffers.
  Fill(model, kTokens, 500);
  ASSERT_OK(store_.Compact());
  int cancelled = 0, whole = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Start({.seed = seed});
    Find();
    DeviceKv got(*gpu_, model, Layout::kContiguous, 0, kTokens);
    std::vector<std::atomic<uint32_t>> words(model.groups[0].layers);
    LayerProgress progress{words};
    RestoreRequest request;
    request.into = got.View(0, kTokens);
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request, &progress));
    if (seed % 4 != 0) {
      sim_.scheduler->Sleep(seed * 150'000);
      (void)ticket.Cancel();
    }
    const Status status = ticket.Wait();
    const std::vector<std::byte> after = got.Bytes(0);
    device_->RunAll();
    EXPECT_TRUE(after == got.Bytes(0)) << "seed " << seed << ": touched after the end";
    if (status.ok()) {
      ++whole;
      EXPECT_TRUE(got.Holds(Layout::kContiguous, 0, kTokens, 0, kTokens)) << "seed " << seed;
    } else {
      ++cancelled;
      EXPECT_EQ(StatusCode::kCancelled, status.code()) << status.ToString();
    }
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(whole, 0);
}

struct Fault {
  uint32_t kinds;
  bool on, lost;
};

class GpuFaultTest : public GpuTest, public ::testing::WithParamInterface<Fault> {};

// Any call of the device fails, wherever: the restore says so or is right; a layer that was told
// complete is there; and what the device still does afterwards does not reach the target.
TEST_P(GpuFaultTest, AtEveryIndex) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kTokens = 40;
  Fill(model, 24, 24);
  ASSERT_OK(store_.Compact());
  for (uint64_t at = 24; at < kTokens; at += 8) ASSERT_OK(AppendSome(chat_, model, at, 8));
  uint64_t failed = 0;
  for (uint64_t index = 0;; ++index) {
    gpu::HostDeviceOptions options{.seed = index + 1};
    options.fail_kinds = GetParam().kinds;
    options.fail_on = GetParam().on;
    options.fail_lost = GetParam().lost;
    options.fail_at = UINT64_MAX;  // Not while the target is made.
    Start(options);
    Find();
    DeviceKv got(*gpu_, model, Layout::kNhd, 0, kTokens);
    RestoreRequest request;
    request.into = got.View(0, kTokens);
    const uint64_t calls = device_->calls();
    device_->FailAt(calls + index);
    std::vector<std::atomic<uint32_t>> words(model.groups[0].layers);
    LayerProgress progress{words};
    const auto result = chat_.Restore(request, &progress);
    const bool struck = device_->calls() > calls + index;
    device_->FailAt(UINT64_MAX);
    if (result.ok()) {
      EXPECT_TRUE(got.Holds(Layout::kNhd, 0, kTokens, 0, kTokens)) << index;
    } else {
      ++failed;
      const StatusCode code = result.status().code();
      EXPECT_TRUE(code == StatusCode::kIoError || code == StatusCode::kOutOfMemory)
          << index << ": " << result.status().ToString();
    }
    const std::vector<std::byte> after = got.Bytes(0);
    device_->RunAll();
    EXPECT_EQ(after, got.Bytes(0)) << index << ": touched after the end";
    for (const auto& word : words) {
      EXPECT_EQ(result.ok() ? kLayerComplete : word.load(), word.load());
      EXPECT_TRUE(word.load() == kLayerComplete || word.load() == kLayerFailed);
    }
    EXPECT_TRUE(HasKv(chat_, model, 0, kTokens)) << "the store goes on";
    if (!struck) break;
    ASSERT_LT(index, 1000U);
  }
  // A question that fails once is asked again.
  EXPECT_EQ(GetParam().kinds != gpu::kFailQuery, failed > 0);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, GpuFaultTest,
    ::testing::Values(Fault{gpu::kFailAllocate, false, false}, Fault{gpu::kFailCopy, false, false},
                      Fault{gpu::kFailLaunch, true, false}, Fault{gpu::kFailEvent, false, false},
                      Fault{gpu::kFailQuery, false, false}, Fault{gpu::kFailAny, false, true}));

}  // namespace
}  // namespace cairn::testing
