// SPDX-License-Identifier: Apache-2.0
//
// Property: a caller's streams and what the store does wait for each other by the caller's own
// events, and its graphs save their steps, on every device that there is. Method: the caller's last
// work on the memory is held back by a word; were it not waited for, it would undo the restore.
// Real threads, a real disk.
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "cairn/gpu_steps.h"
#include "tests/engine/gpu_test.h"
#include "tests/engine/step_engine.h"
#include "tests/gpu/callers_events.h"
#include "tests/gpu/callers_stream.h"

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
      device_ = gpu::MakeSimDevice(world_->world().scheduler, {.seed = 1});
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

// The kernel that saves a step stands in a graph of the caller's, which is launched for every step.
TEST_P(GpuCardTest, AGraphSavesEachOfItsSteps) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kSteps = 40;
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  std::vector<Branch> chats(kSequences);
  for (Branch& chat : chats) {
    ASSERT_OK_ASSIGN(chat, store_.CreateBranch(id));
  }
  CallersStream mine(device_.get());
  const CallersEvents done(device_.get(), kSteps);
  StepEngine engine(device_.get(), mine.stream(), model);
  {
    ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 4}));
    mine.Capture([&] { ASSERT_OK(steps.Enqueue(mine.handle())); });
    std::map<uint64_t, GpuStep> on_their_way;
    const auto append = [&](uint64_t at) {
      GpuStep step = std::move(on_their_way[at]);
      ASSERT_OK(step.Wait());
      for (uint32_t row = 0; row < kSequences; ++row) {
        ASSERT_OK_ASSIGN(const KvView* const kv, step.Row(row, at));
        ASSERT_OK(chats[row].AppendSync(MakeDelta(Tokens(1, at), kv)));
      }
      EXPECT_FAILS(step.Row(kSequences, at), StatusCode::kInvalidArgument, "named no place");
    };
    for (uint64_t at = 0; at < kSteps; ++at) {
      engine.Step(at);
      ASSERT_OK_ASSIGN(GpuStep step, steps.Begin(mine.handle()));
      ASSERT_OK(mine.Launch());
      ASSERT_OK(device_->Record(mine.stream(), done[at]));
      ASSERT_OK(step.End(done.handles()[at]));
      on_their_way[at] = std::move(step);
      if (at >= 2) append(at - 2);
    }
    append(kSteps - 2);
    append(kSteps - 1);
    ASSERT_OK(device_->Wait(done[kSteps - 1], io::kNoDeadline));
  }
  for (uint32_t row = 0; row < kSequences; ++row) {
    EXPECT_TRUE(HasKv(chats[row], model, 0, kSteps, kSeed + row)) << "row " << row;
  }
}

// Bytes that the caller's stream writes before its event come out, whole and by layers.
TEST_P(GpuCardTest, AppendsWaitForTheCallersEvents) {
  KvSet right(model_, Layout::kContiguous, kTokens, 2 * kTokens);
  right.Write(kSeed, kTokens, 3 * kTokens);
  const std::vector<std::byte>& bytes = right.pool(0).memory();
  DeviceKv from(*gpu_, model_, Layout::kContiguous, kTokens, 2 * kTokens);
  ASSERT_OK_ASSIGN(std::byte* const pinned, device_->Allocate(gpu::Memory::kPinned, bytes.size()));
  std::memcpy(pinned, bytes.data(), bytes.size());
  ASSERT_OK_ASSIGN(std::byte* const word_at, device_->Allocate(gpu::Memory::kPinned, 4));
  auto* const word = reinterpret_cast<uint32_t*>(word_at);
  *word = 0;
  CallersStream mine(device_.get());
  const CallersEvents computed(device_.get(), 1);
  ASSERT_OK_ASSIGN(const gpu::Stream other, device_->NewStream(gpu::Priority::kHigh));
  ASSERT_OK(device_->AwaitWord(mine.stream(), word, 1));
  ASSERT_OK(Copy(mine.stream(), from.base(0), pinned, bytes.size()));
  ASSERT_OK(device_->Record(mine.stream(), computed[0]));

  const KvView view = *from.View(kTokens, kTokens);
  const std::vector<TokenId> tokens = Tokens(kTokens, 5), more = Tokens(kTokens, 6);
  ASSERT_OK_ASSIGN(Ticket ticket,
                   chat_.Append(MakeDelta(tokens, &view), {.gpu_ready = computed.handles()[0]}));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ticket.released());
  ASSERT_OK(device_->SetWord(other, word, 1));
  ASSERT_OK(ticket.Wait());

  DeviceKv next(*gpu_, model_, Layout::kContiguous, kTokens, 2 * kTokens);
  ASSERT_OK(Copy(mine.stream(), next.base(0), pinned, bytes.size()));
  ASSERT_OK(device_->Record(mine.stream(), computed[0]));
  const GroupView group = next.View(2 * kTokens, kTokens)->groups[0];
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(kTokens));
  std::deque<std::vector<PlaneView>> planes;
  std::deque<GroupView> layers;
  for (uint32_t layer = 0; layer < model_.groups[0].layers; ++layer) {
    std::vector<PlaneView>& of = planes.emplace_back(group.planes.begin(), group.planes.end());
    for (PlaneView& plane : of) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
    GroupView& one = layers.emplace_back(group);
    one.planes = of;
    const KvView kv{.groups = {&one, 1}, .memory = MemoryKind::kCuda, .device = kOrdinal};
    ASSERT_OK(draft.PutFromGpu(layer, kv, computed.handles()[0]));
  }
  ASSERT_OK_ASSIGN(ticket, draft.Commit(MakeDelta(more), {}));
  ASSERT_OK(ticket.Wait());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 3 * kTokens));
  device_->Free(pinned);
  device_->Free(word_at);
}

INSTANTIATE_TEST_SUITE_P(Every, GpuCardTest, ::testing::Values("simulated", "card"), NameOf);

}  // namespace
}  // namespace cairn::testing
