// SPDX-License-Identifier: Apache-2.0
//
// Property: the simulated disk loses exactly what a disk may lose at a power cut, and fails as
// told. Method: small histories, all or many of their crash states enumerated.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/io/delayed_file_system.h"
#include "base/io/file_util.h"
#include "base/io/sim_world.h"
#include "tests/base/io_backends.h"

namespace cairn::io {
namespace {

using testing::Block;
using testing::Pattern;

std::vector<std::byte> Filled(size_t bytes, char with) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(with));
}

std::unique_ptr<File> MustOpen(SimDisk& disk, const std::string& path, bool direct = false) {
  auto file = disk.Open(path, {.write = true, .create = true, .direct = direct});
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return std::move(file).value();
}

// A file of `blocks` blocks, all 'o', with everything about it durable.
std::unique_ptr<File> DurableFile(SimDisk& disk, const std::string& path, size_t blocks) {
  auto file = MustOpen(disk, path);
  EXPECT_TRUE(file->Write(0, Filled(blocks * kBlockBytes, 'o'), false).ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_TRUE(disk.SyncDirectory(ParentPath(path)).ok());
  EXPECT_EQ(disk.unsynced_writes(), 0u);
  return file;
}

// One letter for each block: 'o' old, 'n' new, '?' mixed.
std::string Blocks(const SimDisk& disk, const std::string& path) {
  const auto bytes = disk.ReadRaw(path);
  if (!bytes.ok()) return "absent";
  std::string letters;
  for (size_t at = 0; at < bytes->size(); at += kBlockBytes) {
    const auto first = (*bytes)[at];
    const size_t end = std::min(at + kBlockBytes, bytes->size());
    const bool same = std::all_of(bytes->begin() + static_cast<ptrdiff_t>(at),
                                  bytes->begin() + static_cast<ptrdiff_t>(end),
                                  [&](std::byte b) { return b == first; });
    letters += same ? static_cast<char>(first) : '?';
  }
  return letters;
}

TEST(IoSimDisk, UnsyncedWritesAreLostKeptAndReordered) {
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

TEST(IoSimDisk, SyncedWritesSurviveEveryCrash) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 2);
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  ASSERT_TRUE(file->Sync().ok());
  ASSERT_TRUE(file->Write(kBlockBytes, Filled(kBlockBytes, 'n'), false).ok());
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::Seeded(seed)), "f")[0], 'n');
  }
}

TEST(IoSimDisk, ADurableWriteCoversItsOwnBytesAlone) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 3);
  ASSERT_TRUE(file->Write(0, Filled(2 * kBlockBytes, 'x'), false).ok());
  ASSERT_TRUE(file->Write(kBlockBytes, Filled(kBlockBytes, 'n'), true).ok());
  EXPECT_EQ(disk.unsynced_writes(), 1u);
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "f"), "ono");
  // The older write survives beside it, but never on top of it.
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f"), "xno");
}

TEST(IoSimDisk, WritesAreTornAtSectors) {
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

TEST(IoSimDisk, ASectorThatSurvivesBringsOlderBytesOfItsOwnAlong) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  ASSERT_TRUE(file->Write(0, Filled(10, 'a'), false).ok());
  ASSERT_TRUE(file->Write(10, Filled(10, 'b'), false).ok());
  const auto bytes = *disk.CrashClone(CrashChoice::Mask(0b10))->ReadRaw("f");
  EXPECT_EQ(bytes[0], std::byte{'a'});
  EXPECT_EQ(bytes[10], std::byte{'b'});
  EXPECT_EQ(bytes[20], std::byte{'o'});
}

TEST(IoSimDisk, WritesInFlightMayBeLostWholeOrTorn) {
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

TEST(IoSimDisk, ASyncCoversWhatCompletedBeforeItAlone) {
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

TEST(IoSimDisk, LengthAndBlocksRideWithTheSync) {
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

TEST(IoSimDisk, NamesAreDurableAfterSyncDirectoryAlone) {
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

TEST(IoSimDisk, ALinkIsANameOfItsOwnInACrash) {
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

TEST(IoSimDisk, ALinkCanBeRefusedOrFail) {
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

TEST(IoSimDisk, AnUnsyncedDirectoryTakesAllThatIsInIt) {
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

TEST(IoSimDisk, ChangesOfNamesSurviveOneByOneOrInOrder) {
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

TEST(IoSimDisk, ARenameWithoutSyncMayBringAnEmptyFile) {
  SimDisk disk;
  DurableFile(disk, "f", 1);
  ASSERT_TRUE(MustOpen(disk, "f.tmp")->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  ASSERT_TRUE(disk.Rename("f.tmp", "f").ok());
  ASSERT_TRUE(disk.SyncDirectory("/").ok());
  EXPECT_EQ(disk.CrashClone(CrashChoice::LoseAll())->Info("f")->bytes, 0u);
}

// Two directories whose changes wait for each other: settling them never came to an end.
TEST(IoSimDisk, ARenameThereAndBackIsSettledInItsOrder) {
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

TEST(IoSimDisk, ARenameIntoAnotherDirectoryNeverDoublesTheFile) {
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

TEST(IoSimDisk, WriteFileDurablyLeavesOldOrNewAtEveryCrashPoint) {
  SimDisk disk;
  const auto old_bytes = Pattern(5000, 1), new_bytes = Pattern(7000, 2);
  ASSERT_TRUE(WriteFileDurably(disk, "CURRENT", old_bytes).ok());
  int crashes = 0, found_old = 0, found_new = 0;
  const auto crash = [&] {
    ASSERT_LE(disk.unsynced_writes(), 12u);
    for (uint64_t mask = 0; mask < (1u << disk.unsynced_writes()); ++mask) {
      const auto bytes = disk.CrashClone(CrashChoice::Mask(mask))->ReadRaw("CURRENT");
      ASSERT_TRUE(bytes.ok());
      ++crashes;
      if (*bytes == old_bytes) ++found_old;
      if (*bytes == new_bytes) ++found_new;
    }
  };
  disk.set_on_operation([&](const SimOperation&) { crash(); });
  ASSERT_TRUE(WriteFileDurably(disk, "CURRENT", new_bytes).ok());
  EXPECT_EQ(found_old + found_new, crashes);
  EXPECT_GT(found_old, 0);
  EXPECT_GT(found_new, 0);
  disk.set_on_operation(nullptr);
  EXPECT_EQ(*disk.CrashClone(CrashChoice::LoseAll())->ReadRaw("CURRENT"), new_bytes);
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

TEST(IoSimDisk, CrashesWithOneKeyLeaveOneDisk) {
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

TEST(IoSimDisk, ADiskThatLiesIsNoticed) {
  SimDisk disk;
  disk.set_drop_syncs(true);
  ASSERT_TRUE(WriteFileDurably(disk, "CURRENT", Pattern(100, 1)).ok());
  ASSERT_TRUE(MustOpen(disk, "x")->Write(0, Pattern(10, 2), true).ok());
  EXPECT_TRUE(disk.CrashClone(CrashChoice::LoseAll())->Files().empty());
}

TEST(IoSimDisk, FaultsStrikeTheOperationTheyName) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  disk.AddFault({.when = {}, .at_index = disk.operations() + 1, .error = EIO});
  EXPECT_TRUE(file->Write(0, Filled(10, 'n'), false).ok());
  const Status status = file->Write(10, Filled(10, 'n'), false);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_NE(status.message().find("EIO"), std::string::npos) << status.ToString();
  EXPECT_TRUE(file->Write(10, Filled(10, 'n'), false).ok());
  EXPECT_EQ(disk.faults_struck(), 1u);

  disk.AddFault({.when = [](const SimOperation& o) { return o.op == SimOp::kSync; },
                 .error = ENOSPC,
                 .persistent = true});
  EXPECT_EQ(file->Sync().code(), StatusCode::kNoSpace);
  EXPECT_EQ(file->Sync().code(), StatusCode::kNoSpace);
  disk.ClearFaults();
  EXPECT_TRUE(file->Sync().ok());
}

TEST(IoSimDisk, FaultsStrikeReadsAndNames) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  disk.AddFault({.when = [](const SimOperation& o) { return o.op == SimOp::kRead; }, .error = EIO});
  std::vector<std::byte> into(10);
  EXPECT_EQ(file->Read(0, into).code(), StatusCode::kIoError);
  EXPECT_TRUE(file->Read(0, into).ok());
  const std::pair<SimOp, std::function<Status()>> cases[] = {
      {SimOp::kOpen, [&] { return disk.Open("f", {}).status(); }},
      {SimOp::kStat, [&] { return disk.Info("f").status(); }},
      {SimOp::kStat, [&] { return file->Size().status(); }},
      {SimOp::kStat, [&] { return disk.Volume("f").status(); }},
      {SimOp::kStat, [&] { return disk.Space("f").status(); }},
      {SimOp::kList, [&] { return disk.List("/").status(); }},
      {SimOp::kCreate, [&] { return disk.Open("n", {.write = true, .create = true}).status(); }},
      {SimOp::kRename, [&] { return disk.Rename("f", "g"); }},
      {SimOp::kRemove, [&] { return disk.Remove("f"); }},
      {SimOp::kCreateDirectory, [&] { return disk.CreateDirectory("d"); }},
      {SimOp::kSyncDirectory, [&] { return disk.SyncDirectory("/"); }},
      {SimOp::kTruncate, [&] { return file->Truncate(1); }},
      {SimOp::kAllocate, [&] { return file->Allocate(0, 99999); }}};
  for (const auto& [op, call] : cases) {
    disk.AddFault(
        {.when = [wanted = op](const SimOperation& o) { return o.op == wanted; }, .error = EROFS});
    EXPECT_EQ(call().code(), StatusCode::kReadOnly) << SimOpName(op);
  }
  EXPECT_EQ(Blocks(disk, "f"), "o");
  EXPECT_EQ(disk.Files(), std::vector<std::string>{"f"});
}

TEST(IoSimDisk, InterruptionsAndShortTransfersAreContinued) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  const uint64_t start = disk.operations();
  disk.AddFault({.when = {}, .at_index = start, .error = EINTR});
  disk.AddFault({.when = {}, .at_index = start + 1, .error = EAGAIN});
  disk.AddFault({.when = {}, .at_index = start + 2, .error = 0, .transferred = 1000});
  std::string crashed;
  disk.set_on_operation([&](const SimOperation& operation) {
    if (operation.index == start + 3) {
      EXPECT_EQ(operation.offset, 1000u);
      EXPECT_EQ(operation.length, 3096u);
      crashed = Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f");
    }
  });
  EXPECT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  EXPECT_EQ(disk.operations(), start + 4);
  EXPECT_EQ(crashed, "?");  // The first part may be there without the rest.
  EXPECT_EQ(Blocks(disk, "f"), "n");
  disk.AddFault({.when = {}, .at_index = 0, .error = EINTR, .persistent = true});
  EXPECT_EQ(file->Sync().code(), StatusCode::kIoError);
}

TEST(IoSimDisk, ASlowOperationDoesItsWork) {
  const SimWorld world = MakeSimWorld(1);
  const auto file = DurableFile(*world.disk, "f", 1);
  world.disk->AddFault(
      {.when = [](const SimOperation& operation) { return operation.op == SimOp::kSync; },
       .delay_ns = 5'000'000'000});
  const uint64_t begin_ns = world.scheduler->MonotonicNs();
  EXPECT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  EXPECT_LT(world.scheduler->MonotonicNs() - begin_ns, 1'000'000'000u);
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_GE(world.scheduler->MonotonicNs() - begin_ns, 5'000'000'000u);
  EXPECT_EQ(world.disk->unsynced_writes(), 0u);
  EXPECT_EQ(world.disk->faults_struck(), 1u);
}

TEST(IoSimDisk, AFailedWriteMayLeaveAPart) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 2);
  disk.AddFault(
      {.when = {}, .at_index = disk.operations(), .error = EIO, .transferred = kBlockBytes});
  EXPECT_FALSE(file->Write(0, Filled(2 * kBlockBytes, 'n'), true).ok());
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f"), "no");
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "f"), "oo");
}

TEST(IoSimDisk, ASyncThatFailedMaySucceedNextTimeWithTheBytesGone) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  disk.AddFault({.when = {}, .at_index = disk.operations(), .error = EIO, .loses_unsynced = true});
  EXPECT_FALSE(file->Sync().ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_EQ(Blocks(disk, "f"), "n");  // Still in the page cache.
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f"), "o");
}

TEST(IoSimDisk, AWriteCanBeLostOrGoElsewhereAndBeAcknowledged) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 2);
  auto other = DurableFile(disk, "g", 2);
  disk.AddFault({.when = {}, .at_index = disk.operations(), .lost = true});
  EXPECT_TRUE(file->Write(kBlockBytes, Filled(2 * kBlockBytes, 'n'), true).ok());
  EXPECT_EQ(*file->Size(), 3 * kBlockBytes);
  EXPECT_EQ(Blocks(disk, "f"), std::string("oo\0", 3)) << "what grows is zeros";
  disk.AddFault(
      {.when = {}, .at_index = disk.operations(), .misdirected = SimPlace{"g", kBlockBytes}});
  EXPECT_TRUE(file->Write(0, Filled(2 * kBlockBytes, 'n'), true).ok());
  EXPECT_EQ(Blocks(disk, "f"), std::string("oo\0", 3));
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "g"), "on") << "no longer than it was";
  EXPECT_EQ(disk.faults_struck(), 2u);
}

TEST(IoSimDisk, TheNextProcessFindsWhatCanStillBeLost) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 2);
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  ASSERT_TRUE(disk.Rename("f", "g").ok());
  const auto next = disk.KillClone();
  EXPECT_EQ(Blocks(*next, "g"), "no");
  EXPECT_EQ(Blocks(*next->CrashClone(CrashChoice::LoseAll()), "f"), "oo");
  EXPECT_EQ(Blocks(*next->CrashClone(CrashChoice::KeepAll()), "g"), "no");
  auto again = MustOpen(*next, "g");
  ASSERT_TRUE(again->Sync().ok());
  ASSERT_TRUE(next->SyncDirectory("/").ok());
  EXPECT_EQ(Blocks(*next->CrashClone(CrashChoice::LoseAll()), "g"), "no");
  EXPECT_EQ(disk.unsynced_writes(), 2u) << "the other disk is as it was";
}

TEST(IoSimDisk, AFullDiskRefusesAndRemovalMakesRoom) {
  SimDisk disk({.capacity_bytes = 8 * kBlockBytes});
  auto file = MustOpen(disk, "f");
  ASSERT_TRUE(file->Allocate(0, 6 * kBlockBytes).ok());
  auto other = MustOpen(disk, "g");
  EXPECT_EQ(other->Allocate(0, 3 * kBlockBytes).code(), StatusCode::kNoSpace);
  EXPECT_EQ(*other->Size(), 0u);
  EXPECT_EQ(other->Write(0, Filled(3 * kBlockBytes, 'n'), false).code(), StatusCode::kNoSpace);
  EXPECT_TRUE(other->Write(0, Filled(2 * kBlockBytes, 'n'), false).ok());
  EXPECT_EQ(other->Write(2 * kBlockBytes, Filled(1, 'n'), false).code(), StatusCode::kNoSpace);
  EXPECT_TRUE(file->Write(0, Filled(6 * kBlockBytes, 'n'), false).ok());  // Its own blocks.
  EXPECT_EQ(disk.Space("/")->free_bytes, 0u);
  // The space of a removed file comes back when it is closed and the removal is durable.
  ASSERT_TRUE(disk.Remove("f").ok());
  file.reset();
  ASSERT_TRUE(disk.SyncDirectory("/").ok());
  EXPECT_EQ(disk.used_bytes(), 2 * kBlockBytes);
  EXPECT_TRUE(other->Allocate(0, 8 * kBlockBytes).ok());
  // Or when there is no other: then the removal is durable.
  other.reset();
  ASSERT_TRUE(disk.SyncDirectory("/").ok());
  ASSERT_TRUE(disk.Remove("g").ok());
  EXPECT_EQ(disk.used_bytes(), 8 * kBlockBytes);
  auto last = MustOpen(disk, "h");
  EXPECT_TRUE(last->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  EXPECT_FALSE(disk.CrashClone(CrashChoice::LoseAll())->Info("g").ok());
}

TEST(IoSimDisk, DirectTransfersMustBeAligned) {
  SimDisk disk;
  auto file = MustOpen(disk, "f", true);
  EXPECT_TRUE(file->direct());
  Block block(2 * kBlockBytes);
  EXPECT_TRUE(file->Write(0, block.span(), false).ok());
  EXPECT_EQ(file->Write(512, block.span(), false).code(), StatusCode::kIoError);
  EXPECT_EQ(file->Write(0, block.span().first(100), false).code(), StatusCode::kIoError);
  EXPECT_EQ(file->Read(0, block.span().subspan(8, kBlockBytes)).code(), StatusCode::kIoError);
}

TEST(IoSimDisk, TheMediumCanBeDamaged) {
  SimDisk disk;
  DurableFile(disk, "f", 2);
  ASSERT_TRUE(disk.FlipBit("f", 5000, 3).ok());
  const auto bytes = *disk.CrashClone(CrashChoice::LoseAll())->ReadRaw("f");
  EXPECT_EQ(bytes[5000], std::byte{'o'} ^ std::byte{8});
  EXPECT_EQ(bytes[4999], std::byte{'o'});
  ASSERT_TRUE(disk.TruncateRaw("f", 10).ok());
  EXPECT_EQ(disk.CrashClone(CrashChoice::LoseAll())->Info("f")->bytes, 10u);
  EXPECT_EQ(disk.FlipBit("f", 10, 0).code(), StatusCode::kIoError);
  EXPECT_EQ(disk.FlipBit("g", 0, 0).code(), StatusCode::kNotFound);
  ASSERT_TRUE(disk.WriteRaw("f", 2, Filled(3, 'n')).ok());
  EXPECT_EQ((*disk.ReadRaw("f"))[2], std::byte{'n'});
}

TEST(IoSimDisk, ClonesShareNothingThatIsWritten) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 4);
  auto clone = disk.CrashClone(CrashChoice::LoseAll());
  auto twin = MustOpen(*clone, "f");
  ASSERT_TRUE(twin->Write(0, Filled(kBlockBytes, 'n'), true).ok());
  ASSERT_TRUE(file->Write(3 * kBlockBytes, Filled(kBlockBytes, 'x'), true).ok());
  EXPECT_EQ(Blocks(disk, "f"), "ooox");
  EXPECT_EQ(Blocks(*clone, "f"), "nooo");
  EXPECT_TRUE(clone->Lock("LOCK").ok());
}

TEST(IoSimDisk, ACrashedMachineRunsInsideTheHookOfAnother) {
  SimWorld sim = MakeSimWorld(5);
  ASSERT_TRUE(WriteFileDurably(*sim.disk, "CURRENT", Pattern(100, 0)).ok());
  int recovered = 0;
  sim.disk->set_on_operation([&](const SimOperation& operation) {
    SimWorld crashed = CrashWorld(*sim.disk, CrashChoice::Seeded(operation.index), true);
    crashed.scheduler->Run([&] {
      const auto bytes = ReadWholeFile(*crashed.disk, "CURRENT", 1000);
      EXPECT_TRUE(bytes.ok()) << operation.ToString();
      EXPECT_TRUE(WriteFileDurably(*crashed.disk, "CURRENT", Pattern(300, 3)).ok());
      ++recovered;
    });
  });
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (uint64_t t = 1; t <= 3; ++t) {
      threads.push_back(sim.scheduler->StartThread("writer", [&, t] {
        const std::string path = t == 1 ? "CURRENT" : "other" + std::to_string(t);
        EXPECT_TRUE(WriteFileDurably(*sim.disk, path, Pattern(200, t)).ok());
      }));
    }
  }
  EXPECT_GE(recovered, 12);
  EXPECT_EQ(*ReadWholeFile(*sim.disk, "CURRENT", 1000), Pattern(200, 1));
}

// A busy program: fibers that write, sync, rename and read through queues of their own.
std::vector<std::string> BusyTrace(uint64_t seed, uint64_t* schedule) {
  SimWorld sim = MakeSimWorld(seed);
  sim.disk->set_trace(true);
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (int t = 0; t < 4; ++t) {
      threads.push_back(sim.scheduler->StartThread("busy", [&, t] {
        const std::string path = "file" + std::to_string(t);
        auto file = MustOpen(*sim.disk, path);
        auto queue = sim.disk->NewQueue(4);
        for (int round = 0; round < 10; ++round) {
          auto bytes = Pattern(1000, sim.scheduler->Random64());
          std::vector<Request> requests(3);
          for (size_t i = 0; i < 3; ++i) {
            requests[i] = {.kind = i == 2 ? Request::Kind::kDurableWrite : Request::Kind::kWrite,
                           .file = file.get(),
                           .data = bytes.data(),
                           .length = bytes.size(),
                           .offset = i * 1000};
            queue->Submit(&requests[i]);
          }
          while (queue->in_flight() > 0) EXPECT_TRUE(queue->Reap()->status.ok());
          EXPECT_TRUE(file->Sync().ok());
          EXPECT_TRUE(sim.disk->Rename(path, path).ok());
        }
      }));
    }
  }
  *schedule = sim.scheduler->schedule_hash();
  return sim.disk->trace();
}

TEST(IoSimDisk, TheSameSeedGivesTheSameTrace) {
  uint64_t first = 0, second = 0, other = 0;
  const auto trace = BusyTrace(11, &first);
  EXPECT_GT(trace.size(), 100u);
  EXPECT_EQ(trace, BusyTrace(11, &second));
  EXPECT_EQ(first, second);
  EXPECT_NE(trace, BusyTrace(12, &other));
}

TEST(IoSimDisk, QueuedRequestsCompleteOutOfOrderInVirtualTime) {
  SimWorld sim = MakeSimWorld(2, {.durable = {1'000'000, 2'000'000}});
  auto file = MustOpen(*sim.disk, "f");
  auto bytes = Filled(kBlockBytes, 'n');
  std::vector<Request> requests(8);
  auto queue = sim.disk->NewQueue(8);
  const uint64_t start_ns = sim.scheduler->MonotonicNs();
  for (size_t i = 0; i < 8; ++i) {
    requests[i] = {.kind = Request::Kind::kDurableWrite,
                   .file = file.get(),
                   .data = bytes.data(),
                   .length = bytes.size(),
                   .offset = i * kBlockBytes};
    queue->Submit(&requests[i]);
  }
  std::vector<size_t> order;
  while (queue->in_flight() > 0) order.push_back(static_cast<size_t>(queue->Reap() - &requests[0]));
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  const uint64_t passed_ns = sim.scheduler->MonotonicNs() - start_ns;
  EXPECT_GE(passed_ns, 1'000'000u);
  EXPECT_LT(passed_ns, 2'100'000u);  // Side by side, not one after the other.
}

TEST(IoSimDisk, ADelayedWorldTakesItsTimeForSyncsAlone) {
  SimWorld sim = MakeSimWorld(1);
  World world = MakeDelayedWorld(sim.world(), 5'000'000);
  auto file = world.files->Open("f", {.write = true, .create = true}).value();
  const auto took_ns = [&](const std::function<Status()>& call) {
    const uint64_t start_ns = world.scheduler->MonotonicNs();
    EXPECT_TRUE(call().ok());
    return world.scheduler->MonotonicNs() - start_ns;
  };
  auto bytes = Filled(100, 'n');
  EXPECT_LT(took_ns([&] { return file->Write(0, bytes, false); }), 1'000'000u);
  EXPECT_GE(took_ns([&] { return file->Write(0, bytes, true); }), 5'000'000u);
  EXPECT_GE(took_ns([&] { return file->Sync(); }), 5'000'000u);
  EXPECT_GE(took_ns([&] { return world.files->SyncDirectory("/"); }), 5'000'000u);
  Request requests[] = {
      {.kind = Request::Kind::kSync, .file = file.get()},
      {.kind = Request::Kind::kDurableWrite,
       .file = file.get(),
       .data = bytes.data(),
       .length = 100},
      {.kind = Request::Kind::kWrite, .file = file.get(), .data = bytes.data(), .length = 100}};
  const uint64_t all_ns = took_ns([&] {
    auto queue = world.files->NewQueue(3);
    for (Request& request : requests) queue->Submit(&request);
    while (queue->in_flight() > 0) EXPECT_TRUE(queue->Reap()->status.ok());
    return Status();
  });
  EXPECT_GE(all_ns, 5'000'000u);
  EXPECT_LT(all_ns, 7'000'000u);
  for (const Request& request : requests) EXPECT_EQ(request.file, file.get());
  EXPECT_TRUE(*world.files->Link("f", "g"));
  EXPECT_EQ(world.files->Info("g")->bytes, 100u);
}

}  // namespace
}  // namespace cairn::io
