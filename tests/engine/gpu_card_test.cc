// SPDX-License-Identifier: Apache-2.0
//
// Property: a caller's streams and a restore wait for each other by the caller's own events, on
// every device that there is. Method: the caller's last work on the memory is held back by a word;
// were it not waited for, it would undo the restore. Real threads, a real disk.
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/engine/gpu_test.h"
#include "tests/gpu/callers_events.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 400;  // 3 MiB.

class GpuCardTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "card") {
      auto card = OpenCard();
      if (!card.ok()) GTEST_SKIP() << card.status().ToString();
      device_ = *card;
    } else {
      device_ = gpu::MakeHostDevice(world_->world().scheduler, {.seed = 1});
    }
    if (!device_->info().waits_for_words) GTEST_SKIP() << "no words in streams here";
    gpu_.emplace(device_, kOrdinal);
    Options options = world_->options();
    options.segment_bytes = 4 << 20;
    options.gpus = {*gpu_};
    ASSERT_OK_ASSIGN(store_, world_->Open(options));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    for (uint64_t at = 0; at < kTokens; at += 100) ASSERT_OK(AppendSome(chat_, model_, at, 100));
    ASSERT_OK(store_.Compact());
  }
  Status Copy(gpu::Stream stream, std::byte* to, const std::byte* from, uint64_t bytes) {
    const gpu::CopyPiece piece{to, from, bytes};
    return device_->Copy(stream, {&piece, 1});
  }

  const ModelSpec model_ = WideModel();
  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("threads");
  std::shared_ptr<gpu::Device> device_;
  std::optional<Gpu> gpu_;
  Store store_;
  Branch chat_;
};

TEST_P(GpuCardTest, TheCallersStreamsAndTheRestoreWaitForEachOther) {
  const size_t layers = model_.groups[0].layers;
  const uint64_t bytes = kTokens * model_.groups[0].planes[0].row_bytes;
  DeviceKv got(*gpu_, model_, Layout::kContiguous, 0, kTokens);
  const std::vector<std::byte> before = got.Bytes(0);
  ASSERT_OK_ASSIGN(std::byte* const pinned, device_->Allocate(gpu::Memory::kPinned, before.size()));
  std::copy(before.begin(), before.end(), pinned);
  ASSERT_OK_ASSIGN(std::byte* const copies,
                   device_->Allocate(gpu::Memory::kDevice, layers * bytes));
  ASSERT_OK_ASSIGN(std::byte* const word_at, device_->Allocate(gpu::Memory::kPinned, 4));
  auto* const word = reinterpret_cast<uint32_t*>(word_at);
  *word = 0;
  ASSERT_OK_ASSIGN(const gpu::Stream mine, device_->NewStream(gpu::Priority::kHigh));
  ASSERT_OK_ASSIGN(const gpu::Stream other, device_->NewStream(gpu::Priority::kHigh));
  const CallersEvents ready(device_.get(), 1), events(device_.get(), layers);

  ASSERT_OK(device_->AwaitWord(mine, word, 1));
  ASSERT_OK(Copy(mine, got.base(0), pinned, before.size()));
  ASSERT_OK(device_->Record(mine, ready[0]));
  const GpuSync sync{.ready = ready.handles()[0], .layer_events = events.handles()};
  RestoreRequest request;
  request.into = got.View(0, kTokens);
  request.gpu = &sync;
  std::vector<std::atomic<uint32_t>> words(layers);
  LayerProgress progress{words};
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request, &progress));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (const auto& state : words) EXPECT_EQ(kLayerPending, state.load());
  ASSERT_OK(device_->SetWord(other, word, 1));

  const std::span<std::byte* const> bases = request.into->groups[0].planes[0].layer_bases;
  for (size_t layer = 0; layer < layers; ++layer) {
    ASSERT_OK(ticket.WaitForLayer(layer, kLayerEnqueued));
    ASSERT_OK(device_->StreamWait(mine, events[layer]));
    ASSERT_OK(Copy(mine, copies + layer * bytes, bases[layer], bytes));
  }
  ASSERT_OK(device_->Record(mine, ready[0]));
  ASSERT_OK(device_->Wait(ready[0], io::kNoDeadline));
  ASSERT_OK(ticket.Wait());

  KvSet want(model_, Layout::kContiguous, 0, kTokens);
  want.Write(kSeed, 0, kTokens);
  const GroupView right = want.View(0, kTokens)->groups[0];
  std::vector<std::byte> copied(layers * bytes);
  ASSERT_OK(gpu_->CopyOut(copied.data(), copies, copied.size()));
  for (size_t layer = 0; layer < layers; ++layer) {
    EXPECT_EQ(0, std::memcmp(right.planes[0].layer_bases[layer], &copied[layer * bytes], bytes))
        << "layer " << layer;
  }
  EXPECT_TRUE(got.Holds(Layout::kContiguous, 0, kTokens, 0, kTokens));
  for (std::byte* const at : {pinned, copies, word_at}) device_->Free(at);
}

// A restore that is cancelled at any time touches nothing any more, and others go on beside it.
TEST_P(GpuCardTest, CancelledRestoresLeaveTheMemoryToItsOwner) {
  DeviceKv cancelled(*gpu_, model_, Layout::kNhd, 0, kTokens);
  DeviceKv beside(*gpu_, model_, Layout::kHnd, 0, kTokens);
  RestoreRequest request, other;
  request.into = cancelled.View(0, kTokens);
  other.into = beside.View(0, kTokens);
  for (int round = 0; round < 20; ++round) {
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request));
    ASSERT_OK_ASSIGN(Ticket whole, chat_.RestoreAsync(other));
    std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
    const Status status = ticket.Cancel();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled) << status.ToString();
    const std::vector<std::byte> then = cancelled.Bytes(0);
    ASSERT_OK(whole.Wait());
    EXPECT_TRUE(beside.Holds(Layout::kHnd, 0, kTokens, 0, kTokens));
    EXPECT_EQ(then, cancelled.Bytes(0)) << "round " << round;
  }
  ASSERT_OK(chat_.Restore(request));
  EXPECT_TRUE(cancelled.Holds(Layout::kNhd, 0, kTokens, 0, kTokens));
}

INSTANTIATE_TEST_SUITE_P(Every, GpuCardTest, ::testing::Values("simulated", "card"), NameOf);

}  // namespace
}  // namespace cairn::testing
