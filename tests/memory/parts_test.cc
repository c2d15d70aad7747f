// SPDX-License-Identifier: Apache-2.0
//
// Property and method of out_of_memory_test.cc, for parts of the store where no script comes with
// an allocation that fails.
#include <gtest/gtest.h>

#include <functional>

#include "base/io/sim_disk.h"
#include "sstable/gap_notes.h"
#include "tests/memory/failing_new.h"
#include "tests/memory/whole_world.h"
#include "tests/support/log_fixture.h"
#include "tests/support/status.h"
#include "wal/constants.h"
#include "wal/segment_files.h"

namespace cairn::memory {
namespace {

// `run` with the n-th allocation of its FailingScope failing, for every n.
void AtEveryAllocation(const std::function<void()>& run) {
  for (uint64_t n = 1;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    SetFailPlan({.at = n});
    run();
    if (::testing::Test::HasFailure()) break;
    if (AllocationsFailed() == 0) {
      EXPECT_GT(n, 1u) << "none failed";
      break;
    }
  }
  SetFailPlan({});
}

TEST(Parts, ANoteOfAGapThatFindsNoMemoryIsNoNote) {
  const std::string from(40, 'b'), end(40, 'f');  // Too long to lie in the string itself.
  AtEveryAllocation([&] {
    sstable::GapNotes notes;
    const auto search = notes.Begin(from);
    {
      const FailingScope failing;
      notes.End(search, end);
    }
    EXPECT_EQ(notes.StartOf(from), AllocationsFailed() == 0 ? end : from);
  });
}

TEST(Parts, ALargeRecordIsWrittenWithoutAQueueOfItsOwn) {
  AtEveryAllocation([&] {
    std::string escaped;
    const auto disk = std::make_shared<io::SimDisk>();
    wal::LogFixture log(MakeWholeWorld(disk, 1, &escaped));
    log.options.segment_bytes = 8 << 20;
    log.options.hot_tail_bytes = 16 << 20;
    log.OpenLog();
    const wal::TestRecord record = wal::Payload(3, 2 * wal::kLargePayloadBytes);
    const std::vector<std::byte>& payload = record.strips[0];
    const wal::Strip strip{0, static_cast<uint32_t>(payload.size())};
    ASSERT_OK_ASSIGN(wal::Log::Slot slot,
                     log.log->Reserve({record.kind, false, 0, record.fields, {&strip, 1}},
                                      wal::Log::Purpose::kData));
    std::copy(payload.begin(), payload.end(), slot.payload + slot.strip_offsets[0]);
    uint64_t early_writes = 0;
    disk->set_on_operation(
        [&](const io::SimOperation& one) { early_writes += one.op == io::SimOp::kWrite; });
    {
      const FailingScope failing;
      log.log->PieceReady(slot, slot.strip_offsets[0] + payload.size());
    }
    disk->set_on_operation(nullptr);
    EXPECT_EQ(early_writes == 0, AllocationsFailed() != 0);
    const uint64_t hash = Hash(payload);
    log.log->Publish(slot, {&hash, 1});
    ASSERT_OK(log.log->Wait(slot.sequence, true, io::kNoDeadline));
    log.log.reset();
    const wal::Recovered found = log.RecoverAll();
    ASSERT_OK(found.status);
    ASSERT_EQ(found.records.size(), 1u);
    EXPECT_EQ(found.records[0].strips, record.strips);
    EXPECT_EQ(escaped, "");
  });
}

TEST(Parts, WhetherASegmentWasUsedIsToldOrRefused) {
  io::SimDisk disk;
  const std::string path = wal::SegmentPath("log", 1);
  ASSERT_OK(disk.CreateDirectory("log"));
  ASSERT_OK(wal::MakeZeroedFile(disk, path, 2 * wal::kBlock, Allocator::Default()));
  AtEveryAllocation([&] {
    Result<bool> used = true;
    {
      const FailingScope failing;
      try {
        used = wal::HoldsRecords(disk, path);
      } catch (const std::bad_alloc&) {  // As everywhere: Open makes a Status of it.
        used = Status(StatusCode::kOutOfMemory, "");
      }
    }
    if (AllocationsFailed() == 0) {
      ASSERT_OK(used);
      EXPECT_FALSE(*used);
    } else {
      EXPECT_FAILS(used, StatusCode::kOutOfMemory);
    }
  });
}

}  // namespace
}  // namespace cairn::memory
