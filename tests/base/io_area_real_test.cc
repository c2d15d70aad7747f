// SPDX-License-Identifier: Apache-2.0
//
// Property: an area of the operating system keeps its promises whatever real processes do: kill -9,
// fork(), a creator that is stopped, strangers who connect, refused system calls, no descriptor
// left. Method: child processes, under seccomp filters where a call is to fail.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/io/posix_shared_areas.h"
#include "base/io/real_scheduler.h"
#include "base/io/unique_fd.h"
#include "tests/base/io_backends.h"
#include "tests/support/child.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/status.h"

namespace cairn::io {
namespace {

namespace fs = std::filesystem;
using cairn::testing::Expect;
using cairn::testing::FewDescriptors;
using cairn::testing::InChild;
using cairn::testing::Refuse;
using testing::TemporaryDirectory;
using AreaPtr = std::unique_ptr<SharedArea>;

std::unique_ptr<SharedAreas> Areas(uint64_t answer_ns = 10'000'000'000) {
  return MakePosixSharedAreas(std::make_shared<RealScheduler>(), answer_ns);
}

std::vector<std::string> Names(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// A process of its own that creates an area, and goes on until it is ended.
class Creator {
 public:
  explicit Creator(const std::string& directory, uint64_t bytes = 8192) {
    int ends[2];
    EXPECT_EQ(0, pipe(ends));
    fflush(nullptr);
    process_ = fork();
    if (process_ == 0) {
      auto area = Areas()->Create(directory, bytes);
      const std::string text = area.ok() ? (*area)->address() : "";
      if (area.ok()) (*area)->bytes()[0] = std::byte{77};
      static_cast<void>(!write(ends[1], text.data(), text.size()));
      close(ends[1]);
      while (true) pause();
    }
    close(ends[1]);
    char text[4096];
    for (ssize_t size; (size = read(ends[0], text, sizeof text)) > 0;) {
      address_.append(text, static_cast<size_t>(size));
    }
    close(ends[0]);
  }
  ~Creator() { End(SIGKILL); }
  Creator(const Creator&) = delete;
  Creator& operator=(const Creator&) = delete;
  const std::string& address() const { return address_; }
  // All of its threads stand when this returns.
  void Stop() const {
    kill(process_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(process_, waitpid(process_, &status, WUNTRACED));
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void GoOn() const { kill(process_, SIGCONT); }
  void End(int signal) {
    if (process_ == 0) return;
    kill(process_, signal);
    EXPECT_EQ(process_, waitpid(process_, nullptr, 0));
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
  std::string address_;
};

TEST(AreaRealTest, ItsSocketIsPrivateAndGoesWithTheArea) {
  const TemporaryDirectory directory;
  const mode_t before = umask(0);
  {
    ASSERT_OK_ASSIGN(const AreaPtr area, Areas()->Create(directory.path(), 1));
    const auto names = Names(directory.path());
    ASSERT_EQ(names.size(), 1U);
    EXPECT_TRUE(IsAreaName(names[0])) << names[0];
    struct stat status {};
    ASSERT_EQ(0, stat((directory.path() + "/" + names[0]).c_str(), &status));
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 0777, 0600U);
  }
  umask(before);
  EXPECT_TRUE(Names(directory.path()).empty());
}

// Neither may take memory away from under the other.
TEST(AreaRealTest, CanNeitherShrinkNorGrow) {
  const TemporaryDirectory directory;
  ASSERT_OK_ASSIGN(const AreaPtr area, Areas()->Create(directory.path(), 8192));
  int found = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error).string().find("memfd:cairn-area") !=
        std::string::npos) {
      const int fd = std::stoi(entry.path().filename().string());
      ++found;
      EXPECT_EQ(-1, ftruncate(fd, 4096));
      EXPECT_EQ(errno, EPERM);
      EXPECT_EQ(-1, ftruncate(fd, 1 << 20));
      EXPECT_EQ(-1, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    }
  }
  EXPECT_EQ(found, 1);
}

TEST(AreaRealTest, AKilledCreatorLeavesItToOthersAndItsSocketToTheNextCreator) {
  const TemporaryDirectory directory;
  Creator first(directory.path());
  ASSERT_OK_ASSIGN(const AreaPtr mapped, Areas()->Map(first.address()));
  Creator living(directory.path());
  first.End(SIGKILL);
  EXPECT_EQ(mapped->bytes()[0], std::byte{77});
  EXPECT_FAILS(Areas()->Map(first.address()), StatusCode::kNotFound, "has ended");
  EXPECT_EQ(Names(directory.path()).size(), 2U);
  std::ofstream(directory.path() + "/area-0123456789abcdef") << "no socket";
  {
    ASSERT_OK_ASSIGN(const AreaPtr next, Areas()->Create(directory.path(), 1));
    EXPECT_EQ(Names(directory.path()).size(), 3U) << "the dead one's is gone";
    EXPECT_FAILS(Areas()->Map(first.address()), StatusCode::kNotFound);
    EXPECT_OK(Areas()->Map(living.address()));
  }
  EXPECT_TRUE(fs::exists(directory.path() + "/area-0123456789abcdef")) << "a file stays";
}

TEST(AreaRealTest, AStoppedCreatorIsWaitedForAndThenGivenUp) {
  const TemporaryDirectory directory;
  Creator creator(directory.path());
  creator.Stop();
  EXPECT_FAILS(Areas(30'000'000)->Map(creator.address()), StatusCode::kDeadlineExceeded);
  creator.GoOn();
  EXPECT_OK(Areas()->Map(creator.address()));
}

// No memory, no socket, no lock of the parent lives on in it.
TEST(AreaRealTest, AChildOfForkHasNoPartOfIt) {
  const TemporaryDirectory directory;
  int hold[2];
  ASSERT_EQ(0, pipe(hold));
  ASSERT_OK_ASSIGN(AreaPtr area, Areas()->Create(directory.path(), 4096));
  ASSERT_OK_ASSIGN(AreaPtr mapped, Areas()->Map(area->address()));
  const std::string address = area->address();
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    bool good = Expect(area->bytes().empty() && mapped->bytes().empty(), "bytes");
    area.reset();
    mapped.reset();
    char byte;
    static_cast<void>(!read(hold[0], &byte, 1));  // Lives on.
    auto own = Areas()->Create(directory.path(), 4096);
    good = good && Expect(own.ok(), "an area of its own");
    _exit(good ? 0 : 1);
  }
  EXPECT_OK(Areas()->Map(address)) << "the parent goes on";
  EXPECT_EQ(Names(directory.path()).size(), 1U) << "the child removes nothing";
  area.reset();
  EXPECT_FAILS(Areas()->Map(address), StatusCode::kNotFound);
  close(hold[0]);
  close(hold[1]);
  int status = 0;
  EXPECT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(status, 0);
}

TEST(AreaRealTest, APathBeyondASocketsNameIsReachedThroughItsDirectory) {
  const TemporaryDirectory directory;
  const std::string deep =
      directory.path() + "/" + std::string(100, 'd') + "/" + std::string(100, 'e');
  fs::create_directories(deep);
  ASSERT_OK_ASSIGN(AreaPtr area, Areas()->Create(deep, 1));
  EXPECT_OK(Areas()->Map(area->address()));
  area.reset();
  EXPECT_TRUE(Names(deep).empty());
}

TEST(AreaRealTest, ARelativePathIsLookedUpOnce) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(InChild([&] {
    if (chdir(directory.path().c_str()) != 0) return false;
    auto area = Areas()->Create(".", 1);
    if (!Expect(area.ok(), area.status().ToString()) || chdir("/") != 0) return false;
    return Expect(Areas()->Map((*area)->address()).ok(), "mapped from elsewhere");
  }));
}

TEST(AreaRealTest, AnotherHostIsNamed) {
  const TemporaryDirectory directory;
  ASSERT_OK_ASSIGN(const AreaPtr area, Areas()->Create(directory.path(), 1));
  ASSERT_OK_ASSIGN(AreaAddress address, AreaAddress::Parse(area->address()));
  ASSERT_EQ(address.host.size(), 32U);
  address.host = std::string(32, 'f');
  EXPECT_FAILS(Areas()->Map(address.Text()), StatusCode::kNotFound, "another host");
  address.host.clear();
  EXPECT_OK(Areas()->Map(address.Text()));
}

// ---------------------------------------------------------------- strangers

sockaddr_un NameOf(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), name.sun_path);
  return name;
}

int ConnectTo(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un name = NameOf(path);
  EXPECT_EQ(0, connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name));
  return fd;
}

TEST(AreaRealTest, WhoSaysNothingOrNonsenseGetsNothingAndHoldsUpNobodyForLong) {
  const TemporaryDirectory directory;
  ASSERT_OK_ASSIGN(AreaPtr area, Areas()->Create(directory.path(), 1));
  ASSERT_OK_ASSIGN(const AreaAddress address, AreaAddress::Parse(area->address()));
  const int silent = ConnectTo(address.socket);
  EXPECT_OK(Areas()->Map(area->address())) << "waits a second at most";
  EXPECT_EQ(area->counts().refused, 1U);
  for (const std::string& question : {std::string("x"), std::string(24, 'q'), std::string(99, 0)}) {
    const int fd = ConnectTo(address.socket);
    ASSERT_EQ(static_cast<ssize_t>(question.size()),
              send(fd, question.data(), question.size(), MSG_NOSIGNAL));
    char answer[64];
    iovec text{answer, sizeof answer};
    char control[256];
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    EXPECT_GT(recvmsg(fd, &message, 0), 0);
    EXPECT_EQ(message.msg_controllen, 0U) << "no descriptor";
    close(fd);
  }
  const int gone = ConnectTo(address.socket);
  close(gone);
  EXPECT_OK(Areas()->Map(area->address()));
  EXPECT_EQ(area->counts().refused, 5U);
  EXPECT_EQ(area->counts().mapped, 2U);
  const int late = ConnectTo(address.socket);
  area.reset();  // Does not wait for it.
  close(late);
  close(silent);
}

TEST(AreaRealTest, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::all);
  ASSERT_OK_ASSIGN(const AreaPtr area, Areas()->Create(directory.path(), 1));
  ASSERT_OK_ASSIGN(const AreaAddress address, AreaAddress::Parse(area->address()));
  const auto as_another = [&] {
    if (setresuid(12345, 12345, 12345) != 0) return Expect(false, "setresuid");
    const Status status = Areas()->Map(area->address()).status();
    return Expect(status.code() == StatusCode::kIoError, status.ToString());
  };
  EXPECT_TRUE(InChild(as_another)) << "by the mode of the socket";
  fs::permissions(address.socket, fs::perms::all);
  EXPECT_TRUE(InChild(as_another)) << "by the creator, as the kernel says who asks";
  EXPECT_EQ(area->counts().mapped, 0U);
}

// What listens where an area's creator did: answers with these bytes, and maybe with a file.
void AnswerOnce(int listening, const std::string& answer, int file) {
  const int fd = accept(listening, nullptr, nullptr);
  char question[64];
  static_cast<void>(recv(fd, question, sizeof question, 0));
  std::string bytes = answer;
  iovec text{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * sizeof(int));
    const int two[2] = {file, file};
    std::memcpy(CMSG_DATA(header), two, sizeof two);
  }
  if (!answer.empty()) sendmsg(fd, &message, MSG_NOSIGNAL);
  close(fd);
}

std::string AnswerOf(uint32_t verdict) {
  std::string answer = "CRNAREA1";
  answer.append(reinterpret_cast<const char*>(&verdict), 4);
  return answer + std::string(4, '\0');
}

TEST(AreaRealTest, WhatAnswersInItsPlaceIsNotBelieved) {
  const TemporaryDirectory directory;
  AreaAddress address;
  address.bytes = 8192;
  address.socket = directory.path() + "/area-0123456789abcdef";
  const int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un name = NameOf(address.socket);
  ASSERT_EQ(0, bind(listening, reinterpret_cast<const sockaddr*>(&name), sizeof name));
  ASSERT_EQ(0, listen(listening, 4));
  const UniqueFd unsealed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(0, ftruncate(unsealed.get(), 8192));
  const UniqueFd small(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(0, ftruncate(small.get(), 4096));
  ASSERT_EQ(0, fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
  const UniqueFd file(open((directory.path() + "/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const struct {
    std::string answer;
    int file;
    StatusCode code;
    const char* part;
  } cases[] = {
      {"", -1, StatusCode::kNotFound, "has ended"},
      {"hello", -1, StatusCode::kIoError, "not the creator"},
      {std::string(16, 'x'), -1, StatusCode::kIoError, "not the creator"},
      {AnswerOf(1), -1, StatusCode::kIoError, "gave no memory"},
      {AnswerOf(1), unsealed.get(), StatusCode::kIoError, "not sealed"},
      {AnswerOf(1), small.get(), StatusCode::kIoError, "another size"},
      {AnswerOf(1), file.get(), StatusCode::kIoError, "not sealed"},
      {AnswerOf(2), -1, StatusCode::kIoError, "another user"},
      {AnswerOf(3), -1, StatusCode::kConflict, "another shared area"},
      {AnswerOf(4), -1, StatusCode::kIoError, "did not understand"},
      {AnswerOf(99), file.get(), StatusCode::kIoError, "did not understand"},
  };
  const auto open_files = [] { return Names("/proc/self/fd").size(); };
  for (const auto& one : cases) {
    const size_t before = open_files();
    std::thread answers([&] { AnswerOnce(listening, one.answer, one.file); });
    EXPECT_FAILS(Areas()->Map(address.Text()), one.code, one.part) << one.answer;
    answers.join();
    EXPECT_EQ(before, open_files()) << "descriptors that came along are closed";
  }
  const int stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  address.socket += "0";
  const sockaddr_un other = NameOf(address.socket);
  ASSERT_EQ(0, bind(stream, reinterpret_cast<const sockaddr*>(&other), sizeof other));
  ASSERT_EQ(0, listen(stream, 4));
  EXPECT_FAILS(Areas()->Map(address.Text()), StatusCode::kIoError, "connect");
  close(stream);
  close(listening);
}

// ---------------------------------------------------------------- what the system refuses

TEST(AreaRealTest, ARefusedCallIsNamedAndLeavesNothing) {
  const TemporaryDirectory directory;
  const std::pair<int, const char*> calls[] = {{SCMP_SYS(memfd_create), "memfd_create"},
                                               {SCMP_SYS(ftruncate), "ftruncate"},
                                               {SCMP_SYS(fallocate), "fallocate"},
                                               {SCMP_SYS(socket), "socket"},
                                               {SCMP_SYS(eventfd2), "eventfd"},
                                               {SCMP_SYS(bind), "bind"},
                                               {SCMP_SYS(fchmod), "fchmod"},
                                               {SCMP_SYS(listen), "listen"},
                                               {SCMP_SYS(flock), "flock"},
                                               {SCMP_SYS(mmap), "mmap"}};
  for (const auto& [call, name] : calls) {
    EXPECT_TRUE(InChild([&, call = call, name = name] {
      const auto areas = Areas();
      std::string room(1 << 16, 'x');  // malloc needs no mmap for what follows.
      if (!Refuse(call, EPERM)) return Expect(false, "seccomp");
      const Status status = areas->Create(directory.path(), 8192).status();
      return Expect(status.code() == StatusCode::kIoError &&
                        status.message().find(name) != std::string_view::npos,
                    std::string(name) + ": " + status.ToString());
    })) << name;
    EXPECT_TRUE(Names(directory.path()).empty()) << name;
  }
  for (const int error : {ENOSPC, ENOMEM}) {
    EXPECT_TRUE(InChild([&] {
      if (!Refuse(SCMP_SYS(fallocate), error)) return false;
      const Status status = Areas()->Create(directory.path(), 8192).status();
      return Expect(status.code() == StatusCode::kOutOfMemory, status.ToString());
    }));
  }
  EXPECT_TRUE(InChild([&] {
    if (!Refuse(SCMP_SYS(clone3), EAGAIN) || !Refuse(SCMP_SYS(clone), EAGAIN)) return false;
    const Status status = Areas()->Create(directory.path(), 8192).status();
    return Expect(status.code() == StatusCode::kIoError &&
                      status.message().find("thread") != std::string_view::npos,
                  status.ToString());
  }));
  EXPECT_TRUE(Names(directory.path()).empty());
}

TEST(AreaRealTest, ARefusedCallOfMapIsNamed) {
  const TemporaryDirectory directory;
  const Creator creator(directory.path());
  const std::pair<int, const char*> calls[] = {{SCMP_SYS(socket), "socket"},
                                               {SCMP_SYS(connect), "connect"},
                                               {SCMP_SYS(sendto), "send"},
                                               {SCMP_SYS(recvmsg), "recvmsg"},
                                               {SCMP_SYS(poll), "poll"}};
  for (const auto& [call, name] : calls) {
    EXPECT_TRUE(InChild([&, call = call, name = name] {
      if (!Refuse(call, EPERM)) return false;
      const Status status = Areas()->Map(creator.address()).status();
      return Expect(status.code() == StatusCode::kIoError &&
                        status.message().find(name) != std::string_view::npos,
                    std::string(name) + ": " + status.ToString());
    })) << name;
  }
  EXPECT_OK(Areas()->Map(creator.address()));
}

TEST(AreaRealTest, WithoutADescriptorLeftItIsSaid) {
  const TemporaryDirectory directory;
  ASSERT_OK_ASSIGN(const AreaPtr area, Areas()->Create(directory.path(), 8192));
  for (uint64_t more = 0; more < 4; ++more) {
    const FewDescriptors few(more);
    const Status status = Areas()->Create(directory.path(), 8192).status();
    EXPECT_EQ(status.reason(), StatusReason::kNoDescriptor) << status.ToString();
  }
  const Creator creator(directory.path());
  for (uint64_t more = 0; more < 3; ++more) {  // The directory, the socket, and what it brings.
    const FewDescriptors few(more);
    const Status status = Areas()->Map(creator.address()).status();
    EXPECT_EQ(status.reason(), StatusReason::kNoDescriptor) << status.ToString();
  }
  EXPECT_OK(Areas()->Map(creator.address()));
}

TEST(AreaRealTest, ADirectoryInWhichAnotherIsMadeIsWaitedFor) {
  const TemporaryDirectory directory;
  const UniqueFd held(open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(0, flock(held.get(), LOCK_EX));
  EXPECT_FAILS(Areas()->Create(directory.path(), 8192), StatusCode::kLocked, directory.path());
  std::thread later([&] {
    usleep(100'000);
    flock(held.get(), LOCK_UN);
  });
  EXPECT_OK(Areas()->Create(directory.path(), 8192));
  later.join();
}

// A daemon closes all that it did not open itself; its next files get the numbers.
TEST(AreaRealTest, AForeignCloseLendsNoOtherFile) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(InChild([&] {
    auto area = Areas()->Create(directory.path(), 8192);
    if (!area.ok()) return false;
    const std::string address = (*area)->address();
    for (const std::string& name : Names("/proc/self/fd")) {
      const int fd = std::stoi(name);
      std::error_code error;
      const std::string what = fs::read_symlink("/proc/self/fd/" + name, error).string();
      if (what.find("memfd:cairn-area") == std::string::npos) continue;
      const int mine = memfd_create("mine", MFD_CLOEXEC);
      if (dup2(mine, fd) != fd) return false;
      close(mine);
    }
    const Status status = Areas()->Map(address).status();
    area->reset();
    return Expect(status.code() == StatusCode::kNotFound, status.ToString());
  }));
}

}  // namespace
}  // namespace cairn::io
