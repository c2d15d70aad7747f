// SPDX-License-Identifier: Apache-2.0
//
// Property: what one process does with a store that another has open, or that a child of fork() has
// a copy of, harms neither: a second writer is refused, a child is refused whatever it calls and in
// whatever order it lets go, and what is executed finds no descriptor.
// Method: real processes; children made while threads of the parent are within every call.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/engine/engine_test.h"
#include "tests/host/host_store.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

class HostProcess : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/state"; }
  TempDirectory directory_;
};

TEST_F(HostProcess, ASecondWriterIsRefusedAndAFollowerIsNot) {
  auto host = HostStore::Open(path());
  ASSERT_OK(host);
  ASSERT_OK(host->DoEverything());
  ASSERT_OK(host->store.Flush());
  const uint64_t length = host->length;
  EXPECT_TRUE(InChild([&] {
    const auto second = Store::Open(path(), TinyOptions());
    Options options = TinyOptions();
    options.create_if_missing = false;
    options.read_only = true;
    auto follower = HostStore::Open(path(), options);
    return Expect(second.status().code() == StatusCode::kLocked, second.status().ToString()) &&
           ExpectOk(follower.status(), "follower") &&
           Expect(follower->length == length, "the follower sees less") &&
           ExpectOk(follower->Check(), "follower");
  }));
  ASSERT_OK(host->DoEverything());
}

TEST_F(HostProcess, WhatIsExecutedFindsNoDescriptor) {
  const auto open_files = [] {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      found.insert(entry.path().filename());
    }
    return found;
  };
  const std::set<std::string> before = open_files();
  auto host = HostStore::Open(path());
  ASSERT_OK(host);
  ASSERT_OK_ASSIGN(const CompletionQueue queue, host->store.NewCompletionQueue());
  ASSERT_OK(host->DoEverything());
  size_t found = 0;
  for (const std::string& name : open_files()) {
    if (before.contains(name)) continue;
    const int flags = fcntl(std::stoi(name), F_GETFD);
    if (flags < 0) continue;  // That of the listing itself.
    ++found;
    EXPECT_TRUE((flags & FD_CLOEXEC) != 0) << name;
  }
  EXPECT_GE(found, 4u) << "directory, lock, segment, queue";
}

// All that a user may hold of a store.
struct Handles {
  Store store;
  Branch chat;
  Draft draft;
  Ticket ticket;
  CompletionQueue queue;
  std::vector<Completion> completions;
};

// In the child. The alarm ends a wait for a lock that a thread of the parent had.
bool ReleaseCaches(Handles& handles, uint32_t order) {
  alarm(20);
  bool refused = true;
  const auto check = [&](const Status& status) {
    refused &= Expect(status.code() == StatusCode::kInvalidState, status.ToString());
  };
  check(handles.store.Flush());
  check(handles.store.Verify(VerifyLevel::kAll).status());
  check(handles.store.Namespaces().status());
  check(handles.chat.length().status());
  check(handles.chat.AppendSync(MakeDelta(Tokens(1))).status());
  check(handles.chat.Restore({}).status());
  check(handles.ticket.Wait());
  check(handles.ticket.Cancel());
  check(handles.ticket.status());
  check(handles.draft.Commit(MakeDelta(Tokens(1)), {}).status());
  static_cast<void>(handles.store.Metrics());
  static_cast<void>(handles.store.Health());
  static_cast<void>(handles.store.io_name());
  refused &= handles.store.Models().empty() && handles.queue.Drain().empty();
  for (uint32_t i = 0; i < 5; ++i) {
    switch ((i * 3 + order) % 5) {
      case 0:
        check(handles.store.Close());
        handles.store = Store();
        break;
      case 1: handles.chat = Branch(); break;
      case 2: handles.draft = Draft(); break;
      case 3: handles.ticket = Ticket(); break;
      case 4: handles.queue = CompletionQueue(); break;
    }
  }
  return refused;
}

TEST_F(HostProcess, AChildIsRefusedWhateverItsParentIsDoing) {
  auto host = HostStore::Open(path());
  ASSERT_OK(host);
  ASSERT_OK(host->DoEverything());
  Handles handles;
  ASSERT_OK_ASSIGN(handles.queue, host->store.NewCompletionQueue());
  ASSERT_OK_ASSIGN(handles.chat, host->store.GetBranch(host->chat.id()));
  std::atomic<bool> over{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> threads;
  const ModelId model = host->chat.Info()->model;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      auto own = host->store.CreateBranch(model, {.name = "own " + std::to_string(i)});
      ASSERT_OK(own);
      for (uint64_t at = 0; !over; ++at, ++calls) {
        switch (i) {
          case 0: ASSERT_OK(AppendSome(*own, WideModel(), at, 1)); break;
          case 1: ASSERT_OK(host->store.ListBranches("", "", 10)); break;
          case 2: ASSERT_TRUE(HasKv(host->chat, WideModel(), 0, 8)); break;
        }
      }
    });
  }
  for (uint32_t round = 0; round < 15; ++round) {
    const uint64_t seen = calls;
    while (calls < seen + 3) std::this_thread::yield();
    AppendOptions options;
    options.queue = &handles.queue;
    ASSERT_OK_ASSIGN(handles.ticket, WhileBusy(host->store, [&] {
                       return handles.chat.Append(MakeDelta(Tokens(1)), options);
                     }));
    ASSERT_OK_ASSIGN(handles.draft, host->chat.BeginAppend(1));
    EXPECT_TRUE(InChild([&] {
      handles.store = std::move(host->store);
      host->chat = Branch();
      return ReleaseCaches(handles, round);
    })) << round;
    ASSERT_OK(handles.ticket.Wait());
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(host->chat.AppendSync(MakeDelta(Tokens(1))).ok()) << "the parent is as it was";
  handles = Handles();
  ASSERT_OK(host->Close());
  ASSERT_OK_ASSIGN(const Store again, Store::Open(path(), TinyOptions()));
  ASSERT_OK_ASSIGN(const VerifyReport report, again.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty());
}

// A child is refused its parent's handles, not stores.
TEST_F(HostProcess, AChildUsesAStoreOfItsOwn) {
  auto host = HostStore::Open(path());
  ASSERT_OK(host);
  ASSERT_OK(host->Append());
  EXPECT_TRUE(InChild([&] {
    auto own = HostStore::Open(path() + ".child");
    return ExpectOk(own.status(), "open") && ExpectOk(own->DoEverything(), "use") &&
           ExpectOk(own->Close(), "close") &&
           ExpectOk(CheckStore(path() + ".child", own->length), "reopen");
  }));
  ASSERT_OK(host->DoEverything());
}

}  // namespace
}  // namespace cairn::testing
