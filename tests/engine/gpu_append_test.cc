// SPDX-License-Identifier: Apache-2.0
//
// Property: KV that lies in the memory of a GPU is appended bit for bit, by whichever way its size
// makes it go, read behind the caller's event and never after the call let go of it; what fails
// applies nothing. Method: a simulated device that runs what it was given as late as it may.
#include <cstring>

#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

class GpuAppendTest : public GpuTest {
 protected:
  // Appends [begin, begin + count) out of device memory, and waits until it is written.
  Status Append(const ModelSpec& model, Layout layout, uint64_t begin, uint64_t count, bool sync,
                bool tables = false) {
    DeviceKv from(*gpu_, model, layout, begin, count + 5);
    from.Write(kSeed, begin, begin + count);
    const std::vector<TokenId> tokens = Tokens(count, kSeed + begin);
    const Delta delta = MakeDelta(tokens, from.View(begin, count, tables));
    if (sync) return chat_.AppendSync(delta, {.expected_length = begin}).status();
    auto ticket = chat_.Append(delta, {.expected_length = begin});
    if (!ticket.ok()) return ticket.status();
    while (!ticket->released()) sim_.scheduler->Sleep(50'000);
    from.Write(kSeed + 1, begin, begin + count);  // The memory is the caller's again.
    return ticket->Wait();
  }

  // An event of the caller's, behind work that the device has not done yet.
  gpu::Event Later(gpu::Stream* stream) {
    auto made = device_->NewStream(gpu::Priority::kHigh);
    auto event = device_->NewEvent();
    auto word = device_->Allocate(gpu::Memory::kPinned, 4);
    EXPECT_OK(made);
    EXPECT_OK(event);
    EXPECT_OK(word);
    *stream = *made;
    word_ = reinterpret_cast<uint32_t*>(*word);
    *word_ = 0;
    EXPECT_OK(device_->AwaitWord(*stream, word_, 1));
    return *event;
  }
  // Lets it go on.
  void Now() { *word_ = 1; }

  uint64_t Length() {
    const auto length = chat_.length();
    EXPECT_OK(length);
    return length.ok() ? *length : 0;
  }

  uint32_t* word_ = nullptr;
};

TEST_F(GpuAppendTest, EveryLayoutGoesEveryWay) {
  const ModelSpec model = HybridModel();
  for (const bool sync : {true, false}) {
    for (const Layout layout : AllLayouts()) {
      Start({.seed = 5});
      ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
      const std::string name = std::string(LayoutName(layout)) + (sync ? " sync" : "");
      ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = name}));
      uint64_t at = 0;
      for (const uint64_t count : {1u, 30u, 7u}) {
        ASSERT_OK(Append(model, layout, at, count, sync)) << name << ", " << count;
        at += count;
      }
      EXPECT_TRUE(HasKv(chat_, model, 0, at)) << name;
    }
  }
}

TEST_F(GpuAppendTest, AGroupInTwoViews) {
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  for (const uint64_t count : {20u, 600u, 1600u}) {  // A record, two parts, and more.
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
    DeviceKv kv(*gpu_, model, Layout::kNhd, 0, count);
    kv.Write(kSeed, 0, count);
    kv.View(0, count / 3);
    const KvView* const twice = kv.View(count / 3, count - count / 3);
    const std::vector<TokenId> ids = Tokens(count);
    ASSERT_OK(chat_.AppendSync(MakeDelta(ids, twice)));
    EXPECT_TRUE(HasKv(chat_, model, 0, count)) << count;
  }
}

// A record, and parts: some tokens, 5 MiB, 12 MiB.
TEST_F(GpuAppendTest, EverySizeGoesEveryWay) {
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  for (const bool sync : {true, false}) {
    for (const bool tables : {true, false}) {
      ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
      uint64_t at = 0;
      for (const uint64_t count : {3u, 640u, 1500u}) {
        ASSERT_OK(Append(model, Layout::kNhd, at, count, sync, tables));
        at += count;
      }
      EXPECT_TRUE(HasKv(chat_, model, 0, at));
      ASSERT_OK_ASSIGN(const auto ids, chat_.ReadTokens(643, at));
      EXPECT_EQ(Tokens(1500, kSeed + 643), ids);
    }
  }
}

// Bytes that the caller's work writes before its event are appended, in any order in which a device
// may do things; and no other caller is held up meanwhile.
TEST_F(GpuAppendTest, WaitsForTheEventOfItsCaller) {
  const ModelSpec model = TinyModel();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Start({.seed = seed});
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
    DeviceKv from(*gpu_, model, Layout::kNhd, 0, 20);
    from.Write(kSeed + 9, 0, 20);
    const KvView* const view = from.View(0, 20);
    KvSet right(model, Layout::kNhd, 0, 20);
    right.Write(kSeed, 0, 20);
    const std::vector<std::byte>& bytes = right.pool(0).memory();
    ASSERT_OK_ASSIGN(std::byte* const pinned,
                     device_->Allocate(gpu::Memory::kPinned, bytes.size()));
    std::memcpy(pinned, bytes.data(), bytes.size());
    gpu::Stream mine;
    const gpu::Event ready = Later(&mine);
    const gpu::CopyPiece step{from.base(0), pinned, bytes.size()};
    ASSERT_OK(device_->Copy(mine, {&step, 1}));
    ASSERT_OK(device_->Record(mine, ready));
    const std::vector<TokenId> tokens = Tokens(20, kSeed);
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(tokens, view),
                                                 {.gpu_ready = gpu::SimDevice::HandleOf(ready)}));
    EXPECT_FAILS(chat_.Append(MakeDelta(tokens)), StatusCode::kBusy, "being gathered");
    ASSERT_OK_ASSIGN(Branch other, store_.CreateBranch(id));
    ASSERT_OK(AppendSome(other, model, 0, 10));
    sim_.scheduler->Sleep(2'000'000);
    EXPECT_FALSE(ticket.done());
    EXPECT_EQ(0u, Length());
    Now();
    ASSERT_OK(ticket.Wait());
    EXPECT_TRUE(HasKv(chat_, model, 0, 20)) << "seed " << seed;
    device_->Free(pinned);
    device_->Free(reinterpret_cast<std::byte*>(word_));
    device_->Return(mine);
    device_->Return(ready);
  }
}

TEST_F(GpuAppendTest, EndsWithoutItsCallersEvent) {
  const ModelSpec model = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
  DeviceKv from(*gpu_, model, Layout::kNhd, 0, 20);
  from.Write(kSeed, 0, 20);
  gpu::Stream mine;
  const gpu::Event ready = Later(&mine);
  ASSERT_OK(device_->Record(mine, ready));
  const std::vector<TokenId> tokens = Tokens(20, kSeed);
  const Delta delta = MakeDelta(tokens, from.View(0, 20));
  AppendOptions options;
  options.gpu_ready = gpu::SimDevice::HandleOf(ready);
  ASSERT_OK_ASSIGN(Ticket cancelled, chat_.Append(delta, options));
  (void)cancelled.Cancel();
  EXPECT_FAILS(cancelled.Wait(), StatusCode::kCancelled, "");
  options.timeout_ns = 3'000'000;
  ASSERT_OK_ASSIGN(Ticket late, chat_.Append(delta, options));
  EXPECT_FAILS(late.Wait(), StatusCode::kDeadlineExceeded, "event was not reached");
  EXPECT_FAILS(chat_.AppendSync(delta, options), StatusCode::kDeadlineExceeded, "not reached");
  EXPECT_FAILS(chat_.Fill(*delta.kv, options), StatusCode::kDeadlineExceeded, "not reached");
  EXPECT_EQ(0u, Length());
  // Closing waits for it, as for all that was accepted.
  options.timeout_ns = UINT64_MAX;
  ASSERT_OK_ASSIGN(Ticket open, chat_.Append(delta, options));
  Now();
  ASSERT_OK(store_.Close());
  EXPECT_OK(open.Wait());
  device_->Free(reinterpret_cast<std::byte*>(word_));
  device_->Return(mine);
  device_->Return(ready);
}

TEST_F(GpuAppendTest, ATableThatLeadsOutAppliesNothing) {
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  for (const uint64_t count : {20u, 700u, 1200u}) {
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
    DeviceKv from(*gpu_, model, Layout::kNhd, 0, count);
    from.Write(kSeed, 0, count);
    const KvView* const view = from.View(0, count, /*tables=*/true);
    auto* const entries =
        static_cast<std::byte*>(const_cast<void*>(from.groups()[0].table.entries));
    const std::vector<TokenId> tokens = Tokens(count, kSeed);
    std::byte kept[4];
    std::memcpy(kept, entries, 4);
    std::memset(entries, 0x7f, 4);
    EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens, view)), StatusCode::kInvalidArgument,
                 "leads out of its blocks");
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(tokens, view)));
    EXPECT_FAILS(ticket.Wait(), StatusCode::kInvalidArgument, "leads out of its blocks");
    EXPECT_EQ(0u, Length());
    std::memcpy(entries, kept, 4);
    ASSERT_OK(chat_.AppendSync(MakeDelta(tokens, view)));
    EXPECT_TRUE(HasKv(chat_, model, 0, count));
  }
}

TEST_F(GpuAppendTest, WhatCannotBeMeantIsRefusedByName) {
  const ModelSpec model = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
  DeviceKv from(*gpu_, model, Layout::kNhd, 0, 10);
  KvView view = *from.View(0, 10);
  const std::vector<TokenId> tokens = Tokens(10, kSeed);
  const Delta delta = MakeDelta(tokens, &view);
  WriteBatch batch;
  batch.Append(chat_, delta);
  EXPECT_FAILS(store_.Write(batch), StatusCode::kInvalidArgument, "a batch takes host memory");
  view.device = 1;
  EXPECT_FAILS(chat_.AppendSync(delta), StatusCode::kInvalidArgument, "device is 1");
  EXPECT_FAILS(chat_.Append(delta), StatusCode::kInvalidArgument, "device is 1");
  view.device = kOrdinal;
  const auto other = gpu::MakeSimDevice(sim_.scheduler, {});
  ASSERT_OK_ASSIGN(const gpu::Event foreign, other->NewEvent());
  EXPECT_FAILS(chat_.AppendSync(delta, {.gpu_ready = gpu::SimDevice::HandleOf(foreign)}),
               StatusCode::kInvalidArgument, "of another device");
  KvSet host(model, Layout::kNhd, 0, 10);
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens, host.View(0, 10)), {.gpu_ready = 1}),
               StatusCode::kInvalidArgument, "gpu_ready: the view is of host memory");
  EXPECT_EQ(0u, Length());
}

// Without room the call says so at once, or keeps the tokens alone; Fill brings the KV later.
TEST_F(GpuAppendTest, WithoutStagingMemoryItIsBusyOrShedsKv) {
  const ModelSpec model = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
  ASSERT_OK(Append(model, Layout::kNhd, 0, 10, true));
  DeviceKv from(*gpu_, model, Layout::kNhd, 0, 30);
  from.Write(kSeed, 0, 30);
  const KvView* const next = from.View(10, 10);
  const std::vector<TokenId> tokens = Tokens(10, kSeed + 10);
  std::vector<Draft> drafts;
  ASSERT_OK_ASSIGN(Branch other, store_.CreateBranch(id));
  for (uint64_t positions = 1 << 16; positions > 0; positions /= 2) {
    while (true) {
      auto draft = other.BeginAppend(positions);
      if (!draft.ok()) break;
      drafts.push_back(std::move(*draft));
    }
  }
  EXPECT_FAILS(chat_.Append(MakeDelta(tokens, next)), StatusCode::kBusy, "staging memory");
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens, next)), StatusCode::kBusy, "staging memory");
  ASSERT_OK_ASSIGN(Ticket shed,
                   chat_.Append(MakeDelta(tokens, next), {.overload = Overload::kShedKv}));
  ASSERT_OK(shed.Wait());
  EXPECT_TRUE(shed.kv_shed());
  drafts.clear();
  DeviceKv third(*gpu_, model, Layout::kNhd, 20, 10);
  third.Write(kSeed, 20, 30);
  const std::vector<TokenId> more = Tokens(10, kSeed + 20);
  ASSERT_OK_ASSIGN(Ticket gap, chat_.Append(MakeDelta(more, third.View(20, 10)),
                                            {.overload = Overload::kShedKv}));
  ASSERT_OK(gap.Wait());
  EXPECT_TRUE(gap.kv_shed()) << "what comes before it was shed";
  EXPECT_EQ(30u, Length());
  DeviceKv whole(*gpu_, model, Layout::kHnd, 0, 30);
  whole.Write(kSeed, 0, 30);
  ASSERT_OK(chat_.Fill(*whole.View(0, 20)));  // Some of it exists.
  DeviceKv rest(*gpu_, model, Layout::kHnd, 0, 30);
  rest.Write(kSeed, 0, 30);
  ASSERT_OK(chat_.Fill(*rest.View(20, 10)));
  EXPECT_TRUE(HasKv(chat_, model, 0, 30));
}

struct Fault {
  uint32_t kinds;
  bool on, lost;
};

class GpuAppendFaultTest : public GpuAppendTest, public ::testing::WithParamInterface<Fault> {};

// Any call of the device fails, wherever: the append is right or is not there at all.
TEST_P(GpuAppendFaultTest, AtEveryIndex) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kTokens = 40;
  for (const bool sync : {true, false}) {
    uint64_t failed = 0;
    bool struck = true;
    for (uint64_t index = 0; struck; ++index) {
      Start({.seed = index + 1,
             .fail_kinds = GetParam().kinds,
             .fail_at = UINT64_MAX,
             .fail_on = GetParam().on,
             .fail_lost = GetParam().lost});
      ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
      ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id));
      DeviceKv from(*gpu_, model, Layout::kNhd, 0, kTokens);
      from.Write(kSeed, 0, kTokens);
      const std::vector<TokenId> tokens = Tokens(kTokens, kSeed);
      const Delta delta = MakeDelta(tokens, from.View(0, kTokens, /*tables=*/true));
      const uint64_t calls = device_->calls();
      device_->FailAt(calls + index);
      Status status;
      if (sync) {
        status = chat_.AppendSync(delta).status();
      } else {
        auto ticket = chat_.Append(delta);
        status = ticket.ok() ? ticket->Wait() : ticket.status();
      }
      struck = device_->calls() > calls + index;
      device_->FailAt(UINT64_MAX);
      if (status.ok()) {
        EXPECT_TRUE(HasKv(chat_, model, 0, kTokens)) << index;
        continue;
      }
      ++failed;
      EXPECT_TRUE(status.code() == StatusCode::kIoError ||
                  status.code() == StatusCode::kOutOfMemory)
          << index << ": " << status.ToString();
      EXPECT_EQ(0u, Length()) << index;
      EXPECT_OK(AppendSome(chat_, model, 0, 10)) << "the store goes on";
      ASSERT_LT(index, 1000u);
    }
    EXPECT_GT(failed, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GpuAppendFaultTest,
    ::testing::Values(Fault{gpu::kFailAllocate, false, false}, Fault{gpu::kFailCopy, false, false},
                      Fault{gpu::kFailLaunch, false, false}, Fault{gpu::kFailEvent, false, false},
                      Fault{gpu::kFailLaunch, true, false}, Fault{gpu::kFailAny, false, true}));

}  // namespace
}  // namespace cairn::testing
