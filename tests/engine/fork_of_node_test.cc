// SPDX-License-Identifier: Apache-2.0
//
// Property: a fork can name a node instead of a branch, and is then what a fork of a branch that
// ends with all of that node would be; a record of one does the same in a replay, and one that does
// not fit the tree is refused.
// Method: ops without a store, on two trees.
#include "engine/tree/memory/path.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "engine/tree/records/tree_loader.h"
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

class ForkOfNodeTest : public TreeOpTest {
 protected:
  ForkOfNodeTest() : TreeOpTest(10) {}
  uint64_t ForkNode(uint64_t node, uint64_t position, const std::string& name = "") {
    auto op = ResolveForkOfNode(tree_, node, position, name, "");
    Do(op);
    return op.ok() ? op->branch : 0;
  }
};

TEST_F(ForkOfNodeTest, IsAForkOfABranchThatEndsThere) {
  const uint64_t first = NodeOf(base_);
  const uint64_t other = Fork(base_, 6);
  Append(other, 5);
  const uint64_t second = NodeOf(other);
  ASSERT_NE(first, second);
  for (const auto& [node, branch, position] :
       std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>{{first, base_, 0},
                                                             {first, base_, 4},
                                                             {first, base_, 10},
                                                             {second, other, 6},
                                                             {second, other, 7},
                                                             {second, other, 11}}) {
    SCOPED_TRACE(std::to_string(node) + " at " + std::to_string(position));
    const uint64_t of_branch = Fork(branch, position), of_node = ForkNode(node, position);
    for (const engine::Tree* const tree : {&tree_, &replayed_}) {
      const engine::Head& want = *tree->FindHead(of_branch);
      const engine::Head& got = *tree->FindHead(of_node);
      EXPECT_EQ(want.node, got.node);
      EXPECT_EQ(want.lengths, got.lengths);
      EXPECT_EQ(want.model, got.model);
      EXPECT_TRUE(got.reused);
      if (got.node != 0) {
        EXPECT_TRUE(
            tree->FindNode(got.node)->refs.contains({position, engine::Ref::kHead, of_node}));
      }
    }
    Append(of_node, 3);
    EXPECT_EQ(position + 3, tree_.FindHead(of_node)->lengths[0]);
  }
}

// The branch that it was found by is gone; the node lives on by what was forked.
TEST_F(ForkOfNodeTest, KeepsTheNode) {
  const uint64_t node = NodeOf(base_);
  const uint64_t fork = ForkNode(node, 8);
  Do(ResolveDrop(tree_, base_));
  for (const engine::Tree* const tree : {&tree_, &replayed_}) {
    ASSERT_NE(nullptr, tree->FindNode(node));
    EXPECT_EQ(8u, CollectLane(*tree, *tree->FindHead(fork), 1, 0, 8).back().end);
  }
  Do(ResolveDrop(tree_, fork));
  EXPECT_EQ(nullptr, tree_.FindNode(node));
  EXPECT_FAILS(ResolveForkOfNode(tree_, node, 3, "", ""), StatusCode::kNotFound,
               "node " + std::to_string(node));
}

TEST_F(ForkOfNodeTest, WhatDoesNotFitIsRefused) {
  const uint64_t first = NodeOf(base_), other = Fork(base_, 6);
  Append(other, 5);
  const uint64_t second = NodeOf(other);
  EXPECT_FAILS(ResolveForkOfNode(tree_, 999, 3, "", ""), StatusCode::kNotFound, "node 999");
  EXPECT_FAILS(ResolveForkOfNode(tree_, first, 11, "", ""), StatusCode::kInvalidArgument,
               "position 11");
  EXPECT_FAILS(ResolveForkOfNode(tree_, second, 5, "", ""), StatusCode::kInvalidArgument,
               "position 5");
  ForkNode(first, 2, "name");
  EXPECT_FAILS(ResolveForkOfNode(tree_, first, 2, "name", ""), StatusCode::kAlreadyExists, "name");
  const auto does_not_apply = [&](auto change, const std::string& what) {
    auto op = ResolveForkOfNode(tree_, second, 8, "", "");
    ASSERT_OK(op);
    EXPECT_EQ(engine::NeedsOf(*op).nodes, std::vector<uint64_t>{second});
    change(*op);
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree_, &transaction);
    EXPECT_FAILS(changes.Apply(*op), StatusCode::kCorruption, what);
  };
  does_not_apply([](engine::Op& op) { op.source_node = 999; }, "no source node 999");
  does_not_apply([&](engine::Op& op) { op.other = base_; }, "no source node");
  does_not_apply([](engine::Op& op) { op.position = 12; }, "position beyond");
  does_not_apply([&](engine::Op& op) { op.node = first; }, "another node");
}

// An atomic span is not cut.
TEST_F(ForkOfNodeTest, NotInsideAnAtomicSpan) {
  Do(ResolveAppend(tree_, base_, {{engine::kTokenLane, 0, 10, 6}},
                   {{.begin = 11, .end = 14, .atomic = true}}));
  const uint64_t node = NodeOf(base_);
  EXPECT_FAILS(ResolveForkOfNode(tree_, node, 12, "", ""), StatusCode::kInvalidArgument, "atomic");
  ForkNode(node, 11);
  ForkNode(node, 14);
}

}  // namespace
}  // namespace cairn::testing
