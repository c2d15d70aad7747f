// SPDX-License-Identifier: Apache-2.0
//
// Property: a replay, which knows fewer refs than there were, follows the joins and trims that were
// decided on; one that takes away what a branch needs is refused, whatever the checksums say, and
// does not wait for a read to end the process.
#include <memory>
#include <mutex>
#include <vector>

#include "engine/tree/ops/decisions.h"
#include "engine/tree/records/tree_intake.h"
#include "engine/tree/records/tree_keys.h"
#include "engine/tree/records/tree_loader.h"
#include "sim/world.h"
#include "sstable/lsm_index.h"
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

class JoinReplayTest : public TreeOpTest {
 protected:
  static constexpr uint64_t kParent = 100, kChild = 101, kOther = 102;
  static constexpr uint64_t kParentsBranch = 200, kChildsBranch = 201, kOthersBranch = 202;

  JoinReplayTest() : TreeOpTest(10) {}

  // As read from the index: a node with a branch where it ends. Memory knows that one ref, or all
  // of them.
  void Insert(uint64_t id, uint64_t parent, uint64_t begin, uint32_t count, uint64_t branch,
              std::vector<engine::Ref> refs, bool all_refs) {
    const engine::Ref head = {begin + count, engine::Ref::kHead, branch};
    auto node = std::make_unique<engine::Node>();
    node->id = id;
    node->parent = parent;
    node->model = tree_.FindHead(base_)->model;
    for (int lane = 0; lane < 2; ++lane) {
      node->lanes.push_back(
          {begin, begin + count, {{.begin = begin, .count = count, .place = {{1, 1, 4096, 9}}}}});
    }
    node->refs = {refs.begin(), refs.end()};
    node->refs.insert(head);
    node->refs_from = all_refs ? engine::Ref() : head;
    ASSERT_OK(InsertNode(&tree_, std::move(node)));
    engine::Head at;
    at.id = branch;
    at.model = tree_.FindHead(base_)->model;
    at.node = id;
    at.lengths = {head.position, head.position};
    ASSERT_OK(InsertHead(&tree_, std::move(at)));
  }
  // The parent's branch is gone, that of its other child as well; more of that one, memory does not
  // know.
  void InsertThreeAndDropTwo() {
    Insert(kParent, 0, 0, 10, kParentsBranch,
           {{5, engine::Ref::kEdge, kChild}, {6, engine::Ref::kEdge, kOther}}, /*all_refs=*/true);
    Insert(kChild, kParent, 5, 2, kChildsBranch, {}, /*all_refs=*/true);
    Insert(kOther, kParent, 6, 2, kOthersBranch, {}, /*all_refs=*/false);
    Commit(ResolveDrop(tree_, kParentsBranch));
    Commit(ResolveDrop(tree_, kOthersBranch));
    EXPECT_EQ(std::vector<uint64_t>{kOther}, tree_.leftovers().undecided());
  }
  void Commit(const Result<engine::Op>& op) {
    ASSERT_OK(op);
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree_, &transaction);
    ASSERT_OK(changes.Apply(*op));
    transaction.Commit({1, 1, 8192, 100}, 50);
  }
  Status Apply(const engine::Op& op) {
    engine::Transaction transaction;
    return engine::TreeChanges(&tree_, &transaction).Apply(op);
  }
  static engine::Op Join(uint64_t node, uint64_t parent) {
    engine::Op op;
    op.kind = engine::OpKind::kJoin;
    op.node = node;
    op.other = parent;
    return op;
  }
  Status Decide() {
    std::unique_lock lock(mutex_);
    return engine::DecideAll(&tree_, &lock);
  }
  // An index of nothing but these refs of the other child.
  void SetIndex(const std::vector<engine::Ref>& refs) {
    sstable::LsmOptions options;
    options.tables.files = world_.files.get();
    options.tables.directory = "/index";
    options.tables.cache = &cache_;
    options.tables.counters = &counters_;
    ASSERT_OK_ASSIGN(index_, sstable::LsmIndex::Open(options, {}));
    sstable::WriteBatch batch = index_->NewBatch();
    for (const engine::Ref& ref : refs) ASSERT_OK(batch.Put(engine::RefKey(kOther, ref), ""));
    index_->Apply(std::move(batch));
    tree_.SetIndex(index_);
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  io::World world_ = machine_.world();
  sstable::BlockCache cache_{1 << 20};
  sstable::TableCounters counters_;
  std::shared_ptr<sstable::LsmIndex> index_;
  std::mutex mutex_;
};

TEST_F(JoinReplayTest, LearnsThatNothingElseNeedsTheParent) {
  Insert(kParent, 0, 0, 10, kParentsBranch, {}, /*all_refs=*/false);
  Insert(kChild, kParent, 5, 2, kChildsBranch, {}, /*all_refs=*/true);
  Commit(ResolveDrop(tree_, kParentsBranch));
  const std::vector<uint64_t> undecided = {kParent};
  EXPECT_EQ(undecided, tree_.leftovers().undecided());
  EXPECT_FAILS(ResolveJoin(tree_, kChild), StatusCode::kNotFound, "others");
  EXPECT_OK(Apply(Join(kChild, kParent)));  // And rolls it back.
  EXPECT_EQ(undecided, tree_.leftovers().undecided());
  Commit(Join(kChild, kParent));
  EXPECT_TRUE(tree_.leftovers().undecided().empty());
  EXPECT_EQ(nullptr, tree_.FindNode(kParent));
  EXPECT_EQ(0U, tree_.FindNode(kChild)->lanes[0].start);
}

TEST_F(JoinReplayTest, AChildThatIsDeadButNotDecidedKeepsNoParent) {
  InsertThreeAndDropTwo();
  const uint64_t nodes = tree_.counts().nodes;
  Commit(Join(kChild, kParent));
  EXPECT_EQ(nullptr, tree_.FindNode(kParent));
  SetIndex({});
  EXPECT_OK(Decide());
  EXPECT_EQ(nullptr, tree_.FindNode(kOther));
  EXPECT_EQ(nodes - 2, tree_.counts().nodes);
}

TEST_F(JoinReplayTest, AChildThatTurnsOutToLiveBelowAJoinedParentIsDamage) {
  InsertThreeAndDropTwo();
  Commit(Join(kChild, kParent));
  SetIndex({{7, engine::Ref::kHead, 300}});
  EXPECT_FAILS(Decide(), StatusCode::kCorruption, "node 102 is needed");
}

TEST_F(JoinReplayTest, AParentThatOthersNeedIsNotTakenIn) {
  const uint64_t fork = Fork(base_, 10);
  Append(fork, 2);
  const engine::Op join = Join(NodeOf(fork), NodeOf(base_));
  EXPECT_FAILS(Apply(join), StatusCode::kCorruption, "others need");
  const uint64_t second = Fork(base_, 10);
  Append(second, 2);
  Do(ResolveDrop(tree_, base_));
  EXPECT_FAILS(Apply(join), StatusCode::kCorruption, "others need");
  Do(ResolveDrop(tree_, second));
  EXPECT_OK(Apply(join));
}

// A child that is not in memory: nobody dropped its branch.
TEST_F(JoinReplayTest, NorOneThatANodeNeedsThatWasNotRead) {
  Insert(kParent, 0, 0, 10, kParentsBranch,
         {{5, engine::Ref::kEdge, kChild}, {6, engine::Ref::kEdge, kOther}}, /*all_refs=*/true);
  Insert(kChild, kParent, 5, 2, kChildsBranch, {}, /*all_refs=*/true);
  Commit(ResolveDrop(tree_, kParentsBranch));
  EXPECT_FAILS(Apply(Join(kChild, kParent)), StatusCode::kCorruption, "others need");
}

TEST_F(JoinReplayTest, ALaneThatDoesNotBeginOnTheParentIsRefused) {
  Insert(kParent, 0, 0, 10, kParentsBranch, {{10, engine::Ref::kEdge, kChild}}, true);
  auto child = std::make_unique<engine::Node>();
  child->id = kChild;
  child->parent = kParent;
  child->model = tree_.FindHead(base_)->model;
  for (int lane = 0; lane < 2; ++lane) child->lanes.push_back({12, 12, {}});
  EXPECT_FAILS(InsertNode(&tree_, std::move(child)), StatusCode::kCorruption, "does not begin");
}

TEST_F(JoinReplayTest, WhatOthersNeedIsNotCutOff) {
  Append(Fork(base_, 10), 2);
  engine::Op op;
  op.kind = engine::OpKind::kTrim;
  op.node = NodeOf(base_);
  op.position = 8;
  EXPECT_FAILS(Apply(op), StatusCode::kCorruption, "others need");
  op.kind = engine::OpKind::kRewind;
  op.flags = engine::kOpInPlace;
  op.branch = base_;
  EXPECT_FAILS(Apply(op), StatusCode::kCorruption, "others need");
  const engine::TreeCounts before = tree_.counts();
  Do(ResolveRewind(tree_, base_, 8));  // Not in place: it may.
  EXPECT_EQ(before.nodes, tree_.counts().nodes);
}

}  // namespace
}  // namespace cairn::testing
