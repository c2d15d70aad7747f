// SPDX-License-Identifier: Apache-2.0
//
// The bug: a record with a large payload has a group of its own, closed at once, and the log wrote
// a closed group only when somebody asked for it. Cancelled borrowed appends asked for nothing, so
// a handful of them held every group and all of the store hung. Method: large records that nobody
// asks for, at the log itself.
#include <algorithm>

#include "tests/support/status.h"
#include "wal/log.h"

namespace cairn::testing {
namespace {

class UnwantedGroupsFilledTheLog : public ::testing::Test {
 protected:
  void Open(uint64_t memory_flush_ns) {
    ASSERT_OK(world_.files->CreateDirectory("log"));
    wal::LogOptions options;
    options.directory = "log";
    options.segment_bytes = 16 << 20;
    options.memory_flush_ns = memory_flush_ns;
    ASSERT_OK_ASSIGN(log_, wal::Log::Open(world_, options, {}));
  }

  Status WriteOne() {
    const std::vector<wal::Strip> strips = {{.tag = 1, .bytes = 600 << 10}};
    const std::vector<std::byte> fields(8);
    auto slot =
        log_->Reserve({.kind = 1, .more = false, .unit = 0, .fields = fields, .strips = strips},
                      wal::Log::Purpose::kData);
    if (!slot.ok()) return slot.status();
    std::fill_n(slot->payload, strips[0].bytes, std::byte{1});
    const uint64_t hash = Hash(std::span(slot->payload, strips[0].bytes));
    log_->Publish(*slot, {&hash, 1});
    return Status::Ok();
  }

  io::World world_ = io::MakeMemoryWorld();
  std::unique_ptr<wal::Log> log_;
};

TEST_F(UnwantedGroupsFilledTheLog, RoomIsMadeByWritingThem) {
  Open(/*memory_flush_ns=*/3'600'000'000'000);
  for (int written = 0; written < 60;) {
    const Status status = WriteOne();
    if (status.ok()) {
      ++written;
      continue;
    }
    ASSERT_EQ(StatusCode::kBusy, status.code()) << status.ToString();
    const uint64_t deadline_ns = world_.scheduler->MonotonicNs() + 20'000'000'000;
    ASSERT_OK(log_->WaitForRoom(deadline_ns)) << written << " were written";
  }
  ASSERT_OK(log_->Close());
}

TEST_F(UnwantedGroupsFilledTheLog, TimeWritesThemToo) {
  Open(/*memory_flush_ns=*/1'000'000);
  ASSERT_OK(WriteOne());
  for (int i = 0; i < 20'000 && log_->written_sequence() == 0; ++i) {
    world_.scheduler->Sleep(1'000'000);
  }
  EXPECT_EQ(1U, log_->written_sequence());
  ASSERT_OK(log_->Close());
}

}  // namespace
}  // namespace cairn::testing
