// SPDX-License-Identifier: Apache-2.0
//
// Property: a draft takes layers out of the memory of a GPU as they are computed, each behind its
// event, and is appended when the last has come; what is given up is not read any more. Method: a
// simulated device that runs what it was given as late as it may.
#include <cstring>

#include "engine/store/store_core.h"
#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 60;

// A prefill of one layer after the other, whose work is on a stream of the caller's.
class GpuDraftTest : public GpuTest {
 protected:
  void Begin(uint64_t seed) {
    gpu::SimDeviceOptions options = fault_;
    options.seed = seed;
    Start(options);
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
    from_.emplace(*gpu_, model_, Layout::kNhd, 0, kTokens);
    view_ = *from_->View(0, kTokens);
    KvSet right(model_, Layout::kNhd, 0, kTokens);
    right.Write(kSeed, 0, kTokens);
    content_ = right.pool(0).memory();
    ASSERT_OK_ASSIGN(pinned_, device_->Allocate(gpu::Memory::kPinned, content_.size()));
    std::memcpy(pinned_, content_.data(), content_.size());
    ASSERT_OK_ASSIGN(stream_, device_->NewStream(gpu::Priority::kHigh));
    ASSERT_OK_ASSIGN(draft_, chat_.BeginAppend(kTokens));
    planes_.assign(model_.groups[0].layers, {});
    groups_.assign(model_.groups[0].layers, {});
    ready_.clear();
  }
  void End() {
    device_->RunAll();
    device_->Free(pinned_);
    device_->Return(stream_);
    for (const gpu::Event event : ready_) device_->Return(event);
    from_.reset();
  }

  // Enqueues the work of a layer; before its event nothing of it may be read.
  void Compute(uint32_t layer) {
    ASSERT_OK_ASSIGN(const gpu::Event event, device_->NewEvent());
    const GroupView& group = view_.groups[0];
    for (const PlaneView& plane : group.planes) {
      const auto at = plane.layer_bases[layer] - from_->base(0);
      const gpu::CopyPiece step{plane.layer_bases[layer], pinned_ + at,
                                group.table.count * static_cast<uint64_t>(plane.block_stride)};
      ASSERT_OK(device_->Copy(stream_, {&step, 1}));
    }
    ASSERT_OK(device_->Record(stream_, event));
    ready_.push_back(event);
  }
  KvView LayerView(uint32_t layer) {
    planes_[layer].clear();
    for (const PlaneView& plane : view_.groups[0].planes) {
      planes_[layer].push_back(plane);
      planes_[layer].back().layer_bases = plane.layer_bases.subspan(layer, 1);
    }
    groups_[layer] = view_.groups[0];
    groups_[layer].planes = planes_[layer];
    return {
        .groups = std::span(&groups_[layer], 1), .memory = MemoryKind::kCuda, .device = kOrdinal};
  }
  Status Put(uint32_t layer) {
    return draft_.PutFromGpu(layer, LayerView(layer), gpu::SimDevice::HandleOf(ready_.back()));
  }

  const ModelSpec model_ = TinyModel();
  gpu::SimDeviceOptions fault_;
  std::optional<DeviceKv> from_;
  KvView view_;
  std::vector<std::byte> content_;
  std::byte* pinned_ = nullptr;
  gpu::Stream stream_;
  std::vector<gpu::Event> ready_;
  Draft draft_;
  std::vector<std::vector<PlaneView>> planes_;
  std::vector<GroupView> groups_;
};

TEST_F(GpuDraftTest, LayersComeAsTheyAreComputed) {
  const std::vector<TokenId> tokens = Tokens(kTokens, kSeed);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Begin(seed);
    for (uint32_t layer = 0; layer < model_.groups[0].layers; ++layer) {
      Compute(layer);
      ASSERT_OK(Put(layer));
      if (seed % 3 == 0) sim_.scheduler->Sleep(300'000);
    }
    ASSERT_OK_ASSIGN(Ticket ticket, draft_.Commit(MakeDelta(tokens), {}));
    ASSERT_OK(ticket.Wait());
    EXPECT_TRUE(HasKv(chat_, model_, 0, kTokens)) << "seed " << seed;
    End();
  }
}

TEST_F(GpuDraftTest, WhatIsGivenUpIsNotReadAnyMore) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Begin(seed);
    int read = 0;
    device_->OnLaunch([&](gpu::Kernel kernel) { read += kernel == gpu::Kernel::kGatherSave; });
    for (uint32_t layer = 0; layer < model_.groups[0].layers; ++layer) {
      Compute(layer);
      ASSERT_OK(Put(layer));
    }
    if (seed % 2 == 0) sim_.scheduler->Sleep(seed * 20'000);
    if (seed % 4 < 2) {
      draft_.Abort();
    } else {
      draft_ = Draft();
    }
    for (const gpu::Event event : ready_) device_->Return(event);  // Nobody asks for them.
    ready_.clear();
    const int before = read;
    device_->RunAll();
    sim_.scheduler->Sleep(5'000'000);
    device_->RunAll();
    EXPECT_EQ(before, read) << "seed " << seed;
    ASSERT_OK_ASSIGN(const uint64_t length, chat_.length());
    EXPECT_EQ(0u, length);
    EXPECT_EQ(0u, store_.core()->staging().used_bytes()) << "seed " << seed;
    device_->OnLaunch(nullptr);
    End();
  }
}

// However a commit ends, nothing of the GPU is read when its ticket is over, nor are the events of
// its layers asked for: here they are destroyed at once.
TEST_F(GpuDraftTest, ACommitThatEndsEarlyReadsNothingAnyMore) {
  const std::vector<TokenId> tokens = Tokens(kTokens, kSeed);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Begin(seed);
    int read = 0;
    device_->OnLaunch([&](gpu::Kernel kernel) { read += kernel == gpu::Kernel::kGatherSave; });
    ASSERT_OK_ASSIGN(std::byte* const word, device_->Allocate(gpu::Memory::kPinned, 4));
    std::memset(word, 0, 4);
    for (uint32_t layer = 0; layer < model_.groups[0].layers; ++layer) {
      // The last layers are computed later than anybody waits.
      if (layer == 1) {
        ASSERT_OK(device_->AwaitWord(stream_, reinterpret_cast<uint32_t*>(word), 1));
      }
      Compute(layer);
      ASSERT_OK(Put(layer));
    }
    AppendOptions options;
    if (seed % 2 == 0) options.timeout_ns = 1'000'000 + seed * 10'000;
    ASSERT_OK_ASSIGN(Ticket ticket, draft_.Commit(MakeDelta(tokens), options));
    if (seed % 4 == 1) sim_.scheduler->Sleep(seed * 20'000);
    if (seed % 2 == 1) (void)ticket.Cancel();
    EXPECT_FAILS(ticket.Wait(),
                 seed % 2 == 0 ? StatusCode::kDeadlineExceeded : StatusCode::kCancelled, "");
    for (const gpu::Event event : ready_) device_->Return(event);
    ready_.clear();
    const int before = read;
    std::memset(word, 1, 1);
    device_->RunAll();
    sim_.scheduler->Sleep(5'000'000);
    EXPECT_EQ(before, read) << "seed " << seed;
    EXPECT_OK(AppendSome(chat_, model_, 0, 10)) << "the branch is free";
    device_->OnLaunch(nullptr);
    End();
    device_->Free(word);
  }
}

TEST_F(GpuDraftTest, AHandleThatAbortsLateLeavesTheCommitAlone) {
  const std::vector<TokenId> tokens = Tokens(kTokens, kSeed);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Begin(seed);
    for (uint32_t layer = 0; layer < model_.groups[0].layers; ++layer) {
      Compute(layer);
      ASSERT_OK(Put(layer));
    }
    Draft other = draft_;
    ASSERT_OK_ASSIGN(Ticket ticket, draft_.Commit(MakeDelta(tokens), {}));
    other.Abort();
    ASSERT_OK(ticket.Wait());
    EXPECT_TRUE(HasKv(chat_, model_, 0, kTokens)) << "seed " << seed;
    End();
  }
}

// A commit that is refused leaves a draft as it was: a store that closes waits for none of it, and
// an abort that came meanwhile counts.
TEST_F(GpuDraftTest, ACommitThatIsRefusedHoldsUpNobody) {
  const std::vector<TokenId> tokens = Tokens(kTokens, kSeed);
  for (const bool abort : {false, true}) {
    Begin(1);
    ASSERT_OK_ASSIGN(std::byte* const word, device_->Allocate(gpu::Memory::kPinned, 4));
    std::memset(word, 0, 4);
    ASSERT_OK(device_->AwaitWord(stream_, reinterpret_cast<uint32_t*>(word), 1));
    Compute(0);
    ASSERT_OK(Put(0));
    EXPECT_FAILS(draft_.Commit(MakeDelta(tokens), {.expected_length = 7}), StatusCode::kConflict,
                 "");
    if (abort) draft_.Abort();
    ASSERT_OK(store_.Close());
    std::memset(word, 1, 1);
    draft_ = Draft();
    End();
    device_->Free(word);
  }
}

// Repeating a layer that is still on its way would race with it.
TEST_F(GpuDraftTest, ALayerThatIsOnItsWayIsNotRepeated) {
  Begin(1);
  ASSERT_OK_ASSIGN(std::byte* const word, device_->Allocate(gpu::Memory::kPinned, 4));
  std::memset(word, 0, 4);
  ASSERT_OK(device_->AwaitWord(stream_, reinterpret_cast<uint32_t*>(word), 1));
  Compute(0);
  ASSERT_OK(Put(0));
  EXPECT_FAILS(Put(0), StatusCode::kBusy, "layer 0 is being gathered");
  std::memset(word, 1, 1);
  Status again;
  do {
    sim_.scheduler->Sleep(100'000);
    again = Put(0);
  } while (again.code() == StatusCode::kBusy);
  EXPECT_OK(again);
  // A store that closes waits for no draft that nobody has committed.
  std::memset(word, 0, 4);
  ASSERT_OK(device_->AwaitWord(stream_, reinterpret_cast<uint32_t*>(word), 1));
  Compute(1);
  ASSERT_OK(Put(1));
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(Put(1), StatusCode::kInvalidState, "");
  std::memset(word, 1, 1);
  draft_ = Draft();
  End();
  device_->Free(word);
}

TEST_F(GpuDraftTest, ALayerThatCannotComeFailsTheCommit) {
  const std::vector<TokenId> tokens = Tokens(kTokens, kSeed);
  fault_ = {.fail_kinds = gpu::kFailLaunch, .fail_at = UINT64_MAX};
  for (uint64_t launch = 0; launch < model_.groups[0].layers; ++launch) {
    Begin(launch + 1);
    device_->FailAt(launch);
    Status status;
    for (uint32_t layer = 0; layer < model_.groups[0].layers; ++layer) {
      Compute(layer);
      ASSERT_OK(Put(layer));
    }
    auto ticket = draft_.Commit(MakeDelta(tokens), {});
    EXPECT_FAILS(ticket.ok() ? ticket->Wait() : ticket.status(), StatusCode::kIoError, "");
    ASSERT_OK_ASSIGN(const uint64_t length, chat_.length());
    EXPECT_EQ(0u, length);
    EXPECT_OK(AppendSome(chat_, model_, 0, 10));
    draft_ = Draft();
    End();
  }
}

TEST_F(GpuDraftTest, WhatCannotBeMeantIsRefusedByName) {
  Begin(1);
  Compute(0);
  KvView view = LayerView(0);
  view.device = 1;
  EXPECT_FAILS(draft_.PutFromGpu(0, view), StatusCode::kInvalidArgument, "device is 1");
  EXPECT_FAILS(draft_.PutFromGpu(0, view_), StatusCode::kInvalidArgument, "one layer base");
  KvSet host(model_, Layout::kNhd, 0, kTokens);
  view = LayerView(0);
  view.memory = MemoryKind::kHost;
  view.device = 0;
  EXPECT_FAILS(draft_.PutFromGpu(0, view), StatusCode::kInvalidArgument, "memory is host");
  EXPECT_FAILS(draft_.PutFromGpu(0, KvView{}), StatusCode::kInvalidArgument,
               "takes a view of one group");
  End();
}

}  // namespace
}  // namespace cairn::testing
