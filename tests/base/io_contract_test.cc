// SPDX-License-Identifier: Apache-2.0
//
// Property: all file systems keep the contract of base/io/world.h, and no caller can see a
// difference between them. Method: one suite of assertions, run over io_uring, blocking threads,
// memory, the simulated disk, and a machine without a disk.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/io/file_util.h"
#include "base/io/world.h"
#include "tests/base/io_backends.h"

namespace cairn::io {
namespace {

using testing::Block;
using testing::Pattern;

class IoContract : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ = testing::MakeBackend(GetParam());
    if (backend_ == nullptr) GTEST_SKIP() << GetParam() << " is not available on this machine";
    files_ = backend_->world().files.get();
    scheduler_ = backend_->world().scheduler.get();
  }

  std::string At(const std::string& name) const { return JoinPath(backend_->root(), name); }

  std::unique_ptr<File> MustOpen(const std::string& name, const OpenOptions& options) {
    auto file = files_->Open(At(name), options);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return std::move(file).value();
  }

  std::unique_ptr<File> NewFile(const std::string& name) {
    return MustOpen(name, {.write = true, .create = true, .exclusive = true});
  }

  std::unique_ptr<testing::Backend> backend_;
  FileSystem* files_ = nullptr;
  Scheduler* scheduler_ = nullptr;
};

TEST_P(IoContract, ReadsBackWhatWasWrittenAtAnyOffset) {
  auto file = NewFile("f");
  const auto bytes = Pattern(100'001, 1);
  ASSERT_TRUE(file->Write(777, bytes, false).ok());
  EXPECT_EQ(*file->Size(), 777 + bytes.size());

  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(file->Read(777, back).ok());
  EXPECT_EQ(back, bytes);
  std::vector<std::byte> hole(777, std::byte{1});
  ASSERT_TRUE(file->Read(0, hole).ok());
  EXPECT_EQ(hole, std::vector<std::byte>(777));
  EXPECT_TRUE(file->Sync().ok());
}

TEST_P(IoContract, ReadBeyondTheEndFailsAndSaysHowMuchThereWas) {
  auto file = NewFile("short");
  ASSERT_TRUE(file->Write(0, Pattern(5000, 2), true).ok());

  std::vector<std::byte> into(4096);
  const Status status = file->Read(4096, into);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_NE(status.message().find(At("short")), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("offset 4096"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("904"), std::string::npos) << status.ToString();

  auto queue = files_->NewQueue(2);
  Request inside{.file = file.get(), .data = into.data(), .length = 4096, .offset = 4096};
  std::vector<std::byte> other(100);
  Request outside{.file = file.get(), .data = other.data(), .length = 100, .offset = 9000};
  queue->Submit(&inside);
  queue->Submit(&outside);
  (void)queue->Reap();
  (void)queue->Reap();
  EXPECT_EQ(inside.status.code(), StatusCode::kIoError);
  EXPECT_EQ(inside.transferred, 904u);
  EXPECT_EQ(outside.status.code(), StatusCode::kIoError);
  EXPECT_EQ(outside.transferred, 0u);
  const auto expected = Pattern(5000, 2);
  EXPECT_TRUE(std::equal(expected.begin() + 4096, expected.end(), into.begin()));
}

TEST_P(IoContract, DirectReadOfAnUnalignedTailSaysHowMuchThereWas) {
  {
    auto file = NewFile("tail");
    ASSERT_TRUE(file->Write(0, Pattern(4096 + 1000, 3), true).ok());
  }
  auto file = MustOpen("tail", {.direct = true});
  Block block(8192);
  Request request{.file = file.get(), .data = block.data(), .length = 8192};
  auto queue = files_->NewQueue(1);
  queue->Submit(&request);
  EXPECT_EQ(queue->Reap(), &request);
  EXPECT_EQ(request.status.code(), StatusCode::kIoError) << request.status.ToString();
  EXPECT_EQ(request.transferred, 5096u);
}

TEST_P(IoContract, ZeroLengthTransfersSucceed) {
  auto file = NewFile("empty");
  EXPECT_TRUE(file->Write(0, {}, true).ok());
  EXPECT_TRUE(file->Read(0, {}).ok());
  EXPECT_EQ(*file->Size(), 0u);
}

TEST_P(IoContract, DirectFilesTakeAlignedTransfersOfEveryKind) {
  auto file = MustOpen("direct", {.write = true, .create = true, .direct = true});
  Block block(3 * kBlockBytes);
  const auto bytes = Pattern(3 * kBlockBytes, 4);
  std::memcpy(block.data(), bytes.data(), bytes.size());
  ASSERT_TRUE(file->Write(kBlockBytes, block.span(), false).ok());
  ASSERT_TRUE(file->Write(8 * kBlockBytes, block.span(), true).ok());
  ASSERT_TRUE(file->Sync().ok());
  for (const uint64_t offset : {1, 8}) {
    std::memset(block.data(), 0, block.span().size());
    ASSERT_TRUE(file->Read(offset * kBlockBytes, block.span()).ok());
    EXPECT_EQ(std::memcmp(block.data(), bytes.data(), bytes.size()), 0);
  }
}

TEST_P(IoContract, TruncateShrinksAndGrowsWithZeros) {
  auto file = NewFile("t");
  ASSERT_TRUE(file->Write(0, Pattern(10'000, 5), false).ok());
  ASSERT_TRUE(file->Truncate(5'000).ok());
  EXPECT_EQ(*file->Size(), 5'000u);
  ASSERT_TRUE(file->Truncate(20'000).ok());
  std::vector<std::byte> back(20'000);
  ASSERT_TRUE(file->Read(0, back).ok());
  auto expected = Pattern(10'000, 5);
  expected.resize(5'000);
  expected.resize(20'000);
  EXPECT_EQ(back, expected);
}

TEST_P(IoContract, AllocateHoldsBlocksKeepsContentAndNeverShrinks) {
  auto file = NewFile("a");
  const auto head = Pattern(100, 6);
  ASSERT_TRUE(file->Write(0, head, false).ok());
  ASSERT_TRUE(file->Allocate(0, 1 << 20).ok());
  EXPECT_EQ(*file->Size(), 1u << 20);
  ASSERT_TRUE(file->Sync().ok());
  const auto info = files_->Info(At("a"));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->bytes, 1u << 20);
  EXPECT_GE(info->allocated_bytes, 1u << 20);
  EXPECT_FALSE(info->is_directory);

  ASSERT_TRUE(file->Allocate(0, 4096).ok());
  EXPECT_EQ(*file->Size(), 1u << 20);
  std::vector<std::byte> back(1 << 20);
  ASSERT_TRUE(file->Read(0, back).ok());
  EXPECT_TRUE(std::equal(head.begin(), head.end(), back.begin()));
  EXPECT_TRUE(
      std::all_of(back.begin() + 100, back.end(), [](std::byte b) { return b == std::byte{}; }));
}

TEST_P(IoContract, OpenOptionsDecideWhatIsMade) {
  EXPECT_EQ(files_->Open(At("x"), {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Open(At("x"), {.write = true}).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(files_->Open(At("x"), {.write = true, .create = true}).ok());
  EXPECT_TRUE(files_->Open(At("x"), {.write = true, .create = true}).ok());
  const Status exists =
      files_->Open(At("x"), {.write = true, .create = true, .exclusive = true}).status();
  EXPECT_EQ(exists.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(exists.message().find("EEXIST"), std::string::npos) << exists.ToString();
  EXPECT_EQ(files_->Open(At("no/x"), {.write = true, .create = true}).status().code(),
            StatusCode::kNotFound);
}

TEST_P(IoContract, AFileOpenedForReadingRefusesWrites) {
  NewFile("r");
  auto file = MustOpen("r", {});
  EXPECT_EQ(file->Write(0, Pattern(10, 0), false).code(), StatusCode::kIoError);
  EXPECT_EQ(file->Truncate(5).code(), StatusCode::kIoError);
  EXPECT_EQ(file->Allocate(0, 5).code(), StatusCode::kIoError);
  EXPECT_EQ(*file->Size(), 0u);
}

TEST_P(IoContract, DirectoriesListSortedNamesAndRefuseWhatTheyMust) {
  ASSERT_TRUE(files_->CreateDirectory(At("d")).ok());
  EXPECT_EQ(files_->CreateDirectory(At("d")).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(files_->CreateDirectory(At("no/d")).code(), StatusCode::kNotFound);
  for (const char* name : {"d/c", "d/a", "d/b-", "d/b"}) NewFile(name);
  ASSERT_TRUE(files_->CreateDirectory(At("d/b.d")).ok());
  NewFile("d/b.d/inner");
  using Names = std::vector<std::string>;
  EXPECT_EQ(*files_->List(At("d")), (Names{"a", "b", "b-", "b.d", "c"}));
  EXPECT_EQ(files_->List(At("no")).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(files_->SyncDirectory(At("d")).ok());
  EXPECT_EQ(files_->SyncDirectory(At("no")).code(), StatusCode::kNotFound);
  EXPECT_TRUE(files_->Info(At("d"))->is_directory);
  EXPECT_EQ(files_->Info(At("d/no")).status().code(), StatusCode::kNotFound);

  EXPECT_EQ(files_->Remove(At("d")).code(), StatusCode::kIoError);  // Not empty.
  EXPECT_TRUE(files_->Remove(At("d/a")).ok());
  EXPECT_EQ(files_->Remove(At("d/a")).code(), StatusCode::kNotFound);
  EXPECT_TRUE(files_->Remove(At("d/b.d/inner")).ok());
  EXPECT_TRUE(files_->Remove(At("d/b.d")).ok());
  EXPECT_EQ(*files_->List(At("d")), (Names{"b", "b-", "c"}));
}

TEST_P(IoContract, RenameReplacesAndMovesWholeDirectories) {
  ASSERT_TRUE(NewFile("old")->Write(0, Pattern(10, 1), false).ok());
  ASSERT_TRUE(NewFile("new")->Write(0, Pattern(20, 2), false).ok());
  ASSERT_TRUE(files_->Rename(At("old"), At("new")).ok());
  EXPECT_EQ(files_->Info(At("old")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(*ReadWholeFile(*files_, At("new"), 100), Pattern(10, 1));
  EXPECT_EQ(files_->Rename(At("old"), At("new")).code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Rename(At("new"), At("no/new")).code(), StatusCode::kNotFound);

  ASSERT_TRUE(files_->CreateDirectory(At("d1")).ok());
  ASSERT_TRUE(files_->Rename(At("new"), At("d1/f")).ok());
  EXPECT_EQ(files_->Rename(At("d1/f"), At("d1")).code(), StatusCode::kIoError);
  ASSERT_TRUE(files_->Rename(At("d1"), At("d2")).ok());
  EXPECT_EQ(*ReadWholeFile(*files_, At("d2/f"), 100), Pattern(10, 1));
}

TEST_P(IoContract, ALinkIsASecondNameForTheSameFile) {
  const auto bytes = Pattern(5000, 3);
  ASSERT_TRUE(NewFile("a")->Write(0, bytes, false).ok());
  ASSERT_TRUE(files_->CreateDirectory(At("d")).ok());
  const auto linked = files_->Link(At("a"), At("d/b"));
  ASSERT_TRUE(linked.ok()) << linked.status().ToString();
  EXPECT_TRUE(*linked);

  const auto more = Pattern(100, 4);
  ASSERT_TRUE(MustOpen("d/b", {.write = true})->Write(4000, more, false).ok());
  std::vector<std::byte> back(more.size());
  ASSERT_TRUE(MustOpen("a", {})->Read(4000, back).ok());
  EXPECT_EQ(back, more);

  EXPECT_TRUE(files_->Rename(At("a"), At("d/b")).ok());
  EXPECT_TRUE(files_->Info(At("a")).ok()) << "a rename onto another name of the file does nothing";
  ASSERT_TRUE(files_->Remove(At("a")).ok());
  EXPECT_EQ(files_->Info(At("d/b"))->bytes, bytes.size()) << "the file has a name left";
  ASSERT_TRUE(files_->Remove(At("d/b")).ok());
  EXPECT_EQ(*files_->List(At("d")), std::vector<std::string>());
}

TEST_P(IoContract, ALinkIsRefusedAsTheOperatingSystemWould) {
  NewFile("a");
  NewFile("b");
  ASSERT_TRUE(files_->CreateDirectory(At("d")).ok());
  EXPECT_EQ(files_->Link(At("none"), At("c")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Link(At("a"), At("none/c")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_->Link(At("a"), At("b")).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(files_->Link(At("a"), At("d")).status().code(), StatusCode::kAlreadyExists);
  const auto directory = files_->Link(At("d"), At("c"));
  EXPECT_EQ(directory.status().code(), StatusCode::kIoError);
  EXPECT_NE(directory.status().message().find(At("d") + " to " + At("c")), std::string::npos)
      << directory.status().ToString();
  EXPECT_EQ(files_->Info(At("c")).status().code(), StatusCode::kNotFound);
}

TEST_P(IoContract, AnOpenFileSurvivesItsRemovalAndItsReplacement) {
  auto file = NewFile("gone");
  ASSERT_TRUE(file->Write(0, Pattern(100, 7), false).ok());
  ASSERT_TRUE(files_->Remove(At("gone")).ok());
  std::vector<std::byte> back(100);
  EXPECT_TRUE(file->Read(0, back).ok());
  EXPECT_EQ(back, Pattern(100, 7));
  EXPECT_TRUE(file->Write(0, Pattern(100, 8), true).ok());
  auto again = NewFile("gone");
  EXPECT_EQ(*again->Size(), 0u);
}

TEST_P(IoContract, WhoAsksWhetherALockIsHeldNeitherTakesNorMakesIt) {
  const auto is_locked = [this] {
    const auto locked = files_->IsLocked(At("LOCK"));
    EXPECT_TRUE(locked.ok());
    return locked.ok() && *locked;
  };
  EXPECT_FALSE(is_locked());
  EXPECT_EQ(files_->Info(At("LOCK")).status().code(), StatusCode::kNotFound);
  {
    auto lock = files_->Lock(At("LOCK"));
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(is_locked());
    EXPECT_TRUE(is_locked());
  }
  EXPECT_FALSE(is_locked());
  EXPECT_TRUE(files_->Lock(At("LOCK")).ok());
}

TEST_P(IoContract, ALockIsLostWithTheNameOfItsFile) {
  auto lock = files_->Lock(At("LOCK"));
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE((*lock)->Check().ok());
  ASSERT_TRUE(files_->Rename(At("LOCK"), At("moved")).ok());
  const Status gone = (*lock)->Check();
  EXPECT_EQ(gone.code(), StatusCode::kLocked);
  EXPECT_NE(gone.message().find("LOCK"), std::string_view::npos);
  auto second = files_->Lock(At("LOCK"));
  ASSERT_TRUE(second.ok()) << "another file";
  EXPECT_EQ((*lock)->Check().code(), StatusCode::kLocked);
  EXPECT_TRUE((*second)->Check().ok());
  ASSERT_TRUE(files_->Rename(At("moved"), At("LOCK")).ok());
  EXPECT_TRUE((*lock)->Check().ok());
  EXPECT_EQ((*second)->Check().code(), StatusCode::kLocked);
}

// Where paths cannot be led elsewhere, the file system serves as it is.
TEST_P(IoContract, ADirectoryThatIsHeldIsThere) {
  ASSERT_TRUE(files_->CreateDirectory(At("held")).ok());
  auto held = files_->Hold(At("held"));
  ASSERT_TRUE(held.ok()) << held.status().ToString();
  FileSystem& files = *held == nullptr ? *files_ : **held;
  ASSERT_TRUE(files.CreateDirectory(At("held/inner")).ok());
  const OpenOptions make{.write = true, .create = true};
  ASSERT_TRUE(files.Open(At("held/f"), make).ok());
  ASSERT_TRUE(files.Rename(At("held/f"), At("held/inner/g")).ok());
  ASSERT_TRUE(files.SyncDirectory(At("held")).ok());
  ASSERT_TRUE(files.SyncDirectory(At("held/inner")).ok());
  EXPECT_EQ(*files.List(At("held/")), std::vector<std::string>{"inner"});
  EXPECT_EQ(*files.List(At("held/inner")), std::vector<std::string>{"g"});
  EXPECT_TRUE(files.Info(At("held"))->is_directory);
  EXPECT_TRUE(files.Volume(At("held")).ok());
  EXPECT_TRUE(files.Volume(At("held/inner")).ok());
  EXPECT_TRUE(files.Space(At("held")).ok());
  EXPECT_FALSE(*files.IsReplaced(At("held")));
  // The directory beside it, and itself as a name of its parent.
  ASSERT_TRUE(files.Open(At("held2"), make).ok());
  EXPECT_EQ(files_->Info(At("held2")).status().code(), StatusCode::kOk);
  ASSERT_TRUE(files.SyncDirectory(ParentPath(At("held"))).ok());
  EXPECT_FALSE(files.Remove(At("held")).ok()) << "it is not empty";
  ASSERT_TRUE(files.Remove(At("held/inner/g")).ok());
  ASSERT_TRUE(files.Remove(At("held/inner")).ok());
  EXPECT_TRUE(files.Remove(At("held")).ok());
  EXPECT_EQ(files_->Info(At("held")).status().code(), StatusCode::kNotFound);
}

TEST_P(IoContract, ALockHasOneHolderInThisProcessToo) {
  auto first = files_->Lock(At("LOCK"));
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const Status second = files_->Lock(At("LOCK")).status();
  EXPECT_EQ(second.code(), StatusCode::kLocked);
  EXPECT_NE(second.message().find(At("LOCK")), std::string::npos);
  EXPECT_NE(second.message().find("held by another opening in this process"), std::string::npos)
      << second.message();
  EXPECT_TRUE(files_->Lock(At("OTHER")).ok());
  first = Status(StatusCode::kNotFound, "released");
  EXPECT_TRUE(files_->Lock(At("LOCK")).ok());
  EXPECT_EQ(files_->Lock(At("no/LOCK")).status().code(), StatusCode::kNotFound);
}

TEST_P(IoContract, VolumeTellsWhatItIs) {
  const auto volume = files_->Volume(backend_->root());
  ASSERT_TRUE(volume.ok());
  EXPECT_FALSE(volume->file_system.empty());
  EXPECT_EQ(files_->Volume(At("no")).status().code(), StatusCode::kNotFound);
  const auto space = files_->Space(backend_->root());
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->total_bytes, 0u);
  EXPECT_LE(space->free_bytes, space->total_bytes);
  EXPECT_EQ(files_->Space(At("no")).status().code(), StatusCode::kNotFound);
}

TEST_P(IoContract, AQueueCompletesEverythingWhateverTheOrder) {
  constexpr size_t kDepth = 16, kPieces = 64, kPieceBytes = 32 << 10;
  auto file = NewFile("q");
  auto queue = files_->NewQueue(kDepth);
  const auto bytes = Pattern(kPieces * kPieceBytes, 9);
  std::vector<std::byte> back(bytes.size());

  for (const auto kind : {Request::Kind::kWrite, Request::Kind::kRead}) {
    std::vector<Request> requests(kPieces);
    std::vector<size_t> order(kPieces);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    size_t reaped = 0;
    const auto reap = [&] {
      Request* done = queue->Reap();
      EXPECT_TRUE(done->status.ok()) << done->status.ToString();
      EXPECT_EQ(done->transferred, kPieceBytes);
      EXPECT_EQ(done->owner, done);
      done->owner = nullptr;  // Each comes back once.
      ++reaped;
    };
    for (const size_t i : order) {
      if (queue->in_flight() == kDepth) reap();
      auto* data =
          kind == Request::Kind::kRead ? back.data() : const_cast<std::byte*>(bytes.data());
      requests[i] = {.kind = kind,
                     .file = file.get(),
                     .data = data + i * kPieceBytes,
                     .length = kPieceBytes,
                     .offset = i * kPieceBytes,
                     .owner = &requests[i]};
      queue->Submit(&requests[i]);
    }
    while (queue->in_flight() > 0) reap();
    EXPECT_EQ(reaped, kPieces);
  }
  EXPECT_EQ(back, bytes);

  Request sync{.kind = Request::Kind::kSync, .file = file.get()};
  queue->Submit(&sync);
  EXPECT_EQ(queue->Reap(), &sync);
  EXPECT_TRUE(sync.status.ok());
}

TEST_P(IoContract, AQueueMixesKindsAndFiles) {
  auto one = NewFile("one"), two = NewFile("two");
  const auto bytes = Pattern(9000, 10);
  auto* data = const_cast<std::byte*>(bytes.data());
  std::vector<std::byte> back(9000);
  ASSERT_TRUE(one->Write(0, bytes, false).ok());
  Request requests[] = {
      {.kind = Request::Kind::kRead, .file = one.get(), .data = back.data(), .length = 9000},
      {.kind = Request::Kind::kDurableWrite, .file = two.get(), .data = data, .length = 9000},
      {.kind = Request::Kind::kSync, .file = one.get()},
      {.kind = Request::Kind::kWrite,
       .file = two.get(),
       .data = data,
       .length = 9000,
       .offset = 9000}};
  auto queue = files_->NewQueue(4);
  for (Request& request : requests) queue->Submit(&request);
  while (queue->in_flight() > 0) EXPECT_TRUE(queue->Reap()->status.ok());
  EXPECT_EQ(back, bytes);
  auto expected = bytes;
  expected.insert(expected.end(), bytes.begin(), bytes.end());
  EXPECT_EQ(*ReadWholeFile(*files_, At("two"), 1 << 20), expected);
}

TEST_P(IoContract, DestroyingAQueueWaitsForWhatIsInFlight) {
  auto file = NewFile("w");
  const auto bytes = Pattern(1 << 20, 11);
  std::vector<Request> requests(4);
  {
    auto queue = files_->NewQueue(4);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i] = {.kind = Request::Kind::kWrite,
                     .file = file.get(),
                     .data = const_cast<std::byte*>(bytes.data()) + i * (256 << 10),
                     .length = 256 << 10,
                     .offset = i * (256 << 10)};
      queue->Submit(&requests[i]);
    }
  }
  EXPECT_EQ(*ReadWholeFile(*files_, At("w"), 1 << 20), bytes);
}

TEST_P(IoContract, AQueueMayBeHandedToAnotherThread) {
  auto file = NewFile("handed");
  const auto bytes = Pattern(64 << 10, 12);
  std::vector<Request> requests(4);
  auto queue = files_->NewQueue(4);
  // The submitting thread ends with its requests in flight.
  scheduler_->StartThread("submitter", [&] {
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i] = {.kind = i == 3 ? Request::Kind::kSync : Request::Kind::kDurableWrite,
                     .file = file.get(),
                     .data = const_cast<std::byte*>(bytes.data()),
                     .length = i == 3 ? 0 : bytes.size(),
                     .offset = i * bytes.size()};
      queue->Submit(&requests[i]);
    }
  });
  while (queue->in_flight() > 0) {
    const Request* done = queue->Reap();
    EXPECT_TRUE(done->status.ok()) << done->status.ToString();
  }
  EXPECT_EQ(*file->Size(), 3 * bytes.size());
}

TEST_P(IoContract, SmallFilesAreReplacedWhole) {
  const std::string path = At("CURRENT");
  EXPECT_EQ(ReadWholeFile(*files_, path, 100).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileDurably(*files_, path, Pattern(50, 1)).ok());
  ASSERT_TRUE(WriteFileDurably(*files_, path, Pattern(30, 2)).ok());
  EXPECT_EQ(*ReadWholeFile(*files_, path, 30), Pattern(30, 2));
  EXPECT_EQ(ReadWholeFile(*files_, path, 29).status().code(), StatusCode::kCorruption);
  EXPECT_EQ(*files_->List(backend_->root()), std::vector<std::string>{"CURRENT"});
  EXPECT_TRUE(RemoveIfExists(*files_, path).ok());
  EXPECT_TRUE(RemoveIfExists(*files_, path).ok());
  EXPECT_TRUE(CreateDirectoryIfMissing(*files_, path).ok());
  EXPECT_TRUE(CreateDirectoryIfMissing(*files_, path).ok());
  EXPECT_FALSE(WriteFileDurably(*files_, path, Pattern(1, 1)).ok());  // A directory is in the way.
  EXPECT_EQ(*files_->List(backend_->root()), std::vector<std::string>{"CURRENT"});
}

TEST_P(IoContract, ThreadsWaitForEachOtherOnAWord) {
  std::atomic<uint32_t> ping{0}, pong{0};
  constexpr uint32_t kRounds = 200;
  {
    auto thread = scheduler_->StartThread("pong", [&] {
      for (uint32_t round = 1; round <= kRounds; ++round) {
        while (ping.load() < round) scheduler_->Wait(ping, round - 1, kNoDeadline);
        pong.store(round);
        scheduler_->WakeAll(pong);
      }
    });
    ASSERT_NE(thread, nullptr);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      ping.store(round);
      scheduler_->WakeAll(ping);
      while (pong.load() < round) scheduler_->Wait(pong, round - 1, kNoDeadline);
    }
  }
  EXPECT_EQ(pong.load(), kRounds);
}

TEST_P(IoContract, WaitGivesUpAtItsDeadlineAndNotBefore) {
  std::atomic<uint32_t> word{5};
  EXPECT_TRUE(scheduler_->Wait(word, 4, 0));  // The word differs; the deadline does not matter.
  EXPECT_FALSE(scheduler_->Wait(word, 5, 0));
  const uint64_t deadline = scheduler_->MonotonicNs() + 20'000'000;
  while (scheduler_->Wait(word, 5, deadline)) {
  }
  EXPECT_GE(scheduler_->MonotonicNs(), deadline);
}

TEST_P(IoContract, ClocksAdvanceAndChanceVaries) {
  const uint64_t before = scheduler_->MonotonicNs();
  scheduler_->Sleep(2'000'000);
  EXPECT_GE(scheduler_->MonotonicNs(), before + 2'000'000);
  EXPECT_GT(scheduler_->WallNs(), 1'600'000'000'000'000'000u);
  EXPECT_NE(scheduler_->Random64(), scheduler_->Random64());
  EXPECT_EQ(scheduler_->ProcessId(), scheduler_->ProcessId());
  EXPECT_GE(scheduler_->Cores(), 1u);
  auto notifier = scheduler_->NewNotifier();
  notifier->Signal();
  notifier->Signal();
  notifier->Clear();
  notifier->Clear();
}

INSTANTIATE_TEST_SUITE_P(Backends, IoContract, ::testing::ValuesIn(testing::BackendNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace cairn::io
