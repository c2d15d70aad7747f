// SPDX-License-Identifier: Apache-2.0
//
// The bug: where the content of a node lies takes memory, which counted when the node was made or
// written to the index, but not when it grew. So what was appended to in many steps since then was
// beyond tree_memory_bytes, and the metric showed less.
// Method: a thousand appends to one branch, while the index gets nothing.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(ANodeThatGrewWasNotCounted, ByItsAppends) {
  constexpr uint64_t kAppends = 1000;
  constexpr uint64_t kExtentBytes = 64;  // Each takes more than this, with its place.
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.snapshot_interval_tokens = options.max_delta_chain = 0;
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK(store.PauseBackground());
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id));
  const std::vector<TokenId> tokens = Tokens(1);
  for (uint64_t i = 0; i < kAppends; ++i) ASSERT_OK(chat.AppendSync(MakeDelta(tokens)));
  EXPECT_GT(store.Metrics().tree_memory_bytes, kAppends * kExtentBytes);
}

}  // namespace
}  // namespace cairn::testing
