// SPDX-License-Identifier: Apache-2.0
//
// The bug: a follower of a log opened a segment while its writer still added to it, then learned
// from the next one, begun meanwhile, where the first ends, and looked for that in the bytes that
// it had read of the first before: "no group of this epoch", kCorruption. Method: the medium of a
// log as it was before the last groups of a segment were written, which come while the next one is
// opened.
#include "sim/world.h"
#include "tests/support/log_fixture.h"
#include "wal/segment_files.h"

namespace cairn::wal {
namespace {

TEST(FollowerTookASegmentThatGrewForDamaged, WhereTheNextOneSaysWhereItEnds) {
  io::SimWorld machine = io::MakeSimWorld(1);
  LogFixture fixture(machine.world());
  fixture.OpenLog();
  while (fixture.log->counters().segments_live < 3) {
    const uint64_t sequence = fixture.Append(Payload(fixture.appended.size() + 1, 40'000));
    ASSERT_TRUE(fixture.log->Wait(sequence, /*durable=*/true, io::kNoDeadline).ok());
  }
  const std::string grows = SegmentPath("log", 1), next = SegmentPath("log", 2);
  const auto grown = machine.disk->ReadRaw(grows);
  ASSERT_TRUE(grown.ok());

  RecoveryOptions following;
  following.directory = "log";
  following.store = kTestStore;
  following.read_only = following.following = true;
  following.stop_after = fixture.appended.front().sequence;
  const Recovered whole = RecoverLog(fixture.world, following);
  ASSERT_TRUE(whole.status.ok()) << whole.status.ToString();

  const std::vector<std::byte> not_yet(grown->size() / 2);
  const auto later = std::span(*grown).subspan(grown->size() - not_yet.size());
  ASSERT_TRUE(machine.disk->WriteRaw(grows, grown->size() - not_yet.size(), not_yet).ok());
  bool written = false;
  machine.disk->AddFault({.when = [&](const io::SimOperation& operation) {
    if (operation.op == io::SimOp::kOpen && operation.path == next &&
        !std::exchange(written, true)) {
      EXPECT_TRUE(machine.disk->WriteRaw(grows, grown->size() - later.size(), later).ok());
    }
    return false;
  }});
  const Recovered found = RecoverLog(fixture.world, following);
  EXPECT_TRUE(written);
  EXPECT_TRUE(found.status.ok()) << found.status.ToString();
  EXPECT_EQ(whole.records.size(), found.records.size());
}

}  // namespace
}  // namespace cairn::wal
