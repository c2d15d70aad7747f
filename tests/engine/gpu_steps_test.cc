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
#include "tests/engine/step_engine.h"
#include "tests/gpu/callers_stream.h"

namespace cairn::testing {
namespace {

class GpuStepsTest : public GpuTest {
 protected:
  // A launch of the engine's graph with the step, and the event that it records then.
  gpu::Event Launch(CallersStream* mine, GpuSteps* steps) {
    EXPECT_OK(steps->Enqueue(mine->handle()));
    const auto done = device_->NewEvent();
    EXPECT_OK(done);
    EXPECT_OK(device_->Record(mine->stream(), *done));
    return *done;
  }
  Status End(GpuStep* step, gpu::Event done) {
    const Status ended = step->End(gpu::SimDevice::HandleOf(done));
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
      CallersStream mine(device_.get());
      StepEngine engine(device_.get(), mine.stream(), model);
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
        ASSERT_OK_ASSIGN(GpuStep step, steps.Begin(mine.handle()));
        ASSERT_OK(End(&step, Launch(&mine, &steps)));
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
    CallersStream mine(device_.get());
    StepEngine engine(device_.get(), mine.stream(), model);
    ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 2}));
    std::map<uint64_t, GpuStep> kept;
    uint64_t busy = 0;
    for (uint64_t at = 0; at < 12; ++at) {
      engine.Step(at);
      auto step = steps.Begin(mine.handle());
      const gpu::Event done = Launch(&mine, &steps);
      if (!step.ok()) {
        EXPECT_FAILS(step, StatusCode::kBusy, "no slot is free");
        ++busy;
        device_->Return(done);
      } else {
        ASSERT_OK(End(&*step, done));
        EXPECT_FAILS(step->End(gpu::SimDevice::HandleOf(done)), StatusCode::kInvalidState, "");
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
    CallersStream mine(device_.get());
    StepEngine engine(device_.get(), mine.stream(), model);
    ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 1}));
    uint64_t saved = 0;
    for (uint64_t at = 0; at < 20; ++at) {
      engine.Step(at);
      auto step = steps.Begin(mine.handle());
      const gpu::Event done = Launch(&mine, &steps);
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
    CallersStream mine(device_.get());
    StepEngine engine(device_.get(), mine.stream(), model);
    const uintptr_t stream = mine.handle();
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
      ASSERT_OK(End(&*step, Launch(&mine, &steps)));
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

// A step that was begun and never launched does not get the rows of one for which there was no
// room.
TEST_F(GpuStepsTest, AStepWithoutRoomIsNotTakenForOneThatNeverRan) {
  const ModelSpec model = TinyModel();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Start({.seed = seed});
    CallersStream mine(device_.get());
    StepEngine engine(device_.get(), mine.stream(), model);
    ASSERT_OK_ASSIGN(GpuSteps steps, GpuSteps::Make(*gpu_, model, engine.view(), {.slots = 1}));
    engine.Step(0);
    ASSERT_OK_ASSIGN(GpuStep never, steps.Begin(mine.handle()));
    const auto done = device_->NewEvent();
    ASSERT_OK(done);
    ASSERT_OK(device_->Record(mine.stream(), *done));
    ASSERT_OK(End(&never, *done));
    EXPECT_FAILS(steps.Begin(mine.handle()), StatusCode::kBusy, "no slot is free");
    device_->Return(Launch(&mine, &steps));
    if (seed % 2 == 0) device_->RunAll();
    EXPECT_FAILS(never.Wait(), StatusCode::kInvalidState, "did not run");
    device_->RunAll();
  }
}

// Any call of the device fails, wherever: a step is right or its fault is reported.
TEST_F(GpuStepsTest, AFaultAtEveryIndex) {
  const ModelSpec model = TinyModel();
  bool struck = true;
  uint64_t failed = 0;
  for (uint64_t index = 0; struck; ++index) {
    Start({.seed = index + 1, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
    CallersStream mine(device_.get());
    StepEngine engine(device_.get(), mine.stream(), model);
    const uintptr_t stream = mine.handle();
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
        CAIRN_RETURN_IF_ERROR(step.End(gpu::SimDevice::HandleOf(*done)));
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
  CallersStream mine(device_.get());
  StepEngine engine(device_.get(), mine.stream(), model);
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
  ASSERT_OK_ASSIGN(GpuStep step, steps.Begin(mine.handle()));
  EXPECT_FAILS(steps.Begin(gpu::SimDevice::HandleOf(gpu::Stream{77})), StatusCode::kInvalidArgument,
               "the stream");
  EXPECT_FAILS(step.Wait(), StatusCode::kInvalidState, "End was not called");
  EXPECT_FAILS(step.Row(0, 0), StatusCode::kBusy, "has not arrived");
  const auto other = gpu::MakeSimDevice(sim_.scheduler, {});
  ASSERT_OK_ASSIGN(const gpu::Event foreign, other->NewEvent());
  EXPECT_FAILS(step.End(gpu::SimDevice::HandleOf(foreign)), StatusCode::kInvalidArgument,
               "of another device");
  GpuStep empty;
  EXPECT_FAILS(empty.End(0), StatusCode::kInvalidState, "an empty step");
}

}  // namespace
}  // namespace cairn::testing
