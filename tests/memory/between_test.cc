// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever another thread does to the branch between two steps of a call, both end as
// they do one after the other, in one order or the other. Method: at the n-th allocation of the
// call, for every n, another thread acts, and the call goes on when that is done, or after a while:
// then it waits for a lock that the call holds.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "tests/engine/engine_test.h"
#include "tests/memory/failing_new.h"

namespace cairn::testing {
namespace {

constexpr std::chrono::milliseconds kLocked(5);  // Done by then, or it waits.
constexpr uint64_t kMaxSteps = 2000;             // More allocations than any of these calls makes.

class BetweenTest : public ::testing::Test {
 protected:
  BetweenTest() { large_.Write(kSeed, 10, 4010); }
  void Open(uint64_t batch_tokens = 1) {
    Options options = TinyOptions();
    options.allocator = memory::NewAllocator();
    options.delta_batch_tokens = batch_tokens;
    options.delta_batch_wait_ns = 3'600'000'000'000;
    ASSERT_OK_ASSIGN(store_, Store::Open(":memory:", options));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
  }
  Branch Make() {
    auto branch = store_.CreateBranch(id_);
    EXPECT_OK(branch);
    EXPECT_OK(AppendSome(*branch, model_, 0, 10));
    return *branch;
  }
  // More than one record holds, behind what Make appends.
  Delta Large() const { return MakeDelta(many_, large_view_); }

  // For every n: `prepare`, then `call` with `other` at its n-th allocation, then `check`.
  void AtEveryAllocation(const std::function<void()>& prepare, const std::function<void()>& call,
                         const std::function<void()>& other, const std::function<void()>& check) {
    for (uint64_t n = 1;; ++n) {
      ASSERT_LT(n, kMaxSteps);
      SCOPED_TRACE("at allocation " + std::to_string(n));
      prepare();
      if (HasFatalFailure()) return;
      std::thread thread;
      memory::CallAtAllocation(n, [&] {
        std::promise<void> done;
        std::future<void> is_done = done.get_future();
        thread = std::thread([&other, done = std::move(done)]() mutable {
          other();
          done.set_value();
        });
        is_done.wait_for(kLocked);
      });
      call();
      const bool over = memory::CallAtAllocation(0) != 0;
      if (over) break;
      thread.join();
      check();
      if (HasFailure()) return;
      ++steps_;
    }
    EXPECT_GT(steps_, 3u);
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty());
  }

  // The same with a fill of the twelve positions of a branch that has KV of ten.
  void BesideAFill(const AppendOptions& options, const std::function<void(Branch&)>& other,
                   const std::function<void(Branch&, const Status& filled)>& check) {
    Branch branch;
    Status filled;
    KvSet kv(model_, Layout::kContiguous, 0, 12);
    kv.Write(kSeed, 0, 12);
    AtEveryAllocation(
        [&] {
          branch = Make();
          ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(2))));
        },
        [&] { filled = branch.Fill(*kv.View(0, 12), options); }, [&] { other(branch); },
        [&] { check(branch, filled); });
  }

  const ModelSpec model_ = TinyModel();
  const std::vector<TokenId> many_ = Tokens(4000);
  KvSet large_{model_, Layout::kContiguous, 10, 4000};
  const KvView* large_view_ = large_.View(10, 4000);
  Store store_;
  ModelId id_{};
  uint64_t steps_ = 0;
};

// Calls that change a branch, beside one that drops it.
class BesideDropTest : public BetweenTest {
 protected:
  BesideDropTest() { kv_.Write(kSeed, 0, 11); }
  void Run(const std::function<Status()>& call) {
    Status called, dropped;
    uint64_t refused = 0;
    // On a busy machine the other thread comes late every time, now and then.
    for (int tries = 0; refused == 0 && tries < 5 && !HasFailure(); ++tries) {
      AtEveryAllocation(
          [&] { branch_ = Make(); }, [&] { called = call(); }, [&] { dropped = branch_.Drop(); },
          [&] {
            refused += !called.ok() || !dropped.ok();
            // A large append is finished first, or refuses the other.
            if (dropped.code() == StatusCode::kBusy) dropped = branch_.Drop();
            EXPECT_OK(dropped);
            EXPECT_TRUE(called.ok() || called.code() == StatusCode::kNotFound) << called.ToString();
            EXPECT_FAILS(branch_.Info(), StatusCode::kNotFound);
          });
    }
    EXPECT_GT(refused, 0u);
  }

  Branch branch_;
  const std::vector<TokenId> one_ = Tokens(1);
  KvSet kv_{model_, Layout::kContiguous, 0, 11};
  const KvView* all_ = kv_.View(0, 11);
  const Delta next_ = MakeDelta(one_, kv_.View(10, 1));  // One position more.
};

TEST_F(BesideDropTest, AnAppend) {
  Open();
  Run([&] { return branch_.AppendSync(next_).status(); });
}

TEST_F(BesideDropTest, AnAppendToBeCoalesced) {
  Open(8);
  Run([&] {
    auto ticket = branch_.Append(next_);
    // An accepted append is in the log before the branch is dropped.
    return ticket.ok() ? ticket->Wait() : ticket.status();
  });
}

TEST_F(BesideDropTest, AnAppendWhoseKvIsShed) {
  Open();
  KvSet far(model_, Layout::kContiguous, 11, 1);  // Does not connect.
  far.Write(kSeed, 11, 12);
  const std::vector<TokenId> two = Tokens(2);
  const Delta delta = MakeDelta(two, far.View(11, 1));
  AppendOptions options;
  options.overload = Overload::kShedKv;
  Run([&] {
    auto ticket = branch_.Append(delta, options);
    if (!ticket.ok()) return ticket.status();
    EXPECT_TRUE(ticket->kv_shed());
    return ticket->Wait();
  });
}

TEST_F(BesideDropTest, ALargeAppend) {
  Open();
  Run([&] { return branch_.AppendSync(Large()).status(); });
}

TEST_F(BesideDropTest, AFillThatGoesOn) {
  Open();
  Run([&] {
    const auto tokens = branch_.AppendSync(MakeDelta(one_));
    return tokens.ok() ? branch_.Fill(*next_.kv) : tokens.status();
  });
}

TEST_F(BesideDropTest, AFillBehindAnAppendToBeCoalesced) {
  Open(8);
  Run([&] {
    const auto ticket = branch_.Append(MakeDelta(one_));
    return ticket.ok() ? branch_.Fill(*next_.kv) : ticket.status();
  });
}

TEST_F(BesideDropTest, AFillOfWhatIsThereInPart) {
  Open();
  Run([&] {
    const auto tokens = branch_.AppendSync(MakeDelta(one_));
    return tokens.ok() ? branch_.Fill(*all_) : tokens.status();
  });
}

TEST_F(BesideDropTest, ABatch) {
  Open();
  Run([&] {
    WriteBatch batch;
    batch.Append(branch_, next_);
    return store_.Write(batch).status();
  });
}

// The store is another one each time.
TEST_F(BetweenTest, ALargeAppendBesideClose) {
  for (const bool waits : {true, false}) {
    Branch branch;
    Status appended, closed;
    AtEveryAllocation(
        [&] {
          Open();
          branch = Make();
        },
        [&] {
          if (waits) {
            appended = branch.AppendSync(Large()).status();
          } else {
            auto ticket = branch.Append(Large());
            appended = ticket.ok() ? ticket->Wait() : ticket.status();
          }
        },
        [&] { closed = store_.Close(); },
        [&] {
          EXPECT_OK(closed);
          EXPECT_TRUE(appended.ok() || appended.code() == StatusCode::kInvalidState)
              << appended.ToString();
        });
  }
}

// An append that was accepted before the store is closed ends then.
TEST_F(BetweenTest, AnAppendToBeCoalescedBesideClose) {
  KvSet kv(model_, Layout::kContiguous, 10, 1);
  kv.Write(kSeed, 10, 11);
  const std::vector<TokenId> one = Tokens(1);
  const Delta delta = MakeDelta(one, kv.View(10, 1));
  Branch branch;
  Result<Ticket> coalesced = Ticket();
  Status closed;
  AtEveryAllocation(
      [&] {
        Open(8);
        branch = Make();
      },
      [&] { coalesced = branch.Append(delta); }, [&] { closed = store_.Close(); },
      [&] {
        EXPECT_OK(closed);
        if (coalesced.ok()) {
          EXPECT_TRUE(coalesced->done());
        } else {
          EXPECT_FAILS(coalesced, StatusCode::kInvalidState);
        }
      });
}

// A thread may fork while any lock is held.
TEST_F(BetweenTest, AForkedChildIsRefusedAndNeverWaits) {
  Open();
  Branch branch = Make();
  uint64_t n = 1;
  for (int ended = 0; ended == 0; ++n) {
    memory::CallAtAllocation(n, [&] {
      const pid_t child = fork();
      if (child != 0) {
        waitpid(child, &ended, 0);
        return;
      }
      alarm(20);
      const bool empty = store_.Models().empty() && store_.Metrics().branches == 0;
      const bool refused = store_.Flush().code() == StatusCode::kInvalidState &&
                           store_.Close().code() == StatusCode::kInvalidState;
      branch = Branch();
      store_ = Store();
      _exit(empty && refused ? 0 : 1);
    });
    ASSERT_OK(AppendSome(branch, model_, 9 + n, 1));
    if (memory::CallAtAllocation(0) != 0) break;
    EXPECT_EQ(ended, 0) << "at allocation " << n;
  }
  EXPECT_GT(n, 20u);
}

TEST_F(BetweenTest, AFillBesideAnAppend) {
  Open();
  Result<uint64_t> appended = uint64_t{0};
  uint64_t conflicts = 0;
  AppendOptions options;
  options.expected_length = 12;
  BesideAFill(
      options, [&](Branch& branch) { appended = branch.AppendSync(MakeDelta(Tokens(1))); },
      [&](Branch& branch, const Status& filled) {
        ASSERT_OK(appended);
        EXPECT_EQ(*appended, 13u);
        if (!filled.ok()) {
          EXPECT_FAILS(filled, StatusCode::kConflict, "expected_length is 12");
          ++conflicts;
        }
        EXPECT_TRUE(HasKv(branch, model_, 0, filled.ok() ? 12 : 10));
      });
  EXPECT_GT(conflicts, 0u);
}

TEST_F(BetweenTest, AFillBesideAnAppendToBeCoalesced) {
  Open(8);
  Result<Ticket> coalesced = Ticket();
  BesideAFill(
      {}, [&](Branch& branch) { coalesced = branch.Append(MakeDelta(Tokens(1))); },
      [&](Branch& branch, const Status& filled) {
        EXPECT_OK(filled);
        ASSERT_OK(coalesced);
        EXPECT_OK(coalesced->Wait());
        EXPECT_EQ(*branch.length(), 13u);
        EXPECT_TRUE(HasKv(branch, model_, 0, 12));
      });
}

TEST_F(BetweenTest, ALargeAppendBesideOneToBeCoalesced) {
  Open(8);
  Branch branch;
  Result<uint64_t> large = uint64_t{0};
  Result<Ticket> coalesced = Ticket();
  uint64_t refused = 0;
  AtEveryAllocation([&] { branch = Make(); }, [&] { large = branch.AppendSync(Large()); },
                    [&] { coalesced = branch.Append(MakeDelta(Tokens(1))); },
                    [&] {
                      EXPECT_OK(large);
                      if (coalesced.ok()) {
                        EXPECT_OK(coalesced->Wait());
                      } else {
                        EXPECT_FAILS(coalesced, StatusCode::kBusy);
                        ++refused;
                      }
                      EXPECT_EQ(*branch.length(), 4010u + coalesced.ok());
                    });
  EXPECT_GT(refused, 0u);
}

// The second of two at once is refused, or comes behind the first.
TEST_F(BetweenTest, ALargeAppendBesideAnother) {
  Open();
  Branch branch;
  Result<uint64_t> one = uint64_t{0};
  Status other;
  uint64_t refused = 0;
  AtEveryAllocation([&] { branch = Make(); }, [&] { one = branch.AppendSync(Large()); },
                    [&] {
                      auto ticket = branch.Append(Large());
                      other = ticket.ok() ? ticket->Wait() : ticket.status();
                    },
                    [&] {
                      // The KV of one of them goes on where the branch ended.
                      EXPECT_NE(one.ok(), other.ok());
                      if (one.ok() && other.code() == StatusCode::kBusy) {
                        EXPECT_FAILS(other, StatusCode::kBusy, "being gathered");
                        ++refused;
                      } else {
                        EXPECT_FAILS(one.ok() ? other : one.status(), StatusCode::kInvalidArgument);
                      }
                      EXPECT_TRUE(HasKv(branch, model_, 0, 4010));
                    });
  EXPECT_GT(refused, 0u);
}

TEST_F(BetweenTest, TwoWhoRegisterAModel) {
  Open();
  uint64_t models = 0;
  ModelSpec model;
  Result<ModelId> one = id_, other = id_;
  AtEveryAllocation([&] { model = TinyModel("model " + std::to_string(++models)); },
                    [&] { one = store_.RegisterModel(model); },
                    [&] { other = store_.RegisterModel(model); },
                    [&] {
                      ASSERT_OK(one);
                      ASSERT_OK(other);
                      EXPECT_EQ(static_cast<uint64_t>(*one), static_cast<uint64_t>(*other));
                    });
}

TEST_F(BetweenTest, TwoWhoRegisterAModelInTwoShapes) {
  Open();
  uint64_t models = 0;
  ModelSpec model;
  Result<ModelId> one = id_, other = id_;
  AtEveryAllocation([&] { model = TinyModel("model " + std::to_string(++models)); },
                    [&] { one = store_.RegisterModel(model); },
                    [&] { other = store_.RegisterModel(WideModel(model.identity.name)); },
                    [&] {
                      EXPECT_NE(one.ok(), other.ok());
                      EXPECT_FAILS(one.ok() ? other : one, StatusCode::kModelMismatch,
                                   "another shape");
                    });
}

}  // namespace
}  // namespace cairn::testing
