// SPDX-License-Identifier: Apache-2.0
//
// Property: when the branch that reached farthest on a node goes, the node is trimmed to what
// others reach of it: tokens, KV, states and spans behind that are dead and come back, at once or
// after any opening; remaining branches read the same bytes and go on.
// Method: branches that leave one early, which then goes; and single ops beside their replay.
#include <algorithm>

#include "engine/tree/memory/liveness.h"
#include "engine/tree/ops/decisions.h"
#include "sim/world.h"
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

// The event between the drop and Compact, or before the drop.
enum class Turn { kNone, kSealedBefore, kClosedAfter, kReplayedAfter, kOpenedTwiceAfter };
constexpr Turn kTurns[] = {Turn::kNone, Turn::kSealedBefore, Turn::kClosedAfter,
                           Turn::kReplayedAfter, Turn::kOpenedTwiceAfter};

uint64_t PositionBytes(const ModelSpec& model) {
  uint64_t bytes = sizeof(TokenId);
  for (const LayerGroup& group : model.groups) bytes += group.token_bytes();
  return bytes;
}

class TrimTest : public WorldTest {
 protected:
  void CheckVerified() {
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages.front().what;
  }
  // Tokens and KV as AppendSome made them by pieces that began there.
  void CheckContent(const Branch& branch, const ModelSpec& model,
                    const std::vector<std::pair<uint64_t, uint64_t>>& begin_and_seed) {
    const uint64_t length = *branch.length();
    std::vector<TokenId> want;
    for (size_t i = 0; i < begin_and_seed.size(); ++i) {
      const auto [begin, seed] = begin_and_seed[i];
      const uint64_t end = i + 1 < begin_and_seed.size() ? begin_and_seed[i + 1].first : length;
      const std::vector<TokenId> some = Tokens(end - begin, seed + begin);
      want.insert(want.end(), some.begin(), some.end());
      EXPECT_TRUE(HasKv(branch, model, begin, end, seed)) << begin;
    }
    EXPECT_EQ(want, *branch.ReadTokens(0, length));
  }
  // Raw bytes of the one model that branches are of.
  void ExpectHeld(uint64_t tokens, const ModelSpec& model) {
    const StoreMetrics metrics = store_.Metrics();
    EXPECT_EQ(tokens, metrics.tokens);
    EXPECT_EQ(tokens * PositionBytes(model), metrics.raw_bytes);
  }

  // From here on content that is in the log and not in the index is replayed: by a copy.
  void Replay() {
    path_ = world_->path() + "-copy" + std::to_string(++copies_);
    ASSERT_OK(store_.Checkpoint(path_));
    OpenAgain();
  }
  void OpenAgain() {
    ASSERT_OK(store_.Close());
    auto opened = path_.empty() ? world_->Open() : Store::Open(path_, world_->options());
    ASSERT_OK(opened);
    store_ = std::move(*opened);
  }

  std::string path_;  // Where the copy that is open lies, if it is one.
  int copies_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Worlds, TrimTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(TrimTest, WhatOnlyADroppedBranchReachedComesBack) {
  for (const ModelSpec& model : {TinyModel(), WideModel(), HybridModel()}) {
    for (const Turn turn : kTurns) {
      SCOPED_TRACE(model.identity.name + ", turn " + std::to_string(static_cast<int>(turn)));
      const ModelId id = Register(model);
      Branch a = Create(id, "a");
      ASSERT_OK(AppendSome(a, model, 0, 150));
      ASSERT_OK(AppendSome(a, model, 150, 250));
      ASSERT_OK_ASSIGN(Branch b, a.ForkAt(4, {.name = "b"}));
      ASSERT_OK_ASSIGN(Branch c, a.ForkAt(8, {.name = "c"}));
      if (turn == Turn::kSealedBefore) {
        ASSERT_OK(store_.Compact());
      }
      ExpectHeld(400, model);
      ASSERT_OK(a.Drop());
      if (turn == Turn::kReplayedAfter) {
        ASSERT_NO_FATAL_FAILURE(Replay());
      }
      const int openings = turn == Turn::kClosedAfter ? 1 : turn == Turn::kOpenedTwiceAfter ? 2 : 0;
      for (int i = 0; i < openings; ++i) ASSERT_NO_FATAL_FAILURE(OpenAgain());
      ASSERT_OK(store_.Compact());
      ExpectHeld(8, model);
      if (turn == Turn::kSealedBefore) {
        EXPECT_GT(store_.Metrics().cut_nodes, 0U);
      }
      EXPECT_LE(store_.Metrics().table_live_bytes, 16 * PositionBytes(model) + 512);
      CheckVerified();
      b = Find("b");
      c = Find("c");
      CheckContent(b, model, {{0, kSeed}});
      CheckContent(c, model, {{0, kSeed}});
      ASSERT_OK(AppendSome(b, model, 4, 6, 21));
      ASSERT_OK(AppendSome(c, model, 8, 5, 22));
      for (int opened = 0; opened < 2; ++opened) {
        ExpectHeld(19, model);
        CheckContent(b, model, {{0, kSeed}, {4, 21}});
        CheckContent(c, model, {{0, kSeed}, {8, 22}});
        ASSERT_OK(store_.Compact());
        CheckVerified();
        ASSERT_NO_FATAL_FAILURE(OpenAgain());
        b = Find("b");
        c = Find("c");
      }
      // Once more, on the same node, and by who has a child on it.
      ASSERT_OK(c.Drop());
      ASSERT_OK(store_.Compact());
      ExpectHeld(10, model);
      CheckContent(b, model, {{0, kSeed}, {4, 21}});
      ASSERT_OK(AppendSome(b, model, 10, 3, 23));
      CheckContent(b, model, {{0, kSeed}, {4, 21}, {10, 23}});
      CheckVerified();
      ASSERT_OK(b.Drop());
      ASSERT_OK(store_.Compact());
      ExpectHeld(0, model);
      EXPECT_EQ(0U, store_.Metrics().nodes);
      EXPECT_EQ(0U, store_.Metrics().table_bytes);
    }
  }
}

// The owner of the node ends within it since it was rewound under another branch. When that one
// goes, the owner is at the end again.
TEST_P(TrimTest, TheOwnerAtTheNewEndGoesOnInPlace) {
  const ModelSpec model = WideModel();
  Branch a = Create(Register(model), "a");
  ASSERT_OK(AppendSome(a, model, 0, 100));
  ASSERT_OK_ASSIGN(Branch b, a.ForkAt(60, {.name = "b"}));
  ASSERT_OK(a.Rewind(10));
  ASSERT_OK(store_.Compact());
  ExpectHeld(60, model);
  ASSERT_OK(b.Drop());
  ASSERT_OK(store_.Compact());
  ExpectHeld(10, model);
  ASSERT_OK(AppendSome(a, model, 10, 30, 31));
  EXPECT_EQ(1U, a.Path()->size());
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(1U, store_.Metrics().nodes);
    ExpectHeld(40, model);
    CheckContent(a, model, {{0, kSeed}, {10, 31}});
    ASSERT_OK(store_.Compact());
    CheckVerified();
    ASSERT_NO_FATAL_FAILURE(OpenAgain());
    a = Find("a");
  }
}

// Nodes that only a dropped branch kept are not kept any more, all the way up.
TEST_P(TrimTest, ANodeIsCutWhenItLosesAChild) {
  const ModelSpec model = WideModel();
  const ModelId id = Register(model);
  for (const bool closed : {false, true}) {
    Branch a = Create(id, "a");
    ASSERT_OK(AppendSome(a, model, 0, 100));
    ASSERT_OK_ASSIGN(Branch b, a.ForkAt(50, {}));
    ASSERT_OK(AppendSome(b, model, 50, 20, 41));
    ASSERT_OK_ASSIGN(Branch c, b.ForkAt(70, {}));
    ASSERT_OK(AppendSome(c, model, 70, 20, 42));
    ASSERT_OK(b.Drop());
    ASSERT_OK(a.Rewind(30));
    ASSERT_OK(store_.Compact());
    ExpectHeld(90, model);
    ASSERT_OK(c.Drop());
    if (closed) {
      ASSERT_NO_FATAL_FAILURE(OpenAgain());
    }
    ASSERT_OK(store_.Compact());
    ExpectHeld(30, model);
    EXPECT_EQ(1U, store_.Metrics().nodes);
    a = Find("a");
    CheckContent(a, model, {{0, kSeed}});
    CheckVerified();
    ASSERT_OK(a.Drop());
  }
}

// Memory has the farthest of those that need a node, and of these all go.
TEST_P(TrimTest, WhoIsTheFarthestIsReadFromTheIndex) {
  const ModelSpec model = TinyModel();
  Branch a = Create(Register(model), "a");
  ASSERT_OK(AppendSome(a, model, 0, 400));
  std::vector<BranchId> forks;
  for (uint64_t at = 1; at <= 300; ++at) {
    ASSERT_OK_ASSIGN(const Branch fork, a.ForkAt(at, {}));
    forks.push_back(fork.id());
  }
  ASSERT_NO_FATAL_FAILURE(OpenAgain());
  ASSERT_OK_ASSIGN(a, store_.FindBranch("a"));
  ASSERT_OK(a.Drop());
  for (uint64_t at = 100; at < 300; ++at) {
    ASSERT_OK_ASSIGN(Branch fork, store_.GetBranch(forks[at]));
    ASSERT_OK(fork.Drop());
  }
  ASSERT_OK(store_.Compact());
  ExpectHeld(100, model);
  ASSERT_OK_ASSIGN(const Branch last, store_.GetBranch(forks[99]));
  CheckContent(last, model, {{0, kSeed}});
  CheckVerified();
}

// KV that lags is trimmed where tokens are; states and spans behind the end go.
TEST_P(TrimTest, StatesAndSpansBehindTheEndGo) {
  const ModelSpec model = TinyModel();
  Branch a = Create(Register(model), "a");
  for (uint64_t turn = 0; turn < 4; ++turn) {
    const std::vector<TokenId> tokens = Tokens(10, turn);
    KvSet kv(model, Layout::kContiguous, 0, 40);
    kv.Write(kSeed, 0, 40);
    const uint64_t kv_begin = turn == 0 ? 0 : 10 * turn - 5;
    Delta delta = MakeDelta(tokens, kv.View(kv_begin, 10 * turn + 5 - kv_begin));
    SamplerState sampler;
    sampler.generator = GeneratorKind::kPhilox;
    sampler.philox_seed = turn;
    delta.sampler = &sampler;
    AppMetadata metadata;
    metadata.bytes.assign(8, std::byte(turn));
    delta.metadata = &metadata;
    const std::vector<ContentSpan> spans = {
        {.begin = 10 * turn, .end = 10 * turn + 10, .hash = {turn, 1}, .atomic = false}};
    delta.spans = spans;
    ASSERT_OK(a.AppendSync(delta));
  }
  ASSERT_OK_ASSIGN(Branch b, a.ForkAt(23, {.name = "b"}));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(a.Drop());
  for (int opened = 0; opened < 2; ++opened) {
    ASSERT_OK(store_.Compact());
    ExpectHeld(23, model);
    EXPECT_EQ(std::vector<uint64_t>{23}, b.Info()->kv_lengths);
    EXPECT_TRUE(HasKv(b, model, 0, 23));
    EXPECT_EQ(20U, b.SamplerAt(23)->position);
    EXPECT_EQ(20U, b.MetadataAt(23)->position);
    ASSERT_OK_ASSIGN(const std::vector<ContentSpan> spans, b.Spans(0, 23));
    ASSERT_EQ(3U, spans.size());
    EXPECT_EQ(23U, spans.back().end);
    CheckVerified();
    ASSERT_NO_FATAL_FAILURE(OpenAgain());
    b = Find("b");
  }
}

// The end of a node that an evicted branch leaves counts as made room.
TEST_P(TrimTest, NoMoreBranchesAreEvictedThanMustBe) {
  const ModelSpec model = TokenModel();
  const ModelId id = Register(model);
  for (int i = 0; i < 6; ++i) {
    const std::string name = std::to_string(i);
    Branch old = Create(id, name);
    ASSERT_OK(AppendSome(old, model, 0, 1000));
    ASSERT_OK(old.ForkAt(4, {.name = "pinned " + name, .keep = {.pinned = true}}));
  }
  ASSERT_OK(store_.SetNamespace("", {.max_bytes = 26'000, .evict = Evict::kBranches}));
  Branch more = Create(id, "more");
  ASSERT_OK(AppendSome(more, model, 0, 1000));
  ASSERT_OK(store_.Compact());
  EXPECT_FAILS(store_.FindBranch("0"), StatusCode::kNotFound);
  EXPECT_OK(store_.FindBranch("5"));
  EXPECT_OK(store_.FindBranch("4"));
  ASSERT_OK_ASSIGN(const BranchPage page, store_.ListBranches("", "", 100));
  const uint64_t whole = page.branches.size() - 6;
  ExpectHeld(whole * 1000 + (7 - whole) * 4, model);
  CheckVerified();
}

// A crash leaves the log, or an index that has the node as untrimmed.
TEST(CutCrash, WhatWasStillToBeCutIsCutAfterIt) {
  const ModelSpec model = WideModel();
  for (const bool flushed : {false, true}) {
    io::SimWorld sim = io::MakeSimWorld(5);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch a, store.CreateBranch(id, {}));
    ASSERT_OK(AppendSome(a, model, 0, 100));
    ASSERT_OK_ASSIGN(Branch b, a.ForkAt(8, {.name = "b"}));
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.PauseBackground());
    ASSERT_OK(a.Drop(Durability::kPower));
    if (flushed) {
      ASSERT_OK(store.Close());
    }
    io::SimWorld crashed = io::CrashWorld(*sim.disk, io::CrashChoice::LoseAll());
    ASSERT_OK(store.Close());
    options.world = std::make_shared<io::World>(crashed.world());
    ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
    ASSERT_OK(store.Compact());
    EXPECT_EQ(8U, store.Metrics().tokens) << flushed;
    EXPECT_LT(store.Metrics().table_bytes, 100'000U);
    ASSERT_OK_ASSIGN(b, store.FindBranch("b"));
    EXPECT_TRUE(HasKv(b, model, 0, 8));
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages.front().what;
    ASSERT_OK(store.Close());
  }
}

// While its parts are written, the branch comes to stand at the end of the node that it owns.
TEST(CutBesideALargeAppend, TheAppendGoesOnThere) {
  const ModelSpec model = TinyModel();
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.allocator = CallingAllocator();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch a, store.CreateBranch(id, {.name = "a"}));
  ASSERT_OK(AppendSome(a, model, 0, 20));
  ASSERT_OK_ASSIGN(Branch b, a.ForkAt(20, {}));
  ASSERT_OK(a.Rewind(10));
  on_allocation = [&] {
    EXPECT_OK(b.Drop());
    EXPECT_OK(store.Compact());
    EXPECT_EQ(10U, store.Metrics().tokens);
  };
  ASSERT_OK(AppendSome(a, model, 10, 4000));
  EXPECT_EQ(nullptr, on_allocation);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(4010U, store.Metrics().tokens);
    EXPECT_TRUE(HasKv(a, model, 0, 4010));
    ASSERT_OK(store.Close());
    ASSERT_OK_ASSIGN(store, world->Open());
    ASSERT_OK_ASSIGN(a, store.FindBranch("a"));
  }
}

class TrimOpTest : public TreeOpTest {
 protected:
  TrimOpTest() : TreeOpTest(20) {}
};

TEST_F(TrimOpTest, ReplayFindsTheSameNodeUntrimmedAndUndoIsWhole) {
  const uint64_t fork = Fork(base_, 7), node = NodeOf(base_);
  EXPECT_EQ(0U, AnyUntrimmed(tree_));
  EXPECT_FAILS(ResolveTrim(tree_, node), StatusCode::kNotFound, "nothing to cut");
  Do(ResolveDrop(tree_, base_));
  EXPECT_EQ(node, AnyUntrimmed(tree_));
  EXPECT_EQ(node, AnyUntrimmed(replayed_));
  EXPECT_FALSE(SettleUntrimmed(&tree_, node));
  const engine::TreeCounts before = tree_.counts();
  ASSERT_OK_ASSIGN(const engine::Op trim, ResolveTrim(tree_, node));
  EXPECT_EQ(7U, trim.position);
  {
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree_, &transaction);
    ASSERT_OK(changes.Apply(trim));
    EXPECT_EQ(7U, tree_.counts().tokens);
    transaction.Rollback();
    EXPECT_EQ(before, tree_.counts());
    EXPECT_EQ(20U, tree_.FindNode(node)->lanes[1].end);
    EXPECT_EQ(1U, tree_.FindNode(node)->samplers.size());
  }
  Do(trim);
  for (engine::Tree* const tree : {&tree_, &replayed_}) {
    EXPECT_EQ(7U, tree->FindNode(node)->lanes[0].end);
    EXPECT_EQ(7U, tree->FindNode(node)->lanes[1].end);
    EXPECT_TRUE(tree->FindNode(node)->samplers.empty());
    EXPECT_TRUE(SettleUntrimmed(tree, node));
    EXPECT_EQ(0U, AnyUntrimmed(*tree));
  }
  EXPECT_EQ(tree_.counts(), replayed_.counts());
  EXPECT_FAILS(ResolveTrim(tree_, node), StatusCode::kNotFound, "nothing to cut");
  EXPECT_EQ(7U, tree_.FindHead(fork)->lengths[1]);
}

// Noted once, and forgotten when it is no more, or needed again up to its end.
TEST_F(TrimOpTest, WhatIsUntrimmedMayGoOrBeNeededAgain) {
  const uint64_t low = Fork(base_, 5), high = Fork(base_, 9), node = NodeOf(base_);
  Do(ResolveRewind(tree_, base_, 12));
  EXPECT_EQ(0U, AnyUntrimmed(tree_)) << "trimmed in place";
  const uint64_t end = Fork(base_, 12);
  Do(ResolveDrop(tree_, base_));
  EXPECT_EQ(0U, AnyUntrimmed(tree_));
  Do(ResolveDrop(tree_, end));
  Do(ResolveDrop(tree_, high));
  EXPECT_EQ(node, AnyUntrimmed(tree_));
  EXPECT_EQ(5U, ResolveTrim(tree_, node)->position);
  Do(ResolveDrop(tree_, low));
  EXPECT_FAILS(ResolveTrim(tree_, node), StatusCode::kNotFound, "nothing to cut");
  EXPECT_TRUE(SettleUntrimmed(&tree_, node));
  EXPECT_EQ(0U, AnyUntrimmed(tree_));
  EXPECT_EQ(0U, tree_.counts().tokens);
}

TEST_F(TrimOpTest, WhatDoesNotFitIsRefused) {
  const auto apply = [&](uint64_t node, uint64_t position) {
    engine::Op op;
    op.kind = engine::OpKind::kTrim;
    op.node = node;
    op.position = position;
    engine::Transaction transaction;
    return engine::TreeChanges(&tree_, &transaction).Apply(op);
  };
  const uint64_t fork = Fork(base_, 10);
  Append(fork, 5);
  const uint64_t node = NodeOf(fork);
  EXPECT_FAILS(apply(999, 12), StatusCode::kCorruption, "no node 999");
  EXPECT_FAILS(apply(node, 9), StatusCode::kCorruption, "not within it");
  EXPECT_FAILS(apply(node, 15), StatusCode::kCorruption, "not within it");
  EXPECT_FAILS(apply(node, 14), StatusCode::kCorruption, "others need");
  Append(Fork(fork, 14), 1);
  Do(ResolveDrop(tree_, fork));
  EXPECT_OK(apply(node, 14));
}

}  // namespace
}  // namespace cairn::testing
