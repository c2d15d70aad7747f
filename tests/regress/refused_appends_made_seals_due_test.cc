// SPDX-License-Identifier: Apache-2.0
//
// An append's addition to the unsealed content of a node was counted when it was applied, and
// stayed when the log, or a quota, refused it and it was undone. So appends that were tried again
// and again made a seal due that nobody needed; and a node that was to be made got a new id each
// time and was then sealed several times into one table, which crashed.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(RefusedAppendsMadeSealsDue, WhatWasUndoneIsNotCounted) {
  const auto world = TestWorld::Make("simulated");
  Options options = world->options();
  options.snapshot_interval_tokens = 1;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  const ModelSpec spec = WideModel();
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK(store.SetNamespace("t", {.max_bytes = 10'000}));
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, {.ns = "t"}));
  for (int i = 0; i < 300; ++i) {  // 18 MiB; 16 are worth a table.
    ASSERT_FAILS(AppendSome(branch, spec, 0, 8), StatusCode::kNoSpace, "namespace");
  }
  ASSERT_OK(AppendSome(branch, spec, 0, 1));
  world->world().scheduler->Sleep(1'000'000'000);
  EXPECT_EQ(0u, store.Metrics().seals);
  EXPECT_TRUE(HasKv(branch, spec, 0, 1));
}

}  // namespace
}  // namespace cairn::testing
