// SPDX-License-Identifier: Apache-2.0
//
// The bug: content spans of the log were taken as they stood there. A store that somebody made up
// could have more of them in a block of 64 positions than there are positions, and the hash of the
// block wrote beyond what it had for them.
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

class OverlappingSpans : public TreeOpTest {
 protected:
  OverlappingSpans() : TreeOpTest(10) {}
  // An append of 64 tokens with these, as a replay has it.
  Status Replay(std::vector<ContentSpan> spans) {
    auto op = ResolveAppend(tree_, base_, {{engine::kTokenLane, 0, 10, 64}}, {});
    EXPECT_OK(op);
    op->spans = std::move(spans);
    FieldWriter fields;
    engine::EncodeOp(*op, &fields);
    auto decoded = engine::DecodeOp(fields.bytes());
    EXPECT_OK(decoded);
    engine::Transaction transaction;
    engine::TreeChanges changes(&replayed_, &transaction);
    return changes.Apply(*decoded);
  }
};

TEST_F(OverlappingSpans, AreNotReplayed) {
  const ContentSpan whole{.begin = 10, .end = 74, .hash = {1, 2}};
  const ContentSpan first{.begin = 10, .end = 40, .hash = {1, 2}};
  const ContentSpan second{.begin = 39, .end = 74, .hash = {3, 4}};
  const ContentSpan before{.begin = 9, .end = 20, .hash = {1, 2}};
  const ContentSpan behind{.begin = 40, .end = 75, .hash = {1, 2}};
  const ContentSpan empty{.begin = 40, .end = 40, .hash = {1, 2}};
  for (const auto& spans : {std::vector<ContentSpan>(70, whole),
                            {first, second},
                            {second, first},
                            {before},
                            {behind},
                            {empty}}) {
    EXPECT_FAILS(Replay(spans), StatusCode::kCorruption, "spans");
    EXPECT_EQ(tree_.counts(), replayed_.counts());
    EXPECT_EQ(10u, At(replayed_, base_).lanes[engine::kTokenLane].end);
  }
  EXPECT_OK(Replay({whole}));
}

}  // namespace
}  // namespace cairn::testing
