// SPDX-License-Identifier: Apache-2.0
//
// Property: what steps of generation compute on a device comes to the host slot by slot, as it was
// when its step ended, while later steps go on and write the same memory; where no slot is free the
// step is not saved and nothing waits. Method: a simulated device that runs what it was given as
// late as it may, and an engine that moves its sequences about in its blocks.
#include <cstring>
#include <map>

#include "base/codec/kv_copy.h"
#include "cairn/gpu_steps.h"
#include "tests/engine/gpu_test.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kSequences = 5, kRows = 6, kSlotsOfPool = 40;  // One row is padding.

// An engine: a pool of token slots, and the table of the step, both on the device.
class Engine {
 public:
  Engine(gpu::HostDevice* device, const ModelSpec& model) : device_(*device), model_(model) {
    for (const LayerGroup& group : model.groups) {
      Pool& pool = pools_.emplace_back();
      uint64_t bytes = 0;
      for (const Plane& plane : group.planes) {
        bytes += uint64_t{group.layers} * kSlotsOfPool * plane.heads * plane.row_bytes;
      }
      pool.bytes = bytes;
      pool.on_device = Take(gpu::Memory::kDevice, bytes);
      pool.next = Take(gpu::Memory::kPinned, bytes);
      std::byte* at = pool.on_device;
      for (const Plane& plane : group.planes) {
        std::vector<std::byte*>& bases = pool.bases.emplace_back();
        const uint64_t token_bytes = uint64_t{plane.heads} * plane.row_bytes;
        for (uint32_t layer = 0; layer < group.layers; ++layer) {
          bases.push_back(at);
          at += kSlotsOfPool * token_bytes;
        }
        pool.planes.push_back(
            {.token_stride = static_cast<int64_t>(token_bytes), .head_stride = plane.row_bytes});
      }
      for (size_t p = 0; p < pool.planes.size(); ++p) pool.planes[p].layer_bases = pool.bases[p];
    }
    table_ = Take(gpu::Memory::kDevice, kRows * sizeof(int64_t));
    next_table_ = Take(gpu::Memory::kPinned, kRows * sizeof(int64_t));
    for (uint32_t g = 0; g < model.groups.size(); ++g) {
      GroupView& view = groups_.emplace_back();
      view.group = g;
      view.count = kRows;
      view.tokens_per_block = kSlotsOfPool;
      view.blocks = 1;
      view.planes = pools_[g].planes;
      view.table = {.kind = TableKind::kSlots,
                    .entries = table_,
                    .on_device = true,
                    .count = kRows,
                    .is_64_bit = true};
    }
    view_ = {.groups = groups_, .memory = MemoryKind::kCuda, .device = kOrdinal};
    const auto stream = device_.NewStream(gpu::Priority::kHigh);
    EXPECT_OK(stream);
    stream_ = *stream;
  }
  ~Engine() {
    device_.RunAll();
    for (std::byte* const at : taken_) device_.Free(at);
    device_.Return(stream_);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Computes position `at` of all sequences, each in a slot of the pool that nobody names yet.
  void Step(uint64_t at) {
    Settle();
    auto* const entries = reinterpret_cast<int64_t*>(next_table_);
    for (uint32_t row = 0; row < kRows; ++row) {
      entries[row] =
          row < kSequences ? static_cast<int64_t>((at * kSequences + row) * 7 % kSlotsOfPool) : -1;
    }
    for (uint32_t g = 0; g < model_.groups.size(); ++g) {
      const LayerGroup& group = model_.groups[g];
      for (uint32_t row = 0; row < kSequences; ++row) {
        KvPool rows(group, g, Layout::kContiguous, at, 1);
        rows.Write(kSeed + row, at, at + 1);
        const GroupView from = rows.View(at, 1);
        for (size_t p = 0; p < group.planes.size(); ++p) {
          const Plane& plane = group.planes[p];
          for (uint32_t layer = 0; layer < group.layers; ++layer) {
            for (uint32_t head = 0; head < plane.heads; ++head) {
              std::byte* const to =
                  pools_[g].next + (pools_[g].bases[p][layer] - pools_[g].on_device) +
                  entries[row] * pools_[g].planes[p].token_stride + head * plane.row_bytes;
              std::memcpy(to, from.planes[p].layer_bases[layer] + head * from.planes[p].head_stride,
                          plane.row_bytes);
            }
          }
        }
      }
      const gpu::CopyPiece piece{pools_[g].on_device, pools_[g].next, pools_[g].bytes};
      EXPECT_OK(device_.Copy(stream_, {&piece, 1}));
    }
    const gpu::CopyPiece table{table_, next_table_, kRows * sizeof(int64_t)};
    EXPECT_OK(device_.Copy(stream_, {&table, 1}));
    const auto event = device_.NewEvent();
    EXPECT_OK(event);
    staged_ = *event;
    EXPECT_OK(device_.Record(stream_, staged_));
    settled_ = false;
  }
  // What the last step reads of the host's memory has been read.
  void Settle() {
    if (settled_) return;
    EXPECT_OK(device_.Wait(staged_, io::kNoDeadline));
    device_.Return(staged_);
    settled_ = true;
  }
  const KvView& view() const { return view_; }
  gpu::Stream stream() const { return stream_; }
  gpu::HostDevice& device() { return device_; }

 private:
  struct Pool {
    std::byte* on_device = nullptr;
    std::byte* next = nullptr;
    uint64_t bytes = 0;
    std::vector<std::vector<std::byte*>> bases{};
    std::vector<PlaneView> planes{};
  };
  std::byte* Take(gpu::Memory memory, uint64_t bytes) {
    const auto at = device_.Allocate(memory, bytes);
    EXPECT_OK(at);
    taken_.push_back(*at);
    std::memset(*at, 0, bytes);
    return *at;
  }

  gpu::HostDevice& device_;
  const ModelSpec model_;
  std::vector<Pool> pools_;
  std::vector<std::byte*> taken_;
  std::byte* table_ = nullptr;
  std::byte* next_table_ = nullptr;
  std::vector<GroupView> groups_;
  KvView view_;
  gpu::Stream stream_;
  gpu::Event staged_;
  bool settled_ = true;
};

class GpuStepsTest : public GpuTest {
 protected:
  // What a launch of the engine's graph does behind the step, and the event that it records then.
  gpu::Event Launch(Engine* engine, GpuSteps* steps) {
    EXPECT_OK(steps->Enqueue(gpu::HostDevice::HandleOf(engine->stream())));
    const auto done = device_->NewEvent();
    EXPECT_OK(done);
    EXPECT_OK(device_->Record(engine->stream(), *done));
    return *done;
  }
  Status End(GpuStep* step, gpu::Event done) {
    const Status ended = step->End(gpu::HostDevice::HandleOf(done));
    device_->Return(done);
    return ended;
  }
};

TEST_F(GpuStepsTest, RowsAreAppendedWhileLaterStepsRun) {
  const ModelSpec model = TinyModel();
  constexpr uint64_t kSteps = 30;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Start({.seed = seed});
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
    std::vector<Branch> chats(kSequences);
    for (Branch& chat : chats) {
      ASSERT_OK_ASSIGN(chat, store_.CreateBranch(id));
    }
    {
      Engine engine(device_.get(), model);
      ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 3}));
      std::map<uint64_t, GpuStep> on_their_way;
      const auto append = [&](uint64_t at) {
        GpuStep& step = on_their_way[at];
        ASSERT_OK(step.Wait());
        for (uint32_t row = 0; row < kSequences; ++row) {
          ASSERT_OK_ASSIGN(const KvView* const kv, step.Row(row, at));
          const std::vector<TokenId> token = Tokens(1, at);
          AppendOptions options;
          options.expected_length = at;
          ASSERT_OK(chats[row].AppendSync(MakeDelta(token, kv), options));
        }
        EXPECT_FAILS(step.Row(kSequences, at), StatusCode::kInvalidArgument, "named no place");
        EXPECT_FAILS(step.Row(kRows, at), StatusCode::kInvalidArgument, "row 6 of 6");
        on_their_way.erase(at);
      };
      for (uint64_t at = 0; at < kSteps; ++at) {
        engine.Step(at);
        ASSERT_OK_ASSIGN(GpuStep step, steps.Begin(gpu::HostDevice::HandleOf(engine.stream())));
        ASSERT_OK(End(&step, Launch(&engine, &steps)));
        on_their_way[at] = std::move(step);
        if (at >= 2) append(at - 2);
      }
      append(kSteps - 2);
      append(kSteps - 1);
      device_->RunAll();
    }
    for (uint32_t row = 0; row < kSequences; ++row) {
      EXPECT_TRUE(HasKv(chats[row], model, 0, kSteps, kSeed + row)) << "seed " << seed;
    }
  }
}

// The ring is full: steps go on, what they compute is not saved, and what is saved is not harmed.
TEST_F(GpuStepsTest, AFullRingSavesNothingAndWaitsForNobody) {
  const ModelSpec model = HybridModel();
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Start({.seed = seed});
    Engine engine(device_.get(), model);
    ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 2}));
    std::map<uint64_t, GpuStep> kept;
    uint64_t busy = 0;
    for (uint64_t at = 0; at < 12; ++at) {
      engine.Step(at);
      auto step = steps.Begin(gpu::HostDevice::HandleOf(engine.stream()));
      const gpu::Event done = Launch(&engine, &steps);
      if (!step.ok()) {
        EXPECT_FAILS(step, StatusCode::kBusy, "no slot is free");
        ++busy;
        device_->Return(done);
      } else {
        ASSERT_OK(End(&*step, done));
        EXPECT_FAILS(step->End(gpu::HostDevice::HandleOf(done)), StatusCode::kInvalidState, "");
        kept[at] = std::move(*step);
      }
      if (at == 7) kept.erase(0);  // Given up; its slot comes back when nothing touches it.
    }
    EXPECT_GT(busy, 5u);
    device_->RunAll();  // Steps that were not saved run as well, before the ring goes.
    ASSERT_TRUE(kept.contains(1));
    for (auto& [at, step] : kept) {
      ASSERT_OK(step.Wait());
      for (uint32_t row = 0; row < kSequences; ++row) {
        ASSERT_OK_ASSIGN(const KvView* const kv, step.Row(row, at));
        KvSet want(model, Layout::kContiguous, at, 1);
        want.Write(kSeed + row, at, at + 1);
        for (const GroupView& group : kv->groups) {
          const GroupView right = want.pool(group.group).View(at, 1);
          for (size_t p = 0; p < group.planes.size(); ++p) {
            const Plane& plane = model.groups[group.group].planes[p];
            const PositionMap is(group, at, 1), should(right, at, 1);
            std::vector<std::byte> a(SliceBytes(plane, 1)), b(a);
            for (uint32_t layer = 0; layer < model.groups[group.group].layers; ++layer) {
              GatherSlice(plane, group.planes[p], layer, is, a.data());
              GatherSlice(plane, right.planes[p], layer, should, b.data());
              EXPECT_EQ(b, a) << "seed " << seed << ", step " << at << ", row " << row;
            }
          }
        }
      }
    }
  }
}

// A step that is given up before it ran keeps its slot until it has.
TEST_F(GpuStepsTest, AStepThatIsGivenUpEarlyHarmsNobody) {
  const ModelSpec model = TinyModel();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Start({.seed = seed});
    Engine engine(device_.get(), model);
    ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 1}));
    uint64_t saved = 0;
    for (uint64_t at = 0; at < 20; ++at) {
      engine.Step(at);
      auto step = steps.Begin(gpu::HostDevice::HandleOf(engine.stream()));
      const gpu::Event done = Launch(&engine, &steps);
      if (!step.ok() || at % 2 == 0) {
        device_->Return(done);
        continue;
      }
      ASSERT_OK(End(&*step, done));
      ASSERT_OK(step->Wait());
      ++saved;
      ASSERT_OK_ASSIGN(const KvView* const kv, step->Row(1, at));
      const GroupView& group = kv->groups[0];
      KvPool right(model.groups[0], 0, Layout::kContiguous, at, 1);
      right.Write(kSeed + 1, at, at + 1);
      const GroupView want = right.View(at, 1);
      std::vector<std::byte> a(SliceBytes(model.groups[0].planes[0], 1)), b(a);
      GatherSlice(model.groups[0].planes[0], group.planes[0], 0, PositionMap(group, at, 1),
                  a.data());
      GatherSlice(model.groups[0].planes[0], want.planes[0], 0, PositionMap(want, at, 1), b.data());
      EXPECT_EQ(b, a) << "seed " << seed << ", step " << at;
    }
    EXPECT_GT(saved, 0u);
    device_->RunAll();
  }
}

// A step that was begun and never launched, or launched without having been begun, gives nobody the
// rows of another.
TEST_F(GpuStepsTest, BegunAndLaunchedNeedNotBeInStep) {
  const ModelSpec model = TinyModel();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Start({.seed = seed});
    Engine engine(device_.get(), model);
    const uintptr_t stream = gpu::HostDevice::HandleOf(engine.stream());
    ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 4}));
    uint64_t right = 0;
    for (uint64_t at = 0; at < 24; ++at) {
      engine.Step(at);
      if (at % 3 == 0) {  // As a launch that failed.
        ASSERT_OK_ASSIGN(GpuStep never, steps.Begin(stream));
        const auto done = device_->NewEvent();
        ASSERT_OK(done);
        ASSERT_OK(device_->Record(engine.stream(), *done));
        ASSERT_OK(End(&never, *done));
        EXPECT_FAILS(never.Wait(), StatusCode::kInvalidState, "did not run");
        EXPECT_FAILS(never.Row(0, at), StatusCode::kInvalidState, "did not run");
      }
      if (at % 4 == 0) {
        ASSERT_OK(steps.Enqueue(stream));  // Nobody asked to save it, unless the one above.
        continue;
      }
      auto step = steps.Begin(stream);
      ASSERT_OK(step);
      ASSERT_OK(End(&*step, Launch(&engine, &steps)));
      ASSERT_OK(step->Wait());
      ASSERT_OK_ASSIGN(const KvView* const kv, step->Row(1, at));
      KvPool pool(model.groups[0], 0, Layout::kContiguous, at, 1);
      pool.Write(kSeed + 1, at, at + 1);
      const GroupView want = pool.View(at, 1);
      std::vector<std::byte> a(SliceBytes(model.groups[0].planes[0], 1)), b(a);
      GatherSlice(model.groups[0].planes[0], kv->groups[0].planes[0], 0,
                  PositionMap(kv->groups[0], at, 1), a.data());
      GatherSlice(model.groups[0].planes[0], want.planes[0], 0, PositionMap(want, at, 1), b.data());
      EXPECT_EQ(b, a) << "seed " << seed << ", step " << at;
      ++right;
    }
    EXPECT_EQ(18u, right);
    device_->RunAll();
  }
}

// Any call of the device fails, wherever: a step is right or is told.
TEST_F(GpuStepsTest, AFaultAtEveryIndex) {
  const ModelSpec model = TinyModel();
  bool struck = true;
  uint64_t failed = 0;
  for (uint64_t index = 0; struck; ++index) {
    Start({.seed = index + 1, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
    Engine engine(device_.get(), model);
    const uintptr_t stream = gpu::HostDevice::HandleOf(engine.stream());
    const auto done = device_->NewEvent();
    ASSERT_OK(done);
    engine.Step(0);
    engine.Settle();
    const uint64_t calls = device_->calls();
    device_->FailAt(calls + index);
    const Status status = [&]() -> Status {
      CAIRN_ASSIGN_OR_RETURN(GpuSteps steps,
                             GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 2}));
      const Status saved = [&]() -> Status {
        CAIRN_ASSIGN_OR_RETURN(GpuStep step, steps.Begin(stream));
        CAIRN_RETURN_IF_ERROR(steps.Enqueue(stream));
        CAIRN_RETURN_IF_ERROR(device_->Record(engine.stream(), *done));
        CAIRN_RETURN_IF_ERROR(step.End(gpu::HostDevice::HandleOf(*done)));
        CAIRN_RETURN_IF_ERROR(step.Wait());
        CAIRN_ASSIGN_OR_RETURN(const KvView* const kv, step.Row(2, 0));
        KvPool pool(model.groups[0], 0, Layout::kContiguous, 0, 1);
        pool.Write(kSeed + 2, 0, 1);
        const GroupView want = pool.View(0, 1);
        std::vector<std::byte> a(SliceBytes(model.groups[0].planes[1], 1)), b(a);
        GatherSlice(model.groups[0].planes[1], kv->groups[0].planes[1], 0,
                    PositionMap(kv->groups[0], 0, 1), a.data());
        GatherSlice(model.groups[0].planes[1], want.planes[1], 0, PositionMap(want, 0, 1),
                    b.data());
        EXPECT_EQ(b, a) << index;
        return Status::Ok();
      }();
      struck = device_->calls() > calls + index;
      device_->FailAt(UINT64_MAX);
      device_->RunAll();
      return saved;
    }();
    struck = struck && device_->calls() > calls + index;
    device_->FailAt(UINT64_MAX);
    failed += status.ok() ? 0 : 1;
    ASSERT_LT(index, 1000u);
    device_->Return(*done);
  }
  EXPECT_GT(failed, 10u);
}

TEST_F(GpuStepsTest, WhatCannotBeMeantIsRefusedByName) {
  const ModelSpec model = HybridModel();
  Engine engine(device_.get(), model);
  KvView view = engine.view();
  EXPECT_FAILS(GpuSteps::Make(*gpu_, model, view, {.slots = 0}), StatusCode::kInvalidArgument,
               "slots is 0");
  view.device = 1;
  EXPECT_FAILS(GpuSteps::Make(*gpu_, model, view), StatusCode::kInvalidArgument, "device 1");
  view = engine.view();
  std::vector<GroupView> groups(view.groups.begin(), view.groups.end());
  groups[1].count = 2;
  view.groups = groups;
  EXPECT_FAILS(GpuSteps::Make(*gpu_, model, view), StatusCode::kInvalidArgument,
               "all have as many");
  view.groups = {};
  EXPECT_FAILS(GpuSteps::Make(*gpu_, model, view), StatusCode::kInvalidArgument, "no group");
  ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view()));
  ASSERT_OK_ASSIGN(GpuStep step, steps.Begin(gpu::HostDevice::HandleOf(engine.stream())));
  EXPECT_FAILS(steps.Begin(gpu::HostDevice::HandleOf(gpu::Stream{77})),
               StatusCode::kInvalidArgument, "the stream");
  EXPECT_FAILS(step.Wait(), StatusCode::kInvalidState, "End was not called");
  EXPECT_FAILS(step.Row(0, 0), StatusCode::kBusy, "has not arrived");
  const auto other = gpu::MakeHostDevice(sim_.scheduler, {});
  ASSERT_OK_ASSIGN(const gpu::Event foreign, other->NewEvent());
  EXPECT_FAILS(step.End(gpu::HostDevice::HandleOf(foreign)), StatusCode::kInvalidArgument,
               "of another device");
  GpuStep empty;
  EXPECT_FAILS(empty.End(0), StatusCode::kInvalidState, "an empty step");
}

}  // namespace
}  // namespace cairn::testing
