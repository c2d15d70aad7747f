// SPDX-License-Identifier: Apache-2.0
//
// A record whose checksum was right and which made node 0, the parent of all nodes without one, was
// accepted: the node was its own parent then, and walks to the root never ended. Now ids that are
// never given are refused, and leave no trace (found by fuzz/tree_ops_fuzz.cc).
#include "engine/tree/ops/decisions.h"
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

class ImpossibleIdTest : public TreeOpTest {
 protected:
  ImpossibleIdTest() : TreeOpTest(/*base_length=*/8) {}
  void ExpectRefused(const Result<engine::Op>& op) {
    ASSERT_OK(op);
    const engine::TreeCounts before = tree_.counts();
    const uint64_t next_id = tree_.next_id();
    {
      engine::Transaction transaction;
      engine::TreeChanges changes(&tree_, &transaction);
      EXPECT_EQ(changes.Apply(*op).code(), StatusCode::kCorruption);
    }
    EXPECT_EQ(tree_.counts(), before);
    EXPECT_EQ(tree_.next_id(), next_id);
  }
};

TEST_F(ImpossibleIdTest, IsRefused) {
  const uint64_t empty = Fork(base_, 0);
  for (const uint64_t id : {uint64_t{0}, uint64_t{1} << 62, UINT64_MAX}) {
    ModelSpec spec = TinyModel();
    spec.identity.name = "another";
    auto model = ResolveModel(tree_, spec);
    model->other = id;
    ExpectRefused(model);
    auto create = ResolveCreate(tree_, tree_.FindHead(base_)->model, "new", "");
    create->branch = id;
    ExpectRefused(create);
    auto fork = ResolveFork(tree_, base_, 3, "", "");
    fork->branch = id;
    ExpectRefused(fork);
    auto append = ResolveAppend(tree_, empty, {{engine::kTokenLane, 0, 0, 4}}, {});
    ASSERT_OK(append);
    ASSERT_NE(append->flags & engine::kOpNewNode, 0);
    append->node = id;
    ExpectRefused(append);
  }
}

}  // namespace
}  // namespace cairn::testing
