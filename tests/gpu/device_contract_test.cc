// SPDX-License-Identifier: Apache-2.0
//
// Property: every device is what gpu/device.h says. Method: the same short programs on the host's
// device and on a card where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/core/seeded_random.h"
#include "base/io/real_scheduler.h"
#include "gpu/sim_device.h"
#include "tests/gpu/card.h"
#include "tests/support/status.h"
#include "tests/support/test_seed.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

using gpu::Memory;

class DeviceContract : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "card") {
      auto card = OpenCard();
      if (!card.ok()) GTEST_SKIP() << card.status().ToString();
      device_ = std::move(*card);
    } else {
      device_ = gpu::MakeSimDevice(scheduler_, {.seed = seed_});
    }
    stream_ = NewStream();
    end_ = NewEvent();
  }
  void TearDown() override {
    for (std::byte* const at : memory_) device_->Free(at);
  }

  gpu::Stream NewStream() {
    auto stream = device_->NewStream(gpu::Priority::kLow);
    EXPECT_OK(stream);
    return *stream;
  }
  gpu::Event NewEvent() {
    auto event = device_->NewEvent();
    EXPECT_OK(event);
    return *event;
  }
  std::byte* Allocate(Memory kind, uint64_t bytes) {
    auto at = device_->Allocate(kind, bytes);
    EXPECT_OK(at);
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(*at) % gpu::kDeviceAlignment);
    memory_.push_back(*at);
    return *at;
  }
  Status Copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    const gpu::CopyPiece piece{to, from, bytes};
    return device_->Copy(stream_, {&piece, 1});
  }
  Status End() {
    CAIRN_RETURN_IF_ERROR(device_->Record(stream_, end_));
    return device_->Wait(end_, io::kNoDeadline);
  }
  uint64_t In(uint64_t ms) { return scheduler_->MonotonicNs() + ms * 1'000'000; }

  const uint64_t seed_ = QuickTestSeed();
  const std::shared_ptr<io::Scheduler> scheduler_ = std::make_shared<io::RealScheduler>();
  std::shared_ptr<gpu::Device> device_;
  gpu::Stream stream_;
  gpu::Event end_;
  std::vector<std::byte*> memory_;
};

TEST_P(DeviceContract, AStreamKeepsItsOrder) {
  constexpr uint64_t kBytes = 1 << 20;
  std::byte* const at = Allocate(Memory::kDevice, kBytes);
  std::byte* const first = Allocate(Memory::kPinned, kBytes);
  std::byte* const second = Allocate(Memory::kPinned, kBytes);
  ASSERT_OK(device_->Fill(stream_, {at, kBytes}, std::byte{1}));
  ASSERT_OK(Copy(first, at, kBytes));
  ASSERT_OK(device_->Fill(stream_, {at, kBytes / 2}, std::byte{2}));
  ASSERT_OK(Copy(second, at, kBytes));
  ASSERT_OK(End());
  EXPECT_EQ(kBytes, static_cast<uint64_t>(std::count(first, first + kBytes, std::byte{1})));
  EXPECT_EQ(kBytes / 2, static_cast<uint64_t>(std::count(second, second + kBytes, std::byte{2})));
  EXPECT_EQ(std::byte{1}, second[kBytes - 1]);
}

TEST_P(DeviceContract, PiecesOfAnySizeAndPlaceInOneCall) {
  const Repeatable repeatable(seed_);
  SeededRandom random(seed_);
  constexpr uint64_t kBytes = 4 << 20;
  std::byte* const at = Allocate(Memory::kDevice, kBytes);
  std::byte* const from = Allocate(Memory::kPinned, kBytes);
  std::byte* const back = Allocate(Memory::kPinned, kBytes);
  std::vector<std::byte> expected(kBytes, std::byte{7});
  for (uint64_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(random.Next());
  std::vector<gpu::CopyPiece> pieces;
  for (uint64_t done = 0; done < kBytes;) {
    const uint64_t size = std::min(kBytes - done, 1 + random.Below(16u << random.Below(12)));
    const uint64_t source = random.Below(kBytes - size + 1);
    if (random.Below(4) != 0) {
      pieces.push_back({at + done, from + source, size});
      std::memcpy(&expected[done], from + source, size);
    }
    done += size;
  }
  ASSERT_OK(device_->Fill(stream_, {at, kBytes}, std::byte{7}));
  ASSERT_OK(device_->Copy(stream_, pieces));
  ASSERT_OK(Copy(back, at, kBytes));
  ASSERT_OK(End());
  EXPECT_EQ(0, std::memcmp(back, expected.data(), kBytes)) << pieces.size() << " pieces";
}

TEST_P(DeviceContract, RegisteredMemoryIsCopiedFromAndTo) {
  constexpr uint64_t kBytes = 1 << 20;
  std::vector<std::byte> mine(kBytes, std::byte{5}), back(kBytes);
  std::byte* const at = Allocate(Memory::kDevice, kBytes);
  ASSERT_OK(device_->Register(mine));
  ASSERT_OK(device_->Register(back));
  ASSERT_OK(Copy(at, mine.data(), kBytes));
  ASSERT_OK(Copy(back.data(), at, kBytes));
  ASSERT_OK(End());
  EXPECT_EQ(mine, back);
  device_->Unregister(mine);
  device_->Unregister(back);
}

TEST_P(DeviceContract, KernelsReadPinnedMemory) {
  constexpr uint32_t kEntries = 1000;
  constexpr uint64_t kVerdictBytes = sizeof(gpu::TableVerdict), kSeenBytes = kEntries / 8 + 4;
  auto* const entries = reinterpret_cast<uint32_t*>(Allocate(Memory::kPinned, kEntries * 4));
  std::byte* const told = Allocate(Memory::kPinned, kVerdictBytes);
  std::byte* const verdict_at = Allocate(Memory::kDevice, kVerdictBytes);
  std::byte* const seen = Allocate(Memory::kDevice, kSeenBytes);
  for (uint32_t i = 0; i < kEntries; ++i) entries[i] = kEntries - 1 - i;
  entries[700] = 5;  // As entries[994] is.
  entries[800] = kEntries;
  ASSERT_OK(device_->Fill(stream_, {verdict_at, kVerdictBytes}, std::byte{0xff}));
  ASSERT_OK(device_->Fill(stream_, {seen, kSeenBytes}, std::byte{0}));
  const gpu::CheckTable check{.entries = entries,
                              .seen = reinterpret_cast<uint32_t*>(seen),
                              .verdict = reinterpret_cast<gpu::TableVerdict*>(verdict_at),
                              .end = kEntries,
                              .entries_end = kEntries};
  ASSERT_OK(device_->Launch(stream_, check));
  ASSERT_OK(Copy(told, verdict_at, kVerdictBytes));
  ASSERT_OK(End());
  gpu::TableVerdict verdict;
  std::memcpy(&verdict, told, kVerdictBytes);
  EXPECT_EQ(800u, verdict.outside);
  EXPECT_EQ(5u, verdict.twice);
}

TEST_P(DeviceContract, AnEventThatWasNeverRecordedHoldsUpNobody) {
  const gpu::Event never = NewEvent();
  const auto reached = device_->Reached(never);
  ASSERT_OK(reached);
  EXPECT_TRUE(*reached);
  ASSERT_OK(device_->StreamWait(stream_, never));
  ASSERT_OK(End());
}

TEST_P(DeviceContract, AStreamWaitsForAWordAndAHostForItsDeadline) {
  if (!device_->info().waits_for_words) GTEST_SKIP() << "no words in streams here";
  auto* const word = reinterpret_cast<uint32_t*>(Allocate(Memory::kPinned, 4));
  *word = 1;
  const gpu::Stream other = NewStream();
  ASSERT_OK(device_->AwaitWord(stream_, word, 2));
  ASSERT_OK(device_->Record(stream_, end_));
  EXPECT_FAILS(device_->Wait(end_, In(20)), StatusCode::kDeadlineExceeded);
  const auto reached = device_->Reached(end_);
  ASSERT_OK(reached);
  EXPECT_FALSE(*reached);
  ASSERT_OK(device_->SetWord(other, word, 2));
  const gpu::Event set = NewEvent();
  ASSERT_OK(device_->Record(other, set));
  ASSERT_OK(device_->Wait(set, io::kNoDeadline));
  ASSERT_OK(device_->Wait(end_, io::kNoDeadline));
  EXPECT_EQ(2u, *word);
}

TEST_P(DeviceContract, WhatCannotBeIsRefusedAndCostsNothing) {
  EXPECT_FAILS(device_->Allocate(Memory::kDevice, uint64_t{1} << 42), StatusCode::kOutOfMemory);
  const gpu::Stream stream = NewStream();
  const gpu::Event event = NewEvent();
  device_->Return(stream);
  device_->Return(event);
  EXPECT_FAILS(device_->Record(stream, end_), StatusCode::kInvalidArgument);
  EXPECT_FAILS(device_->StreamWait(stream_, event), StatusCode::kInvalidArgument);
  EXPECT_FAILS(device_->Reached(event), StatusCode::kInvalidArgument);
  EXPECT_OK(device_->lost());
  ASSERT_OK(End());
}

INSTANTIATE_TEST_SUITE_P(Every, DeviceContract, ::testing::Values("simulated", "card"), NameOf);

}  // namespace
}  // namespace cairn::testing
