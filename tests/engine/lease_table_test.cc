// SPDX-License-Identifier: Apache-2.0
//
// Property: what is leased stays as it is until the lease is over, and nothing else is held back.
// Method: the table alone, and each of the four decisions that ask it, beside a replay that does
// not.
#include "engine/tree/memory/lease_table.h"
#include "engine/tree/ops/decisions.h"

#include "engine/tree/memory/liveness.h"
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

TEST(LeaseTable, HoldsANodeUpToTheFarthestOfItsLeases) {
  engine::LeaseTable leases;
  EXPECT_EQ(0U, leases.LeasedTo(7));
  const uint64_t far = leases.Grant({7, 20}, 100);
  leases.Grant({7, 5}, 200);
  leases.Grant({8, 3}, 300);
  EXPECT_EQ(20U, leases.LeasedTo(7));
  EXPECT_EQ(3U, leases.LeasedTo(8));
  leases.Release(far);
  EXPECT_EQ(5U, leases.LeasedTo(7));
  leases.Release(far);  // It is over.
  EXPECT_EQ(2U, leases.size());
}

TEST(LeaseTable, EndsWithItsDeadlineUnlessItIsRenewed) {
  engine::LeaseTable leases;
  const uint64_t first = leases.Grant({1, 10}, 100);
  const uint64_t second = leases.Grant({1, 5}, 100);
  leases.Expire(99);
  EXPECT_EQ(10U, leases.LeasedTo(1));
  EXPECT_TRUE(leases.Renew(second, 200));
  leases.Expire(100);
  EXPECT_EQ(5U, leases.LeasedTo(1));
  EXPECT_FALSE(leases.Renew(first, 300));
  leases.Expire(200);
  EXPECT_EQ(0U, leases.LeasedTo(1));
  EXPECT_EQ(0U, leases.size());
}

TEST(LeaseTable, EndsManyInSteps) {
  engine::LeaseTable leases;
  for (uint64_t i = 0; i < 1000; ++i) leases.Grant({1 + i, 10}, 100 + i % 2);
  leases.Expire(99);
  EXPECT_EQ(1000U, leases.size());
  size_t calls = 0;
  for (size_t before = 1000; leases.size() > 500; before = leases.size(), ++calls) {
    leases.Expire(100);
    ASSERT_LT(leases.size(), before);
  }
  EXPECT_GT(calls, 1U) << "a commit waits for all of them";
  leases.Expire(100);
  EXPECT_EQ(500U, leases.size());
}

TEST(LeaseTable, HoldsTwoPartsAndGivesNoNumberTwice) {
  engine::LeaseTable leases;
  const engine::LeasedPart both[] = {{7, 20, 3}, {3, 9, 2}};
  const uint64_t first = leases.Grant(both, 100);
  const uint64_t second = leases.Grant({3, 4, 6}, 100);
  EXPECT_EQ(20U, leases.LeasedTo(7));
  EXPECT_EQ(9U, leases.LeasedTo(3));
  EXPECT_EQ(11U, leases.bytes());
  EXPECT_TRUE(leases.Holds(first, 7, 20));
  EXPECT_FALSE(leases.Holds(first, 3, 9));
  leases.Release(first);
  EXPECT_EQ(0U, leases.LeasedTo(7));
  EXPECT_EQ(4U, leases.LeasedTo(3));
  leases.EndAll();
  EXPECT_EQ(0U, leases.LeasedTo(3));
  EXPECT_EQ(0U, leases.size());
  EXPECT_EQ(0U, leases.bytes());
  EXPECT_GT(leases.Grant({3, 4}, 100), second);
}

TEST(LeaseTable, ALargeOneGrowsAndEndsInSteps) {
  engine::LeaseTable leases;
  const uint64_t lease = leases.Grant({1, 10, 7}, 100);
  std::vector<engine::LeasedPart> more;
  for (uint64_t node = 1; node <= 300; ++node) more.push_back({node, 20, 1});
  EXPECT_TRUE(leases.Extend(lease, more));
  EXPECT_EQ(20U, leases.LeasedTo(1));
  EXPECT_EQ(301U, leases.parts());
  EXPECT_EQ(307U, leases.bytes());
  EXPECT_FALSE(leases.ReleaseSome(lease, 100));
  EXPECT_EQ(201U, leases.parts());
  EXPECT_EQ(0U, leases.LeasedTo(300)) << "the last first";
  EXPECT_EQ(20U, leases.LeasedTo(200));
  // It is over, and what is left of it ends as time goes on.
  EXPECT_FALSE(leases.Renew(lease, 500));
  EXPECT_FALSE(leases.Extend(lease, more));
  EXPECT_FALSE(leases.Holds(lease, 1, 10));
  for (int i = 0; i < 3; ++i) leases.Expire(1);
  EXPECT_EQ(1U, leases.size()) << "a commit waits for all of them";
  leases.Expire(1);
  EXPECT_EQ(0U, leases.size());
  EXPECT_EQ(0U, leases.parts());
  EXPECT_EQ(0U, leases.bytes());
  EXPECT_EQ(0U, leases.LeasedTo(1));
  EXPECT_TRUE(leases.ReleaseSome(lease, 1)) << "of one that is over";
}

TEST(LeaseTable, EndsWithTheNodes) {
  engine::LeaseTable leases;
  const engine::LeasedPart both[] = {{7, 20, 5}, {3, 9, 2}};
  const uint64_t hit = leases.Grant(both, 100, engine::LeaseTable::EndsWith::kAnyPart);
  const uint64_t objects = leases.Grant(both, 100);
  const uint64_t other = leases.Grant({3, 4, 1}, 100);
  leases.OnNodeDied(8);
  EXPECT_EQ(15U, leases.bytes());
  leases.OnNodeDied(7);
  EXPECT_EQ(3U, leases.bytes());
  EXPECT_EQ(2U, leases.parts());
  EXPECT_EQ(2U, leases.size());
  EXPECT_EQ(0U, leases.LeasedTo(7));
  EXPECT_EQ(9U, leases.LeasedTo(3));
  EXPECT_FALSE(leases.Renew(hit, 200));
  EXPECT_TRUE(leases.Renew(objects, 200));
  leases.OnNodeDied(3);
  EXPECT_FALSE(leases.Renew(objects, 300));
  EXPECT_FALSE(leases.Renew(other, 300));
  EXPECT_EQ(0U, leases.size());
  EXPECT_EQ(0U, leases.bytes());
  leases.Release(objects);
  leases.Expire(400);
}

// Their bytes leave at once, and the leases themselves as time goes on.
TEST(LeaseTable, ManyEndWithANodeInSteps) {
  engine::LeaseTable leases;
  uint64_t last = 0;
  for (uint64_t i = 0; i < 1000; ++i) last = leases.Grant({1, 1 + i, 3}, 100);
  const engine::LeasedPart parts[] = {{1, 5, 7}, {2, 5, 7}};
  const uint64_t both = leases.Grant(parts, 100);
  leases.OnNodeDied(1);
  EXPECT_EQ(7U, leases.bytes());
  EXPECT_EQ(1U, leases.parts());
  EXPECT_GT(leases.size(), 500U) << "a commit waits for all of them";
  leases.Release(last);  // Before it was settled.
  while (!leases.SettleDead(100)) {
  }
  EXPECT_EQ(1U, leases.size());
  EXPECT_TRUE(leases.Renew(both, 200));
  leases.Release(both);
  EXPECT_EQ(0U, leases.bytes());
  EXPECT_EQ(0U, leases.parts());
}

class LeaseOpTest : public TreeOpTest {
 protected:
  LeaseOpTest() : TreeOpTest(20) {}
};

TEST_F(LeaseOpTest, ARewindAndATrimLeaveIt) {
  const uint64_t node = NodeOf(base_);
  const uint64_t lease = tree_.leases().Grant({node, 15}, 100);
  EXPECT_NE(0, ResolveRewind(tree_, base_, 15)->flags & engine::kOpInPlace) << "not beyond it";
  ASSERT_OK_ASSIGN(const engine::Op rewind, ResolveRewind(tree_, base_, 14));
  EXPECT_EQ(0, rewind.flags & engine::kOpInPlace);
  Do(rewind);
  for (const engine::Tree* const tree : {&tree_, &replayed_}) {
    EXPECT_EQ(20U, tree->FindNode(node)->lanes[0].end);
    EXPECT_EQ(14U, tree->FindHead(base_)->lengths[0]);
  }
  ASSERT_EQ(node, AnyUntrimmed(tree_));
  ASSERT_OK_ASSIGN(const engine::Op trim, ResolveTrim(tree_, node));
  EXPECT_EQ(15U, trim.position);
  Do(trim);
  EXPECT_EQ(0U, AnyUntrimmed(tree_)) << "it is leased up to its end";
  EXPECT_FAILS(ResolveTrim(tree_, node), StatusCode::kNotFound, "nothing to cut");
  EXPECT_EQ(tree_.counts(), replayed_.counts());
  tree_.leases().Release(lease);
  EXPECT_EQ(node, AnyUntrimmed(tree_));
  EXPECT_EQ(14U, ResolveTrim(tree_, node)->position);
}

TEST_F(LeaseOpTest, AJoinLeavesAParentThatIsLeased) {
  const uint64_t fork = Fork(base_, 10);
  Append(fork, 2);
  const uint64_t parent = NodeOf(base_), child = NodeOf(fork);
  Do(ResolveDrop(tree_, base_));
  tree_.leases().Grant({parent, 12}, 100);
  EXPECT_FAILS(ResolveJoin(tree_, child), StatusCode::kNotFound, "leased");
  tree_.leases().Expire(100);
  tree_.leases().Grant({child, 11}, 200);
  EXPECT_OK(ResolveJoin(tree_, child));
}

TEST_F(LeaseOpTest, AnEvictionTakesWhatLiesBehindIt) {
  const uint64_t node = NodeOf(base_);
  const uint64_t lease = tree_.leases().Grant({node, 12}, 100);
  engine::EvictNeeds missing;
  ASSERT_OK_ASSIGN(const engine::Op part, ResolveEvict(tree_, base_, 100, &missing));
  ASSERT_EQ(1U, part.sealed.size());
  EXPECT_EQ(12U, part.sealed[0].begin);
  EXPECT_EQ(8U, part.sealed[0].count);
  Do(part);
  tree_.leases().Release(lease);
  ASSERT_OK_ASSIGN(const engine::Op rest, ResolveEvict(tree_, base_, 100, &missing));
  ASSERT_EQ(2U, rest.sealed.size());
  EXPECT_EQ(0U, rest.sealed[0].begin);
  EXPECT_EQ(engine::kWholeNodeLane, rest.sealed[1].lane);
}

}  // namespace
}  // namespace cairn::testing
