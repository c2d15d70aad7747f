// SPDX-License-Identifier: Apache-2.0
//
// Property: the real backends meet what a real machine does to them: refused system calls, a full
// disk, a lock held by another process, fork(). Method: child processes under seccomp filters, a
// small tmpfs where mounting is permitted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/io/executor.h"
#include "base/io/file_util.h"
#include "base/io/lock_holder.h"
#include "base/io/os_error.h"
#include "base/io/posix_file.h"
#include "base/io/real_scheduler.h"
#include "base/io/unique_fd.h"
#include "base/io/world.h"
#include "tests/base/io_backends.h"
#include "tests/support/child.h"

namespace cairn::io {
namespace {

using cairn::testing::Expect;
using cairn::testing::InChild;
using cairn::testing::Refuse;
using testing::Block;
using testing::Pattern;
using testing::TemporaryDirectory;

// Writes and reads through queue and file, one request and several.
bool RoundTrip(World& world, const std::string& directory) {
  auto file = world.files->Open(JoinPath(directory, "round"), {.write = true, .create = true});
  if (!Expect(file.ok(), file.status().ToString())) return false;
  auto bytes = Pattern(4 * kBlockBytes, 1);
  std::vector<std::byte> back(bytes.size());
  for (const auto kind : {Request::Kind::kDurableWrite, Request::Kind::kRead}) {
    auto queue = world.files->NewQueue(4);
    std::vector<Request> requests(4);
    for (size_t i = 0; i < 4; ++i) {
      auto* data = kind == Request::Kind::kRead ? back.data() : bytes.data();
      requests[i] = {.kind = kind,
                     .file = file->get(),
                     .data = data + i * kBlockBytes,
                     .length = kBlockBytes,
                     .offset = i * kBlockBytes};
      queue->Submit(&requests[i]);
    }
    while (queue->in_flight() > 0) {
      const Request* done = queue->Reap();
      if (!Expect(done->status.ok(), done->status.ToString())) return false;
    }
  }
  return Expect(back == bytes, "other bytes came back") &&
         Expect((*file)->Sync().ok(), "sync failed");
}

TEST(IoOsError, EveryErrnoHasItsCodeAndItsName) {
  const std::pair<int, StatusCode> cases[] = {
      {ENOSPC, StatusCode::kNoSpace},       {EDQUOT, StatusCode::kNoSpace},
      {EROFS, StatusCode::kReadOnly},       {ENOENT, StatusCode::kNotFound},
      {EEXIST, StatusCode::kAlreadyExists}, {ENOMEM, StatusCode::kOutOfMemory},
      {EIO, StatusCode::kIoError},          {EACCES, StatusCode::kIoError},
      {ENOTDIR, StatusCode::kIoError}};
  for (const auto& [error, code] : cases) EXPECT_EQ(OsError(error, "call", "p").code(), code);
  EXPECT_EQ(OsError(ENOSPC, "pwrite", "a/b", 4096, 10).message(),
            "pwrite a/b: offset 4096, length 10: ENOSPC (No space left on device)");
  EXPECT_EQ(OsError(EIO, "open", "a/b").message(), "open a/b: EIO (Input/output error)");
  EXPECT_EQ(DescribeErrno(99999), "errno 99999");
}

TEST(IoPath, PathsAreJoinedAndTakenApart) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(ParentPath("a/b/c"), "a/b");
  EXPECT_EQ(ParentPath("a//b/"), "a");
  EXPECT_EQ(ParentPath("c"), ".");
  EXPECT_EQ(ParentPath("/c"), "/");
  EXPECT_EQ(BaseName("a/b/"), "b");
  EXPECT_EQ(BaseName("c"), "c");
  EXPECT_EQ(NormalPath("//a/./b//"), "a/b");
  EXPECT_EQ(NormalPath("/"), "");
  EXPECT_EQ(NormalPath("."), "");
}

TEST(IoReal, WithoutIoUringThreadsAreChosenAndItIsSaid) {
  for (const int error : {ENOSYS, EPERM, EACCES, EINVAL, ENOMEM}) {
    TemporaryDirectory directory;
    EXPECT_TRUE(InChild([&] {
      std::string why;
      if (!Expect(Refuse(SCMP_SYS(io_uring_setup), error), "no seccomp")) return false;
      auto world = MakeRealWorld(IoBackend::kAuto, &why);
      if (!Expect(world.ok() && world->files->name() == "threads", "not threads")) return false;
      // A build without it says so instead.
      const char* name = CAIRN_WITH_URING ? strerrorname_np(error) : "CAIRN_WITH_URING";
      const auto uring = MakeRealWorld(IoBackend::kUring).status();
      if (!Expect(why.find(name) != std::string::npos, why)) return false;
      return Expect(why.find('\n') == std::string::npos && !why.empty(), why) &&
             Expect(uring.code() == StatusCode::kIoError, "kUring did not fail") &&
             RoundTrip(*world, directory.path());
    })) << strerrorname_np(error);
  }
}

#if CAIRN_WITH_URING
TEST(IoReal, RingsThatAreRefusedLaterBecomeThreads) {
  TemporaryDirectory directory;
  const Status granted = MakeRealWorld(IoBackend::kUring).status();
  if (!granted.ok()) GTEST_SKIP() << granted.ToString();
  EXPECT_TRUE(InChild([&] {
    auto world = MakeRealWorld(IoBackend::kUring);
    return Expect(Refuse(SCMP_SYS(io_uring_setup), ENOMEM), "no seccomp") &&
           RoundTrip(*world, directory.path());
  }));
}
#endif

TEST(IoReal, AKernelWithoutDsyncWritesGetsTwoCalls) {
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    TemporaryDirectory directory;
    EXPECT_TRUE(InChild([&] {
      auto world = MakeRealWorld(IoBackend::kThreads);
      return Expect(Refuse(SCMP_SYS(pwritev2), error), "no seccomp") &&
             RoundTrip(*world, directory.path());
    }));
    // Without the second call the write must not be called durable.
    EXPECT_TRUE(InChild([&] {
      auto world = MakeRealWorld(IoBackend::kThreads);
      auto file =
          world->files->Open(JoinPath(directory.path(), "f"), {.write = true, .create = true});
      if (!Expect(Refuse(SCMP_SYS(pwritev2), error) && Refuse(SCMP_SYS(fdatasync), EIO),
                  "no seccomp")) {
        return false;
      }
      const auto bytes = Pattern(100, 1);
      return Expect((*file)->Write(0, bytes, false).ok(), "a plain write failed") &&
             Expect((*file)->Write(0, bytes, true).code() == StatusCode::kIoError, "no error");
    }));
  }
}

TEST(IoReal, AFileSystemWithoutFallocateGetsZerosWritten) {
  for (const bool direct : {false, true}) {
    TemporaryDirectory directory;
    EXPECT_TRUE(InChild([&] {
      auto world = MakeRealWorld(IoBackend::kThreads);
      const std::string path = JoinPath(directory.path(), "f");
      const auto head = Pattern(5000, 1);
      if (!WriteFileDurably(*world->files, path, head).ok()) return false;
      auto file = world->files->Open(path, {.write = true, .direct = direct});
      if (!Expect(Refuse(SCMP_SYS(fallocate), EOPNOTSUPP), "no seccomp")) return false;
      const Status status = (*file)->Allocate(0, 200'000);
      if (!Expect(status.ok(), status.ToString()) || !(*file)->Sync().ok()) return false;
      const auto bytes = ReadWholeFile(*world->files, path, 1 << 20);
      auto expected = head;
      expected.resize(200'000);
      return Expect(bytes.ok() && *bytes == expected, "other content") &&
             Expect(world->files->Info(path)->allocated_bytes >= 200'000, "holes are left") &&
             Expect((*file)->Allocate(0, 100).ok() && *(*file)->Size() == 200'000, "it shrank");
    }));
  }
}

TEST(IoReal, AReadThatKeepsSayingAgainFailsInTheEnd) {
  TemporaryDirectory directory;
  EXPECT_TRUE(InChild([&] {
    auto world = MakeRealWorld(IoBackend::kThreads);
    auto file =
        world->files->Open(JoinPath(directory.path(), "f"), {.write = true, .create = true});
    if (!Expect(Refuse(SCMP_SYS(pwrite64), EAGAIN), "no seccomp")) return false;
    const Status status = (*file)->Write(0, Pattern(10, 1), false);
    return Expect(status.code() == StatusCode::kIoError, status.ToString()) &&
           Expect(status.message().find("EAGAIN") != std::string::npos, status.ToString());
  }));
}

TEST(IoReal, TheKernelsAnswersAreContinuedOrEnded) {
  TemporaryDirectory directory;
  auto file =
      PosixFile::Open(JoinPath(directory.path(), "f"), {.write = true, .create = true}).value();
  std::byte data[100];
  const auto fresh = [&](Request::Kind kind) {
    return Request{.kind = kind, .file = file.get(), .data = data, .length = 100, .offset = 50};
  };
  Request request = fresh(Request::Kind::kWrite);
  EXPECT_FALSE(file->Advance(request, 30));
  EXPECT_FALSE(file->Advance(request, -EINTR));
  EXPECT_EQ(request.transferred, 30u);
  EXPECT_TRUE(file->Advance(request, 70));
  EXPECT_TRUE(request.status.ok());

  request = fresh(Request::Kind::kWrite);
  EXPECT_TRUE(file->Advance(request, 0));  // No progress is an error, not a loop.
  EXPECT_EQ(request.status.code(), StatusCode::kIoError);

  request = fresh(Request::Kind::kWrite);
  EXPECT_FALSE(file->Advance(request, 20));
  EXPECT_TRUE(file->Advance(request, -ENOSPC));
  EXPECT_EQ(request.status.code(), StatusCode::kNoSpace);
  EXPECT_NE(request.status.message().find("offset 70, length 80"), std::string::npos);

  request = fresh(Request::Kind::kRead);
  EXPECT_FALSE(file->Advance(request, 10));
  EXPECT_TRUE(file->Advance(request, 0));
  EXPECT_EQ(request.status.code(), StatusCode::kIoError);
  EXPECT_EQ(request.transferred, 10u);

  request = fresh(Request::Kind::kSync);
  EXPECT_TRUE(file->Advance(request, -EIO));
  EXPECT_EQ(request.status.code(), StatusCode::kIoError);
}

TEST(IoReal, DirectFilesOnARealDiskAreDirect) {
  TemporaryDirectory directory;
  auto world = MakeRealWorld(IoBackend::kThreads);
  const auto volume = world->files->Volume(directory.path());
  ASSERT_TRUE(volume.ok());
  const std::string path = JoinPath(directory.path(), "f");
  auto file = world->files->Open(path, {.write = true, .create = true, .direct = true});
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->direct(), volume->direct_io);
  EXPECT_EQ(world->files->Volume(path)->direct_io, volume->direct_io);
  if (!(*file)->direct()) GTEST_SKIP() << volume->file_system << " has no direct I/O";
  Block block(2 * kBlockBytes);
  EXPECT_EQ((*file)->Write(100, block.span(), false).code(), StatusCode::kIoError);
}

TEST(IoReal, AFullDiskIsNoSpaceAndAllocationGivesBackItsPart) {
  TemporaryDirectory directory;
  if (mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting is not permitted: " << DescribeErrno(errno);
  }
  for (const auto backend : {IoBackend::kThreads, IoBackend::kAuto}) {
    auto world = MakeRealWorld(backend);
    const auto volume = world->files->Volume(directory.path());
    EXPECT_EQ(volume->file_system, "tmpfs");
    EXPECT_FALSE(volume->durable);
    EXPECT_EQ(world->files->Space(directory.path())->total_bytes, 1u << 20);
    const std::string path = JoinPath(directory.path(), "f");
    {
      auto file = world->files->Open(path, {.write = true, .create = true}).value();
      EXPECT_EQ(file->Allocate(0, 2 << 20).code(), StatusCode::kNoSpace);
      EXPECT_EQ(*file->Size(), 0u);
      EXPECT_EQ(world->files->Info(path)->allocated_bytes, 0u);
      auto bytes = Pattern(2 << 20, 1);
      EXPECT_EQ(file->Write(0, bytes, false).code(), StatusCode::kNoSpace);
      ASSERT_TRUE(file->Truncate(0).ok());
      Request request{.kind = Request::Kind::kWrite,
                      .file = file.get(),
                      .data = bytes.data(),
                      .length = bytes.size()};
      auto queue = world->files->NewQueue(1);
      queue->Submit(&request);
      EXPECT_EQ(queue->Reap(), &request);
      EXPECT_EQ(request.status.code(), StatusCode::kNoSpace) << request.status.ToString();
      EXPECT_GT(request.transferred, 0u);  // Some went through before.
    }
    EXPECT_TRUE(world->files->Remove(path).ok());
  }
  EXPECT_EQ(umount(directory.path().c_str()), 0);
}

TEST(IoReal, AVolumeIsNoPlaceForALinkToAnother) {
  TemporaryDirectory directory;
  const std::string mounted = JoinPath(directory.path(), "other");
  auto world = MakeRealWorld(IoBackend::kThreads);
  ASSERT_TRUE(world->files->CreateDirectory(mounted).ok());
  if (mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting is not permitted: " << DescribeErrno(errno);
  }
  const std::string from = JoinPath(directory.path(), "f");
  ASSERT_TRUE(world->files->Open(from, {.write = true, .create = true}).ok());
  const auto linked = world->files->Link(from, JoinPath(mounted, "f"));
  ASSERT_TRUE(linked.ok()) << linked.status().ToString();
  EXPECT_FALSE(*linked);
  EXPECT_EQ(*world->files->List(mounted), std::vector<std::string>());
  EXPECT_EQ(umount(mounted.c_str()), 0);
}

TEST(IoReal, ADirectoryIsHeldWhateverTakesItsName) {
  TemporaryDirectory directory;
  const std::string path = JoinPath(directory.path(), "a");
  auto world = MakeRealWorld(IoBackend::kThreads);
  ASSERT_TRUE(world->files->CreateDirectory(path).ok());
  ASSERT_TRUE(world->files->CreateDirectory(path + "/inner").ok());
  World held = *world;
  ASSERT_TRUE(HoldDirectory(&held, path).ok());
  ASSERT_TRUE(HoldDirectory(&held, path + "/inner").ok()) << "one in another";
  auto lock = held.files->Lock(JoinPath(path, "LOCK"));
  ASSERT_TRUE(lock.ok());

  ASSERT_TRUE(world->files->Rename(path, path + ".moved").ok());
  EXPECT_FALSE(*held.files->IsReplaced(path));
  ASSERT_TRUE(world->files->CreateDirectory(path).ok());
  EXPECT_TRUE(*held.files->IsReplaced(path));
  EXPECT_TRUE((*lock)->Check().ok()) << "it moved along";

  const OpenOptions make{.write = true, .create = true};
  ASSERT_TRUE(held.files->Open(JoinPath(path, "f"), make).ok());
  ASSERT_TRUE(held.files->Rename(JoinPath(path, "f"), JoinPath(path, "inner/g")).ok());
  ASSERT_TRUE(held.files->Link(JoinPath(path, "inner/g"), JoinPath(directory.path(), "h")).value());
  EXPECT_EQ(*world->files->List(path), std::vector<std::string>());
  EXPECT_EQ(*world->files->List(path + ".moved/inner"), std::vector<std::string>{"g"});
  EXPECT_TRUE(world->files->Info(JoinPath(directory.path(), "h")).ok());
  EXPECT_EQ(held.files->Hold(JoinPath(path, "none")).status().code(), StatusCode::kNotFound);
}

TEST(IoReal, ALockIsHeldAgainstOtherProcessesAndDiesWithItsHolder) {
  TemporaryDirectory directory;
  const std::string path = JoinPath(directory.path(), "LOCK");
  auto world = MakeRealWorld(IoBackend::kThreads);
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto lock = world->files->Lock(path);
    (void)!write(ready[1], lock.ok() ? "y" : "n", 1);
    char wait;
    (void)!read(done[0], &wait, 1);
    _exit(0);  // Never released.
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  const uint64_t start_ns = world->scheduler->MonotonicNs();
  // Having it open is not holding it: this process, whose number is smaller, has the file open.
  const UniqueFd open_here(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Status refused = world->files->Lock(path).status();
  EXPECT_EQ(refused.code(), StatusCode::kLocked);
  EXPECT_TRUE(refused.message().ends_with("held by process " + std::to_string(child)))
      << refused.message();
  EXPECT_GE(world->scheduler->MonotonicNs() - start_ns, 250'000'000u);
  kill(child, SIGKILL);
  EXPECT_TRUE(world->files->Lock(path).ok());
  waitpid(child, nullptr, 0);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

TEST(IoReal, TheHolderOfALockIsUnknownWhenNoProcessThatIsSeenHasIt) {
  TemporaryDirectory directory;
  const std::string path = JoinPath(directory.path(), "LOCK");
  const UniqueFd open_here(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct stat file {};
  ASSERT_EQ(fstat(open_here.get(), &file), 0);
  EXPECT_EQ(LockHolder(file, "LOCK"), 0) << "open, not locked";
  auto lock = MakeRealWorld(IoBackend::kThreads)->files->Lock(path);
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(LockHolder(file, "LOCK"), getpid());
  EXPECT_EQ(LockHolder(file, "OTHER"), 0) << "another file";
}

TEST(IoReal, AChildNeitherReleasesTheLockNorTouchesWhatIsInFlight) {
  TemporaryDirectory directory;
  const std::string path = JoinPath(directory.path(), "LOCK");
  for (const std::string& name : testing::BackendNames()) {
    if (name != "threads" && name != "io_uring") continue;
    auto world = MakeRealWorld(name == "threads" ? IoBackend::kThreads : IoBackend::kUring);
    if (!world.ok()) continue;
    auto lock = world->files->Lock(path);
    ASSERT_TRUE(lock.ok());
    auto file =
        world->files->Open(JoinPath(directory.path(), "f"), {.write = true, .create = true});
    auto queue = world->files->NewQueue(4);
    auto executor = std::make_unique<Executor>(*world->scheduler, "test", 2);
    executor->Post([] {});
    auto bytes = Pattern(100, 1);
    Request requests[2];
    for (Request& request : requests) {
      request = {.kind = Request::Kind::kDurableWrite,
                 .file = file->get(),
                 .data = bytes.data(),
                 .length = 100};
      queue->Submit(&request);
    }
    EXPECT_TRUE(InChild([&] {
      queue.reset();
      executor.reset();
      lock = Status(StatusCode::kNotFound, "released");
      world = Status(StatusCode::kNotFound, "gone");
      return true;
    }));
    EXPECT_EQ(world->files->Lock(path).status().code(), StatusCode::kLocked);
    EXPECT_TRUE(queue->Reap()->status.ok());
    EXPECT_TRUE(queue->Reap()->status.ok());
  }
}

TEST(IoReal, ProcessIdTellsAChildFromItsParent) {
  RealScheduler scheduler;
  const uint64_t parent = scheduler.ProcessId();
  EXPECT_TRUE(InChild([&] { return scheduler.ProcessId() != parent; }));
}

TEST(IoReal, ThreadsBlockTheHostsSignals) {
  RealScheduler scheduler;
  bool blocked = false;
  scheduler.StartThread("a name longer than fifteen", [&] {
    sigset_t set;
    blocked = pthread_sigmask(SIG_SETMASK, nullptr, &set) == 0 && sigismember(&set, SIGTERM) == 1 &&
              sigismember(&set, SIGPROF) == 1;
  });
  EXPECT_TRUE(blocked);
  sigset_t set;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &set), 0);
  EXPECT_EQ(sigismember(&set, SIGTERM), 0);
}

TEST(IoReal, BackgroundThreadsAreNiceWhoeverStartsThem) {
  RealScheduler scheduler;
  int own = -1, background = -1, inherited = -1, nice_of_own = 0, nice_of_background = 0;
  scheduler.StartThread("starter", [&] {
    sched_param real_time{};
    real_time.sched_priority = 1;
    // Where that is not granted, an ordinary thread starts the others.
    (void)sched_setscheduler(0, SCHED_RR, &real_time);
    own = sched_getscheduler(0);
    nice_of_own = getpriority(PRIO_PROCESS, 0);
    scheduler.StartThread("inherited", [&] { inherited = sched_getscheduler(0); });
    scheduler.StartThread(
        "background",
        [&] {
          background = sched_getscheduler(0);
          nice_of_background = getpriority(PRIO_PROCESS, 0);
        },
        ThreadPriority::kBackground);
  });
  EXPECT_EQ(own, inherited);
  EXPECT_EQ(SCHED_OTHER, background);
  EXPECT_EQ(std::min(nice_of_own + 5, 19), nice_of_background);
}

TEST(IoReal, ANotifierMakesItsDescriptorReadable) {
  RealScheduler scheduler;
  auto notifier = scheduler.NewNotifier();
  ASSERT_GE(notifier->fd(), 0);
  uint64_t count = 0;
  EXPECT_EQ(read(notifier->fd(), &count, sizeof(count)), -1);
  EXPECT_EQ(errno, EAGAIN);
  notifier->Signal();
  notifier->Signal();
  EXPECT_EQ(read(notifier->fd(), &count, sizeof(count)), 8);
  EXPECT_EQ(count, 2u);
  notifier->Signal();
  notifier->Clear();
  EXPECT_EQ(read(notifier->fd(), &count, sizeof(count)), -1);
}

size_t ThreadsOfThisProcess() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

TEST(IoReal, ThreadsAreStartedForSeveralRequestsAlone) {
  TemporaryDirectory directory;
  EXPECT_TRUE(InChild([&] {
    auto world = MakeRealWorld(IoBackend::kThreads);
    auto file =
        world->files->Open(JoinPath(directory.path(), "f"), {.write = true, .create = true});
    auto queue = world->files->NewQueue(8);
    auto bytes = Pattern(100, 1);
    std::vector<Request> requests(8);
    const auto submit = [&](size_t count) {
      for (size_t i = 0; i < count; ++i) {
        requests[i] = {.kind = Request::Kind::kWrite,
                       .file = file->get(),
                       .data = bytes.data(),
                       .length = 100,
                       .offset = 100 * i};
        queue->Submit(&requests[i]);
      }
      while (queue->in_flight() > 0) (void)queue->Reap();
    };
    // A sanitizer has a thread of its own, from the first thread on.
    std::thread([] {}).join();
    const size_t before = ThreadsOfThisProcess();
    for (int i = 0; i < 10; ++i) submit(1);
    if (!Expect(ThreadsOfThisProcess() == before, "one request started a thread")) return false;
    for (int i = 0; i < 100; ++i) submit(8);
    return Expect(ThreadsOfThisProcess() > before, "eight requests started no thread") &&
           Expect(ThreadsOfThisProcess() <= before + 8, "too many threads");
  }));
}

TEST(IoReal, WithoutAnyThreadTheCallerDoesTheWork) {
  TemporaryDirectory directory;
  EXPECT_TRUE(InChild([&] {
    auto world = MakeRealWorld(IoBackend::kThreads);
    auto file =
        world->files->Open(JoinPath(directory.path(), "f"), {.write = true, .create = true});
    auto queue = world->files->NewQueue(8);
    auto bytes = Pattern(100, 1);
    if (!Refuse(SCMP_SYS(clone3), EAGAIN) || !Refuse(SCMP_SYS(clone), EAGAIN)) return false;
    std::vector<Request> requests(8);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i] = {.kind = Request::Kind::kWrite,
                     .file = file->get(),
                     .data = bytes.data(),
                     .length = 100,
                     .offset = 100 * i};
      queue->Submit(&requests[i]);
    }
    while (queue->in_flight() > 0) {
      if (!Expect(queue->Reap()->status.ok(), "a write failed")) return false;
    }
    bool ran = false;
    Executor executor(*world->scheduler, "test", 2);
    executor.Post([&] { ran = true; });
    return Expect(ran, "the job did not run in the call") &&
           Expect(world->scheduler->StartThread("t", [] {}) == nullptr, "a thread was granted");
  }));
}

}  // namespace
}  // namespace cairn::io
