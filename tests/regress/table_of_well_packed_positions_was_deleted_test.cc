// SPDX-License-Identifier: Apache-2.0
//
// The bug: what a few positions take up of a fragment was rounded down. Of one that packs well and
// was cut to its first position nothing seemed to be needed, and its table was deleted.
// Method: 4096 equal positions, sealed, cut to one.
#include <algorithm>

#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(TableOfWellPackedPositions, StaysWhileOneIsNeeded) {
  constexpr uint64_t kCount = 4096;
  const ModelSpec spec = TinyModel();
  const KvSet zeros(spec, Layout::kContiguous, 0, 1);
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  KvSet kv(spec, Layout::kContiguous, 0, kCount);  // All zeros.
  const std::vector<TokenId> tokens(kCount, 7);
  ASSERT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, kCount)}));
  ASSERT_OK(store.Compact());
  ASSERT_OK(chat.Rewind(1));
  ASSERT_OK(store.Compact());
  KvSet got(spec, Layout::kContiguous, 0, 1);
  got.Write(3, 0, 1);
  std::vector<TokenId> ids(1);
  EXPECT_OK(chat.Restore({.tokens = ids, .into = got.View(0, 1)}));
  EXPECT_TRUE(got == zeros);
  EXPECT_EQ(7U, ids[0]);
}

}  // namespace
}  // namespace cairn::testing
