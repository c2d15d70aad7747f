// SPDX-License-Identifier: Apache-2.0
//
// Property: on every file system a store works; a disk that is full refuses data and nothing else,
// changes nothing, and does not keep the store from being opened; and data is taken again soon
// after there is room. Method: ext4, xfs and btrfs, which copies on write, behind loop devices, and
// tmpfs. Another file takes all the room while the store is open. Those that cannot be mounted are
// skipped by name.
#include <unistd.h>

#include <optional>

#include "tests/crash/loop_mount.h"
#include "tests/engine/engine_test.h"
#include "tests/host/host_store.h"

namespace cairn::testing {
namespace {

struct Volume {
  const char* type;
  uint64_t bytes;
};

class HostVolume : public ::testing::TestWithParam<Volume> {
 protected:
  void SetUp() override {
    auto mount = crash::LoopMount::Make(GetParam().type, GetParam().bytes);
    if (!mount.ok()) {
      GTEST_SKIP() << GetParam().type << " cannot be mounted: " << mount.status().ToString();
    }
    mount_.emplace(std::move(*mount));
  }
  std::string path() const { return mount_->path() + "/state"; }
  // Where blocks are copied, room is kept in pieces of an eighth of a segment.
  static Options SmallOptions() {
    Options options = TinyOptions();
    options.segment_bytes = 1 << 20;
    return options;
  }

  // Until it is refused.
  Status AppendUntilRefused(HostStore& host) {
    Status status;
    for (int i = 0; i < 2000 && status.ok(); ++i) status = host.Append();
    return status;
  }
  // Room may be seen late, but soon.
  Status AppendWithin(HostStore& host, int seconds) {
    Status status;
    for (int i = 0; i < 50 * seconds; ++i) {
      status = host.Append();
      if (status.ok()) return status;
      usleep(20'000);
    }
    return status;
  }

  std::optional<crash::LoopMount> mount_;
};

// xfs makes none below 300 MB, btrfs none below 109.
INSTANTIATE_TEST_SUITE_P(, HostVolume,
                         ::testing::Values(Volume{"ext4", 64 << 20}, Volume{"xfs", 320 << 20},
                                           Volume{"btrfs", 160 << 20}, Volume{"tmpfs", 64 << 20}),
                         [](const auto& volume) { return std::string(volume.param.type); });

TEST_P(HostVolume, HoldsAStore) { EXPECT_TRUE(WorksOn(mount_->path())); }

TEST_P(HostVolume, HoldsAStoreOfDefaults) {
  Options options;
  options.create_if_missing = true;
  auto host = HostStore::Open(path(), options);
  ASSERT_OK(host.status());
  EXPECT_LE(host->store.Metrics().segment_bytes, GetParam().bytes / 32);
  ASSERT_OK(host->DoEverything());
  ASSERT_OK(host->Close());
  const uint64_t length = host->length;
  host = HostStore::Open(path(), options);
  ASSERT_OK(host.status());
  EXPECT_EQ(length, host->length);
  EXPECT_OK(host->Check());
  ASSERT_OK(host->Close());
}

TEST_P(HostVolume, IsFullAndHasRoomAgain) {
  auto host = HostStore::Open(path(), SmallOptions());
  ASSERT_OK(host.status());
  // Segments that were used before are overwritten from here on.
  ASSERT_OK(host->DoEverything());
  for (const char* name : {"0", "1"}) {
    ASSERT_OK(host->store.CreateBranch(host->store.Models()[0].id, {.name = name}));
  }
  ASSERT_OK(mount_->Fill());
  EXPECT_TRUE(Fails(AppendUntilRefused(*host), StatusCode::kNoSpace, ""));
  EXPECT_TRUE(Fails(host->Append(), StatusCode::kNoSpace, "")) << "it is not poisoned";
  EXPECT_EQ(host->length, host->chat.length().value());
  EXPECT_OK(host->Check());

  // It is closed, but there may have been no room to note how far it is.
  const auto close = [&] {
    const Status status = host->Close();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kNoSpace) << status.ToString();
  };
  close();
  const uint64_t length = host->length;
  for (int round = 0; round < 2; ++round) {
    host = HostStore::Open(path(), SmallOptions());
    ASSERT_OK(host.status());
    EXPECT_EQ(length, host->length);
    EXPECT_OK(host->Check());
    ASSERT_OK_ASSIGN(Branch dropped, host->store.FindBranch(std::to_string(round)));
    EXPECT_OK(dropped.Drop()) << "that is no data";
    close();
  }

  host = HostStore::Open(path(), SmallOptions());
  ASSERT_OK(host.status());
  ASSERT_OK(mount_->Empty());
  EXPECT_OK(AppendWithin(*host, 8));
  EXPECT_OK(host->Check());
  ASSERT_OK(host->Close());
}

// Large appends, some of which have their room before the other file has it.
TEST_P(HostVolume, IsFullInTheMidst) {
  auto host = HostStore::Open(path(), SmallOptions());
  ASSERT_OK(host.status());
  ASSERT_OK(host->DoEverything());
  Status status;
  int after = 0;
  for (int i = 0; i < 400 && status.ok(); ++i) {
    if (i == 20) {
      ASSERT_OK(mount_->Fill());
    }
    status = host->Append(64);
    after += i > 20 && status.ok() ? 1 : 0;
  }
  EXPECT_TRUE(Fails(status, StatusCode::kNoSpace, ""));
  ASSERT_OK(mount_->Empty());
  EXPECT_OK(AppendWithin(*host, 8)) << after << " appends came after it was full";
  EXPECT_OK(host->Check());
  ASSERT_OK(host->Close());
}

}  // namespace
}  // namespace cairn::testing
