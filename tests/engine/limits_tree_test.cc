// SPDX-License-Identifier: Apache-2.0
//
// Property: a gap of more positions than an extent counts is refused as what it is, a mistake of
// the caller, and one of just as many is taken. Method: a tree without a store, since its tokens
// alone would be 16 GiB.
#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(LimitsTreeTest, AGapIsAsLongAsAnExtent) {
  engine::Tree tree;
  uint64_t records = 0;
  const auto apply = [&](const Result<engine::Op>& op) {
    ASSERT_OK(op);
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree, &transaction);
    ASSERT_OK(changes.Apply(*op));
    transaction.Commit({.segment = 1, .epoch = 1, .offset = 4096, .bytes = 64}, 0);
    ++records;
  };
  ModelSpec spec = TokenModel();
  spec.groups = {LayerGroup::SlidingWindow(1, 1, 8, Dtype::kBf16, 16, 0)};
  const auto model = ResolveModel(tree, spec);
  apply(model);
  const auto made = ResolveCreate(tree, model->other, "", "");
  apply(made);
  const auto append = [&](uint32_t lane, uint64_t begin, uint64_t count) {
    return ResolveAppend(tree, made->branch, {{lane, 0, begin, count}}, {});
  };
  uint64_t length = 0;
  for (int i = 0; i < 260; ++i, length += kMaxAppendTokens) {
    apply(append(engine::kTokenLane, length, kMaxAppendTokens));
  }
  const uint64_t longest = UINT32_MAX;
  EXPECT_FAILS(append(1, longest + 1, 1), StatusCode::kInvalidArgument, "more than a gap may be");
  apply(append(1, longest, 1));
  EXPECT_EQ(longest + 1, tree.FindHead(made->branch)->lengths[1]);
  EXPECT_EQ(263u, records);
}

}  // namespace
}  // namespace cairn::testing
