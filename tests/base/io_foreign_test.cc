// SPDX-License-Identifier: Apache-2.0
//
// Property: what others do to a process's descriptors, and put into a held directory, leads the
// real backends to no other file. Method: numbers that are closed and given to another file under
// open files and rings; symbolic links to files, to nothing and to directories.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/io/file_util.h"
#include "base/io/posix_file.h"
#include "base/io/world.h"
#include "tests/base/io_backends.h"
#include "tests/support/child.h"

namespace cairn::io {
namespace {

using cairn::testing::Expect;
using cairn::testing::InChild;
using testing::Pattern;
using testing::TemporaryDirectory;

// A ring holds the file itself; elsewhere the number is looked at before each use.
TEST(IoForeign, AForeignCloseReachesNoOtherFile) {
  for (const auto backend : {IoBackend::kThreads, IoBackend::kUring}) {
    auto world = MakeRealWorld(backend);
    if (!world.ok()) continue;
    TemporaryDirectory directory;
    const std::string path = JoinPath(directory.path(), "f");
    const std::string other = JoinPath(directory.path(), "other");
    auto file = world->files->Open(path, {.write = true, .create = true}).value();
    auto queue = world->files->NewQueue(2);
    auto bytes = Pattern(kBlockBytes, 1);
    const auto write = [&](uint64_t offset) {
      Request request{.kind = Request::Kind::kWrite,
                      .file = file.get(),
                      .data = bytes.data(),
                      .length = bytes.size(),
                      .offset = offset};
      queue->Submit(&request);
      return queue->Reap()->status;
    };
    ASSERT_TRUE(write(0).ok());
    const int number = static_cast<PosixFile*>(file.get())->fd();
    close(number);
    const int mine = open(other.c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(mine, number);

    const Status status = write(kBlockBytes);
    const bool held = status.ok();
    EXPECT_EQ(held, backend == IoBackend::kUring) << status.ToString();
    if (!held) {
      EXPECT_NE(status.message().find("/f: its descriptor"), std::string::npos);
    }
    EXPECT_EQ(file->Write(0, bytes, true).code(), StatusCode::kIoError);
    EXPECT_EQ(file->Read(0, bytes).code(), StatusCode::kIoError);
    EXPECT_EQ(file->Sync().code(), StatusCode::kIoError);
    EXPECT_EQ(file->Size().status().code(), StatusCode::kIoError);
    EXPECT_EQ(file->Truncate(0).code(), StatusCode::kIoError);
    EXPECT_EQ(file->Allocate(0, kBlockBytes).code(), StatusCode::kIoError);
    file.reset();
    queue.reset();
    EXPECT_NE(fcntl(mine, F_GETFD), -1) << "it was closed";
    EXPECT_EQ(world->files->Info(other)->bytes, 0u);
    EXPECT_EQ(world->files->Info(path)->bytes, (held ? 2 : 1) * kBlockBytes);
    close(mine);
  }
}

TEST(IoForeign, NoLinkBelowAHeldDirectoryIsFollowed) {
  TemporaryDirectory directory;
  const std::string path = JoinPath(directory.path(), "a"), out = JoinPath(directory.path(), "out");
  auto world = MakeRealWorld(IoBackend::kThreads);
  for (const std::string& made : {path, path + "/inner", out}) {
    ASSERT_TRUE(world->files->CreateDirectory(made).ok());
  }
  ASSERT_TRUE(world->files->Open(out + "/file", {.write = true, .create = true}).ok());
  const std::vector<std::pair<const char*, std::string>> links = {
      {"file", "../out/file"}, {"none", "../out/none"}, {"directory", "../out"}};
  for (const auto& [name, target] : links) {
    std::filesystem::create_symlink(target, JoinPath(path, name));
    std::filesystem::create_symlink("../" + target, JoinPath(path, "inner/" + std::string(name)));
  }
  ASSERT_TRUE(world->files->Info(JoinPath(path, "file")).ok()) << "without Hold they are followed";
  World held = *world;
  ASSERT_TRUE(HoldDirectory(&held, path).ok());
  FileSystem& files = *held.files;
  const auto refused = [](const Status& status, const std::string& link) {
    EXPECT_EQ(status.code(), StatusCode::kIoError) << status.ToString();
    EXPECT_NE(status.message().find("symbolic link"), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find(link), std::string::npos) << status.ToString();
  };
  for (const std::string inside : {"", "inner/"}) {
    for (const auto& [name, target] : links) {
      const std::string link = JoinPath(path, inside + name);
      SCOPED_TRACE(link);
      refused(files.Open(link, {}).status(), link);
      refused(files.Open(link, {.write = true, .create = true}).status(), link);
      refused(files.Info(link).status(), link);
      refused(files.List(link).status(), link);
      refused(files.SyncDirectory(link), link);
      refused(files.Lock(link).status(), link);
      refused(files.IsLocked(link).status(), link);
      refused(files.Link(link, JoinPath(path, "linked")).status(), link);
      refused(files.Hold(link).status(), link);
      EXPECT_EQ(files.CreateDirectory(link).code(), StatusCode::kAlreadyExists);
      EXPECT_EQ(files.Info(JoinPath(path, "linked")).status().code(), StatusCode::kNotFound);
    }
  }
  refused(files.Open(JoinPath(path, "directory/file"), {}).status(), "directory");
  refused(files.Info(JoinPath(path, "directory/file")).status(), "directory");
  refused(files.Remove(JoinPath(path, "directory/file")), "directory");
  refused(files.Rename(JoinPath(path, "directory/file"), JoinPath(path, "g")), "directory");
  refused(files.CreateDirectory(JoinPath(path, "directory/new")), "directory");
  EXPECT_EQ(*world->files->List(out), std::vector<std::string>{"file"});

  ASSERT_TRUE(files.Remove(JoinPath(path, "directory")).ok()) << "the link itself";
  ASSERT_TRUE(files.Rename(JoinPath(path, "file"), JoinPath(path, "g")).ok()) << "as well";
  EXPECT_EQ(*world->files->List(out), std::vector<std::string>{"file"});
}

// More files than a ring holds, in turn; and they go with their last name all the same.
TEST(IoForeign, ARingHoldsManyFilesInTurn) {
  auto world = MakeRealWorld(IoBackend::kUring);
  if (!world.ok()) GTEST_SKIP() << world.status().ToString();
  TemporaryDirectory directory;
  auto queue = world->files->NewQueue(2);
  std::vector<std::unique_ptr<File>> files;
  auto bytes = Pattern(100, 1);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 100; ++i) {
      const std::string path = JoinPath(directory.path(), std::to_string(i));
      if (round == 0) {
        files.push_back(world->files->Open(path, {.write = true, .create = true}).value());
      }
      Request request{.kind = Request::Kind::kWrite,
                      .file = files[i].get(),
                      .data = bytes.data(),
                      .length = bytes.size(),
                      .offset = static_cast<uint64_t>(round) * bytes.size()};
      queue->Submit(&request);
      ASSERT_TRUE(queue->Reap()->status.ok());
    }
  }
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(*files[i]->Size(), 300u);
  const auto taken = [&] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = taken();
  files.clear();
  EXPECT_EQ(taken(), before - 100);
}

#if CAIRN_WITH_URING
// What the kernel has ends, the rest is done by the thread that reaps.
TEST(IoForeign, ARingWhoseDescriptorIsClosedIsNotUsed) {
  TemporaryDirectory directory;
  EXPECT_TRUE(InChild([&] {
    alarm(20);
    const auto numbers = [] {
      std::vector<int> open;
      for (int fd = 3; fd < 64; ++fd) {
        if (fcntl(fd, F_GETFD) != -1) open.push_back(fd);
      }
      return open;
    };
    auto world = MakeRealWorld(IoBackend::kUring);
    if (!world.ok()) return true;
    const std::vector<int> before = numbers();
    auto queue = world->files->NewQueue(4);
    std::vector<int> after = numbers();
    std::erase_if(after, [&](int fd) { return std::count(before.begin(), before.end(), fd) > 0; });
    if (!Expect(after.size() == 1, "a ring has one descriptor")) return false;
    auto file =
        world->files->Open(JoinPath(directory.path(), "f"), {.write = true, .create = true});
    auto bytes = Pattern(kBlockBytes, 1);
    for (int round = 0; round < 3; ++round) {
      // First it is ours, then closed, then another file's.
      if (round == 1) close(after[0]);
      if (round == 2) open(directory.path().c_str(), O_RDONLY | O_DIRECTORY);
      std::vector<Request> requests(4);
      for (size_t i = 0; i < 4; ++i) {
        requests[i] = {.kind = Request::Kind::kWrite,
                       .file = file->get(),
                       .data = bytes.data(),
                       .length = kBlockBytes,
                       .offset = (4 * static_cast<uint64_t>(round) + i) * kBlockBytes};
        queue->Submit(&requests[i]);
      }
      while (queue->in_flight() > 0) {
        const Status status = queue->Reap()->status;
        if (!Expect(status.ok(), status.ToString())) return false;
      }
    }
    queue.reset();
    return Expect(*(*file)->Size() == 12 * kBlockBytes, "something was not written") &&
           Expect(fcntl(after[0], F_GETFD) != -1, "the other file was closed");
  }));
}
#endif

}  // namespace
}  // namespace cairn::io
