// SPDX-License-Identifier: Apache-2.0
//
// The bug: in a child of fork() a ticket that was waited for led its group there, and wrote an old
// copy over what the parent had written and acknowledged since; a queue that was drained emptied
// the parent's eventfd; a draft wrote into memory that both share; and a child that lived on kept
// the store locked when its parent was dead. Method: each of them, with the parent going on
// meanwhile.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

class AChild : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(0, pipe(go_));
    chat_ = Create(Register(model_), "chat");
    ASSERT_OK(AppendSome(chat_, model_, 0, 4));
  }
  void TearDown() override {
    close(go_[0]);
    close(go_[1]);
  }

  // A child that runs `body` when it is let go.
  pid_t Fork(const std::function<bool()>& body) {
    const pid_t child = fork();
    if (child != 0) return child;
    char byte;
    _exit(read(go_[0], &byte, 1) == 1 && body() ? 0 : 1);
  }
  void ReleaseCaches(pid_t child) {
    ASSERT_EQ(1, write(go_[1], "x", 1));
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

  const ModelSpec model_ = TinyModel();
  Branch chat_;
  int go_[2] = {-1, -1};
};

// The simulated machine has one process, and memory no file that a child could reach.
INSTANTIATE_TEST_SUITE_P(Worlds, AChild, ::testing::Values("io_uring", "threads"), NameOf);

TEST_P(AChild, DoesNotWriteTheGroupOfATicket) {
  AppendOptions lazily;
  lazily.durability = Durability::kMemory;  // So that nobody else writes the group at once.
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(Tokens(1)), lazily));
  const pid_t child = Fork([&] {
    const Status waited = ticket.Wait(), status = ticket.status(), cancelled = ticket.Cancel();
    return Expect(waited.code() == StatusCode::kInvalidState, waited.ToString()) &&
           Expect(status.code() == StatusCode::kInvalidState, status.ToString()) &&
           Expect(cancelled.code() == StatusCode::kInvalidState, cancelled.ToString());
  });
  for (uint64_t i = 0; i < 8; ++i) {
    AppendOptions options;
    options.durability = Durability::kPower;
    ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(3, i)), options));
  }
  ReleaseCaches(child);
  ASSERT_OK(ticket.Wait());
  Reopen();
  EXPECT_EQ(4u + 1 + 8 * 3, *Find("chat").length());
  ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty());
}

TEST_P(AChild, LeavesTheQueueOfItsParent) {
  ASSERT_OK_ASSIGN(CompletionQueue queue, store_.NewCompletionQueue());
  AppendOptions options;
  options.queue = &queue;
  options.user_data = 11;
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(Tokens(1)), options));
  ASSERT_OK(ticket.Wait());
  ASSERT_TRUE(queue.Wait());
  ReleaseCaches(Fork([&] {
    return Expect(queue.Drain().empty(), "a completion of the parent's") &&
           Expect(!queue.Wait(), "it waits for the parent's") &&
           Expect(queue.event_fd() == -1, "the parent's descriptor");
  }));
  pollfd readable{queue.event_fd(), POLLIN, 0};
  EXPECT_EQ(1, poll(&readable, 1, 0)) << "the child took what it was readable for";
  const std::vector<Completion> completions = queue.Drain();
  ASSERT_EQ(1u, completions.size());
  EXPECT_EQ(11u, completions[0].user_data);
}

Allocator SharedAllocator() {
  Allocator shared;
  shared.allocate = [](void*, size_t bytes, size_t) -> void* {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
  };
  shared.deallocate = [](void*, void* memory, size_t bytes, size_t) { munmap(memory, bytes); };
  return shared;
}

TEST_P(AChild, LeavesTheDraftOfItsParent) {
  Options options = world_->options();
  options.allocator = SharedAllocator();
  Reopen(options);
  chat_ = Find("chat");
  KvPool right(model_.groups[0], 0, Layout::kNhd, 4, 2);
  KvPool wrong(model_.groups[0], 0, Layout::kNhd, 4, 2);
  right.Write(kSeed, 4, 6);
  wrong.Write(kSeed + 1, 4, 6);
  const auto put = [&](Draft& draft, KvPool& pool) {
    Status status;
    for (uint32_t layer = 0; layer < model_.groups[0].layers && status.ok(); ++layer) {
      status = draft.Put(layer, pool.View(4, 2, layer, 1));
    }
    return status;
  };
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(2));
  ASSERT_OK(put(draft, right));
  ReleaseCaches(Fork([&] {
    const Status status = put(draft, wrong);
    const auto committed = draft.Commit(MakeDelta(Tokens(2)), {});
    draft.Abort();
    return Expect(status.code() == StatusCode::kInvalidState, status.ToString()) &&
           Expect(committed.status().code() == StatusCode::kInvalidState,
                  committed.status().ToString());
  }));
  auto ticket = draft.Commit(MakeDelta(Tokens(2)), {});
  for (int i = 0; i < 500 && ticket.status().code() == StatusCode::kBusy; ++i) {
    world_->world().scheduler->Sleep(10'000'000);  // It never waits for a segment.
    ticket = draft.Commit(MakeDelta(Tokens(2)), {});
  }
  ASSERT_OK(ticket);
  ASSERT_OK(ticket->Wait());
  EXPECT_TRUE(HasKv(chat_, model_, 4, 6));
}

// A worker process, say, that its server left behind.
TEST_P(AChild, DoesNotKeepTheStoreLocked) {
  ASSERT_OK(store_.Close());
  int left_behind[2];
  ASSERT_EQ(0, pipe(left_behind));
  ASSERT_TRUE(InChild([&] {
    const auto store = world_->Open();
    if (!Expect(store.ok(), store.status().ToString())) return false;
    const pid_t worker = fork();
    if (worker == 0) {
      char byte;
      static_cast<void>(!read(go_[0], &byte, 1));
      _exit(0);
    }
    static_cast<void>(!write(left_behind[1], &worker, sizeof(worker)));
    _exit(0);  // As one that is killed: nothing is closed.
  }));
  pid_t worker = 0;
  ASSERT_EQ(ssize_t{sizeof(worker)}, read(left_behind[0], &worker, sizeof(worker)));
  EXPECT_OK(world_->Open());
  ASSERT_EQ(1, write(go_[1], "x", 1));
  close(left_behind[0]);
  close(left_behind[1]);
}

}  // namespace
}  // namespace cairn::testing
