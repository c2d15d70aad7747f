// SPDX-License-Identifier: Apache-2.0
//
// Property: a copy of KV from or to a GPU is that of the host, bit for bit, behind the caller's
// event; whatever the device does, a copy that says so is whole, and nothing is touched once it has
// returned. Method: a simulated device that runs what it was given as late as it may, any call of
// which fails, once or for ever, or loses it.
#include <algorithm>
#include <cstring>

#include "engine/device/kv_copier.h"
#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

class CopyKvGpuTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({.seed = 1}); }
  void Start(const gpu::SimDeviceOptions& options) {
    device_ = gpu::MakeSimDevice(sim_.scheduler, options);
    gpu_.emplace(device_, kOrdinal);
  }
  Result<KvCopier> Make(const ModelSpec& from, const ModelSpec& to) {
    auto state = engine::KvCopierState::Make(from, to, std::span(&*gpu_, 1), sim_.scheduler);
    if (!state.ok()) return state.status();
    return KvCopier(*state);
  }
  Status Copy(const ModelSpec& model, const KvView* from, const KvView* to,
              const CopyKvOptions& options = {}) {
    const auto copier = Make(model, model);
    if (!copier.ok()) return copier.status();
    return copier->Copy(*from, *to, options).status();
  }

  const io::SimWorld sim_ = io::MakeSimWorld(1);
  std::shared_ptr<gpu::SimDevice> device_;
  std::optional<Gpu> gpu_;
};

TEST_F(CopyKvGpuTest, EveryLayoutGoesBothWays) {
  const ModelSpec model = HybridModel();
  for (const Layout layout : AllLayouts()) {
    Start({.seed = 3});
    for (const bool tables : {false, true}) {
      for (const auto& [wanted, count] :
           {std::pair(0U, 33U), std::pair(5U, 1U), std::pair(7U, 19U)}) {
        // Without a table blocks begin where the view does.
        const uint64_t begin = layout == Layout::kBlocksNoTable ? wanted / 4 * 4 : wanted;
        DeviceKv device(*gpu_, model, layout, 0, 33);
        device.Write(kSeed, begin, begin + count);
        KvSet host(model, Layout::kTokenMajor, 0, 33), want(model, Layout::kTokenMajor, 0, 33);
        want.Write(kSeed, begin, begin + count);
        ASSERT_OK(Copy(model, device.View(begin, count, tables), host.View(0, 33)));
        EXPECT_TRUE(host == want) << LayoutName(layout);
        DeviceKv back(*gpu_, model, layout, 0, 33);
        ASSERT_OK(Copy(model, want.View(begin, count), back.View(0, 33, tables)));
        EXPECT_TRUE(back.Holds(layout, 0, 33, begin, begin + count)) << LayoutName(layout);
      }
    }
  }
}

TEST_F(CopyKvGpuTest, MoreThanOneRoomFull) {
  const ModelSpec model = WideModel();
  constexpr uint64_t kTokens = 900;  // 7 MiB; a room has 2.
  DeviceKv device(*gpu_, model, Layout::kNhd, 0, kTokens);
  device.Write(kSeed, 0, kTokens);
  KvSet host(model, Layout::kContiguous, 0, kTokens), want(model, Layout::kContiguous, 0, kTokens);
  want.Write(kSeed, 0, kTokens);
  ASSERT_OK(Copy(model, device.View(0, kTokens), host.View(0, kTokens)));
  EXPECT_TRUE(host == want);
  DeviceKv back(*gpu_, model, Layout::kHnd, 0, kTokens);
  ASSERT_OK(Copy(model, host.View(0, kTokens), back.View(0, kTokens)));
  EXPECT_TRUE(back.Holds(Layout::kHnd, 0, kTokens, 0, kTokens));
}

// The second of two ranks: half of the heads, and the upper layers.
ModelSpec SecondRank(const ModelSpec& all) {
  ModelSpec rank = all;
  LayerGroup& group = rank.groups[0];
  rank.logical = {{.name = group.name,
                   .layers = group.layers,
                   .heads = group.planes[0].heads,
                   .layer_begin = group.layers / 2,
                   .layer_end = group.layers,
                   .head_begin = group.planes[0].heads / 2,
                   .head_end = group.planes[0].heads}};
  group.layers -= group.layers / 2;
  for (Plane& plane : group.planes) plane.heads /= 2;
  return rank;
}

TEST_F(CopyKvGpuTest, ARankOnAGpuTakesItsPartAndPutsItBack) {
  const ModelSpec all = WideModel(), rank = SecondRank(all);
  constexpr uint64_t kTokens = 70;
  KvSet logical(all, Layout::kContiguous, 0, kTokens), back(all, Layout::kContiguous, 0, kTokens);
  KvSet by_host(rank, Layout::kNhd, 0, kTokens), want(all, Layout::kContiguous, 0, kTokens);
  logical.Write(kSeed, 0, kTokens);
  ASSERT_OK_ASSIGN(const KvCopier load, Make(all, rank));
  ASSERT_OK_ASSIGN(const KvCopier save, Make(rank, all));
  DeviceKv device(*gpu_, rank, Layout::kNhd, 0, kTokens);
  const KvView* const on_device = device.View(0, kTokens);
  ASSERT_OK_ASSIGN(const uint64_t bytes, load.Copy(*logical.View(0, kTokens), *on_device));
  EXPECT_EQ(bytes, rank.token_bytes() * kTokens);
  ASSERT_OK(load.Copy(*logical.View(0, kTokens), *by_host.View(0, kTokens)));
  EXPECT_TRUE(device.Bytes(0) == by_host.pool(0).memory()) << "as a copy of the host";
  ASSERT_OK(save.Copy(*on_device, *back.View(0, kTokens)));
  ASSERT_OK(save.Copy(*by_host.View(0, kTokens), *want.View(0, kTokens)));
  EXPECT_TRUE(back == want);
}

// Only behind the caller's event is memory read, or written.
TEST_F(CopyKvGpuTest, WaitsForTheEventOfItsCaller) {
  const ModelSpec model = TinyModel();
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    for (const bool to_device : {false, true}) {
      Start({.seed = seed});
      DeviceKv device(*gpu_, model, Layout::kNhd, 0, 20);
      KvSet right(model, Layout::kNhd, 0, 20), host(model, Layout::kNhd, 0, 20);
      right.Write(kSeed, 0, 20);
      const std::vector<std::byte>& bytes = right.pool(0).memory();
      ASSERT_OK_ASSIGN(std::byte* const pinned,
                       device_->Allocate(gpu::Memory::kPinned, bytes.size()));
      ASSERT_OK_ASSIGN(const gpu::Stream mine, device_->NewStream(gpu::Priority::kHigh));
      ASSERT_OK_ASSIGN(const gpu::Event ready, device_->NewEvent());
      // The caller's step writes all of it, or still reads it.
      std::memcpy(pinned, bytes.data(), bytes.size());
      const gpu::CopyPiece in{device.base(0), pinned, bytes.size()};
      const gpu::CopyPiece out{pinned, device.base(0), bytes.size()};
      const std::vector<std::byte> before = device.Bytes(0);
      ASSERT_OK(device_->Copy(mine, {to_device ? &out : &in, 1}));
      ASSERT_OK(device_->Record(mine, ready));
      const CopyKvOptions options{.gpu_ready = gpu::SimDevice::HandleOf(ready)};
      if (to_device) {
        ASSERT_OK(Copy(model, right.View(0, 20), device.View(0, 20), options));
        EXPECT_TRUE(device.Holds(Layout::kNhd, 0, 20, 0, 20));
        EXPECT_TRUE(std::equal(before.begin(), before.end(), pinned)) << "read before it changed";
      } else {
        ASSERT_OK(Copy(model, device.View(0, 20), host.View(0, 20), options));
        EXPECT_TRUE(host == right);
      }
    }
  }
}

TEST_F(CopyKvGpuTest, AnEventThatIsNotReachedInTimeIsSaid) {
  const ModelSpec model = TinyModel();
  DeviceKv device(*gpu_, model, Layout::kNhd, 0, 20);
  KvSet host(model, Layout::kNhd, 0, 20), blank(model, Layout::kNhd, 0, 20);
  ASSERT_OK_ASSIGN(const gpu::Stream mine, device_->NewStream(gpu::Priority::kHigh));
  ASSERT_OK_ASSIGN(const gpu::Event ready, device_->NewEvent());
  ASSERT_OK_ASSIGN(std::byte* const memory, device_->Allocate(gpu::Memory::kPinned, 4));
  auto* const word = reinterpret_cast<uint32_t*>(memory);
  *word = 0;
  ASSERT_OK(device_->AwaitWord(mine, word, 1));
  ASSERT_OK(device_->Record(mine, ready));
  const CopyKvOptions options{.gpu_ready = gpu::SimDevice::HandleOf(ready),
                              .timeout_ns = 5'000'000};
  const std::vector<std::byte> before = device.Bytes(0);
  const KvView* const view = device.View(0, 20);
  EXPECT_FAILS(Copy(model, view, host.View(0, 20), options), StatusCode::kDeadlineExceeded,
               "copy of KV");
  EXPECT_FAILS(Copy(model, host.View(0, 20), view, options), StatusCode::kDeadlineExceeded,
               "copy of KV");
  EXPECT_TRUE(host == blank);
  EXPECT_TRUE(device.Bytes(0) == before);
  *word = 1;
}

TEST_F(CopyKvGpuTest, BadTablesAndGpusAreNamed) {
  const ModelSpec model = TinyModel();
  DeviceKv device(*gpu_, model, Layout::kNhd, 0, 20);
  KvSet host(model, Layout::kNhd, 0, 20);
  const KvView* const view = device.View(0, 20, /*tables=*/true);
  auto* const table = static_cast<int32_t*>(const_cast<void*>(device.groups()[0].table.entries));
  const int32_t first = table[0];
  table[0] = 99;
  EXPECT_FAILS(Copy(model, view, host.View(0, 20)), StatusCode::kInvalidArgument,
               "leads out of its blocks");
  EXPECT_FAILS(Copy(model, host.View(0, 20), view), StatusCode::kInvalidArgument, "is not below");
  table[0] = table[1];
  EXPECT_FAILS(Copy(model, host.View(0, 20), view), StatusCode::kInvalidArgument, "twice");
  table[0] = first;
  // It changes between the check and the copy.
  device_->OnLaunch([&](gpu::Kernel kernel) {
    if (kernel == gpu::Kernel::kDecodeScatter) table[0] = 99;
  });
  EXPECT_FAILS(Copy(model, host.View(0, 20), view), StatusCode::kCorruption, "led out of the view");
  device_->OnLaunch(nullptr);
  table[0] = first;
  EXPECT_OK(Copy(model, host.View(0, 20), view));
  KvView other = *view;
  other.device = kOrdinal + 1;
  EXPECT_FAILS(Copy(model, &other, host.View(0, 20)), StatusCode::kInvalidArgument, "no such GPU");
  EXPECT_FAILS(Copy(model, host.View(0, 20), &other), StatusCode::kInvalidArgument, "no such GPU");
  EXPECT_FAILS(Copy(model, view, view), StatusCode::kInvalidArgument, "both views");
  EXPECT_FAILS(Copy(model, view, host.View(0, 20), {.gpu_ready = 12345}),
               StatusCode::kInvalidArgument);
  EXPECT_FAILS(Copy(model, host.View(0, 20), view, {.gpu_ready = 12345}),
               StatusCode::kInvalidArgument);
}

// ---------------------------------------------------------------- a device that fails

struct Fault {
  const char* name;
  uint32_t kinds;
  bool on = false, lost = false;
};
constexpr Fault kFaults[] = {
    {"Allocate", gpu::kFailAllocate},   {"Copy", gpu::kFailCopy},
    {"Launch", gpu::kFailLaunch, true}, {"Event", gpu::kFailEvent},
    {"Query", gpu::kFailQuery},         {"Lost", gpu::kFailAny, false, true}};

class CopyKvFaultTest : public CopyKvGpuTest, public ::testing::WithParamInterface<Fault> {
 protected:
  // A copy each way with the fault at this call of it. False: no call was the one.
  bool Strike(const ModelSpec& model, uint64_t tokens, bool to_device, bool tables, uint64_t index,
              uint64_t* failed) {
    const Fault& fault = GetParam();
    Start({.seed = index + 1,
           .fail_kinds = fault.kinds,
           .fail_at = UINT64_MAX,
           .fail_on = fault.on,
           .fail_lost = fault.lost});
    DeviceKv device(*gpu_, model, Layout::kHnd, 0, tokens);
    KvSet host(model, Layout::kNhd, 0, tokens), want(model, Layout::kNhd, 0, tokens);
    want.Write(kSeed, 0, tokens);
    if (!to_device) device.Write(kSeed, 0, tokens);
    const KvView* const view = device.View(0, tokens, tables);
    const auto copier = Make(model, model);
    EXPECT_OK(copier);
    const uint64_t at = device_->calls() + index;
    device_->FailAt(at);
    const Status status = to_device ? copier->Copy(*want.View(0, tokens), *view).status()
                                    : copier->Copy(*view, *host.View(0, tokens)).status();
    const bool struck = device_->calls() > at;
    device_->FailAt(UINT64_MAX);
    *failed += !status.ok();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kIoError ||
                status.code() == StatusCode::kOutOfMemory)
        << status.ToString();
    const std::vector<std::byte> after = device.Bytes(0);
    KvSet host_after(model, Layout::kNhd, 0, tokens);
    EXPECT_OK(CopyKv(model, *host.View(0, tokens), *host_after.View(0, tokens)));
    device_->RunAll();
    EXPECT_TRUE(after == device.Bytes(0)) << index << ": touched after the end";
    EXPECT_TRUE(host == host_after) << index << ": touched after the end";
    if (status.ok() && to_device) {
      EXPECT_TRUE(device.Holds(Layout::kHnd, 0, tokens, 0, tokens)) << index;
    }
    if (status.ok() && !to_device) {
      EXPECT_TRUE(host == want) << index;
    }
    if (!fault.lost && device_->lost().ok()) {
      EXPECT_OK(to_device ? copier->Copy(*want.View(0, tokens), *view)
                          : copier->Copy(*view, *host.View(0, tokens)))
          << index << ": the copier goes on";
    }
    return struck;
  }
};

TEST_P(CopyKvFaultTest, AtEveryIndex) {
  for (const bool to_device : {false, true}) {
    for (const bool wide : {false, true}) {
      const ModelSpec model = wide ? WideModel() : TinyModel();
      uint64_t failed = 0;
      for (uint64_t index = 0;
           Strike(model, wide ? 330 : 20, to_device, !wide, index, &failed) && !HasFailure();
           ++index) {
        ASSERT_LT(index, 1000U);
      }
      // A question that fails once is asked again.
      EXPECT_EQ(GetParam().kinds != gpu::kFailQuery, failed > 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, CopyKvFaultTest, ::testing::ValuesIn(kFaults),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace cairn::testing
