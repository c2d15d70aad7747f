// SPDX-License-Identifier: Apache-2.0
//
// Property: when nothing is left of a node but what one child continues, sealing makes one node of
// the two, and nobody sees more of it than a shorter path: tokens, KV, states and spans are the
// same, before and after, in tables and in the log, opened again, evicted and filled; and forks and
// rewinds go to every position.
// Method: conversations whose every turn forks, goes on differently on both sides, with KV that
// lags, and loses one side.
#include <algorithm>

#include "engine/tree/memory/liveness.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/ops/decisions.h"
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTurn = 6, kLag = 2;
constexpr uint64_t kLoser = 99;  // Content of what is dropped.

class JoinTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    id_ = Register(model_);
  }

  // A turn of kTurn tokens with a state of each kind and a span; its KV goes on where the branch's
  // ends and stays `lag` behind. All content follows from seed and position.
  void Say(Branch& branch, uint64_t seed, uint64_t lag) {
    ASSERT_OK_ASSIGN(const BranchInfo info, branch.Info());
    const uint64_t begin = info.length, end = begin + kTurn, kv_begin = info.kv_lengths[0];
    KvSet kv(model_, Layout::kContiguous, kv_begin, end - lag - kv_begin);
    kv.Write(seed, kv_begin, end - lag);
    const std::vector<TokenId> tokens = TokensOf(seed, begin, end);
    Delta delta = MakeDelta(tokens, kv.View(kv_begin, end - lag - kv_begin));
    SamplerState sampler;
    sampler.generator = GeneratorKind::kPhilox;
    sampler.philox_seed = seed + end;
    delta.sampler = &sampler;
    AppMetadata metadata;
    metadata.bytes.assign(end, std::byte(seed));
    delta.metadata = &metadata;
    const std::vector<ContentSpan> spans = {
        {.begin = begin, .end = begin + 2, .hash = {seed, begin}, .atomic = true}};
    delta.spans = spans;
    ASSERT_OK(branch.AppendSync(delta));
  }
  std::vector<TokenId> TokensOf(uint64_t seed, uint64_t begin, uint64_t end) {
    std::vector<TokenId> tokens;
    for (uint64_t at = begin; at < end; ++at) {
      tokens.push_back(static_cast<TokenId>(1000 * seed + at));
    }
    return tokens;
  }

  // `turns` turns by as many nodes. The losing sides are dropped at once, or given to `losers`.
  Branch Talk(const std::string& name, uint64_t turns, std::vector<Branch>* losers = nullptr) {
    Branch winner = Create(id_, name);
    for (uint64_t turn = 0; turn < turns; ++turn) {
      Say(winner, kSeed, turn + 1 == turns ? 0 : kLag);
      if (turn + 1 == turns) break;
      ForkOn(&winner, name, losers);
    }
    return winner;
  }
  void ForkOn(Branch* winner, const std::string& name, std::vector<Branch>* losers) {
    Branch loser = *winner;
    ASSERT_OK(loser.Rename(""));
    ASSERT_OK_ASSIGN(*winner, loser.ForkAt(*loser.length(), {.name = name}));
    Say(loser, kLoser, 0);  // On the node that both share: its KV reaches beyond where they part.
    if (losers == nullptr) {
      ASSERT_OK(loser.Drop());
    } else {
      losers->push_back(loser);
    }
  }

  void Check(const Branch& branch, uint64_t turns) {
    const uint64_t length = turns * kTurn;
    ASSERT_EQ(length, *branch.length());
    EXPECT_EQ(TokensOf(kSeed, 0, length), *branch.ReadTokens(0, length));
    EXPECT_TRUE(HasKv(branch, model_, 0, length));
    EXPECT_TRUE(HasKv(branch, model_, kTurn - 3, std::min(length, 2 * kTurn + 1)));
    for (uint64_t turn = 1; turn <= turns; ++turn) {
      const uint64_t at = turn * kTurn;
      ASSERT_OK_ASSIGN(const Branch::StateAt sampler, branch.SamplerAt(at + kTurn - 1));
      EXPECT_EQ(at, sampler.position);
      EXPECT_EQ(kSeed + at, sampler.sampler->philox_seed);
      ASSERT_OK_ASSIGN(const Branch::StateAt metadata, branch.MetadataAt(at));
      EXPECT_EQ(std::vector<std::byte>(at, std::byte(kSeed)), metadata.metadata->bytes);
    }
    const auto spans = branch.Spans(0, length);
    ASSERT_OK(spans);
    ASSERT_EQ(turns, spans->size());
    for (uint64_t turn = 0; turn < turns; ++turn) EXPECT_EQ(turn * kTurn, (*spans)[turn].begin);
  }
  void CheckVerified() {
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages.front().what;
  }
  size_t PathOf(const Branch& branch) { return branch.Path()->size(); }
  uint64_t Joined() { return store_.Metrics().joined_nodes; }

  const ModelSpec model_ = TinyModel();
  ModelId id_{};
};
INSTANTIATE_TEST_SUITE_P(Worlds, JoinTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(JoinTest, AChainInTheLogBecomesOneNode) {
  Branch chat = Talk("chat", 8);
  EXPECT_EQ(8U, PathOf(chat));
  EXPECT_EQ(8U, store_.Metrics().nodes);
  Check(chat, 8);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(7U, Joined());
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(1U, metrics.nodes);
  EXPECT_EQ(8 * kTurn, metrics.tokens);
  for (int opened = 0; opened < 2; ++opened) {
    ASSERT_OK_ASSIGN(const std::vector<PathStep> path, chat.Path());
    ASSERT_EQ(1U, path.size());
    EXPECT_EQ(NodeId{}, path[0].parent);
    EXPECT_EQ(0U, path[0].begin);
    EXPECT_EQ(8 * kTurn, path[0].end);
    EXPECT_EQ(chat.id(), path[0].owner);
    Check(chat, 8);
    CheckVerified();
    Reopen();
    chat = Find("chat");
  }
  ASSERT_OK(chat.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, store_.Metrics().nodes);
  EXPECT_EQ(0U, store_.Metrics().table_bytes);
}

// Nothing of it will ever be sealed again.
TEST_P(JoinTest, ALongChainInTablesIsJoinedInIdleTime) {
  constexpr uint64_t kTurns = 20;
  std::vector<Branch> losers;
  Branch chat = Talk("chat", kTurns, &losers);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(kTurns, PathOf(chat));
  for (Branch& loser : losers) ASSERT_OK(loser.Drop());
  for (int i = 0; i < 1000 && PathOf(chat) > 1; ++i) {
    world_->world().scheduler->Sleep(10'000'000);
  }
  EXPECT_EQ(1U, PathOf(chat));
  EXPECT_EQ(kTurns - 1, Joined());
  for (int opened = 0; opened < 2; ++opened) {
    Check(chat, kTurns);
    CheckVerified();
    Reopen();
    chat = Find("chat");
  }
}

// Content of tables stays there, under the numbers of nodes that no longer exist.
TEST_P(JoinTest, AChainInTablesIsJoinedWhenItIsSealedAgain) {
  std::vector<Branch> losers;
  Branch chat = Talk("chat", 5, &losers);
  Branch other = Create(id_, "other");  // So that most of the table is needed.
  ASSERT_OK(AppendSome(other, model_, 0, 600));
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, Joined()) << "others need every node";
  EXPECT_EQ(5U, PathOf(chat));
  for (Branch& loser : losers) ASSERT_OK(loser.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, Joined()) << "nothing is sealed";
  ForkOn(&chat, "chat", nullptr);
  Say(chat, kSeed, 0);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(5U, Joined());
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(1U, PathOf(chat));
    Check(chat, 6);
    CheckVerified();
    Reopen();
    chat = Find("chat");
  }
  // In place, within what came from above, and then on.
  ASSERT_OK(chat.Rewind(2 * kTurn));
  Say(chat, kSeed, 0);
  EXPECT_EQ(1U, PathOf(chat));
  Check(chat, 3);
  ASSERT_OK(store_.Compact());
  Reopen();
  chat = Find("chat");
  Check(chat, 3);
  CheckVerified();
}

// Fragments of the table name nodes that are no more: who has them must be known all the same.
TEST_P(JoinTest, ATableWithPartsOfJoinedNodesIsRewritten) {
  for (const bool opened_between : {false, true}) {
    const uint64_t rewritten = store_.Metrics().rewritten_tables;
    std::vector<Branch> losers;
    Branch chat = Talk("chat", 4, &losers);
    Branch other = Create(id_, "other");
    ASSERT_OK(AppendSome(other, model_, 0, 600));
    ASSERT_OK(store_.Compact());
    for (Branch& loser : losers) ASSERT_OK(loser.Drop());
    Say(chat, kSeed, 0);
    const uint64_t joined = Joined();
    ASSERT_OK(store_.Compact());
    EXPECT_EQ(joined + 3, Joined());
    if (opened_between) {
      Reopen();
      chat = Find("chat");
      other = Find("other");
    }
    const uint64_t before = store_.Metrics().table_bytes;
    ASSERT_OK(other.Drop());
    ASSERT_OK(store_.Compact());
    EXPECT_GT(store_.Metrics().rewritten_tables, opened_between ? 0 : rewritten);
    EXPECT_LT(store_.Metrics().table_bytes, before / 2);
    Check(chat, 5);
    CheckVerified();
    Reopen();
    chat = Find("chat");
    Check(chat, 5);
    ASSERT_OK(chat.Drop());
    ASSERT_OK(store_.Compact());
    EXPECT_EQ(0U, store_.Metrics().table_bytes);
  }
}

// The log says so, and nothing else does yet.
TEST_P(JoinTest, AJoinIsReplayed) {
  const ModelSpec wide = WideModel();
  const ModelId id = Register(wide);
  Options options = world_->options();
  options.max_delta_chain = 20;
  Reopen(options);
  Branch chat = Create(id, "chat");
  uint64_t length = 0;
  for (; length < 800; length += 8) ASSERT_OK(AppendSome(chat, wide, length, 8));
  Branch old = chat;
  ASSERT_OK_ASSIGN(chat, old.ForkAt(800, {.name = "fork"}));
  for (; length < 2400; length += 8) ASSERT_OK(AppendSome(chat, wide, length, 8));
  ASSERT_OK(old.Drop());
  for (int i = 0; i < 5000 && Joined() == 0; ++i) {
    world_->world().scheduler->Sleep(1'000'000);
    if (i % 10 == 0) {
      ASSERT_OK(AppendSome(chat, wide, length, 8));
      length += 8;
    }
  }
  EXPECT_EQ(1U, Joined());
  const std::string copy = world_->path() + "-copy";
  ASSERT_OK(store_.Checkpoint(copy));
  ASSERT_OK_ASSIGN(const Store copied, Store::Open(copy, world_->options()));
  ASSERT_OK_ASSIGN(const Branch again, copied.FindBranch("fork"));
  EXPECT_EQ(1U, copied.Metrics().nodes);
  for (const Branch& branch : {chat, again}) {
    EXPECT_EQ(1U, PathOf(branch));
    EXPECT_TRUE(HasKv(branch, wide, 0, length));
  }
}

TEST_P(JoinTest, EveryPositionIsStillAPlaceToForkAndToRewindTo) {
  Branch chat = Talk("chat", 4);
  ASSERT_OK(store_.Compact());
  ASSERT_EQ(1U, PathOf(chat));
  for (uint64_t position = 0; position <= 4 * kTurn; ++position) {
    SCOPED_TRACE(position);
    if (position % kTurn == 1) {
      EXPECT_FAILS(chat.ForkAt(position, {}), StatusCode::kInvalidArgument, "atomic");
      continue;
    }
    ASSERT_OK_ASSIGN(Branch fork, chat.ForkAt(position, {}));
    ASSERT_OK_ASSIGN(const BranchInfo info, fork.Info());
    EXPECT_EQ(position, info.kv_lengths[0]) << "what lagged lies on the same node now";
    if (position == 0) continue;
    EXPECT_TRUE(HasKv(fork, model_, 0, position));
    EXPECT_EQ(position >= kTurn, fork.SamplerAt(position).ok());
    Say(fork, kLoser, 1);
    EXPECT_TRUE(HasKv(fork, model_, 0, position));
    EXPECT_TRUE(HasKv(fork, model_, position, position + kTurn - 1, kLoser));
    ASSERT_OK(fork.Rewind(position));
    ASSERT_OK(fork.Drop());
  }
  Check(chat, 4);
  ASSERT_OK_ASSIGN(const Branch reader, chat.ForkAt(3 * kTurn, {.name = "reader"}));
  ASSERT_OK(chat.Rewind(2 * kTurn));  // Not in place: the other needs it.
  Say(chat, kLoser, 0);
  EXPECT_EQ(2U, PathOf(chat));
  Check(reader, 3);
}

TEST_P(JoinTest, RewindsUnderAnotherLeaveChainsToo) {
  Branch chat = Create(id_, "chat");
  for (int turn = 0; turn < 3; ++turn) Say(chat, kSeed, 0);
  for (int turn = 0; turn < 4; ++turn) {
    ASSERT_OK_ASSIGN(Branch other, chat.ForkAt(*chat.length(), {}));
    ASSERT_OK(chat.Rewind(*chat.length() - 1));
    ASSERT_OK(AppendSome(chat, model_, *chat.length(), 3));
    ASSERT_OK(other.Drop());
  }
  EXPECT_EQ(5U, PathOf(chat));
  const uint64_t length = *chat.length();
  const std::vector<TokenId> tokens = *chat.ReadTokens(0, length);
  ASSERT_OK(store_.Compact());
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(1U, PathOf(chat));
    EXPECT_EQ(1U, store_.Metrics().nodes);
    EXPECT_EQ(length, store_.Metrics().tokens) << "what nobody reached is gone";
    EXPECT_EQ(tokens, *chat.ReadTokens(0, length));
    EXPECT_TRUE(HasKv(chat, model_, 0, length));
    EXPECT_FAILS(chat.SamplerAt(kTurn - 1), StatusCode::kNotFound);
    EXPECT_EQ(2 * kTurn, chat.SamplerAt(3 * kTurn)->position) << "that at 18 was cut";
    Reopen();
    chat = Find("chat");
  }
}

TEST_P(JoinTest, WhatIsEvictedComesBack) {
  for (const bool before : {true, false}) {
    const std::string name = before ? "before" : "after";
    std::vector<Branch> losers;
    Branch chat = Talk(name, 4, &losers);
    const std::vector<KvHole> all = {{0, 0, 4 * kTurn}};
    const auto evict = [&] {
      // Room for the tokens, and for one position with KV.
      ASSERT_OK(store_.SetNamespace("", {.max_bytes = 300, .evict = Evict::kKv}));
      Branch more = Create(id_, "more");
      ASSERT_OK(AppendSome(more, model_, 0, 1));
      ASSERT_OK(more.Drop());
      ASSERT_OK(store_.SetNamespace("", {}));
    };
    if (before) {
      ASSERT_NO_FATAL_FAILURE(evict());
    }
    for (Branch& loser : losers) ASSERT_OK(loser.Drop());
    ASSERT_OK(store_.Compact());
    if (!before) {
      ASSERT_NO_FATAL_FAILURE(evict());
    }
    EXPECT_EQ(1U, PathOf(chat)) << name;
    EXPECT_EQ(all, *chat.EvictedKv());
    Reopen();
    chat = Find(name);
    // Across where two nodes met.
    KvSet kv(model_, Layout::kContiguous, 0, 4 * kTurn);
    kv.Write(kSeed, 0, 4 * kTurn);
    ASSERT_OK(chat.Fill(*kv.View(kTurn / 2, 2 * kTurn)));
    EXPECT_EQ((std::vector<KvHole>{{0, 0, kTurn / 2}, {0, 5 * kTurn / 2, 4 * kTurn}}),
              *chat.EvictedKv());
    ASSERT_OK(chat.Fill(*kv.View(0, 4 * kTurn)));
    Check(chat, 4);
    ASSERT_OK(store_.Compact());
    Check(chat, 4);
    CheckVerified();
    ASSERT_OK(chat.Drop());
  }
}

// A ticket that is open, one-token appends that wait in staging, and a draft.
TEST_P(JoinTest, AppendsInFlightDoNotNotice) {
  Options options = world_->options();
  options.delta_batch_tokens = 8;
  Reopen(options);
  Branch chat = Talk("chat", 3);
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(Branch fork, chat.ForkAt(*chat.length(), {.name = "fork"}));
  ASSERT_OK(AppendSome(fork, model_, 3 * kTurn, 4));
  ASSERT_OK(chat.Drop());
  // Larger than a record, so borrowed, and under way while the chain is joined.
  const uint64_t begin = 3 * kTurn + 4, count = 20'000;
  KvSet kv(model_, Layout::kContiguous, begin, count);
  kv.Write(kSeed, begin, begin + count);
  const std::vector<TokenId> tokens = Tokens(count);
  auto ticket = fork.Append(MakeDelta(tokens, kv.View(begin, count)));
  ASSERT_OK(ticket);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(ticket->Wait());
  EXPECT_TRUE(HasKv(fork, model_, 0, begin + count));
  const std::vector<TokenId> one = Tokens(1);
  for (int i = 0; i < 3; ++i) ASSERT_OK(fork.Append(MakeDelta(one)));
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(1U, PathOf(fork));
  EXPECT_EQ(begin + count + 3, *fork.length());
  Reopen();
  fork = Find("fork");
  EXPECT_TRUE(HasKv(fork, model_, 0, begin + count));
}

TEST_P(JoinTest, WhatOthersNeedIsLeftAlone) {
  // Another child.
  Branch chat = Talk("chat", 1);
  ASSERT_OK_ASSIGN(Branch left, chat.ForkAt(*chat.length(), {.name = "left"}));
  ASSERT_OK_ASSIGN(Branch right, chat.ForkAt(3, {.name = "right"}));
  Say(left, kSeed, 0);
  ASSERT_OK(AppendSome(right, model_, 3, 2));
  ASSERT_OK(chat.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, Joined());
  // A branch that ends there.
  ASSERT_OK(right.Rewind(2));
  ASSERT_OK(AppendSome(left, model_, 2 * kTurn, 1));
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, Joined());
  EXPECT_EQ(2U, PathOf(left));
  // Nobody.
  ASSERT_OK(right.Drop());
  ASSERT_OK(AppendSome(left, model_, 2 * kTurn + 1, 1));
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(1U, Joined());
  EXPECT_EQ(1U, PathOf(left));
}

TEST_P(JoinTest, ANamespaceKeepsWhatItPaysFor) {
  Branch chat = Talk("chat", 1);
  ASSERT_OK_ASSIGN(Branch elsewhere, chat.ForkAt(*chat.length(), {.name = "chat", .ns = "tenant"}));
  Say(elsewhere, kSeed, 0);
  ASSERT_OK(chat.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, Joined());
  EXPECT_EQ(2U, PathOf(elsewhere));
  Check(elsewhere, 2);
}

class JoinOpTest : public TreeOpTest {
 protected:
  JoinOpTest() : TreeOpTest(10) {}
};

TEST_F(JoinOpTest, OfTwoStatesAtOnePositionTheNewerStays) {
  const uint64_t fork = Fork(base_, 10);
  Do(ResolveAppend(tree_, fork, {{engine::kSamplerLane, 0, 10, 1}}, {}));
  Append(fork, 2);
  Do(ResolveDrop(tree_, base_));
  const engine::Mark newer = At(tree_, fork).samplers.front();
  Do(ResolveJoin(tree_, NodeOf(fork)));
  for (const engine::Tree* const tree : {&tree_, &replayed_}) {
    const engine::Node& node = At(*tree, fork);
    EXPECT_EQ(0U, node.parent);
    ASSERT_EQ(2U, node.samplers.size());
    EXPECT_EQ(10U, node.samplers[0].position);
    EXPECT_EQ(tree == &tree_, node.samplers[0].place == newer.place);
    EXPECT_EQ(12U, node.samplers[1].position);
  }
  EXPECT_EQ(tree_.counts(), replayed_.counts());
}

TEST_F(JoinOpTest, IsUndoneWhole) {
  const uint64_t fork = Fork(base_, 8);
  Append(fork, 5);
  const uint64_t twice = Fork(fork, 11);
  Append(twice, 3);
  Do(ResolveDrop(tree_, base_));
  Do(ResolveDrop(tree_, fork));
  const engine::TreeCounts before = tree_.counts();
  const uint64_t leaf = NodeOf(twice), middle = At(tree_, twice).parent;
  for (int times = 0; times < 2; ++times) {
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree_, &transaction);
    for (int joins = 0; joins < 2; ++joins) {
      ASSERT_OK_ASSIGN(const engine::Op op, ResolveJoin(tree_, leaf));
      ASSERT_OK(changes.Apply(op));
    }
    EXPECT_EQ(14U, tree_.counts().tokens);
    EXPECT_FAILS(ResolveJoin(tree_, leaf), StatusCode::kNotFound, "no parent");
    EXPECT_EQ(nullptr, tree_.FindNode(middle));
    transaction.Rollback();
    EXPECT_EQ(before, tree_.counts());
    EXPECT_EQ(middle, At(tree_, twice).parent);
    EXPECT_EQ(3U, CollectPath(tree_, *tree_.FindHead(twice)).size());
    EXPECT_EQ(13U, tree_.FindNode(middle)->lanes[0].end);
    EXPECT_EQ(leaf, OnlyChild(tree_, middle));
  }
  Do(ResolveJoin(tree_, leaf));
  Do(ResolveJoin(tree_, leaf));
  for (const engine::Tree* const tree : {&tree_, &replayed_}) {
    const engine::Node& node = At(*tree, twice);
    EXPECT_EQ(0U, node.lanes[0].start);
    EXPECT_EQ(3U, node.lanes[0].extents.size());
    EXPECT_EQ(8U, node.lanes[0].extents[1].begin);
    EXPECT_EQ(3U, node.lanes[1].extents[1].count);
    EXPECT_EQ(1U, tree->counts().nodes);
  }
  EXPECT_EQ(tree_.counts(), replayed_.counts());
}

TEST_F(JoinOpTest, WhatIsInUseStays) {
  const uint64_t fork = Fork(base_, 10);
  Append(fork, 2);
  const uint64_t parent = NodeOf(base_), node = NodeOf(fork);
  EXPECT_FAILS(ResolveJoin(tree_, node), StatusCode::kNotFound, "others");
  Do(ResolveDrop(tree_, base_));
  tree_.residency().AddUser(parent);
  EXPECT_FAILS(ResolveJoin(tree_, node), StatusCode::kNotFound, "others");
  tree_.residency().RemoveUser(parent);
  EXPECT_OK(ResolveJoin(tree_, node));
  EXPECT_FAILS(ResolveJoin(tree_, parent), StatusCode::kNotFound, "no parent");
  EXPECT_FAILS(ResolveJoin(tree_, 999), StatusCode::kNotFound);
}

TEST_F(JoinOpTest, WhatDoesNotFitIsRefused) {
  const uint64_t fork = Fork(base_, 10);
  Append(fork, 2);
  auto elsewhere = ResolveFork(tree_, fork, 12, "", "tenant");
  Do(elsewhere);
  Append(elsewhere->branch, 2);
  const uint64_t parent = NodeOf(fork), child = NodeOf(elsewhere->branch);
  Do(ResolveDrop(tree_, base_));
  Do(ResolveDrop(tree_, fork));
  EXPECT_FAILS(ResolveJoin(tree_, child), StatusCode::kNotFound, "namespace");
  const auto apply = [&](uint64_t node, uint64_t other) {
    engine::Op op;
    op.kind = engine::OpKind::kJoin;
    op.node = node;
    op.other = other;
    engine::Transaction transaction;
    return engine::TreeChanges(&tree_, &transaction).Apply(op);
  };
  EXPECT_FAILS(apply(child, parent), StatusCode::kCorruption, "namespace");
  EXPECT_FAILS(apply(child, 999), StatusCode::kCorruption, "parent");
  EXPECT_FAILS(apply(999, parent), StatusCode::kCorruption, "parent");
  EXPECT_FAILS(apply(parent, child), StatusCode::kCorruption, "parent");
}

TEST_F(JoinOpTest, ALaneKeepsALengthThatARangeCanName) {
  const uint64_t fork = Fork(base_, 10);
  Append(fork, UINT32_MAX - 9);
  Do(ResolveDrop(tree_, base_));
  EXPECT_FAILS(ResolveJoin(tree_, NodeOf(fork)), StatusCode::kNotFound, "too long");
  Do(ResolveRewind(tree_, fork, UINT32_MAX));
  EXPECT_OK(ResolveJoin(tree_, NodeOf(fork)));
}

}  // namespace
}  // namespace cairn::testing
