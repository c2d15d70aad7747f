// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever a device does, and however a restore into it ends, nothing incomplete is
// reported complete, nothing is touched once the call returned, and the store goes on. Method: any
// call of a simulated device fails, once or for ever, or the device is lost there, in scripts that
// restore from all places and into all kinds of targets; cancels.
#include <cstring>

#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

class GpuEndTest : public GpuTest {};

// A table may be overwritten after it was checked. The kernel writes nowhere else, and reports it.
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

// However a restore ends, early, late or in the middle: what is reported is complete, and nothing
// is touched afterwards. Windows of large fragments are read over while earlier ones are copied.
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

// Where the content lies when it is restored: what is sealed, what is in the log, what was appended
// since the store was opened. And what it is restored into.
struct Script {
  const char* name;
  ModelSpec (*model)();
  Layout layout;
  uint64_t sealed, logged, length;
  uint64_t begin = 0;
  bool cached = false, tables = false, events = false;
};

ModelSpec Tiny() { return TinyModel(); }
ModelSpec Hybrid() { return HybridModel(); }
ModelSpec Wide() { return WideModel(); }
ModelSpec Int8() {
  ModelSpec model = WideModel();
  model.groups[0].layers = 2;
  for (Plane& plane : model.groups[0].planes) plane.sealed_as = SealedAs::kInt8;
  return model;
}

const Script kScripts[] = {
    {"HotTail", Tiny, Layout::kContiguous, 0, 0, 40},
    {"Log", Tiny, Layout::kTokenMajor, 0, 40, 40},
    {"Sealed", Tiny, Layout::kNhd, 40, 40, 40},
    {"PageCache", Tiny, Layout::kReversedHeads, 40, 40, 40, 0, /*cached=*/true},
    {"AllOfThese", Tiny, Layout::kFused, 16, 28, 40, 0, /*cached=*/true},
    {"ManyGroups", Hybrid, Layout::kContiguous, 24, 40, 40},
    {"DeviceTable", Tiny, Layout::kHnd, 24, 40, 40, 0, false, /*tables=*/true},
    {"DeviceSlots", Hybrid, Layout::kSlots64, 24, 40, 40, 0, false, /*tables=*/true},
    {"Int8", Int8, Layout::kNhd, 40, 40, 40},
    {"Ragged", Hybrid, Layout::kReversedTokens, 24, 31, 39, 7},
    {"LayerEvents", Hybrid, Layout::kElementStride, 24, 40, 40, 0, false, false, /*events=*/true},
    {"Windows", Wide, Layout::kSlots32, 300, 300, 300},
};

struct Fault {
  uint32_t kinds;
  bool on = false, lost = false;
};

constexpr Fault kFaults[] = {{gpu::kFailAllocate}, {gpu::kFailCopy},  {gpu::kFailLaunch, true},
                             {gpu::kFailEvent},    {gpu::kFailQuery}, {gpu::kFailAny, false, true}};

class GpuFaultTest : public GpuTest, public ::testing::WithParamInterface<Script> {
 protected:
  const Script& script_ = GetParam();
  const ModelSpec model_ = script_.model();

  uint64_t count() const { return script_.length - script_.begin; }

  void Prepare() {
    Fill(model_, 0, 1);
    Grow(0, script_.sealed);
    ASSERT_OK(store_.Compact());
    Grow(script_.sealed, script_.logged);
    Reopen({.seed = 1});
    want_ = FromHost();
  }
  void Grow(uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to; at += 32) Append(at, std::min<uint64_t>(32, to - at));
  }
  void Append(uint64_t begin, uint64_t count) {
    if (model_.groups[0].planes[0].sealed_as == SealedAs::kLossless) {
      ASSERT_OK(AppendSome(chat_, model_, begin, count));
      return;
    }
    // Pages with an infinity or a NaN would not become int8: no exponent has its highest bit.
    KvSet kv(model_, Layout::kContiguous, begin, count);
    kv.Write(kSeed, begin, begin + count);
    const KvView* const view = kv.View(begin, count);
    for (const PlaneView& plane : view->groups[0].planes) {
      for (std::byte* const base : plane.layer_bases) {
        for (int64_t i = 1; i < plane.head_stride * model_.groups[0].planes[0].heads; i += 2) {
          base[i] &= std::byte{0xbf};
        }
      }
    }
    ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(count, begin), view)));
  }
  void Reopen(const gpu::SimDeviceOptions& options) {
    Start(options);
    Find();
    ASSERT_OK(chat_.Rewind(script_.logged));
    Grow(script_.logged, script_.length);
    for (int i = 0; script_.cached && i < 2; ++i) FromHost();
  }
  // The result of a restore into host memory, in each group's pool.
  std::vector<std::vector<std::byte>> FromHost() {
    KvSet set(model_, script_.layout, script_.begin, count());
    RestoreRequest request;
    request.begin = script_.begin;
    request.end = script_.length;
    request.into = set.View(script_.begin, count());
    const auto result = chat_.Restore(request);
    EXPECT_OK(result);
    EXPECT_EQ(result->lossy_bytes != 0, std::string(script_.name) == "Int8");
    std::vector<std::vector<std::byte>> pools;
    for (uint32_t i = 0; i < model_.groups.size(); ++i) pools.push_back(set.pool(i).memory());
    return pools;
  }

  // One restore with the fault at this call. False: no call was the one.
  bool Strike(const Fault& fault, uint64_t index, uint64_t* failed) {
    Reopen({.seed = index + 1,
            .fail_kinds = fault.kinds,
            .fail_at = UINT64_MAX,  // Not while the target is made.
            .fail_on = fault.on,
            .fail_lost = fault.lost});
    DeviceKv got(*gpu_, model_, script_.layout, script_.begin, count());
    RestoreRequest request;
    request.begin = script_.begin;
    request.end = script_.length;
    request.into = got.View(script_.begin, count(), script_.tables);
    size_t layers = 0;
    for (const LayerGroup& group : model_.groups) layers += group.layers;
    const LayerEvents events(device_.get(), layers + 1);
    const GpuSync sync{.ready = events.handles()[layers],
                       .layer_events = std::span(events.handles()).first(layers)};
    if (script_.events) request.gpu = &sync;
    std::vector<std::atomic<uint32_t>> words(layers);
    LayerProgress progress{words};
    const uint64_t at = device_->calls() + index;
    device_->FailAt(at);
    const auto result = chat_.Restore(request, &progress);
    const bool struck = device_->calls() > at;
    device_->FailAt(UINT64_MAX);
    *failed += !result.ok();
    const StatusCode code = result.status().code();
    EXPECT_TRUE(result.ok() || code == StatusCode::kIoError || code == StatusCode::kOutOfMemory)
        << index << ": " << result.status().ToString();
    size_t word = 0;
    for (uint32_t i = 0; i < model_.groups.size(); ++i) {
      const std::vector<std::byte> after = got.Bytes(i);
      EXPECT_TRUE(!result.ok() || after == want_[i]) << index;
      device_->RunAll();
      EXPECT_TRUE(after == got.Bytes(i)) << index << ": touched after the end";
      for (uint32_t layer = 0; layer < model_.groups[i].layers; ++layer, ++word) {
        const uint32_t says = words[word].load();
        EXPECT_TRUE(says == kLayerComplete || (!result.ok() && says == kLayerFailed)) << index;
        EXPECT_TRUE(says != kLayerComplete || HoldsLayer(after, i, layer)) << index;
      }
    }
    EXPECT_TRUE(FromHost() == want_) << index << ": the store goes on";
    return struck;
  }
  bool HoldsLayer(const std::vector<std::byte>& is, uint32_t group, uint32_t layer) const {
    const KvPool blank(model_.groups[group], group, script_.layout, script_.begin, count());
    KvPool only(model_.groups[group], group, script_.layout, script_.begin, count());
    only.Write([](uint64_t) { return kSeed; }, script_.begin, script_.length, layer, 1);
    for (size_t i = 0; i < is.size(); ++i) {
      if (only.memory()[i] != blank.memory()[i] && is[i] != want_[group][i]) return false;
    }
    return true;
  }

  std::vector<std::vector<std::byte>> want_;
};

// Any call of the device fails, wherever: the restore says so or is right; a layer that was
// reported complete is complete; and what the device still does afterwards does not reach the
// target.
TEST_P(GpuFaultTest, AtEveryIndex) {
  Prepare();
  for (const Fault& fault : kFaults) {
    uint64_t failed = 0;
    for (uint64_t index = 0; Strike(fault, index, &failed) && !HasFailure(); ++index) {
      ASSERT_LT(index, 1000U);
    }
    // A question that fails once is asked again.
    EXPECT_EQ(fault.kinds != gpu::kFailQuery, failed > 0) << fault.kinds;
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, GpuFaultTest, ::testing::ValuesIn(kScripts),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace cairn::testing
