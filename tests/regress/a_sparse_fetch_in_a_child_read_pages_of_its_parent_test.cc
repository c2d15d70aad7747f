// SPDX-License-Identifier: Apache-2.0
//
// A fetch in a child of fork() went on with the parent's pages, which no child has: it crashed.
#include <gtest/gtest.h>

#include <vector>

#include "cairn/kv_buffer.h"
#include "cairn/sparse.h"
#include "tests/support/child.h"
#include "tests/support/status.h"

namespace cairn::testing {
namespace {

TEST(Regress, ASparseFetchInAChildReadPagesOfItsParent) {
  ASSERT_OK_ASSIGN(const Gpu gpu, Gpu::Simulated(1));
  Options options;
  options.create_if_missing = true;
  options.gpus = {gpu};
  ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", options));
  ModelSpec model;
  model.identity.name = "m";
  model.groups = {LayerGroup::FullAttention(1, 1, 8, Dtype::kBf16)};
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
  const KvBuffer kv(model, 8);
  const std::vector<TokenId> tokens(8);
  Delta delta;
  delta.tokens = tokens;
  delta.kv = kv.view();
  ASSERT_OK(branch.AppendSync(delta));
  const SparseArenaOptions room{.pinned_bytes = 1 << 20, .device_bytes = 1 << 20};
  ASSERT_OK_ASSIGN(SparseArena arena, SparseArena::Make(store, gpu, room));
  ASSERT_OK_ASSIGN(SparseSession session, arena.Open(branch, {.slots = 2, .wanted_max = 1}));
  const uint32_t pieces[] = {0, 1};
  ASSERT_OK(session.Fetch({.pieces = &pieces[0], .count = 1, .stride = 1}));
  const SparseWanted other{.pieces = &pieces[1], .count = 1, .stride = 1};
  EXPECT_TRUE(InChild([&] {
    return session.Fetch(other).status().code() == StatusCode::kInvalidState &&
           session.Prefetch(other).code() == StatusCode::kInvalidState;
  }));
  EXPECT_OK(session.Fetch(other));
}

}  // namespace
}  // namespace cairn::testing
