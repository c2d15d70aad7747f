// SPDX-License-Identifier: Apache-2.0
//
// Property: the simulated disk loses exactly what a disk may lose at a power cut. Method: small
// histories, all or many of their crash states enumerated.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/io/file_util.h"
#include "sim/disk.h"
#include "tests/base/io_backends.h"
#include "tests/sim/disk_files.h"

namespace cairn::io {
namespace {

using testing::Blocks;
using testing::DurableFile;
using testing::Filled;
using testing::MustOpen;
using testing::Pattern;

TEST(SimDiskCrash, UnsyncedWritesAreLostKeptAndReordered) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 3);
  for (uint64_t block = 0; block < 3; ++block) {
    ASSERT_TRUE(file->Write(block * kBlockBytes, Filled(kBlockBytes, 'n'), false).ok());
  }
  ASSERT_EQ(disk.unsynced_writes(), 3u);
  std::set<std::string> seen;
  for (uint64_t mask = 0; mask < 8; ++mask) {
    seen.insert(Blocks(*disk.CrashClone(CrashChoice::Mask(mask)), "f"));
  }
  EXPECT_EQ(seen.size(), 8u);  // Also the last write without the first.
  EXPECT_TRUE(seen.contains("oon"));
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "f"), "ooo");
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f"), "nnn");
  EXPECT_EQ(Blocks(disk, "f"), "nnn");  // This disk did not crash.
}

TEST(SimDiskCrash, SyncedWritesSurviveEveryCrash) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 2);
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  ASSERT_TRUE(file->Sync().ok());
  ASSERT_TRUE(file->Write(kBlockBytes, Filled(kBlockBytes, 'n'), false).ok());
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::Seeded(seed)), "f")[0], 'n');
  }
}

TEST(SimDiskCrash, ADurableWriteCoversItsOwnBytesAlone) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 3);
  ASSERT_TRUE(file->Write(0, Filled(2 * kBlockBytes, 'x'), false).ok());
  ASSERT_TRUE(file->Write(kBlockBytes, Filled(kBlockBytes, 'n'), true).ok());
  EXPECT_EQ(disk.unsynced_writes(), 1u);
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "f"), "ono");
  // The older write survives beside it, but never on top of it.
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f"), "xno");
}

TEST(SimDiskCrash, WritesAreTornAtSectors) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    auto crashed = disk.CrashClone({.seed = seed, .lost = 0, .torn = 1, .kept_mask = {}});
    const auto bytes = *crashed->ReadRaw("f");
    std::string sectors;
    for (size_t at = 0; at < kBlockBytes; at += 512) {
      for (size_t i = 1; i < 512; ++i) ASSERT_EQ(bytes[at], bytes[at + i]);
      sectors += static_cast<char>(bytes[at]);
    }
    seen.insert(sectors);
  }
  EXPECT_GT(seen.size(), 100u);
}

TEST(SimDiskCrash, ASectorThatSurvivesBringsOlderBytesOfItsOwnAlong) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  ASSERT_TRUE(file->Write(0, Filled(10, 'a'), false).ok());
  ASSERT_TRUE(file->Write(10, Filled(10, 'b'), false).ok());
  const auto bytes = *disk.CrashClone(CrashChoice::Mask(0b10))->ReadRaw("f");
  EXPECT_EQ(bytes[0], std::byte{'a'});
  EXPECT_EQ(bytes[10], std::byte{'b'});
  EXPECT_EQ(bytes[20], std::byte{'o'});
}

TEST(SimDiskCrash, WritesInFlightMayBeLostWholeOrTorn) {
  SimScheduler scheduler(1);
  SimDisk disk({}, &scheduler);
  auto file = DurableFile(disk, "f", 2);
  auto bytes = Filled(2 * kBlockBytes, 'n');
  Request request{.kind = Request::Kind::kDurableWrite,
                  .file = file.get(),
                  .data = bytes.data(),
                  .length = bytes.size()};
  auto queue = disk.NewQueue(1);
  queue->Submit(&request);
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    seen.insert(Blocks(*disk.CrashClone(CrashChoice::Seeded(seed)), "f"));
  }
  EXPECT_TRUE(seen.contains("oo"));
  EXPECT_TRUE(seen.contains("nn"));
  EXPECT_TRUE(seen.contains("??"));
  (void)queue->Reap();
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "f"), "nn");
}

TEST(SimDiskCrash, ASyncCoversWhatCompletedBeforeItAlone) {
  SimScheduler scheduler(1);
  SimDisk disk({}, &scheduler);
  auto file = DurableFile(disk, "f", 2);
  auto bytes = Filled(kBlockBytes, 'n');
  ASSERT_TRUE(file->Write(0, bytes, false).ok());
  Request write{.kind = Request::Kind::kWrite,
                .file = file.get(),
                .data = bytes.data(),
                .length = bytes.size(),
                .offset = kBlockBytes};
  auto queue = disk.NewQueue(1);
  queue->Submit(&write);
  ASSERT_TRUE(file->Sync().ok());
  (void)queue->Reap();
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "f"), "no");
}

TEST(SimDiskCrash, LengthAndBlocksRideWithTheSync) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  ASSERT_TRUE(file->Allocate(0, 3 * kBlockBytes).ok());
  EXPECT_EQ(disk.CrashClone(CrashChoice::LoseAll())->Info("f")->bytes, kBlockBytes);
  ASSERT_TRUE(file->Sync().ok());
  EXPECT_EQ(disk.CrashClone(CrashChoice::LoseAll())->Info("f")->bytes, 3 * kBlockBytes);
  ASSERT_TRUE(file->Truncate(100).ok());
  EXPECT_EQ(disk.CrashClone(CrashChoice::LoseAll())->Info("f")->bytes, 3 * kBlockBytes);
  EXPECT_EQ(disk.CrashClone(CrashChoice::KeepAll())->Info("f")->bytes, 100u);
}

TEST(SimDiskCrash, NamesAreDurableAfterSyncDirectoryAlone) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateDirectory("d").ok());
  ASSERT_TRUE(disk.SyncDirectory("/").ok());
  auto file = MustOpen(disk, "d/f");
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), true).ok());
  EXPECT_EQ(disk.unsynced_writes(), 1u);  // The name.
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "d/f"), "absent");
  ASSERT_TRUE(disk.SyncDirectory("d").ok());
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "d/f"), "n");

  ASSERT_TRUE(disk.Remove("d/f").ok());
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "d/f"), "n");
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "d/f"), "absent");
  ASSERT_TRUE(disk.SyncDirectory("d").ok());
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "d/f"), "absent");
}

TEST(SimDiskCrash, ALinkIsANameOfItsOwnInACrash) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateDirectory("d").ok());
  auto file = DurableFile(disk, "f", 1);
  ASSERT_TRUE(*disk.Link("f", "d/f"));
  EXPECT_EQ(disk.unsynced_writes(), 1u);
  auto lost = disk.CrashClone(CrashChoice::LoseAll());
  EXPECT_EQ(Blocks(*lost, "d/f"), "absent");
  EXPECT_EQ(Blocks(*lost, "f"), "o") << "losing a second name costs the first nothing";
  ASSERT_TRUE(disk.SyncDirectory("d").ok());
  // A sync through either name covers the content under both, and two names stay one file.
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), true).ok());
  auto kept = disk.CrashClone(CrashChoice::LoseAll());
  EXPECT_EQ(Blocks(*kept, "d/f"), "n");
  EXPECT_EQ(kept->used_bytes(), kBlockBytes);
  ASSERT_TRUE(MustOpen(*kept, "f")->Write(0, Filled(kBlockBytes, 'x'), true).ok());
  EXPECT_EQ(Blocks(*kept, "d/f"), "x");
  ASSERT_TRUE(kept->Remove("f").ok());
  ASSERT_TRUE(kept->SyncDirectory("/").ok());
  EXPECT_EQ(Blocks(*kept->CrashClone(CrashChoice::LoseAll()), "d/f"), "x");
}

TEST(SimDiskCrash, ALinkCanBeRefusedOrFail) {
  SimDisk disk;
  DurableFile(disk, "f", 1);
  const auto is_link = [](const SimOperation& operation) {
    return operation.op == SimOp::kLink && operation.path == "f to g";
  };
  for (const int refused : {EXDEV, EPERM, EMLINK, EOPNOTSUPP}) {
    disk.AddFault({.when = is_link, .error = refused});
    const auto linked = disk.Link("f", "g");
    ASSERT_TRUE(linked.ok()) << linked.status().ToString();
    EXPECT_FALSE(*linked);
  }
  disk.AddFault({.when = is_link, .error = EIO});
  EXPECT_EQ(disk.Link("f", "g").status().code(), StatusCode::kIoError);
  EXPECT_EQ(disk.faults_struck(), 5u);
  EXPECT_EQ(disk.Files(), std::vector<std::string>{"f"});
}

TEST(SimDiskCrash, AnUnsyncedDirectoryTakesAllThatIsInIt) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateDirectory("d").ok());
  auto file = DurableFile(disk, "x", 1);
  (void)MustOpen(disk, "d/f")->Write(0, Filled(10, 'n'), true);
  ASSERT_TRUE(disk.SyncDirectory("d").ok());
  // DurableFile synced the root, so "d" is durable; "e" is not.
  ASSERT_TRUE(disk.CreateDirectory("e").ok());
  (void)MustOpen(disk, "e/f")->Write(0, Filled(10, 'n'), true);
  ASSERT_TRUE(disk.SyncDirectory("e").ok());
  auto crashed = disk.CrashClone(CrashChoice::LoseAll());
  EXPECT_EQ(crashed->Files(), (std::vector<std::string>{"d/f", "x"}));
}

TEST(SimDiskCrash, ChangesOfNamesSurviveOneByOneOrInOrder) {
  SimDisk disk;
  for (const char* name : {"a", "b", "c"}) (void)MustOpen(disk, name);
  ASSERT_EQ(disk.unsynced_writes(), 3u);
  std::set<std::vector<std::string>> any, ordered;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    any.insert(disk.CrashClone(CrashChoice::Seeded(seed))->Files());
    ordered.insert(
        disk.CrashClone({.seed = seed, .names_in_order = true, .kept_mask = {}})->Files());
  }
  EXPECT_EQ(any.size(), 8u);
  using Names = std::vector<std::string>;
  EXPECT_EQ(ordered, (std::set<Names>{{}, {"a"}, {"a", "b"}, {"a", "b", "c"}}));
}

TEST(SimDiskCrash, ARenameWithoutSyncMayBringAnEmptyFile) {
  SimDisk disk;
  DurableFile(disk, "f", 1);
  ASSERT_TRUE(MustOpen(disk, "f.tmp")->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  ASSERT_TRUE(disk.Rename("f.tmp", "f").ok());
  ASSERT_TRUE(disk.SyncDirectory("/").ok());
  EXPECT_EQ(disk.CrashClone(CrashChoice::LoseAll())->Info("f")->bytes, 0u);
}

// Two directories whose changes wait for each other: settling them never came to an end.
TEST(SimDiskCrash, ARenameThereAndBackIsSettledInItsOrder) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateDirectory("d").ok());
  (void)MustOpen(disk, "d/a");
  ASSERT_TRUE(disk.SyncDirectory("").ok());
  ASSERT_TRUE(disk.SyncDirectory("d").ok());
  ASSERT_TRUE(disk.Rename("d/a", "b").ok());
  ASSERT_TRUE(disk.SyncDirectory("d").ok());
  ASSERT_TRUE(disk.Rename("b", "d/a").ok());
  ASSERT_TRUE(disk.SyncDirectory("d").ok());
  const auto found = disk.CrashClone(CrashChoice::LoseAll());
  EXPECT_EQ(found->Files(), (std::vector<std::string>{"d/a"}));
}

TEST(SimDiskCrash, ARenameIntoAnotherDirectoryNeverDoublesTheFile) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateDirectory("to").ok());
  ASSERT_TRUE(disk.SyncDirectory("/").ok());
  (void)MustOpen(disk, "f");
  ASSERT_TRUE(disk.Rename("f", "to/f").ok());
  ASSERT_TRUE(disk.SyncDirectory("to").ok());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(disk.CrashClone(CrashChoice::Seeded(seed))->Files(),
              std::vector<std::string>{"to/f"});
  }
}

// Everything that is on it.
std::string Image(const SimDisk& disk) {
  std::string image;
  for (const std::string& path : disk.Files()) {
    const auto bytes = *disk.ReadRaw(path);
    image += path + ":" + std::to_string(bytes.size()) + ":";
    image.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return image;
}

TEST(SimDiskCrash, CrashesWithOneKeyLeaveOneDisk) {
  SimDisk disk;
  std::map<uint64_t, std::string> images;
  std::set<std::string> apart;
  uint64_t crashes = 0;
  const auto crash = [&](const CrashChoice& choice) {
    const std::string image = Image(*disk.CrashClone(choice));
    apart.insert(image);
    ++crashes;
    const auto [found, added] = images.emplace(disk.CrashKey(choice), image);
    EXPECT_TRUE(added || found->second == image);
  };
  disk.set_on_operation([&](const SimOperation&) {
    const size_t unsynced = disk.unsynced_writes();
    for (uint64_t mask = 0; mask < uint64_t{1} << unsynced; ++mask) crash(CrashChoice::Mask(mask));
    for (uint64_t seed = 0; seed < 20; ++seed) crash(CrashChoice::Seeded(seed));
  });
  const auto one = DurableFile(disk, "one", 2);
  const auto two = MustOpen(disk, "two");
  for (char content = 'a'; content < 'e'; ++content) {
    ASSERT_TRUE(one->Write(kSimSectorBytes, Filled(2 * kSimSectorBytes, content), false).ok());
    ASSERT_TRUE(two->Write(0, Filled(kBlockBytes, content), content == 'b').ok());
    if (content == 'c') {
      ASSERT_TRUE(one->Sync().ok());
    }
  }
  ASSERT_TRUE(disk.SyncDirectory("").ok());
  ASSERT_TRUE(disk.Remove("one").ok());
  ASSERT_TRUE(disk.SyncDirectory("").ok());
  EXPECT_LT(images.size(), crashes);
  EXPECT_GT(apart.size(), 50u);
  EXPECT_LE(apart.size(), images.size());
}

TEST(SimDiskCrash, ADiskThatLiesIsNoticed) {
  SimDisk disk;
  disk.set_drop_syncs(true);
  ASSERT_TRUE(WriteFileDurably(disk, "CURRENT", Pattern(100, 1)).ok());
  ASSERT_TRUE(MustOpen(disk, "x")->Write(0, Pattern(10, 2), true).ok());
  EXPECT_TRUE(disk.CrashClone(CrashChoice::LoseAll())->Files().empty());
}

}  // namespace
}  // namespace cairn::io
