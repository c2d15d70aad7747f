// SPDX-License-Identifier: Apache-2.0
//
// Property: on the host's device a program that waits for all that it must is right whatever the
// seed, one that leaves out any wait is found out, and each call that fails says so and leaves
// nothing half. Method: a small ring over two streams, with each wait left out; each call made to
// fail at each index.
#include "gpu/sim_device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/io/real_scheduler.h"
#include "sim/scheduler.h"
#include "tests/gpu/ring_pipeline.h"

namespace cairn::gpu {
namespace {

using testing::Left;

constexpr uint64_t kSeeds = 200;

class SimDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<SimDevice> Make(const SimDeviceOptions& options) {
    return MakeSimDevice(scheduler_, options);
  }
  std::byte* Memory(Device& device, gpu::Memory kind, uint64_t bytes) {
    Result<std::byte*> at = device.Allocate(kind, bytes);
    EXPECT_TRUE(at.ok()) << at.status().ToString();
    return *at;
  }
  std::shared_ptr<io::Scheduler> scheduler_ = std::make_shared<io::RealScheduler>();
};

TEST_F(SimDeviceTest, WhoWaitsIsRightAndWhoDoesNotIsFoundOut) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::unique_ptr<SimDevice> device = Make({.seed = seed});
    std::vector<std::byte> result, expected;
    ASSERT_TRUE(testing::RunRingPipeline(*device, Left::kNone, seed, &result, &expected).ok());
    ASSERT_EQ(result, expected) << "seed " << seed;
  }
  for (const Left left : testing::kAllLeft) {
    uint64_t found = 0;
    for (uint64_t seed = 1; seed <= kSeeds && found == 0; ++seed) {
      const std::unique_ptr<SimDevice> device = Make({.seed = seed});
      std::vector<std::byte> result, expected;
      ASSERT_TRUE(testing::RunRingPipeline(*device, left, seed, &result, &expected).ok());
      if (result != expected) found = seed;
    }
    EXPECT_NE(found, 0u) << "wait " << static_cast<int>(left);
  }
}

TEST_F(SimDeviceTest, EveryCallThatFailsSaysSo) {
  for (const bool lost : {false, true}) {
    uint64_t failed = 0;
    for (uint64_t at = 0;; ++at) {
      const std::unique_ptr<SimDevice> device =
          Make({.seed = at, .fail_kinds = kFailAny, .fail_at = at, .fail_lost = lost});
      std::vector<std::byte> result, expected;
      const Status status = testing::RunRingPipeline(*device, Left::kNone, at, &result, &expected);
      if (device->calls() <= at) break;
      ++failed;
      ASSERT_FALSE(status.ok()) << at;
      EXPECT_NE(status.message().find("call " + std::to_string(at)), std::string_view::npos);
      EXPECT_EQ(device->lost().ok(), !lost);
      const Result<Event> next = device->NewEvent();
      EXPECT_EQ(next.ok(), !lost) << "the first cause is told again";
      if (lost) {
        EXPECT_EQ(next.status().ToString(), status.ToString());
      }
    }
    EXPECT_GT(failed, 60u);
  }
}

TEST_F(SimDeviceTest, ALostDeviceTouchesNothingAnyMore) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto device =
        Make({.seed = seed, .fail_kinds = kFailQuery, .fail_at = 0, .fail_lost = true});
    std::byte* const from = Memory(*device, gpu::Memory::kPinned, 64);
    std::byte* const to = Memory(*device, gpu::Memory::kPinned, 64);
    const Stream stream = *device->NewStream(Priority::kLow);
    const Event event = *device->NewEvent();
    const CopyPiece piece{to, from, 64};
    ASSERT_TRUE(device->Copy(stream, {&piece, 1}).ok());
    ASSERT_TRUE(device->Record(stream, event).ok());
    EXPECT_EQ(device->Wait(event, io::kNoDeadline).code(), StatusCode::kIoError);
    std::memset(to, 5, 64);
    EXPECT_EQ(device->Wait(event, io::kNoDeadline).code(), StatusCode::kIoError);
    EXPECT_EQ(device->Copy(stream, {&piece, 1}).code(), StatusCode::kIoError);
    for (int i = 0; i < 64; ++i) ASSERT_EQ(to[i], std::byte{5});
  }
}

// The trap of the hardware: such a wait has no part in a Record that comes later.
TEST_F(SimDeviceTest, WaitingForAnEventThatWasNeverRecordedWaitsForNothing) {
  bool overtaken = false;
  for (uint64_t seed = 1; seed <= kSeeds && !overtaken; ++seed) {
    const auto device = Make({.seed = seed});
    std::byte* const pinned = Memory(*device, gpu::Memory::kPinned, 3);
    const Stream first = *device->NewStream(Priority::kLow);
    const Stream second = *device->NewStream(Priority::kLow);
    const Event event = *device->NewEvent(), end = *device->NewEvent();
    EXPECT_TRUE(*device->Reached(event));
    ASSERT_TRUE(device->Fill(second, {pinned, 1}, std::byte{1}).ok());
    ASSERT_TRUE(device->StreamWait(second, event).ok());  // Meant for the record below.
    const CopyPiece piece{pinned + 1, pinned + 2, 1};
    ASSERT_TRUE(device->Copy(second, {&piece, 1}).ok());
    ASSERT_TRUE(device->Record(second, end).ok());
    ASSERT_TRUE(device->Fill(first, {pinned + 2, 1}, std::byte{7}).ok());
    ASSERT_TRUE(device->Record(first, event).ok());
    ASSERT_TRUE(device->Wait(end, io::kNoDeadline).ok());
    overtaken = pinned[1] != std::byte{7};
  }
  EXPECT_TRUE(overtaken);
}

TEST_F(SimDeviceTest, WordsHoldAStreamUntilTheyAreSet) {
  const auto device = Make({.seed = 3});
  auto* const word =
      reinterpret_cast<uint32_t*>(Memory(*device, gpu::Memory::kPinned, sizeof(uint32_t)));
  std::byte* const to = Memory(*device, gpu::Memory::kPinned, 1);
  *word = 0;
  *to = std::byte{0};
  const Stream holds = *device->NewStream(Priority::kLow),
               sets = *device->NewStream(Priority::kLow);
  const Event end = *device->NewEvent();
  ASSERT_TRUE(device->AwaitWord(holds, word, 2).ok());
  ASSERT_TRUE(device->Fill(holds, {to, 1}, std::byte{9}).ok());
  ASSERT_TRUE(device->Record(holds, end).ok());
  EXPECT_EQ(device->Wait(end, scheduler_->MonotonicNs()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(*to, std::byte{0});
  EXPECT_FALSE(*device->Reached(end));
  ASSERT_TRUE(device->SetWord(sets, word, 2).ok());
  const Event set = *device->NewEvent();
  ASSERT_TRUE(device->Record(sets, set).ok());
  ASSERT_TRUE(device->Wait(set, io::kNoDeadline).ok());
  ASSERT_TRUE(device->Wait(end, io::kNoDeadline).ok());
  EXPECT_EQ(*to, std::byte{9});
  EXPECT_TRUE(*device->Reached(end));
}

// As on a card, where every stream gets on though nobody waits for it.
TEST_F(SimDeviceTest, AWordThatAnotherStreamWillSetIsNotWaitedForInVain) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const auto device = Make({.seed = seed});
    auto* const word =
        reinterpret_cast<uint32_t*>(Memory(*device, gpu::Memory::kPinned, sizeof(uint32_t)));
    *word = 0;
    const Stream holds = *device->NewStream(Priority::kLow);
    const Stream sets = *device->NewStream(Priority::kLow);
    const Event end = *device->NewEvent();
    ASSERT_TRUE(device->AwaitWord(holds, word, 1).ok());
    ASSERT_TRUE(device->Record(holds, end).ok());
    ASSERT_TRUE(device->SetWord(sets, word, 1).ok());
    if (seed % 2 == 0) {
      ASSERT_TRUE(device->Wait(end, scheduler_->MonotonicNs() + 1'000'000'000).ok()) << seed;
      continue;
    }
    for (int asked = 0; !*device->Reached(end); ++asked) ASSERT_LT(asked, 1000) << seed;
  }
}

TEST_F(SimDeviceTest, ReachedIsLateNowAndThenButComes) {
  uint64_t late = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const auto device = Make({.seed = seed});
    const Stream stream = *device->NewStream(Priority::kLow);
    const Event event = *device->NewEvent();
    ASSERT_TRUE(device->Record(stream, event).ok());
    int asked = 0;
    for (; !*device->Reached(event); ++asked) ASSERT_LT(asked, 1000);
    late += asked > 0;
  }
  EXPECT_GT(late, 10u);
}

TEST_F(SimDeviceTest, NamesWhatIsWrongWithACall) {
  const auto device = Make({.memory_bytes = 1 << 20}), other = Make({});
  const Stream stream = *device->NewStream(Priority::kLow);
  const Event event = *device->NewEvent(), foreign = *other->NewEvent();
  std::byte* const memory = Memory(*device, gpu::Memory::kDevice, 512);
  std::byte unknown[16] = {};
  const auto says = [](const Status& status, StatusCode code, const char* what) {
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find(what), std::string_view::npos) << status.ToString();
  };
  says(device->Record(stream, foreign), StatusCode::kInvalidArgument, "event is of another device");
  says(other->Record(stream, foreign), StatusCode::kInvalidArgument, "stream is of another device");
  says(device->AdoptEvent(SimDevice::HandleOf(foreign)).status(), StatusCode::kInvalidArgument,
       "another device");
  says(device->AdoptStream(7).status(), StatusCode::kInvalidArgument, "another device");
  EXPECT_TRUE(device->AdoptStream(SimDevice::HandleOf(stream)).ok());
  CopyPiece piece{memory, unknown, 16};
  says(device->Copy(stream, {&piece, 1}), StatusCode::kInvalidArgument,
       "source is neither the device's nor pinned");
  ASSERT_TRUE(device->Register(unknown).ok());
  EXPECT_TRUE(device->Copy(stream, {&piece, 1}).ok());
  ASSERT_TRUE(device->Record(stream, event).ok());
  ASSERT_TRUE(device->Wait(event, io::kNoDeadline).ok());
  device->Unregister(unknown);
  piece = {memory + 510, memory, 3};
  says(device->Copy(stream, {&piece, 1}), StatusCode::kInvalidArgument, "destination is neither");
  says(device->Allocate(gpu::Memory::kDevice, 1 << 20).status(), StatusCode::kOutOfMemory,
       "512 of 1048576 are used");
  says(device->Allocate(gpu::Memory::kDevice, 0).status(), StatusCode::kInvalidArgument, "0 bytes");
  says(device->Register({}), StatusCode::kInvalidArgument, "no memory");
  device->Return(event);
  says(device->Record(stream, event), StatusCode::kInvalidArgument, "event was returned");
  device->Free(memory);
  piece = {unknown, memory, 1};
  says(device->Fill(stream, {memory, 1}, {}), StatusCode::kInvalidArgument, "was freed");
  EXPECT_DEATH(*memory = std::byte{1}, "");
}

// A program that has no stream of its own names it by 0, as often as it likes.
TEST_F(SimDeviceTest, TheDefaultStreamIsAlwaysThere) {
  const auto device = Make({});
  const Stream first = *device->AdoptStream(0), second = *device->AdoptStream(0);
  EXPECT_EQ(first.id, second.id);
  device->Return(first);
  device->Return(second);
  const Stream again = *device->AdoptStream(0);
  EXPECT_EQ(first.id, again.id);
  const Event event = *device->NewEvent();
  ASSERT_TRUE(device->Record(again, event).ok());
  EXPECT_TRUE(device->Wait(event, io::kNoDeadline).ok());
}

TEST_F(SimDeviceTest, MemoryFreedInFlightLosesTheDevice) {
  bool found = false;
  for (uint64_t seed = 1; seed <= 50 && !found; ++seed) {
    const auto device = Make({.seed = seed});
    std::byte* const memory = Memory(*device, gpu::Memory::kDevice, 64);
    const Stream stream = *device->NewStream(Priority::kLow);
    const Event event = *device->NewEvent();
    ASSERT_TRUE(device->Fill(stream, {memory, 64}, {}).ok());
    ASSERT_TRUE(device->Record(stream, event).ok());
    device->Free(memory);
    const Status status = device->Wait(event, io::kNoDeadline);
    found = status.message().find("freed while it was in flight") != std::string_view::npos;
    EXPECT_EQ(device->lost().ToString(), status.ToString());
  }
  EXPECT_TRUE(found);
}

TEST(SimDevice, TheSameSeedGivesTheSameRunOnTheSimulatedMachine) {
  const auto run = [](uint64_t seed) {
    auto scheduler = std::make_shared<io::SimScheduler>(seed);
    std::vector<std::byte> result, expected;
    scheduler->Run([&] {
      const auto device =
          MakeSimDevice(scheduler, {.seed = seed, .fail_kinds = kFailAny, .fail_at = UINT64_MAX});
      auto* const word = reinterpret_cast<uint32_t*>(*device->Allocate(Memory::kPinned, 4));
      *word = 0;
      const Stream stream = *device->NewStream(Priority::kLow);
      const Event event = *device->NewEvent();
      EXPECT_TRUE(device->AwaitWord(stream, word, 1).ok());
      EXPECT_TRUE(device->Record(stream, event).ok());
      {
        // Wait sleeps in virtual time, so that somebody else comes to set it.
        const auto thread = scheduler->StartThread("sets", [&] {
          scheduler->Sleep(1'000'000);
          __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        });
        EXPECT_TRUE(device->Wait(event, io::kNoDeadline).ok());
      }
      EXPECT_TRUE(testing::RunRingPipeline(*device, Left::kDone, seed, &result, &expected).ok());
      result.push_back(static_cast<std::byte>(device->calls()));
    });
    return std::pair(result, scheduler->schedule_hash());
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) EXPECT_EQ(run(seed), run(seed));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace cairn::gpu
