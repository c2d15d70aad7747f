// SPDX-License-Identifier: Apache-2.0
//
// Property: a restore into a GPU puts there what one into host memory puts there, bit for bit and
// not a byte beyond, wherever it is read from; whatever the device does, nothing is told complete
// that is not there, and nothing is touched once the call returned. Method: a simulated device that
// runs what it was given as late as it may.
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/io/sim_world.h"
#include "cairn/gpu.h"
#include "gpu/host_device.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kOrdinal = 3;

// KV memory of a model on the device: the pools of a KvSet, moved there.
class DeviceKv {
 public:
  DeviceKv(const Gpu& gpu, const ModelSpec& model, Layout layout, uint64_t first, uint64_t count)
      : gpu_(gpu), model_(model) {
    for (uint32_t i = 0; i < model.groups.size(); ++i) {
      pools_.push_back(std::make_unique<KvPool>(model.groups[i], i, layout, first, count));
      const std::vector<std::byte>& memory = pools_.back()->memory();
      auto at = gpu.Allocate(memory.size());
      EXPECT_OK(at);
      memory_.push_back(*at);
      EXPECT_OK(gpu.CopyIn(*at, memory.data(), memory.size()));
    }
  }
  ~DeviceKv() {
    for (std::byte* const at : memory_) gpu_.Free(at);
    for (std::byte* const at : tables_) gpu_.Free(at);
  }
  DeviceKv(const DeviceKv&) = delete;
  DeviceKv& operator=(const DeviceKv&) = delete;

  // `tables`: they are on the device as well.
  const KvView* View(uint64_t position, uint64_t count, bool tables = false) {
    for (uint32_t i = 0; i < pools_.size(); ++i) {
      GroupView group = pools_[i]->View(position, count);
      std::vector<PlaneView>& planes = planes_.emplace_back();
      for (const PlaneView& plane : group.planes) {
        std::vector<std::byte*>& bases = bases_.emplace_back();
        for (std::byte* const base : plane.layer_bases) {
          bases.push_back(memory_[i] + (base - pools_[i]->memory().data()));
        }
        planes.push_back(plane);
        planes.back().layer_bases = bases;
      }
      group.planes = planes;
      if (tables && group.table.kind == TableKind::kBlocks) MoveTable(&group);
      groups_.push_back(group);
    }
    view_.groups = groups_;
    view_.memory = MemoryKind::kCuda;
    view_.device = kOrdinal;
    return &view_;
  }
  std::vector<GroupView>& groups() { return groups_; }
  std::byte* base(uint32_t group) const { return memory_[group]; }

  // All bytes are those of a KvSet with this content in [begin, end).
  bool Holds(Layout layout, uint64_t first, uint64_t count, uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < pools_.size(); ++i) {
      KvPool want(model_.groups[i], i, layout, first, count);
      want.Write(kSeed, begin, end);
      if (Bytes(i) != want.memory()) return false;
    }
    return true;
  }
  std::vector<std::byte> Bytes(uint32_t group) const {
    // Of a simulated device the host may look at it; nothing runs for that.
    return {memory_[group], memory_[group] + pools_[group]->memory().size()};
  }

 private:
  void MoveTable(GroupView* group) {
    const uint64_t bytes = group->table.count * (group->table.is_64_bit ? 8 : 4);
    auto at = gpu_.Allocate(bytes);
    EXPECT_OK(at);
    tables_.push_back(*at);
    EXPECT_OK(gpu_.CopyIn(*at, static_cast<const std::byte*>(group->table.entries), bytes));
    group->table.entries = *at;
    group->table.on_device = true;
    group->blocks = group->table.count;  // The pool's table is a permutation.
  }

  const Gpu gpu_;
  const ModelSpec model_;
  std::vector<std::unique_ptr<KvPool>> pools_;
  std::vector<std::byte*> memory_, tables_;
  std::deque<std::vector<PlaneView>> planes_;
  std::deque<std::vector<std::byte*>> bases_;
  std::vector<GroupView> groups_;
  KvView view_;
};

class GpuRestoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({.seed = 1}); }

  void Start(const gpu::HostDeviceOptions& device) {
    chat_ = {};
    ASSERT_OK(store_.Close());
    device_ = gpu::MakeHostDevice(sim_.scheduler, device);
    gpu_.emplace(device_, kOrdinal);
    Options options = TinyOptions();
    options.segment_bytes = 4 << 20;
    options.world = std::make_shared<io::World>(sim_.world());
    options.gpus = {*gpu_};
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
  }
  void Fill(const ModelSpec& model, uint64_t count, uint64_t step) {
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    for (uint64_t at = 0; at < count; at += step) {
      ASSERT_OK(AppendSome(chat_, model, at, std::min(step, count - at)));
    }
  }
  void Find() { ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat")); }

  ::testing::AssertionResult Restores(const ModelSpec& model, Layout layout, uint64_t begin,
                                      uint64_t end, bool tables = false) {
    const uint64_t first = begin - std::min<uint64_t>(begin, 2);
    const uint64_t count = end - first + 3;
    DeviceKv got(*gpu_, model, layout, first, count);
    std::vector<TokenId> tokens(end - begin);
    RestoreRequest request;
    request.begin = begin;
    request.end = end;
    request.tokens = tokens;
    request.into = got.View(begin, end - begin, tables);
    const auto result = chat_.Restore(request);
    if (!result.ok()) return ::testing::AssertionFailure() << result.status().ToString();
    if (!got.Holds(layout, first, count, begin, end)) {
      return ::testing::AssertionFailure() << LayoutName(layout) << ": bytes differ";
    }
    const auto ids = chat_.ReadTokens(begin, end);
    if (!ids.ok() || *ids != tokens) return ::testing::AssertionFailure() << "ids differ";
    return ::testing::AssertionSuccess();
  }

  const io::SimWorld sim_ = io::MakeSimWorld(1);
  std::shared_ptr<gpu::HostDevice> device_;
  std::optional<Gpu> gpu_;
  Store store_;
  Branch chat_;
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
  const auto other = gpu::MakeHostDevice(sim_.scheduler, {});
  ASSERT_OK_ASSIGN(const gpu::Event foreign, other->NewEvent());
  sync.ready = gpu::HostDevice::HandleOf(foreign);
  EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "of another device");
  EXPECT_TRUE(got.Holds(Layout::kNhd, 0, 10, 0, 0)) << "untouched";
  KvSet host(model, Layout::kNhd, 0, 10);
  request.into = host.View(0, 10);
  EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument, "the view is of host memory");
  EXPECT_FAILS(Gpu::Open({.ordinal = 77}), StatusCode::kNotFound, "");
}

// What follows a layer's event on the caller's own stream reads the whole layer.
TEST_F(GpuRestoreTest, WorkBehindALayersEventSeesTheLayer) {
  const ModelSpec model = HybridModel();
  constexpr uint64_t kTokens = 90;
  Fill(model, kTokens, 30);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(AppendSome(chat_, model, kTokens, 10));
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Start({.seed = seed});
    Find();
    DeviceKv got(*gpu_, model, Layout::kContiguous, 0, kTokens + 10);
    RestoreRequest request;
    request.into = got.View(0, kTokens + 10);
    size_t layers = 0;
    for (const LayerGroup& group : model.groups) layers += group.layers;
    std::vector<uintptr_t> handles;
    std::vector<gpu::Event> events;
    for (size_t i = 0; i < layers; ++i) {
      ASSERT_OK_ASSIGN(const gpu::Event event, device_->NewEvent());
      events.push_back(event);
      handles.push_back(gpu::HostDevice::HandleOf(event));
    }
    ASSERT_OK_ASSIGN(const gpu::Event ready, device_->NewEvent());
    ASSERT_OK_ASSIGN(const gpu::Stream mine, device_->NewStream(gpu::Priority::kHigh));
    // What the caller does with the memory before.
    std::vector<std::byte> rubbish(64, std::byte{0x5a});
    ASSERT_OK_ASSIGN(std::byte* const scratch, device_->Allocate(gpu::Memory::kPinned, 64));
    std::byte* const target = request.into->groups[0].planes[0].layer_bases[0];
    const gpu::CopyPiece before{target, scratch, 64};
    ASSERT_OK(device_->Copy(mine, {&before, 1}));
    ASSERT_OK(device_->Record(mine, ready));
    const GpuSync sync{.ready = gpu::HostDevice::HandleOf(ready), .layer_events = handles};
    request.gpu = &sync;
    std::vector<std::atomic<uint32_t>> words(layers);
    LayerProgress progress{words};
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request, &progress));
    // The last layer of the first group, as soon as it may be read.
    const size_t index = model.groups[0].layers - 1;
    const PlaneView& plane = request.into->groups[0].planes[0];
    const uint64_t bytes = uint64_t{model.groups[0].planes[0].row_bytes} * (kTokens + 10);
    ASSERT_OK_ASSIGN(std::byte* const copy, device_->Allocate(gpu::Memory::kDevice, bytes));
    while (words[index].load() == kLayerPending) sim_.scheduler->Sleep(1000);
    ASSERT_NE(kLayerFailed, words[index].load());
    ASSERT_OK(device_->StreamWait(mine, events[index]));
    const gpu::CopyPiece piece{copy, plane.layer_bases[index], bytes};
    ASSERT_OK(device_->Copy(mine, {&piece, 1}));
    ASSERT_OK(ticket.Wait());
    std::vector<std::byte> layer(bytes);
    ASSERT_OK(device_->Record(mine, ready));
    ASSERT_OK(device_->Wait(ready, io::kNoDeadline));
    ASSERT_OK(gpu_->CopyOut(layer.data(), copy, bytes));
    KvSet want(model, Layout::kContiguous, 0, kTokens + 10);
    want.Write(kSeed, 0, kTokens + 10);
    const std::byte* const right =
        want.View(0, kTokens + 10)->groups[0].planes[0].layer_bases[index];
    EXPECT_EQ(0, std::memcmp(right, layer.data(), bytes)) << "seed " << seed;
    EXPECT_TRUE(got.Holds(Layout::kContiguous, 0, kTokens + 10, 0, kTokens + 10));
    device_->Free(copy);
    device_->Free(scratch);
    device_->Return(mine);
    for (const gpu::Event event : events) device_->Return(event);
    device_->Return(ready);
  }
}

// Real threads: what the caller enqueues behind a layer's event, as soon as it may, while others
// are still on their way.
TEST(GpuRestoreThreads, EachLayerIsReadAsSoonAsItIsEnqueued) {
  const ModelSpec model = WideModel();
  constexpr uint64_t kTokens = 400;
  const auto world = TestWorld::Make("memory");
  const size_t layers = model.groups[0].layers;
  const uint64_t bytes = kTokens * model.groups[0].planes[0].row_bytes;
  int early = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const std::shared_ptr<gpu::HostDevice> device =
        gpu::MakeHostDevice(world->world().scheduler, {.seed = seed});
    const Gpu gpu(device, kOrdinal);
    Options options = world->options();
    options.segment_bytes = 4 << 20;
    options.gpus = {gpu};
    ASSERT_OK_ASSIGN(Store store, world->Open(options));
    auto chat = store.FindBranch("chat");
    if (!chat.ok()) {
      ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
      ASSERT_OK_ASSIGN(chat, store.CreateBranch(id, {.name = "chat"}));
      for (uint64_t at = 0; at < kTokens; at += 100) {
        ASSERT_OK(AppendSome(*chat, model, at, 100));
      }
      ASSERT_OK(store.Compact());
    }
    DeviceKv got(gpu, model, Layout::kContiguous, 0, kTokens);
    RestoreRequest request;
    request.into = got.View(0, kTokens);
    std::vector<gpu::Event> events;
    std::vector<uintptr_t> handles;
    for (size_t i = 0; i < layers; ++i) {
      ASSERT_OK_ASSIGN(const gpu::Event event, device->NewEvent());
      events.push_back(event);
      handles.push_back(gpu::HostDevice::HandleOf(event));
    }
    ASSERT_OK_ASSIGN(const gpu::Stream mine, device->NewStream(gpu::Priority::kHigh));
    ASSERT_OK_ASSIGN(const gpu::Event end, device->NewEvent());
    ASSERT_OK_ASSIGN(std::byte* const copies,
                     device->Allocate(gpu::Memory::kDevice, layers * bytes));
    const GpuSync sync{.layer_events = handles};
    request.gpu = &sync;
    std::vector<std::atomic<uint32_t>> words(layers);
    LayerProgress progress{words};
    ASSERT_OK_ASSIGN(Ticket ticket, chat->RestoreAsync(request, &progress));
    const std::span<std::byte* const> bases = request.into->groups[0].planes[0].layer_bases;
    for (size_t layer = 0; layer < layers; ++layer) {
      uint32_t word = kLayerPending;
      while ((word = words[layer].load()) == kLayerPending) std::this_thread::yield();
      early += word == kLayerEnqueued;
      ASSERT_NE(kLayerFailed, word);
      ASSERT_OK(device->StreamWait(mine, events[layer]));
      const gpu::CopyPiece piece{copies + layer * bytes, bases[layer], bytes};
      ASSERT_OK(device->Copy(mine, {&piece, 1}));
      ASSERT_OK(device->Record(mine, end));
      ASSERT_OK(device->Wait(end, io::kNoDeadline));
    }
    ASSERT_OK(ticket.Wait());
    KvSet want(model, Layout::kContiguous, 0, kTokens);
    want.Write(kSeed, 0, kTokens);
    const GroupView right = want.View(0, kTokens)->groups[0];
    for (size_t layer = 0; layer < layers; ++layer) {
      EXPECT_EQ(0, std::memcmp(right.planes[0].layer_bases[layer], copies + layer * bytes, bytes))
          << "seed " << seed << ", layer " << layer;
    }
    EXPECT_TRUE(got.Holds(Layout::kContiguous, 0, kTokens, 0, kTokens));
    ASSERT_OK(store.Close());
  }
  EXPECT_GT(early, 0) << "every layer was complete before anybody looked";
}

// The caller makes the table, and clears the memory, on a stream of its own, which the device runs
// as late as it may.
TEST_F(GpuRestoreTest, NothingIsReadOrWrittenBeforeItsOwnerIsReady) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kTokens = 40;
  Fill(model, kTokens, 20);
  ASSERT_OK(store_.Compact());
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Start({.seed = seed});
    Find();
    DeviceKv got(*gpu_, model, Layout::kNhd, 0, kTokens);
    RestoreRequest request;
    request.into = got.View(0, kTokens, /*tables=*/true);
    const GroupView& group = got.groups()[0];
    const uint64_t table_bytes = group.table.count * sizeof(int32_t);
    auto* const table = static_cast<std::byte*>(const_cast<void*>(group.table.entries));
    const uint64_t memory_bytes = got.Bytes(0).size();
    ASSERT_OK_ASSIGN(std::byte* const right, device_->Allocate(gpu::Memory::kPinned, table_bytes));
    std::memcpy(right, table, table_bytes);
    const std::vector<std::byte> clean = got.Bytes(0);
    ASSERT_OK_ASSIGN(std::byte* const cleared,
                     device_->Allocate(gpu::Memory::kPinned, memory_bytes));
    std::memcpy(cleared, clean.data(), memory_bytes);
    std::memset(table, 0xee, table_bytes);
    ASSERT_OK_ASSIGN(const gpu::Stream mine, device_->NewStream(gpu::Priority::kHigh));
    ASSERT_OK_ASSIGN(const gpu::Event ready, device_->NewEvent());
    const gpu::CopyPiece pieces[] = {{table, right, table_bytes},
                                     {got.base(0), cleared, memory_bytes}};
    ASSERT_OK(device_->Copy(mine, pieces));
    ASSERT_OK(device_->Record(mine, ready));
    const GpuSync sync{.ready = gpu::HostDevice::HandleOf(ready), .layer_events = {}};
    request.gpu = &sync;
    const auto restored = chat_.Restore(request);
    EXPECT_OK(restored);
    device_->RunAll();
    EXPECT_TRUE(got.Holds(Layout::kNhd, 0, kTokens, 0, kTokens)) << "seed " << seed;
    device_->Free(right);
    device_->Free(cleared);
    device_->Return(mine);
    device_->Return(ready);
  }
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

// An owner that is not ready holds up nobody else, and the restore ends when its time is over, or
// nobody wants it.
TEST_F(GpuRestoreTest, ALateOwnerHoldsUpNobodyElse) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kTokens = 40;
  Fill(model, kTokens, 20);
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(const gpu::Stream mine, device_->NewStream(gpu::Priority::kHigh));
  ASSERT_OK_ASSIGN(const gpu::Event ready, device_->NewEvent());
  ASSERT_OK_ASSIGN(std::byte* const at, device_->Allocate(gpu::Memory::kPinned, 4));
  auto* const word = reinterpret_cast<uint32_t*>(at);
  *word = 0;
  ASSERT_OK(device_->AwaitWord(mine, word, 1));
  ASSERT_OK(device_->Record(mine, ready));
  const GpuSync sync{.ready = gpu::HostDevice::HandleOf(ready), .layer_events = {}};
  for (const bool tables : {false, true}) {
    DeviceKv got(*gpu_, model, Layout::kNhd, 0, kTokens);
    RestoreRequest request;
    request.into = got.View(0, kTokens, tables);
    request.gpu = &sync;
    request.timeout_ns = 5'000'000;
    EXPECT_FAILS(chat_.Restore(request), StatusCode::kDeadlineExceeded, "");
    request.timeout_ns = UINT64_MAX;
    ASSERT_OK_ASSIGN(Ticket late, chat_.RestoreAsync(request));
    sim_.scheduler->Sleep(50'000'000);
    EXPECT_TRUE(Restores(model, Layout::kHnd, 0, kTokens));
    EXPECT_FALSE(late.done());
    EXPECT_FAILS(late.Cancel(), StatusCode::kCancelled, "");
    EXPECT_TRUE(late.done());
    device_->RunAll();
    EXPECT_TRUE(got.Holds(Layout::kNhd, 0, kTokens, 0, 0)) << "untouched";
  }
  DeviceKv got(*gpu_, model, Layout::kNhd, 0, kTokens);
  RestoreRequest request;
  request.into = got.View(0, kTokens, /*tables=*/true);
  request.gpu = &sync;
  ASSERT_OK_ASSIGN(Ticket late, chat_.RestoreAsync(request));
  sim_.scheduler->Sleep(50'000'000);
  *word = 1;
  EXPECT_OK(late.Wait());
  EXPECT_TRUE(got.Holds(Layout::kNhd, 0, kTokens, 0, kTokens));
  device_->Free(at);
  device_->Return(mine);
  device_->Return(ready);
}

// Damage that a checksum passes over is told by the kernel.
TEST_F(GpuRestoreTest, WhatTheDeviceCannotUnpackIsToldAsDamage) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kTokens = 40;
  Fill(model, kTokens, 40);
  DeviceKv got(*gpu_, model, Layout::kNhd, 0, kTokens);
  RestoreRequest request;
  request.into = got.View(0, kTokens, /*tables=*/true);
  const GroupView& group = got.groups()[0];
  auto* const table = static_cast<std::byte*>(const_cast<void*>(group.table.entries));
  // The caller writes to the table after it was checked: when the first layer is told of.
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
TEST_F(GpuRestoreTest, CancelledAnywhereNothingIsTouchedAfterwards) {
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

class GpuFaultTest : public GpuRestoreTest, public ::testing::WithParamInterface<Fault> {};

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
