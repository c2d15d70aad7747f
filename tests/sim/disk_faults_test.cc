// SPDX-License-Identifier: Apache-2.0
//
// Property: the simulated disk fails as scripted, and takes the time that it was given. Method: one
// fault each, and what the caller then sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "base/io/file_util.h"
#include "sim/delayed_file_system.h"
#include "sim/world.h"
#include "tests/base/io_backends.h"
#include "tests/sim/disk_files.h"

namespace cairn::io {
namespace {

using testing::Block;
using testing::Blocks;
using testing::DurableFile;
using testing::Filled;
using testing::MustOpen;
using testing::Pattern;

TEST(SimDiskFaults, FaultsStrikeTheOperationTheyName) {
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

TEST(SimDiskFaults, FaultsStrikeReadsAndNames) {
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

TEST(SimDiskFaults, InterruptionsAndShortTransfersAreContinued) {
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
  EXPECT_EQ(crashed, "?");  // The first part may survive without the rest.
  EXPECT_EQ(Blocks(disk, "f"), "n");
  disk.AddFault({.when = {}, .at_index = 0, .error = EINTR, .persistent = true});
  EXPECT_EQ(file->Sync().code(), StatusCode::kIoError);
}

TEST(SimDiskFaults, ASlowOperationDoesItsWork) {
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

TEST(SimDiskFaults, AFailedWriteMayLeaveAPart) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 2);
  disk.AddFault(
      {.when = {}, .at_index = disk.operations(), .error = EIO, .transferred = kBlockBytes});
  EXPECT_FALSE(file->Write(0, Filled(2 * kBlockBytes, 'n'), true).ok());
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f"), "no");
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::LoseAll()), "f"), "oo");
}

TEST(SimDiskFaults, ASyncThatFailedMaySucceedNextTimeWithTheBytesGone) {
  SimDisk disk;
  auto file = DurableFile(disk, "f", 1);
  ASSERT_TRUE(file->Write(0, Filled(kBlockBytes, 'n'), false).ok());
  disk.AddFault({.when = {}, .at_index = disk.operations(), .error = EIO, .loses_unsynced = true});
  EXPECT_FALSE(file->Sync().ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_EQ(Blocks(disk, "f"), "n");  // Still in the page cache.
  EXPECT_EQ(Blocks(*disk.CrashClone(CrashChoice::KeepAll()), "f"), "o");
}

TEST(SimDiskFaults, AWriteCanBeLostOrGoElsewhereAndBeAcknowledged) {
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

TEST(SimDiskFaults, TheNextProcessFindsWhatCanStillBeLost) {
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

TEST(SimDiskFaults, AFullDiskRefusesAndRemovalMakesRoom) {
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

TEST(SimDiskFaults, DirectTransfersMustBeAligned) {
  SimDisk disk;
  auto file = MustOpen(disk, "f", true);
  EXPECT_TRUE(file->direct());
  Block block(2 * kBlockBytes);
  EXPECT_TRUE(file->Write(0, block.span(), false).ok());
  EXPECT_EQ(file->Write(512, block.span(), false).code(), StatusCode::kIoError);
  EXPECT_EQ(file->Write(0, block.span().first(100), false).code(), StatusCode::kIoError);
  EXPECT_EQ(file->Read(0, block.span().subspan(8, kBlockBytes)).code(), StatusCode::kIoError);
}

TEST(SimDiskFaults, TheMediumCanBeDamaged) {
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

TEST(SimDiskFaults, ClonesShareNothingThatIsWritten) {
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

TEST(SimDiskFaults, ACrashedMachineRunsInsideTheHookOfAnother) {
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

TEST(SimDiskFaults, TheSameSeedGivesTheSameTrace) {
  uint64_t first = 0, second = 0, other = 0;
  const auto trace = BusyTrace(11, &first);
  EXPECT_GT(trace.size(), 100u);
  EXPECT_EQ(trace, BusyTrace(11, &second));
  EXPECT_EQ(first, second);
  EXPECT_NE(trace, BusyTrace(12, &other));
}

TEST(SimDiskFaults, QueuedRequestsCompleteOutOfOrderInVirtualTime) {
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

TEST(SimDiskFaults, ADelayedWorldTakesItsTimeForSyncsAlone) {
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
