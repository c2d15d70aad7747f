// SPDX-License-Identifier: Apache-2.0
//
// Property: the caller's work on the device and a restore wait for each other as GpuSync says:
// nothing is read or written before the caller is ready, what comes behind a layer's event sees the
// layer, and an owner that is late holds up nobody else. Method: a simulated device that runs what
// it was given as late as it may, and real threads.
#include <cstring>
#include <thread>

#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

class GpuOrderTest : public GpuTest {};

// Work after a layer's event on the caller's own stream reads the whole layer.
TEST_F(GpuOrderTest, WorkBehindALayersEventSeesTheLayer) {
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
    const LayerEvents events(device_.get(), layers);
    ASSERT_OK_ASSIGN(const gpu::Event ready, device_->NewEvent());
    ASSERT_OK_ASSIGN(const gpu::Stream mine, device_->NewStream(gpu::Priority::kHigh));
    // The caller's earlier use of the memory.
    ASSERT_OK_ASSIGN(std::byte* const scratch, device_->Allocate(gpu::Memory::kPinned, 64));
    std::byte* const target = request.into->groups[0].planes[0].layer_bases[0];
    const gpu::CopyPiece before{target, scratch, 64};
    ASSERT_OK(device_->Copy(mine, {&before, 1}));
    ASSERT_OK(device_->Record(mine, ready));
    const GpuSync sync{.ready = gpu::SimDevice::HandleOf(ready), .layer_events = events.handles()};
    request.gpu = &sync;
    std::vector<std::atomic<uint32_t>> words(layers);
    LayerProgress progress{words};
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request, &progress));
    // The last layer of the first group, as soon as it may be read.
    const size_t index = model.groups[0].layers - 1;
    const PlaneView& plane = request.into->groups[0].planes[0];
    const uint64_t bytes = uint64_t{model.groups[0].planes[0].row_bytes} * (kTokens + 10);
    ASSERT_OK_ASSIGN(std::byte* const copy, device_->Allocate(gpu::Memory::kDevice, bytes));
    ASSERT_OK(ticket.WaitForLayer(index, kLayerEnqueued));
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
    device_->Return(ready);
  }
}

// Real threads: what the caller enqueues behind a layer's event, as soon as it may, while others
// are still on their way.
TEST(GpuOrderThreads, EachLayerIsReadAsSoonAsItIsEnqueued) {
  const ModelSpec model = WideModel();
  constexpr uint64_t kTokens = 400;
  const auto world = TestWorld::Make("memory");
  const size_t layers = model.groups[0].layers;
  const uint64_t bytes = kTokens * model.groups[0].planes[0].row_bytes;
  int early = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const std::shared_ptr<gpu::SimDevice> device =
        gpu::MakeSimDevice(world->world().scheduler, {.seed = seed});
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
    const LayerEvents events(device.get(), layers);
    ASSERT_OK_ASSIGN(const gpu::Stream mine, device->NewStream(gpu::Priority::kHigh));
    ASSERT_OK_ASSIGN(const gpu::Event end, device->NewEvent());
    ASSERT_OK_ASSIGN(std::byte* const copies,
                     device->Allocate(gpu::Memory::kDevice, layers * bytes));
    const GpuSync sync{.layer_events = events.handles()};
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
TEST_F(GpuOrderTest, NothingIsReadOrWrittenBeforeItsOwnerIsReady) {
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
    const GpuSync sync{.ready = gpu::SimDevice::HandleOf(ready), .layer_events = {}};
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

// An owner that is not ready holds up nobody else, and the restore ends when its time is over, or
// nobody wants it.
TEST_F(GpuOrderTest, ALateOwnerHoldsUpNobodyElse) {
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
  const GpuSync sync{.ready = gpu::SimDevice::HandleOf(ready), .layer_events = {}};
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

}  // namespace
}  // namespace cairn::testing
