// SPDX-License-Identifier: Apache-2.0
//
// The bug: a restore whose KV does not reach its end is Ok, and nothing but a number in the result
// says that memory was left as it was. RestoreRequest::require_kv makes it an error.
// Method: branches whose KV lags, by rule of the group; each restored with and without.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 20;

class RequireKv : public ::testing::Test {
 protected:
  // A branch with kTokens tokens; of each group, KV of these {first, count} positions.
  void Make(const ModelSpec& spec, const std::vector<std::pair<uint64_t, uint64_t>>& kv_of) {
    spec_ = spec;
    ASSERT_OK_ASSIGN(store_, Store::Open(":memory:", TinyOptions()));
    ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(spec));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(model));
    KvSet kv(spec, Layout::kContiguous, 0, kTokens);
    const std::vector<TokenId> tokens = Tokens(kTokens);
    ASSERT_OK(chat_.AppendSync({.tokens = tokens, .kv = kv.View(kv_of)}));
  }
  // Restores the first `groups` groups.
  Result<RestoreResult> Restore(bool require_kv, uint64_t end = UINT64_MAX, size_t groups = 2) {
    KvSet room(spec_, Layout::kContiguous, 0, kTokens);
    KvView view = *room.View(0, kTokens);
    view.groups = view.groups.first(std::min(groups, view.groups.size()));
    RestoreRequest request;
    request.end = end;
    request.into = &view;
    request.require_kv = require_kv;
    return chat_.Restore(request);
  }

  ModelSpec spec_;
  Store store_;
  Branch chat_;
};

ModelSpec WithGroup(LayerGroup group, bool optional = false) {
  ModelSpec spec = TinyModel();
  group.name = "second";
  group.optional = optional;
  spec.groups.push_back(std::move(group));
  return spec;
}

TEST_F(RequireKv, OfAGroupThatLags) {
  ASSERT_NO_FATAL_FAILURE(Make(TinyModel(), {{0, 13}}));
  ASSERT_OK_ASSIGN(const RestoreResult lax, Restore(false));
  EXPECT_EQ(std::vector<uint64_t>{13}, lax.kv_ends);
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted,
               "group \"" + spec_.groups[0].name + "\" positions [13, 20)");
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted, "restorable up to position 13");
  EXPECT_FAILS(Restore(true, 14), StatusCode::kEvicted, "positions [13, 14)");
  ASSERT_OK_ASSIGN(const RestoreResult strict, Restore(true, 13));
  EXPECT_EQ(std::vector<uint64_t>{13}, strict.kv_ends);
}

TEST_F(RequireKv, OfAGroupOutsideOfTheViewToo) {
  ASSERT_NO_FATAL_FAILURE(
      Make(WithGroup(LayerGroup::FullAttention(1, 1, 8, Dtype::kF16)), {{0, 20}, {0, 5}}));
  EXPECT_OK(Restore(false, 20, 1));
  EXPECT_FAILS(Restore(true, 20, 1), StatusCode::kEvicted, "group \"second\" positions [5, 20)");
  EXPECT_FAILS(Restore(true, 20, 1), StatusCode::kEvicted, "restorable up to position 5");
  EXPECT_OK(Restore(true, 5, 1));
}

TEST_F(RequireKv, OfAnOptionalGroupThatIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(
      Make(WithGroup(LayerGroup::FullAttention(1, 1, 8, Dtype::kF16), true), {{0, 20}, {0, 5}}));
  EXPECT_OK(Restore(false));
  EXPECT_OK(Restore(true, 20, 1));
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted, "group \"second\" positions [5, 20)");
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted, "restorable up to position 5");
  EXPECT_OK(Restore(true, 5));
}

TEST_F(RequireKv, OfAWindowOnlyWhatItNeeds) {
  const LayerGroup window = LayerGroup::SlidingWindow(1, 1, 8, Dtype::kF32, 6, 0);
  ASSERT_NO_FATAL_FAILURE(Make(WithGroup(window), {{0, 20}, {14, 6}}));
  EXPECT_OK(Restore(true));
  ASSERT_NO_FATAL_FAILURE(Make(WithGroup(window), {{0, 20}, {0, 16}}));
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted, "group \"second\" positions [16, 20)");
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted, "restorable up to position 16");
  EXPECT_OK(Restore(true, 16));
}

TEST_F(RequireKv, OfAStateThatWasNeverGiven) {
  ASSERT_NO_FATAL_FAILURE(Make(WithGroup(LayerGroup::Recurrent(1, 40)), {{0, 20}, {9, 1}}));
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted, "group \"second\" positions [19, 20)");
  EXPECT_FAILS(Restore(true), StatusCode::kEvicted, "restorable up to position 10");
  EXPECT_OK(Restore(true, 10));
}

}  // namespace
}  // namespace cairn::testing
