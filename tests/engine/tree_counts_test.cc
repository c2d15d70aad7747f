// SPDX-License-Identifier: Apache-2.0
//
// Property: the tree's counts of branches, nodes, lanes, extents, tokens and raw bytes are those of
// a walk over all nodes, after every op, and after every rollback as they were before. Method:
// random ops from a seed, resolved as live changes are, some committed and some rolled back, alone
// and several in one transaction, with parts of large appends and with ops that do not fit.
#include <gtest/gtest.h>

#include <random>

#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::engine {
namespace {

TreeCounts Walk(const Tree& tree) {
  TreeCounts counts;
  for (uint64_t id = 1; id < tree.next_id(); ++id) {
    counts.branches += tree.FindHead(id) != nullptr ? 1 : 0;
    const Node* node = tree.FindNode(id);
    if (node == nullptr) continue;
    ++counts.nodes;
    const auto model = tree.FindModel(node->model);
    for (size_t i = 0; i < node->lanes.size(); ++i) {
      uint64_t positions = 0;
      for (const Extent& extent : node->lanes[i].extents) positions += extent.count;
      if (i == kTokenLane) {
        counts.tokens += positions;
        counts.raw_bytes += 4 * positions;
        continue;
      }
      counts.kv_lanes += node->lanes[i].extents.empty() ? 0 : 1;
      counts.kv_extents += node->lanes[i].extents.size();
      counts.raw_bytes += positions * model->groups[i - 1].token_bytes();
    }
  }
  return counts;
}

class TreeCountsTest : public ::testing::Test {
 protected:
  uint64_t Draw(uint64_t below) { return random_() % below; }

  void Register(const ModelSpec& spec) {
    auto op = ResolveModel(tree_, spec);
    ASSERT_OK(op);
    Transaction transaction;
    TreeChanges changes(&tree_, &transaction);
    ASSERT_OK(changes.Apply(*op));
    Commit(&transaction);
    models_.push_back(op->other);
  }

  void Commit(Transaction* transaction) {
    transaction->Commit({.segment = 1, .epoch = 1, .offset = 4096, .bytes = 100}, 50);
  }

  // Branches as they are now; ids are never reused.
  std::vector<uint64_t> Branches() {
    std::vector<uint64_t> branches;
    for (uint64_t id = 1; id < tree_.next_id(); ++id) {
      if (tree_.FindHead(id) != nullptr) branches.push_back(id);
    }
    return branches;
  }

  // Tokens for all lanes, or for the token lane alone, so that KV lags.
  std::vector<LaneRange> Ranges(const Head& head, uint64_t count) {
    std::vector<LaneRange> lanes;
    const bool fill = head.lengths.size() > 1 && head.lengths[1] < head.lengths[0];
    if (!fill || Draw(2) == 0) {
      lanes.push_back({.lane = kTokenLane, .begin = head.lengths[0], .count = count});
    }
    const uint64_t end = head.lengths[0] + (lanes.empty() ? 0 : count);
    for (uint32_t lane = 1; lane < head.lengths.size() && Draw(4) != 0; ++lane) {
      if (head.lengths[lane] == end) continue;
      lanes.push_back(
          {.lane = lane, .begin = head.lengths[lane], .count = end - head.lengths[lane]});
    }
    return lanes;
  }

  Result<Op> Choose() {
    const std::vector<uint64_t> branches = Branches();
    const uint64_t model = models_[Draw(models_.size())];
    if (branches.empty() || Draw(12) == 0) return ResolveCreate(tree_, model, "", "");
    const uint64_t branch = branches[Draw(branches.size())];
    const Head& head = *tree_.FindHead(branch);
    const uint64_t position = Draw(head.lengths[0] + 1);
    switch (Draw(10)) {
      case 0:
      case 1: return ResolveFork(tree_, branch, position, "", "");
      case 2:
      case 3: return ResolveRewind(tree_, branch, position);
      case 4:
        return branches.size() > 6 ? ResolveDrop(tree_, branch)
                                   : ResolveRewind(tree_, branch, head.lengths[0]);
      default: return ResolveAppend(tree_, branch, Ranges(head, 1 + Draw(5)), {});
    }
  }

  Result<Op> ChooseJoin() {
    for (uint64_t id = 1; id < tree_.next_id(); ++id) {
      if (auto op = ResolveJoin(tree_, id); op.ok()) return op;
    }
    return Choose();
  }

  std::mt19937_64 random_{20'261'121};
  Tree tree_;
  std::vector<uint64_t> models_;
};

TEST_F(TreeCountsTest, AreThoseOfAWalkAfterEveryStep) {
  Register(testing::TinyModel());
  Register(testing::HybridModel());
  Register(testing::TokenModel());
  uint64_t rolled_back = 0, most_extents = 0, joined = 0;
  for (int round = 0; round < 4000; ++round) {
    const TreeCounts before = tree_.counts();
    Transaction transaction;
    TreeChanges changes(&tree_, &transaction);
    const uint64_t ops = 1 + Draw(4);
    for (uint64_t i = 0; i < ops; ++i) {
      const auto op = i == 0 && Draw(4) == 0 ? ChooseJoin() : Choose();
      ASSERT_OK(op);
      ASSERT_OK(changes.Apply(*op));
      ASSERT_EQ(Walk(tree_), tree_.counts()) << "round " << round << ", op " << i;
      if (op->kind != OpKind::kJoin) continue;
      ++joined;
      break;  // It is always alone.
    }
    if (Draw(3) == 0) {
      transaction.Rollback();
      ASSERT_EQ(before, tree_.counts()) << "round " << round;
      ++rolled_back;
    } else {
      Commit(&transaction);
    }
    ASSERT_EQ(Walk(tree_), tree_.counts()) << "round " << round;
    most_extents = std::max(most_extents, tree_.counts().kv_extents);
  }
  EXPECT_GT(rolled_back, 1000u);
  EXPECT_GT(most_extents, 100u);
  EXPECT_GT(joined, 50u);
  for (const uint64_t branch : Branches()) {
    const auto op = ResolveDrop(tree_, branch);
    Transaction transaction;
    TreeChanges changes(&tree_, &transaction);
    ASSERT_OK(changes.Apply(*op));
    Commit(&transaction);
  }
  EXPECT_EQ(TreeCounts(), tree_.counts()) << "nothing is left";
}

TEST_F(TreeCountsTest, PartsCountAndWhatDoesNotFitLeavesNoTrace) {
  Register(testing::TinyModel());
  Transaction create;
  TreeChanges create_changes(&tree_, &create);
  const auto made = ResolveCreate(tree_, models_[0], "", "");
  ASSERT_OK(made);
  ASSERT_OK(create_changes.Apply(*made));
  Commit(&create);

  // A large append: eight positions of KV in two parts, the rest with its tokens.
  auto op = ResolveAppend(tree_, made->branch, {{.lane = kTokenLane, .begin = 0, .count = 10}}, {});
  ASSERT_OK(op);
  const wal::Location at{.segment = 1, .epoch = 1, .offset = 8192, .bytes = 500};
  const std::vector<Part> parts = {
      {.location = at, .lanes = {{.lane = 1, .begin = 0, .count = 4}}, .prefix_bytes = {500}},
      {.location = at, .lanes = {{.lane = 1, .begin = 4, .count = 4}}, .prefix_bytes = {500}}};
  {
    Transaction transaction;
    TreeChanges changes(&tree_, &transaction);
    ASSERT_OK(changes.Apply(*op, parts));
    EXPECT_EQ((TreeCounts{.branches = 1,
                          .nodes = 1,
                          .kv_lanes = 1,
                          .kv_extents = 2,
                          .tokens = 10,
                          .raw_bytes = 40 + 8 * 64}),
              tree_.counts());
  }  // Rolls back.
  EXPECT_EQ(TreeCounts{.branches = 1}, tree_.counts());

  // The second lane range does not go on where the first ended.
  op->lanes.push_back({.lane = 1, .begin = 0, .count = 3});
  op->lanes.push_back({.lane = 1, .begin = 5, .count = 3});
  {
    Transaction transaction;
    TreeChanges changes(&tree_, &transaction);
    EXPECT_FAILS(changes.Apply(*op), StatusCode::kCorruption, "does not go on");
    EXPECT_EQ(Walk(tree_), tree_.counts());
  }
  EXPECT_EQ(TreeCounts{.branches = 1}, tree_.counts());
}

}  // namespace
}  // namespace cairn::engine
