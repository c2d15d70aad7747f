// SPDX-License-Identifier: Apache-2.0
//
// Property: each committed op is reported to observers, once, with what it is about, and again by a
// replay; what is refused leaves no trace and is tried again as the policy says. Method: a
// committer on a log of its own, with a host that refuses and waits as the test says.
#include "engine/commit/committer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/commit/replayer.h"
#include "engine/metrics/commit_counters.h"
#include "engine/tree/ops/decisions.h"
#include "tests/support/log_fixture.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::engine {
namespace {

struct Told {
  OpKind kind{};
  uint64_t sequence = 0, node = 0, length_before = 0, length = 0, kv_bytes = 0;
  size_t ids = 0;
  CommitOrigin origin{};
  std::vector<std::vector<uint64_t>> ranges;  // {node, lane, begin, count}
};

class Watcher final : public CommitObserver {
 public:
  explicit Watcher(bool wants_replay) : wants_replay_(wants_replay) {}
  void OnCommitted(const CommittedOp& op) noexcept override {
    Told& told = told_.emplace_back(Told{op.op.kind,
                                         op.sequence,
                                         op.node,
                                         op.length_before,
                                         op.length,
                                         op.kv_bytes,
                                         op.ids.size(),
                                         op.origin,
                                         {}});
    op.VisitRanges([&](uint64_t node, uint32_t lane, uint64_t begin, uint64_t count) {
      told.ranges.push_back({node, lane, begin, count});
    });
  }
  bool wants_replay() const override { return wants_replay_; }
  void OnReplay(uint64_t after_sequence) override { replays_.push_back(after_sequence); }

  std::vector<Told> told_;
  std::vector<uint64_t> replays_;

 private:
  const bool wants_replay_;
};

class Host final : public CommitCallbacks {
 public:
  uint64_t NowNs() const override { return 1000; }
  bool LogIsHeld(uint64_t /*bytes*/) const override { return held_ > 0; }
  void OnLogged(const wal::Log::Slot& slot, engine::CommitOrigin /*origin*/) override {
    logged_ = slot.sequence;
  }
  void OnRefused(const Status& /*status*/) override { ++refused_; }
  bool HasRoomAgain() override { return false; }
  Status WaitForLog(uint64_t /*bytes*/, uint64_t /*deadline_ns*/) override {
    if (held_ > 0) --held_;
    ++waits_;
    return Status::Ok();
  }
  Status MakeRoom(std::optional<BranchId> /*branch*/, uint64_t /*bytes*/, const Status& /*refusal*/,
                  uint64_t /*deadline_ns*/, std::optional<uint32_t>* /*first_round*/) override {
    full_ = false;
    return Status::Ok();
  }
  Status AwaitReclaim(const Status& refusal, uint64_t /*deadline_ns*/,
                      std::optional<uint32_t>* /*first_round*/) override {
    return refusal;
  }

  int held_ = 0, waits_ = 0, refused_ = 0;
  bool full_ = false;
  uint64_t logged_ = 0;
};

// Ops that are given, in one record.
class Given final : public Resolver {
 public:
  using Make = std::function<Result<Op>(const Tree&)>;
  Given(Host* host, std::vector<Make> makes, bool batch = false)
      : host_(host), makes_(std::move(makes)) {
    record_.batch = batch;
  }
  Attempt Prepare(Lock* /*lock*/) override { return {}; }
  std::optional<BranchId> free_branch() const override { return branch_; }
  Status Resolve(CommitOps* ops) override {
    for (const Make& make : makes_) {
      CommittedOp& next = ops->Next();
      CAIRN_ASSIGN_OR_RETURN(next.op, make(ops->tree()));
      next.ids = ids_;
      CAIRN_RETURN_IF_ERROR(ops->Add());
    }
    // The ids that an append says are in its record.
    const Op& op = committed().front().op;
    strips_.clear();
    if (!op.lanes.empty()) {
      strips_.push_back({.tag = 1, .bytes = static_cast<uint32_t>(4 * op.lanes.front().count)});
    }
    record_.strips = strips_;
    return Status::Ok();
  }
  void Publish(wal::Log* log) override {
    std::vector<uint64_t> hashes;
    for (size_t i = 0; i < strips_.size(); ++i) {
      const std::span<std::byte> strip(slot_.payload + slot_.strip_offsets[i], strips_[i].bytes);
      std::fill(strip.begin(), strip.end(), std::byte{0});
      hashes.push_back(Hash(strip));
    }
    log->Publish(slot_, hashes);
  }
  Status CheckQuotas() const override {
    return host_->full_ ? Status(StatusCode::kNoSpace, "full") : Status::Ok();
  }
  void OnRefused(const Status& /*status*/) override { ++tries_; }

  std::optional<BranchId> branch_;
  std::span<const TokenId> ids_;
  int tries_ = 1;

 private:
  Host* const host_;
  const std::vector<Make> makes_;
  std::vector<wal::Strip> strips_;
};

class CommitterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log_.OpenLog();
    committer_.SetLog(log_.log.get());
    committer_.AddObserver(&any_, ObserverOrder::kAny);
    committer_.AddObserver(&ordered_, ObserverOrder::kSequence);
    committer_.AddObserver(&counters_, ObserverOrder::kAny);
    Given model(&host_,
                {[](const Tree& tree) { return ResolveModel(tree, testing::TinyModel()); }});
    ASSERT_OK(committer_.Commit(&model, {}).status);
    model_ = model.committed().front().op.other;
    EXPECT_EQ(model.sequence(), committer_.models_sequence());
    Given branch(&host_, {[&](const Tree& tree) { return ResolveCreate(tree, model_, "a", ""); }});
    ASSERT_OK(committer_.Commit(&branch, {}).status);
    branch_ = branch.committed().front().op.branch;
  }
  Given::Make Append(uint64_t count) {
    return [this, count](const Tree& tree) {
      const uint64_t begin = tree.FindHead(branch_)->lengths[kTokenLane];
      return ResolveAppend(tree, branch_, {{kTokenLane, 0, begin, count}}, {});
    };
  }
  uint64_t length() { return committer_.tree().FindHead(branch_)->lengths[kTokenLane]; }

  wal::LogFixture log_{io::MakeMemoryWorld()};
  Host host_;
  Watcher any_{false}, ordered_{true};
  CommitCounters counters_;
  Committer committer_{&host_, *log_.world.scheduler};
  uint64_t model_ = 0, branch_ = 0;
};

TEST_F(CommitterTest, ObserversLearnOfEveryOp) {
  const std::vector<TokenId> ids = {1, 2, 3};
  Given append(&host_, {Append(3)});
  append.ids_ = ids;
  ASSERT_OK(committer_.Commit(&append, {}).status);
  Given batch(&host_,
              {Append(2), [&](const Tree& tree) { return ResolveFork(tree, branch_, 4, "b", ""); },
               [&](const Tree& tree) { return ResolveRewind(tree, branch_, 1); },
               [&](const Tree& tree) { return ResolveDrop(tree, branch_); }},
              /*batch=*/true);
  ASSERT_OK(committer_.Commit(&batch, {}).status);
  for (const Watcher* const watcher : {&any_, &ordered_}) {
    ASSERT_EQ(7U, watcher->told_.size());
    const Told& first = watcher->told_[2];
    EXPECT_EQ(OpKind::kAppend, first.kind);
    EXPECT_EQ(append.sequence(), first.sequence);
    EXPECT_EQ(3U, first.ids);
    EXPECT_EQ(0U, first.length_before);
    EXPECT_EQ(3U, first.length);
    EXPECT_NE(0U, first.node);
    EXPECT_EQ((std::vector<std::vector<uint64_t>>{{first.node, kTokenLane, 0, 3}}), first.ranges);
    for (size_t i = 3; i < 7; ++i) EXPECT_EQ(batch.sequence(), watcher->told_[i].sequence);
    EXPECT_EQ(4U, watcher->told_[4].length);
    EXPECT_EQ(5U, watcher->told_[5].length_before);
    EXPECT_EQ(1U, watcher->told_[5].length);
    EXPECT_EQ(OpKind::kDrop, watcher->told_[6].kind);
  }
  EXPECT_EQ(2U, counters_.appends());
  EXPECT_EQ(3U, counters_.tokens());
  EXPECT_EQ(1U, counters_.forks());
  EXPECT_EQ(1U, counters_.rewinds());
  EXPECT_EQ(1U, counters_.drops());
  EXPECT_EQ(batch.sequence(), host_.logged_);
}

TEST_F(CommitterTest, AReplayTellsThoseThatWantToKnow) {
  Given append(&host_, {Append(3)});
  ASSERT_OK(committer_.Commit(&append, {}).status);
  ASSERT_OK(log_.log->Flush(io::kNoDeadline));
  log_.log.reset();
  any_.told_.clear();
  const std::vector<Told> live = std::move(ordered_.told_);
  ordered_.told_.clear();

  Tree replayed;
  Replayer replayer(&replayed, &committer_, 0, /*lossy=*/false);
  wal::RecoveryOptions options;
  options.directory = log_.options.directory;
  options.store = log_.options.store;
  ASSERT_OK(wal::Recover(log_.world, options, [&](const wal::RecordView& record) {
              return replayer.Apply(record);
            }).status());
  ASSERT_OK(replayer.DecideAll());
  EXPECT_EQ(3U, replayed.FindHead(branch_)->lengths[kTokenLane]);
  EXPECT_TRUE(any_.told_.empty());
  EXPECT_EQ(std::vector<uint64_t>{0}, ordered_.replays_);
  ASSERT_EQ(live.size(), ordered_.told_.size());
  for (size_t i = 0; i < live.size(); ++i) {
    const Told& again = ordered_.told_[i];
    EXPECT_EQ(live[i].kind, again.kind);
    EXPECT_EQ(live[i].sequence, again.sequence);
    EXPECT_EQ(live[i].node, again.node);
    EXPECT_EQ(live[i].ranges, again.ranges);
    EXPECT_EQ(CommitOrigin::kReplay, again.origin);
  }
  EXPECT_EQ(1U, counters_.appends()) << "of this process";
}

TEST_F(CommitterTest, WhatIsRefusedLeavesNoTraceAndIsTriedAgain) {
  const size_t told = any_.told_.size();
  host_.held_ = 2;
  Given append(&host_, {Append(3)});
  EXPECT_FAILS(committer_.Commit(&append, {}).status, StatusCode::kBusy, "log_bytes_max");
  EXPECT_EQ(0U, length());
  EXPECT_EQ(told, any_.told_.size());
  EXPECT_EQ(1, host_.refused_);
  Given waits(&host_, {Append(3)});
  ASSERT_OK(committer_.Commit(&waits, {.busy = RetryPolicy::Busy::kAwaitLog}).status);
  EXPECT_EQ(2, host_.waits_);
  EXPECT_EQ(3, waits.tries_);
  EXPECT_EQ(3U, length()) << "once";

  host_.full_ = true;
  Given full(&host_, {Append(1)});
  const Attempt refused = committer_.Commit(&full, {});
  EXPECT_EQ(Attempt::Kind::kRefused, refused.kind);
  EXPECT_FAILS(refused.status, StatusCode::kNoSpace, "full");
  EXPECT_EQ(3U, length());
  Given evicts(&host_, {Append(1)});
  ASSERT_OK(committer_.Commit(&evicts, {.no_space = RetryPolicy::NoSpace::kEvict}).status);
  EXPECT_EQ(4U, length());
  EXPECT_EQ(told + 2, any_.told_.size());
}

TEST_F(CommitterTest, ALargeAppendHoldsOthersOfItsBranch) {
  committer_.BeginLargeAppend(BranchId{branch_});
  Given append(&host_, {Append(1)});
  append.branch_ = BranchId{branch_};
  const Attempt held = committer_.Commit(&append, {});
  EXPECT_EQ(Attempt::Kind::kHeld, held.kind);
  EXPECT_FAILS(held.status, StatusCode::kBusy, "large append");
  Given other(&host_, {Append(1)});
  EXPECT_OK(committer_.Commit(&other, {}).status) << "it does not mind";
  committer_.EndLargeAppend(BranchId{branch_});
  EXPECT_OK(committer_.Commit(&append, {}).status);
  EXPECT_EQ(2U, length());
}

}  // namespace
}  // namespace cairn::engine
