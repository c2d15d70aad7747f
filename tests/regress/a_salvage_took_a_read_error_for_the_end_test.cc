// SPDX-License-Identifier: Apache-2.0
//
// The bug: where a segment says that it continues another one than it follows, a salvage keeps what
// lies before it; and it took an error of the device for the end of that. Records that a second
// reading would have found were cut off.
// Method: such a log, each of whose reads fails in turn.
#include <gtest/gtest.h>

#include "sim/world.h"
#include "tests/support/log_fixture.h"
#include "tests/support/status.h"
#include "tests/support/strike.h"
#include "wal/format.h"
#include "wal/segment_files.h"
#include "wal/segment_reader.h"

namespace cairn::wal {
namespace {

TEST(ASalvage, TellsAReadErrorAsThat) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  LogFixture fixture(machine.world());
  // More than recovery holds in memory of it.
  fixture.options.segment_bytes = 3 * kReadBytes;
  fixture.OpenLog();
  for (uint64_t i = 1; i <= 300; ++i) {
    const uint64_t sequence = fixture.Append(Payload(i, 12'000));
    ASSERT_OK(fixture.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
  }
  const auto disk = machine.disk->KillClone();
  fixture.log.reset();
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, disk->ReadRaw(SegmentPath("log", 2)));
  auto header = LoadAs<SegmentHeader>(bytes.data());
  header.predecessor_epoch = 5;
  std::vector<std::byte> block(kBlock);
  EncodeSegmentHeader(header, block.data());
  ASSERT_OK(disk->WriteRaw(SegmentPath("log", 2), 0, block));

  RecoveryOptions options;
  options.directory = "log";
  options.store = kTestStore;
  options.salvage = true;
  uint64_t failed = 0;
  bool met = true;
  for (uint64_t n = 0; met; ++n) {
    io::World world{disk->KillClone(), std::make_shared<io::SimScheduler>(1)};
    const auto copy = std::static_pointer_cast<io::SimDisk>(world.files);
    Recovered found;
    {
      const testing::Strike strike(
          *copy, n, [](const io::SimOperation& op) { return op.op == io::SimOp::kRead; });
      found = RecoverLog(world, options, /*read_payload=*/false);
      met = strike.met();
    }
    if (!found.status.ok()) {
      EXPECT_FAILS(found.status, StatusCode::kIoError, "log") << n;
      ++failed;
      found = RecoverLog(world, options, /*read_payload=*/false);
    }
    ASSERT_OK(found.status);
    EXPECT_EQ(found.records.size(), header.first_sequence - 1) << "read " << n;
  }
  EXPECT_GT(failed, 2u);
}

}  // namespace
}  // namespace cairn::wal
