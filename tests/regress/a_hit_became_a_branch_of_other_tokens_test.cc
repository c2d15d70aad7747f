// SPDX-License-Identifier: Apache-2.0
//
// A hit names a node and a position. Without a lease the node's owner may rewind in place and
// append other tokens under the same number: a fork of the hit, or a restore, then had KV of these,
// as if it were that of the prompt. Now a hit is checked again before it is used.
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class AHit : public FindTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, AHit, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(AHit, IsABranchOfItsTokensOrNone) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch chat = Make("chat", ids);
  const PrefixHit hit = Ask(ids);
  ASSERT_EQ(300u, hit.matched);
  ExpectForks(hit, ids, 300);
  ASSERT_OK(chat.Rewind(100));
  ASSERT_OK(Append(chat, Tokens(200, 6), kSeed + 1));
  KvSet got(spec_, Layout::kContiguous, 0, 300);
  RestoreRequest request;
  request.into = got.View(0, 300);
  for (const char* when : {"at once", "sealed", "opened again"}) {
    SCOPED_TRACE(when);
    if (std::string(when) == "sealed") {
      ASSERT_OK(store_.Compact());
    } else if (std::string(when) == "opened again") {
      ASSERT_NO_FATAL_FAILURE(Reopen());
    }
    EXPECT_FAILS(store_.Fork(hit, 300), StatusCode::kConflict, "other tokens");
    EXPECT_FAILS(store_.Fork(hit, 50), StatusCode::kConflict, "other tokens");
    EXPECT_FAILS(store_.Restore(hit, request), StatusCode::kConflict, "other tokens");
  }
  EXPECT_TRUE(got == KvSet(spec_, Layout::kContiguous, 0, 300)) << "something was written";
}

TEST_P(AHit, OfWhatWasOnlyRewound) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch chat = Make("chat", ids);
  const PrefixHit hit = Ask(ids);
  ASSERT_OK(chat.Rewind(299));
  EXPECT_FAILS(store_.Fork(hit, 100), StatusCode::kConflict, "does not reach");
  ASSERT_OK(Append(chat, std::span(ids).subspan(299)));  // The same again.
  ExpectForks(hit, ids, 300);
}

TEST_P(AHit, OfWhatWasDropped) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch chat = Make("chat", ids);
  const PrefixHit hit = Ask(ids);
  ASSERT_OK(chat.Drop());
  for (uint64_t i = 0; i < 20; ++i) Make("other-" + std::to_string(i), Tokens(300, 50 + i));
  EXPECT_FAILS(store_.Fork(hit, 300), StatusCode::kNotFound, "does not exist");
}

// Pictures count as ids do.
TEST_P(AHit, OfAnotherPicture) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  const ContentSpan cat{.begin = 200, .end = 280, .hash = {1, 1}};
  const ContentSpan dog{.begin = 200, .end = 280, .hash = {1, 2}};
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_, {.name = "chat"}));
  ASSERT_OK(Append(chat, ids, kSeed, {{cat}}));
  PrefixQuery query = Query(ids);
  query.spans = {&cat, 1};
  const PrefixHit hit = Ask(query);
  ASSERT_EQ(300u, hit.matched);
  ASSERT_OK(chat.Rewind(150));
  const ContentSpan dogs[] = {dog};
  ASSERT_OK(Append(chat, std::span(ids).subspan(150), kSeed, dogs));
  EXPECT_FAILS(store_.Fork(hit, 300), StatusCode::kConflict, "other tokens");
}

}  // namespace
}  // namespace cairn::testing
