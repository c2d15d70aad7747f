// SPDX-License-Identifier: Apache-2.0
//
// Property: what the machine withholds (descriptors, memory, threads, room in files) or sends
// (signals) ends calls with a status at worst; what was acknowledged stays, and the store goes on
// when the machine gives again.
// Method: children under resource limits, and under a storm of signals, on the real kernel.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/engine/engine_test.h"
#include "tests/host/host_store.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

class HostMachine : public ::testing::TestWithParam<Backend> {
 protected:
  std::string path() const { return directory_.path() + "/state"; }
  Options options() const {
    Options options = TinyOptions();
    options.backend = GetParam();
    return options;
  }
  TempDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(, HostMachine, ::testing::Values(Backend::kUring, Backend::kThreads),
                         [](const auto& backend) {
                           return backend.param == Backend::kUring ? "Uring" : "Threads";
                         });

// Lowers the limit to `value` and gives it back when it goes.
class Limited {
 public:
  Limited(decltype(RLIMIT_NOFILE) what, rlim_t value) : what_(what) {
    getrlimit(what_, &before_);
    const rlimit now{value, before_.rlim_max};
    setrlimit(what_, &now);
  }
  ~Limited() { setrlimit(what_, &before_); }

 private:
  const decltype(RLIMIT_NOFILE) what_;
  rlimit before_{};
};

void OnSignal(int) {}

TEST_P(HostMachine, SendsSignalsWithoutEnd) {
  EXPECT_TRUE(InChild([&] {
    struct sigaction action {};
    action.sa_handler = OnSignal;  // Without SA_RESTART: calls are cut.
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often{{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &often, nullptr);
    auto host = HostStore::Open(path(), options());
    return ExpectOk(host.status(), "open") && ExpectOk(host->DoEverything(), "use") &&
           ExpectOk(host->store.Checkpoint(path() + ".copy").status(), "checkpoint") &&
           ExpectOk(host->Close(), "close") &&
           ExpectOk(CheckStore(path() + ".copy", host->length), "the copy");
  }));
  const auto host = HostStore::Open(path());
  ASSERT_OK(host);
  EXPECT_EQ(8u * 16 + 1, host->length);
}

// From none on, until it is enough.
TEST_P(HostMachine, HasFewDescriptors) {
  EXPECT_TRUE(InChild([&] {
    for (rlim_t files = 3; files < 200; files += files < 24 ? 1 : 40) {
      const std::string at = path() + std::to_string(files);
      const Limited limited(RLIMIT_NOFILE, files);
      auto host = HostStore::Open(at, options());
      Status status = host.status();
      if (host.ok()) status = host->DoEverything();
      if (host.ok()) static_cast<void>(host->Close());
      if (status.ok()) return true;
      const bool said = status.message().find("EMFILE") != std::string_view::npos ||
                        status.message().find("io_uring") != std::string_view::npos;
      if (!Expect(said, std::to_string(files) + ": " + status.ToString())) return false;
    }
    return Expect(false, "200 are not enough");
  }));
}

TEST_P(HostMachine, HasNoneForAWhile) {
  EXPECT_TRUE(InChild([&] {
    auto host = HostStore::Open(path(), options());
    if (!ExpectOk(host.status(), "open") || !ExpectOk(host->DoEverything(), "use")) return false;
    {
      const Limited limited(RLIMIT_NOFILE, 0);
      for (int i = 0; i < 40 && host->Append().ok(); ++i) {
      }
      static_cast<void>(host->store.Compact());
      static_cast<void>(host->Check());
      static_cast<void>(host->store.Checkpoint(path() + ".copy"));
    }
    Status status;
    for (int i = 0; i < 200; ++i) {
      status = host->Append();
      if (status.ok()) break;
      usleep(20'000);
    }
    return ExpectOk(status, "append") && ExpectOk(host->DoEverything(), "use") &&
           ExpectOk(host->Close(), "close") && ExpectOk(CheckStore(path(), host->length), "reopen");
  }));
}

// A limit on the length of files, with its signal ignored as daemons do.
TEST_P(HostMachine, LimitsTheLengthOfFiles) {
  EXPECT_TRUE(InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    {
      const Limited limited(RLIMIT_FSIZE, 64 << 10);
      const auto refused = HostStore::Open(path(), options());
      if (!Expect(refused.status().message().find("EFBIG") != std::string_view::npos,
                  refused.status().ToString())) {
        return false;
      }
    }
    auto host = HostStore::Open(path(), options());
    if (!ExpectOk(host.status(), "open") || !ExpectOk(host->Append(), "append")) return false;
    {
      const Limited limited(RLIMIT_FSIZE, 64 << 10);
      Status status;
      for (int i = 0; i < 64 && status.ok(); ++i) status = host->Append();
      if (!Expect(!status.ok(), "no limit was met")) return false;
    }
    const auto length = host->chat.length();
    const Status closed = host->Close();
    auto again = HostStore::Open(path(), options());
    return ExpectOk(again.status(), "reopen after " + closed.ToString()) &&
           Expect(again->length >= 16 && again->length <= *length, "what was acknowledged") &&
           ExpectOk(again->DoEverything(), "use");
  }));
}

// No abort, whatever it is that finds no room; from a limit on, all goes well.
TEST_P(HostMachine, LimitsTheAddressSpace) {
  const TempDirectory directory;
  EXPECT_TRUE(InChild([&] {
    int worked = 0;
    for (const rlim_t mib : {64, 128, 192, 256, 384, 1024, 4096}) {
      const std::string at = directory.path() + "/" + std::to_string(mib);
      const bool ok = InChild([&] {
        const Limited limited(RLIMIT_AS, mib << 20);
        auto host = HostStore::Open(at, options());
        Status status = host.status();
        if (host.ok()) {
          try {
            status = host->DoEverything();
          } catch (const std::bad_alloc&) {  // The store throws nothing; the test's own KV may.
            status = Status(StatusCode::kOutOfMemory, "the test found no memory");
          }
        }
        if (host.ok()) static_cast<void>(host->Close());
        if (status.ok()) return true;
        return Expect(false, std::to_string(mib) + " MiB: " + status.ToString());
      });
      worked += ok ? 1 : 0;
    }
    return Expect(worked >= 1, "it never worked");
  }));
}

TEST_P(HostMachine, GrantsNoThreads) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) GTEST_SKIP() << "needs a user whose threads can be counted";
  ASSERT_EQ(0, chmod(directory_.path().c_str(), 0777));
  EXPECT_TRUE(InChild([&] {
    if (setuid(kNobody) != 0) return false;
    {
      const Limited limited(RLIMIT_NPROC, 0);
      const auto refused = HostStore::Open(path(), options());
      if (!Expect(refused.status().message().find("thread") != std::string_view::npos,
                  refused.status().ToString())) {
        return false;
      }
    }
    auto host = HostStore::Open(path(), options());
    if (!ExpectOk(host.status(), "open")) return false;
    const Limited limited(RLIMIT_NPROC, 0);  // Helper threads come later, or not at all.
    return ExpectOk(host->DoEverything(), "use") && ExpectOk(host->Close(), "close");
  }));
}

// A process that aborts, with a core or without, leaves a store that opens.
TEST_P(HostMachine, LetsNoCoreBeWritten) {
  int acknowledged[2];
  ASSERT_EQ(0, pipe(acknowledged));
  const pid_t child = fork();
  if (child == 0) {
    const Limited limited(RLIMIT_CORE, 0);
    auto host = HostStore::Open(path(), options());
    if (!host.ok() || !host->DoEverything().ok()) _exit(1);
    static_cast<void>(!write(acknowledged[1], &host->length, sizeof(host->length)));
    abort();
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  uint64_t length = 0;
  ASSERT_EQ(ssize_t{sizeof(length)}, read(acknowledged[0], &length, sizeof(length)));
  EXPECT_OK(CheckStore(path(), length));
  close(acknowledged[0]);
  close(acknowledged[1]);
}

}  // namespace
}  // namespace cairn::testing
