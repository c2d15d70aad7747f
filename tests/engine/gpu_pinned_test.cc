// SPDX-License-Identifier: Apache-2.0
//
// Property: what a GPU's pinned memory holds is restored from there, bit for bit, and nothing is
// read; it holds what was used last, within its bound; whatever the device does, and whatever comes
// in meanwhile, what is copied stays as it is. Method: the simulated disk, whose trace counts the
// reads, and a simulated device that runs what it was given as late as it may.
#include <algorithm>
#include <thread>

#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMiB = 1u << 20;

class GpuPinnedTest : public GpuTest {
 protected:
  void SetUp() override {}

  void StartPinned(uint64_t pinned_bytes, const gpu::SimDeviceOptions& device = {.seed = 1}) {
    gpu_options_.pinned_bytes = pinned_bytes;
    Start(device);
    sim_.disk->set_trace(true);
  }
  // A sealed branch of that name and namespace. A quarter of each segment is
  // dead, so that none rests.
  Branch Write(const ModelSpec& model, const std::string& name, uint64_t count,
               const std::string& ns = {}) {
    auto id = store_.RegisterModel(model);
    EXPECT_OK(id);
    auto branch = store_.CreateBranch(*id, {.name = name, .ns = ns});
    EXPECT_OK(branch);
    auto dies = store_.CreateBranch(*id);
    EXPECT_OK(dies);
    for (uint64_t at = 0; at < count; at += 100) {
      EXPECT_OK(AppendSome(*branch, model, at, std::min<uint64_t>(100, count - at)));
      EXPECT_OK(AppendSome(*dies, model, at / 100 * 34, 34));
    }
    EXPECT_OK(dies->Drop());
    EXPECT_OK(store_.Compact());
    return *branch;
  }
  // Restores KV of [begin, end) into the device and compares it; the reads of tables meanwhile.
  uint64_t Reads(const Branch& branch, const ModelSpec& model, uint64_t begin, uint64_t end,
                 RestoreResult* result = nullptr) {
    const size_t before = sim_.disk->trace().size();
    DeviceKv got(*gpu_, model, Layout::kNhd, begin, end - begin);
    RestoreRequest request;
    request.begin = begin;
    request.end = end;
    request.into = got.View(begin, end - begin);
    const auto restored = branch.Restore(request);
    EXPECT_OK(restored);
    EXPECT_TRUE(got.Holds(Layout::kNhd, begin, end - begin, begin, end));
    if (restored.ok() && result != nullptr) *result = *restored;
    return ReadsSince(before);
  }
  uint64_t ReadsSince(size_t before) {
    const std::vector<std::string>& trace = sim_.disk->trace();
    return static_cast<uint64_t>(std::count_if(
        trace.begin() + static_cast<ptrdiff_t>(before), trace.end(), [](const std::string& line) {
          return line.starts_with("read ") && line.find(".snapshot") != line.npos;
        }));
  }
  void Prefetch(const Branch& branch, const PrefetchRequest& request) {
    const uint64_t before = store_.Metrics().prefetches;
    ASSERT_OK(branch.Prefetch(request));
    while (store_.Metrics().prefetches == before) sim_.scheduler->Sleep(100'000);
  }
};

// Small fragments, which are read at once, and large ones; any part of them.
TEST_F(GpuPinnedTest, TheNextRestoreReadsNothing) {
  for (const ModelSpec& model : {TinyModel(), HybridModel(), WideModel()}) {
    StartPinned(16 * kMiB);
    const Branch chat = Write(model, model.identity.name, 400);
    EXPECT_GT(Reads(chat, model, 0, 400), 0u);
    const StoreMetrics first = store_.Metrics();
    EXPECT_GT(first.pinned_promotions, 0u);
    EXPECT_EQ(first.pinned_promotions, first.pinned_misses);
    EXPECT_EQ(first.restored_table_frames, first.pinned_promotions);
    EXPECT_EQ(0u, first.restored_pinned_frames);
    EXPECT_EQ(0u, first.pinned_refusals);
    EXPECT_GT(first.pinned_bytes, 0u);
    for (uint64_t seed = 2; seed <= 6; ++seed) {
      RestoreResult result;
      EXPECT_EQ(0u, Reads(chat, model, 0, 400, &result));
      EXPECT_EQ(result.bytes, result.hot_bytes);
      EXPECT_EQ(0u, Reads(chat, model, 3 * seed, 399 - seed, &result));
      EXPECT_EQ(result.bytes, result.hot_bytes);
    }
    const StoreMetrics after = store_.Metrics();
    EXPECT_EQ(first.pinned_promotions, after.pinned_promotions);
    EXPECT_EQ(first.pinned_misses, after.pinned_misses);
    EXPECT_EQ(first.restored_table_bytes, after.restored_table_bytes);
    EXPECT_GT(after.restored_pinned_bytes, 5 * 400 * model.token_bytes() / 2);
    EXPECT_EQ(first.pinned_bytes, after.pinned_bytes);
    EXPECT_EQ(after.restored_bytes(), first.restored_bytes() + after.restored_pinned_bytes);
    // Restores into host memory ask the page cache.
    EXPECT_TRUE(HasKv(chat, model, 0, 400));
    EXPECT_EQ(after.restored_pinned_frames, store_.Metrics().restored_pinned_frames);
  }
}

// In every layout, with what lies in the log and the hot tail beside it.
TEST_F(GpuPinnedTest, BesideEveryOtherSource) {
  const ModelSpec model = HybridModel();
  StartPinned(8 * kMiB);
  chat_ = Write(model, "chat", 150);
  for (uint64_t length = 150; length < 200; length += 10) {
    for (const Layout layout : AllLayouts()) {
      EXPECT_TRUE(Restores(model, layout, 0, length));
    }
    EXPECT_TRUE(Restores(model, Layout::kNhd, 37, 131));
    ASSERT_OK(AppendSome(chat_, model, length, 10));
    if (length == 170) {
      ASSERT_OK(store_.Compact());
    }
  }
  EXPECT_GT(store_.Metrics().restored_pinned_bytes, 0u);
}

// Layer by layer; a part that was not restored before is read, and then the rest of its group, too.
TEST_F(GpuPinnedTest, SomeLayersOfAGroup) {
  ModelSpec model = WideModel();
  model.extent_tokens = 64;
  StartPinned(16 * kMiB);
  const Branch chat = Write(model, "chat", 300);
  DeviceKv got(*gpu_, model, Layout::kContiguous, 0, 300);
  const auto restore = [&](uint32_t begin, uint32_t end) {
    const size_t before = sim_.disk->trace().size();
    GroupView group = got.View(0, 300)->groups[0];
    std::vector<PlaneView> planes(group.planes.begin(), group.planes.end());
    for (PlaneView& plane : planes) {
      plane.layer_bases = plane.layer_bases.subspan(begin, end - begin);
    }
    group.planes = planes;
    group.layer_begin = begin;
    KvView view;
    view.groups = {&group, 1};
    view.memory = MemoryKind::kCuda;
    view.device = kOrdinal;
    RestoreRequest request;
    request.into = &view;
    EXPECT_OK(chat.Restore(request));
    return ReadsSince(before);
  };
  EXPECT_GT(restore(0, 3), 0u);
  EXPECT_GT(restore(3, 5), 0u);
  EXPECT_GT(restore(5, 8), 0u);
  EXPECT_TRUE(got.Holds(Layout::kContiguous, 0, 300, 0, 300));
  EXPECT_EQ(0u, restore(1, 7));
  EXPECT_EQ(0u, Reads(chat, model, 0, 300));
}

TEST_F(GpuPinnedTest, APrefetchBringsItIn) {
  for (const ModelSpec& model : {TinyModel(), HybridModel(), WideModel()}) {
    StartPinned(16 * kMiB);
    const Branch chat = Write(model, model.identity.name, 300);
    Prefetch(chat, {.begin = 0, .end = 300, .gpu = kOrdinal});
    EXPECT_EQ(0u, Reads(chat, model, 0, 300));
    EXPECT_EQ(0u, store_.Metrics().prefetches_failed);
    EXPECT_EQ(0u, store_.Metrics().page_cache_bytes);
    // Present frames are not read again, and the page cache's content does not get in their way.
    const size_t before = sim_.disk->trace().size();
    Prefetch(chat, {.gpu = kOrdinal});
    EXPECT_EQ(0u, ReadsSince(before));
    StartPinned(16 * kMiB);
    ASSERT_OK_ASSIGN(const Branch again, store_.FindBranch(model.identity.name));
    Prefetch(again, {});
    Prefetch(again, {.gpu = kOrdinal});
    EXPECT_GT(store_.Metrics().pinned_promotions, 0u);
    EXPECT_EQ(0u, Reads(again, model, 0, 300));
    EXPECT_EQ(0u, store_.Metrics().restored_cached_frames);
    ASSERT_OK_ASSIGN(Branch gone, store_.FindBranch(model.identity.name));
    ASSERT_OK(gone.Drop());
  }
  EXPECT_FAILS(chat_.Prefetch({.gpu = kOrdinal}), StatusCode::kInvalidState, "");
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(TinyModel()));
  ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
  EXPECT_FAILS(chat_.Prefetch({.gpu = 77}), StatusCode::kInvalidArgument, "gpu is 77");
  StartPinned(0);
  Find();
  Prefetch(chat_, {.gpu = kOrdinal});
  EXPECT_EQ(0u, store_.Metrics().prefetches_failed) << "nowhere to go";
}

// More than there is room for: the bound holds, all is right, and the newest tokens stay.
TEST_F(GpuPinnedTest, NewestTokensStay) {
  ModelSpec model = WideModel();
  model.extent_tokens = 64;
  gpu_options_.pinned_tokens = 128;
  StartPinned(8 * kMiB);
  constexpr uint64_t kTokens = 1500;  // 12 MiB, each.
  const Branch one = Write(model, "one", kTokens), two = Write(model, "two", 300);
  EXPECT_GT(Reads(one, model, 0, kTokens), 0u);
  EXPECT_LE(store_.Metrics().pinned_bytes, 8 * kMiB);
  for (int i = 0; i < 4; ++i) {
    Reads(two, model, 0, 300);
    EXPECT_GT(Reads(one, model, 0, kTokens - 200), 0u) << "they push each other out";
    EXPECT_EQ(0u, Reads(one, model, kTokens - 128, kTokens));
    EXPECT_LE(store_.Metrics().pinned_bytes, 8 * kMiB);
  }
  // Another model keeps another number.
  gpu_options_.pinned_tokens_of = {{"wide", 0}};
  StartPinned(8 * kMiB);
  ASSERT_OK_ASSIGN(const Branch again, store_.FindBranch("one"));
  Reads(again, model, 0, kTokens);
  EXPECT_EQ(0u, store_.Metrics().pinned_promotions) << "names alone";
  EXPECT_GT(Reads(again, model, kTokens - 128, kTokens), 0u);
}

// The most recently used branches keep their newest tokens, as far as half of it reaches.
TEST_F(GpuPinnedTest, NamespacesShare) {
  ModelSpec model = WideModel();
  model.extent_tokens = 64;
  gpu_options_.pinned_tokens = 128;  // 1 MiB raw.
  StartPinned(6 * kMiB);
  const Branch quiet = Write(model, "quiet", 128, "a");
  std::vector<Branch> busy;
  for (int i = 0; i < 12; ++i) busy.push_back(Write(model, std::to_string(i), 128, "b"));
  Reads(quiet, model, 0, 128);
  for (int round = 0; round < 3; ++round) {
    for (const Branch& branch : busy) Reads(branch, model, 0, 128);
  }
  EXPECT_EQ(0u, Reads(quiet, model, 0, 128)) << "others' use does not push it out";
  EXPECT_EQ(0u, Reads(busy.back(), model, 0, 128)) << "used last";
  EXPECT_EQ(0u, store_.Metrics().pinned_refusals);
}

TEST_F(GpuPinnedTest, WhatIsDeletedGoes) {
  const ModelSpec model = WideModel();
  StartPinned(16 * kMiB);
  Branch one = Write(model, "one", 200);
  const Branch two = Write(model, "two", 200);
  Reads(one, model, 0, 200);
  const uint64_t of_one = store_.Metrics().pinned_bytes;
  Reads(two, model, 0, 200);
  EXPECT_EQ(2 * of_one, store_.Metrics().pinned_bytes);
  ASSERT_OK(one.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(of_one, store_.Metrics().pinned_bytes);
  EXPECT_EQ(0u, Reads(two, model, 0, 200));
}

// Damage is reported, and not kept.
TEST_F(GpuPinnedTest, OnlyWhatIsRightComesIn) {
  const ModelSpec model = WideModel();
  StartPinned(16 * kMiB);
  const Branch chat = Write(model, "chat", 300);
  std::string path;
  for (const std::string& file : sim_.disk->Files()) {
    if (file.ends_with(".snapshot")) path = file;
  }
  ASSERT_OK(sim_.disk->FlipBit(path, 100'000, 1));
  DeviceKv got(*gpu_, model, Layout::kNhd, 0, 300);
  RestoreRequest request;
  request.into = got.View(0, 300);
  EXPECT_FAILS(chat.Restore(request), StatusCode::kCorruption, "restorable");
  Prefetch(chat, {.gpu = kOrdinal});
  EXPECT_EQ(1u, store_.Metrics().prefetches_failed);
  EXPECT_FAILS(chat.Restore(request), StatusCode::kCorruption, "restorable");
  ASSERT_OK(sim_.disk->FlipBit(path, 100'000, 1));
  EXPECT_GT(Reads(chat, model, 0, 300), 0u);
  EXPECT_EQ(0u, Reads(chat, model, 0, 300));
}

// Frames that a restore copies out of pinned memory stay unchanged, though newest tokens, which it
// reads itself, would take their place, and the device is late.
TEST_F(GpuPinnedTest, WhatIsCopiedIsNotOverwritten) {
  ModelSpec model = WideModel();
  model.extent_tokens = 64;
  StartPinned(2 * kMiB);
  Write(model, "chat", 500);
  uint64_t refusals = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    StartPinned(2 * kMiB, {.seed = seed});
    Find();
    Prefetch(chat_, {.begin = 0, .end = 128, .gpu = kOrdinal});
    Prefetch(chat_, {.begin = 128, .end = 256, .gpu = kOrdinal});
    EXPECT_GT(Reads(chat_, model, 0, 500), 0u);
    EXPECT_GT(store_.Metrics().restored_pinned_frames, 0u);
    refusals += store_.Metrics().pinned_refusals;
    Reads(chat_, model, 372, 500);
    EXPECT_EQ(0u, Reads(chat_, model, 372, 500)) << "by now it has gone";
  }
  EXPECT_GT(refusals, 0u) << "all of it was held";
}

TEST_F(GpuPinnedTest, WhereItIsRefusedTheStoreDoesWithout) {
  const ModelSpec model = WideModel();
  StartPinned(8 * kMiB, {.seed = 1, .fail_kinds = gpu::kFailAllocate, .fail_at = 0});
  ASSERT_EQ(1, std::count_if(events_.begin(), events_.end(), [](const std::string& line) {
              return line.starts_with("gpu 3: no pinned memory") &&
                     line.find("Register") != line.npos;
            }));
  const Branch chat = Write(model, "chat", 200);
  EXPECT_GT(Reads(chat, model, 0, 200), 0u);
  EXPECT_GT(Reads(chat, model, 0, 200), 0u);
  Prefetch(chat, {.gpu = kOrdinal});
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(0u, metrics.pinned_bytes + metrics.pinned_misses + metrics.pinned_promotions);
  EXPECT_EQ(0u, metrics.prefetches_failed);
}

// Any call of the device fails while pinned pages are restored: it is reported or right, nothing is
// touched afterwards, and the store goes on.
TEST_F(GpuPinnedTest, AnyCallFails) {
  const ModelSpec model = WideModel();
  StartPinned(16 * kMiB);
  Write(model, "chat", 300);
  uint64_t failed = 0, index = 0;
  for (bool struck = true; struck; ++index) {
    ASSERT_LT(index, 300u);
    StartPinned(16 * kMiB, {.seed = index + 1, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
    Find();
    Prefetch(chat_, {.gpu = kOrdinal});
    DeviceKv got(*gpu_, model, Layout::kNhd, 0, 300);
    RestoreRequest request;
    request.into = got.View(0, 300);
    const uint64_t calls = device_->calls();
    device_->FailAt(calls + index);
    const auto restored = chat_.Restore(request);
    struck = device_->calls() > calls + index;
    device_->FailAt(UINT64_MAX);
    failed += !restored.ok();
    if (restored.ok()) {
      EXPECT_TRUE(got.Holds(Layout::kNhd, 0, 300, 0, 300)) << index;
    }
    const std::vector<std::byte> after = got.Bytes(0);
    device_->RunAll();
    EXPECT_EQ(after, got.Bytes(0)) << index << ": touched after the end";
    EXPECT_EQ(0u, Reads(chat_, model, 0, 300)) << index;
  }
  EXPECT_GT(failed, 5u);
}

// Real threads, which fill, find and push out the same groups.
TEST(GpuPinnedThreads, ManyAtOnce) {
  ModelSpec model = WideModel();
  model.extent_tokens = 64;
  constexpr uint64_t kTokens = 200;
  const auto world = TestWorld::Make("memory");
  const std::shared_ptr<gpu::SimDevice> device =
      gpu::MakeSimDevice(world->world().scheduler, {.seed = 1});
  GpuOptions gpu_options;
  gpu_options.ordinal = kOrdinal;
  gpu_options.pinned_bytes = 4 * kMiB;
  gpu_options.pinned_tokens = 64;
  const Gpu gpu(device, gpu_options);
  Options options = world->options();
  options.segment_bytes = 4 << 20;
  options.gpus = {gpu};
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> branches;
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = std::to_string(i)}));
    for (uint64_t at = 0; at < kTokens; at += 100) {
      ASSERT_OK(AppendSome(branch, model, at, 100));
    }
    branches.push_back(branch);
  }
  ASSERT_OK(store.Compact());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 8; ++i) {
        const Branch& branch = branches[(t + i * (t + 1)) % branches.size()];
        if (i % 3 == t % 3) (void)branch.Prefetch({.begin = 64 * t, .gpu = kOrdinal});
        const uint64_t begin = 10 * (i % 4);
        DeviceKv got(gpu, model, Layout::kNhd, begin, kTokens - begin);
        RestoreRequest request;
        request.begin = begin;
        request.into = got.View(begin, kTokens - begin);
        EXPECT_OK(branch.Restore(request));
        EXPECT_TRUE(got.Holds(Layout::kNhd, begin, kTokens - begin, begin, kTokens));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(store.Metrics().restored_pinned_frames, 0u);
  EXPECT_LE(store.Metrics().pinned_bytes, 4 * kMiB);
  ASSERT_OK(store.Close());
  EXPECT_EQ(0u, store.Metrics().pinned_bytes);
}

TEST_F(GpuPinnedTest, ItIsPartOfTheMemoryOfAStore) {
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(sim_.world());
  options.max_memory_bytes = 64 * kMiB;
  options.hot_tail_bytes = 4 * kMiB;
  const auto with = [&](uint64_t one, uint64_t other) {
    options.gpus.clear();
    uint32_t ordinal = 0;
    for (const uint64_t bytes : {one, other}) {
      GpuOptions gpu;
      gpu.ordinal = ordinal;
      gpu.pinned_bytes = bytes;
      options.gpus.push_back(*Gpu::Simulated(++ordinal, gpu));
    }
    return options.Validate();
  };
  EXPECT_OK(with(0, 0));
  EXPECT_OK(with(16 * kMiB, 16 * kMiB));
  EXPECT_FAILS(with(17 * kMiB, 16 * kMiB), StatusCode::kInvalidArgument,
               "pinned_bytes is 34603008 in all; at most half of max_memory_bytes, 67108864");
  EXPECT_FAILS(with(UINT64_MAX, 2 * kMiB), StatusCode::kInvalidArgument, "half of");
  EXPECT_FAILS(with(0, 1000), StatusCode::kInvalidArgument, "ordinal 1: pinned_bytes is 1000");
  options.hot_tail_bytes = 17 * kMiB;
  EXPECT_OK(with(0, 0));
  EXPECT_FAILS(with(16 * kMiB, 16 * kMiB), StatusCode::kInvalidArgument, "beside pinned_bytes");
  options.max_memory_bytes = 20 * kMiB;
  options.hot_tail_bytes = 4 * kMiB;
  EXPECT_OK(with(4 * kMiB, 0));
  EXPECT_FAILS(with(5 * kMiB, 0), StatusCode::kInvalidArgument, "16 MiB must be left");
}

}  // namespace
}  // namespace cairn::testing
