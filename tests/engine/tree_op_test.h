// SPDX-License-Identifier: Apache-2.0
//
// Ops without a store: two trees get the same ones, one of them as a replay does.
#pragma once

#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {

class TreeOpTest : public ::testing::Test {
 protected:
  // One branch of TinyModel, so long.
  explicit TreeOpTest(uint64_t base_length) : base_length_(base_length) {}
  void SetUp() override {
    auto model = ResolveModel(tree_, TinyModel());
    ASSERT_OK(model);
    Do(model);
    auto made = ResolveCreate(tree_, model->other, "", "");
    Do(made);
    base_ = made->branch;
    Append(base_, base_length_);
  }
  void Do(const Result<engine::Op>& op) {
    ASSERT_OK(op);
    for (engine::Tree* const tree : {&tree_, &replayed_}) {
      FieldWriter fields;
      engine::EncodeOp(*op, &fields);
      auto decoded = engine::DecodeOp(fields.bytes());
      ASSERT_OK(decoded);
      engine::Transaction transaction;
      engine::TreeChanges changes(tree, &transaction);
      ASSERT_OK(changes.Apply(*decoded));
      transaction.Commit({.segment = ++records_, .epoch = 1, .offset = 4096, .bytes = 100}, 50);
    }
  }
  void Append(uint64_t branch, uint64_t count) {
    const uint64_t begin = tree_.FindHead(branch)->lengths[0];
    const uint64_t kv = tree_.FindHead(branch)->lengths[1];
    Do(ResolveAppend(tree_, branch,
                     {{engine::kTokenLane, 0, begin, count},
                      {1, 1, kv, begin + count - kv},
                      {engine::kSamplerLane, 2, begin + count, 1}},
                     {}));
  }
  uint64_t Fork(uint64_t branch, uint64_t position) {
    auto op = ResolveFork(tree_, branch, position, "", "");
    Do(op);
    return op->branch;
  }
  uint64_t NodeOf(uint64_t branch) { return tree_.FindHead(branch)->node; }
  const engine::Node& At(const engine::Tree& tree, uint64_t branch) {
    return *tree.FindNode(tree.FindHead(branch)->node);
  }

  const uint64_t base_length_;
  engine::Tree tree_, replayed_;
  uint64_t base_ = 0, records_ = 0;
};

}  // namespace cairn::testing
