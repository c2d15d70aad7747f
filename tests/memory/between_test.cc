// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever another thread does to the branch between two steps of a call, both end as
// they do one after the other, in one order or the other. Method: at the n-th allocation of the
// call, for every n, another thread acts, and the call goes on when that is done, or after a while:
// then it waits for a lock that the call holds.
#include <gtest/gtest.h>

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
  void Open(uint64_t batch_tokens = 1) {
    Options options = TinyOptions();
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

  const ModelSpec model_ = TinyModel();
  Store store_;
  ModelId id_{};
  uint64_t steps_ = 0;
};

// Calls that change a branch, beside one that drops it.
class BesideDropTest : public BetweenTest {
 protected:
  void Run(const std::function<Status()>& call) {
    Status called, dropped;
    uint64_t came_too_late = 0;
    AtEveryAllocation([&] { branch_ = Make(); }, [&] { called = call(); },
                      [&] { dropped = branch_.Drop(); },
                      [&] {
                        // A large append is finished first, or refuses the other.
                        if (dropped.code() == StatusCode::kBusy) dropped = branch_.Drop();
                        EXPECT_OK(dropped);
                        if (!called.ok()) {
                          EXPECT_FAILS(called, StatusCode::kNotFound);
                          ++came_too_late;
                        }
                        EXPECT_FAILS(branch_.Info(), StatusCode::kNotFound);
                      });
    EXPECT_GT(came_too_late, 0u);
  }
  // One position more.
  Delta Next(Layout layout = Layout::kContiguous) {
    kv_ = std::make_unique<KvSet>(model_, layout, 10, 1);
    kv_->Write(kSeed, 10, 11);
    return MakeDelta(one_, kv_->View(10, 1));
  }

  Branch branch_;
  const std::vector<TokenId> one_ = Tokens(1);
  std::unique_ptr<KvSet> kv_;
};

TEST_F(BesideDropTest, AnAppend) {
  Open();
  Run([&] { return branch_.AppendSync(Next()).status(); });
}

TEST_F(BesideDropTest, AnAppendToBeJoined) {
  Open(8);
  Run([&] {
    auto ticket = branch_.Append(Next());
    // What was accepted is in the log before the branch is dropped.
    return ticket.ok() ? ticket->Wait() : ticket.status();
  });
}

TEST_F(BesideDropTest, AnAppendWhoseKvIsShed) {
  Open();
  Run([&] {
    KvSet far(model_, Layout::kContiguous, 11, 1);  // Does not connect.
    far.Write(kSeed, 11, 12);
    const std::vector<TokenId> two = Tokens(2);
    AppendOptions options;
    options.overload = Overload::kShedKv;
    auto ticket = branch_.Append(MakeDelta(two, far.View(11, 1)), options);
    if (!ticket.ok()) return ticket.status();
    EXPECT_TRUE(ticket->kv_shed());
    return ticket->Wait();
  });
}

TEST_F(BesideDropTest, ALargeAppend) {
  Open();
  const std::vector<TokenId> tokens = Tokens(4000);
  KvSet large(model_, Layout::kContiguous, 10, 4000);
  large.Write(kSeed, 10, 4010);
  Run([&] { return branch_.AppendSync(MakeDelta(tokens, large.View(10, 4000))).status(); });
}

TEST_F(BesideDropTest, AFillThatGoesOn) {
  Open();
  Run([&] {
    const auto tokens = branch_.AppendSync(MakeDelta(one_));
    if (!tokens.ok()) return tokens.status();
    Next();
    return branch_.Fill(*kv_->View(10, 1));
  });
}

TEST_F(BesideDropTest, AFillOfWhatIsThereInPart) {
  Open();
  Run([&] {
    const auto tokens = branch_.AppendSync(MakeDelta(one_));
    if (!tokens.ok()) return tokens.status();
    KvSet all(model_, Layout::kContiguous, 0, 11);
    all.Write(kSeed, 0, 11);
    return branch_.Fill(*all.View(0, 11));
  });
}

TEST_F(BesideDropTest, ABatch) {
  Open();
  Run([&] {
    WriteBatch batch;
    batch.Append(branch_, Next());
    return store_.Write(batch).status();
  });
}

// The store is another one each time.
TEST_F(BetweenTest, ALargeAppendBesideClose) {
  const std::vector<TokenId> tokens = Tokens(4000);
  KvSet kv(model_, Layout::kContiguous, 10, 4000);
  kv.Write(kSeed, 10, 4010);
  for (const bool waits : {true, false}) {
    Branch branch;
    Status appended, closed;
    uint64_t refused = 0;
    AtEveryAllocation(
        [&] {
          Open();
          branch = Make();
        },
        [&] {
          const Delta delta = MakeDelta(tokens, kv.View(10, 4000));
          if (waits) {
            appended = branch.AppendSync(delta).status();
          } else {
            auto ticket = branch.Append(delta);
            appended = ticket.ok() ? ticket->Wait() : ticket.status();
          }
        },
        [&] { closed = store_.Close(); },
        [&] {
          EXPECT_OK(closed);
          if (appended.ok()) return;
          EXPECT_FAILS(appended, StatusCode::kInvalidState);
          ++refused;
        });
    EXPECT_GT(refused, 0u);
  }
}

TEST_F(BetweenTest, AFillBesideAnAppend) {
  Open();
  Branch branch;
  Status filled;
  Result<uint64_t> appended = uint64_t{0};
  uint64_t conflicts = 0;
  AtEveryAllocation(
      [&] {
        branch = Make();
        ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(2))));
      },
      [&] {
        KvSet kv(model_, Layout::kContiguous, 0, 12);
        kv.Write(kSeed, 0, 12);
        AppendOptions options;
        options.expected_length = 12;
        filled = branch.Fill(*kv.View(0, 12), options);
      },
      [&] { appended = branch.AppendSync(MakeDelta(Tokens(1))); },
      [&] {
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

TEST_F(BetweenTest, AFillBesideAnAppendToBeJoined) {
  Open(8);
  Branch branch;
  Status filled;
  Result<Ticket> joined = Ticket();
  AtEveryAllocation(
      [&] {
        branch = Make();
        ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(2))));
      },
      [&] {
        KvSet kv(model_, Layout::kContiguous, 0, 12);
        kv.Write(kSeed, 0, 12);
        filled = branch.Fill(*kv.View(0, 12));
      },
      [&] { joined = branch.Append(MakeDelta(Tokens(1))); },
      [&] {
        EXPECT_OK(filled);
        ASSERT_OK(joined);
        EXPECT_OK(joined->Wait());
        EXPECT_EQ(*branch.length(), 13u);
        EXPECT_TRUE(HasKv(branch, model_, 0, 12));
      });
}

TEST_F(BetweenTest, ALargeAppendBesideOneToBeJoined) {
  Open(8);
  Branch branch;
  const std::vector<TokenId> tokens = Tokens(4000);
  Result<uint64_t> large = uint64_t{0};
  Result<Ticket> joined = Ticket();
  uint64_t refused = 0;
  AtEveryAllocation([&] { branch = Make(); },
                    [&] {
                      KvSet kv(model_, Layout::kContiguous, 10, 4000);
                      kv.Write(kSeed, 10, 4010);
                      large = branch.AppendSync(MakeDelta(tokens, kv.View(10, 4000)));
                    },
                    [&] { joined = branch.Append(MakeDelta(Tokens(1))); },
                    [&] {
                      // Behind it, before it (whose KV then does not go on where the branch
                      // ends), or refused while it is gathered.
                      if (joined.ok()) {
                        EXPECT_OK(joined->Wait());
                      } else {
                        EXPECT_FAILS(joined, StatusCode::kBusy);
                        ++refused;
                      }
                      EXPECT_OK(large);
                      EXPECT_EQ(*branch.length(), 4010u + joined.ok());
                    });
  EXPECT_GT(refused, 0u);
}

// The second of two at once is refused, or comes behind the first.
TEST_F(BetweenTest, ALargeAppendBesideAnother) {
  Open();
  Branch branch;
  const std::vector<TokenId> tokens = Tokens(4000);
  KvSet kv(model_, Layout::kContiguous, 10, 4000);
  kv.Write(kSeed, 10, 4010);
  Result<uint64_t> one = uint64_t{0};
  Status other;
  uint64_t refused = 0;
  AtEveryAllocation([&] { branch = Make(); },
                    [&] { one = branch.AppendSync(MakeDelta(tokens, kv.View(10, 4000))); },
                    [&] {
                      auto ticket = branch.Append(MakeDelta(tokens, kv.View(10, 4000)));
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
