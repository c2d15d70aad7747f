// SPDX-License-Identifier: Apache-2.0
//
// Property: a composition is the documents' ids in a row, and its plan loads of each what has exact
// KV, without a search; what is missing or wrong is named.
#include "tests/engine/blend_test.h"

namespace cairn::testing {
namespace {

class ComposeTest : public BlendTest {
 protected:
  void SetUp() override {
    BlendTest::SetUp();
    if (IsSkipped()) return;
    // No index is asked.
    ASSERT_OK(store_.SetNamespace("docs", NamespacePolicy()));
    a_ = Tokens(200, 5);
    b_ = Tokens(300, 6);
    Make("doc/a", a_, "docs");
    Make("doc/b", b_, "docs");
  }
  ComposeRequest RequestOf(std::vector<ComposeDocument> documents) const {
    ComposeRequest request;
    request.model = model_;
    request.ns = "docs";
    request.documents = std::move(documents);
    request.separator = mark_;
    request.question = question_;
    return request;
  }
  Status StatusOf(std::vector<ComposeDocument> documents) {
    return store_.Compose(RequestOf(std::move(documents))).status();
  }

  const std::vector<TokenId> mark_ = {7, 8, 9}, question_ = Tokens(40, 9);
  std::vector<TokenId> a_, b_;
};
INSTANTIATE_TEST_SUITE_P(Worlds, ComposeTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(ComposeTest, DocumentsStandInARow) {
  ComposeRequest request = RequestOf({{.name = "doc/b"}, {.name = "doc/a"}, {.name = "doc/b"}});
  request.lease_ns = kMinute;
  ASSERT_OK_ASSIGN(const Composed composed, store_.Compose(request));
  EXPECT_EQ(Joined({b_, mark_, a_, mark_, b_, mark_, question_}), composed.tokens);
  EXPECT_EQ("p300@0 -303 f503@0 -506 f806@0 -849", SegmentsOf(composed.plan));
  EXPECT_EQ("L300 C319 L501 C522 L804 C849", StepsOf(composed.plan));
  EXPECT_NE(LeaseId{}, composed.plan.lease);
  ExpectRestores(composed.plan);
  ASSERT_EQ(3u, composed.documents.size());
  EXPECT_EQ("doc/a", composed.documents[1].name);
  EXPECT_EQ(303u, composed.documents[1].begin);
  EXPECT_EQ(503u, composed.documents[1].end);
}

TEST_P(ComposeTest, TheBeginningOfANameChoosesAllInOrder) {
  ASSERT_OK(store_.CreateBranch(model_, {.name = "else", .ns = "docs"}));
  ASSERT_OK_ASSIGN(const Composed composed,
                   store_.Compose(RequestOf({{.name = "doc/", .is_beginning = true}})));
  EXPECT_EQ(Joined({a_, mark_, b_, mark_, question_}), composed.tokens);
  EXPECT_FAILS(StatusOf({{.name = "docs/", .is_beginning = true}}), StatusCode::kNotFound,
               "no document's name begins with \"docs/\"");
}

TEST_P(ComposeTest, AHeaderCanBeLeftOut) {
  const std::vector<TokenId> header = Tokens(30, 4);
  Make("behind", Joined({header, a_}), "docs");
  ASSERT_OK_ASSIGN(const Composed composed,
                   store_.Compose(RequestOf({{.name = "doc/b"}, {.name = "behind", .begin = 30}})));
  EXPECT_EQ(Joined({b_, mark_, a_, mark_, question_}), composed.tokens);
  EXPECT_EQ("p300@0 -303 f503@30 -546", SegmentsOf(composed.plan));
  ExpectRestores(composed.plan);
}

TEST_P(ComposeTest, WhatHasNoKvIsComputed) {
  ASSERT_OK_ASSIGN(Branch later, store_.CreateBranch(model_, {.name = "later", .ns = "docs"}));
  ASSERT_OK(Append(later, a_));
  ASSERT_OK(later.AppendSync(MakeDelta(b_)));
  ASSERT_OK(store_.CreateBranch(model_, {.name = "empty", .ns = "docs"}));
  ASSERT_OK_ASSIGN(const Composed composed,
                   store_.Compose(RequestOf({{.name = "empty"}, {.name = "later"}})));
  EXPECT_EQ(Joined({mark_, a_, b_, mark_, question_}), composed.tokens);
  EXPECT_EQ("-3 f203@0 -546", SegmentsOf(composed.plan));
  ExpectRestores(composed.plan);
  ASSERT_OK_ASSIGN(const Composed nothing, store_.Compose(RequestOf({})));
  EXPECT_EQ(question_, nothing.tokens);
  EXPECT_EQ("C40", StepsOf(nothing.plan));
}

TEST_P(ComposeTest, ContentComesWithItsDocument) {
  const std::vector<ContentSpan> spans = {{.begin = 20, .end = 60, .hash = {1, 2}}};
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "seen", .ns = "docs"}));
  ASSERT_OK(Append(branch, a_, kSeed, spans));
  ASSERT_OK_ASSIGN(const Composed composed,
                   store_.Compose(RequestOf({{.name = "doc/b"}, {.name = "seen", .begin = 10}})));
  ASSERT_EQ(1u, composed.spans.size());
  EXPECT_EQ((ContentSpan{.begin = 313, .end = 353, .hash = {1, 2}}), composed.spans[0]);
  ExpectRestores(composed.plan);
}

TEST_P(ComposeTest, ContentThatWouldBeCutIsRefused) {
  const std::vector<ContentSpan> spans = {{.begin = 20, .end = 60, .hash = {1, 2}, .atomic = true}};
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "seen", .ns = "docs"}));
  ASSERT_OK(Append(branch, a_, kSeed, spans));
  EXPECT_FAILS(StatusOf({{.name = "seen", .begin = 30}}), StatusCode::kInvalidArgument,
               "document \"seen\": [30, 200) cuts the content at [20, 60)");
  EXPECT_FAILS(StatusOf({{.name = "seen", .end = 30}}), StatusCode::kInvalidArgument, "cuts");
  EXPECT_OK(StatusOf({{.name = "seen", .begin = 60}}));
}

TEST_P(ComposeTest, TooMuchIsRefusedBeforeItIsRead) {
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "long", .ns = "docs"}));
  ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(40'000, 5))));
  const std::vector<ComposeDocument> documents(60'000, {.name = "long"});
  EXPECT_FAILS(StatusOf(documents), StatusCode::kInvalidArgument, "more than 2^31 - 1 tokens");
}

TEST_P(ComposeTest, UnnamedBranchesAreNoDocuments) {
  Make("", Tokens(50, 1), "docs");
  ASSERT_OK_ASSIGN(const Composed composed,
                   store_.Compose(RequestOf({{.name = "", .is_beginning = true}})));
  EXPECT_EQ(2u, composed.documents.size());
}

TEST_P(ComposeTest, WhatIsMissingOrWrongIsNamed) {
  EXPECT_FAILS(StatusOf({{.name = "doc/c"}}), StatusCode::kNotFound,
               "document \"doc/c\" does not exist");
  EXPECT_FAILS(StatusOf({{}}), StatusCode::kInvalidArgument, "one without a name");
  EXPECT_FAILS(StatusOf({{.name = "doc/a", .begin = 201}}), StatusCode::kInvalidArgument,
               "document \"doc/a\"");
  EXPECT_FAILS(StatusOf({{.name = "doc/a", .begin = 0, .end = 201}}), StatusCode::kInvalidArgument,
               "document \"doc/a\"");
  BlendOptions options;
  options.sources = {{BranchId{1}, 0, 100, 0}};
  EXPECT_FAILS(store_.Compose(RequestOf({{.name = "doc/a"}}), options),
               StatusCode::kInvalidArgument, "options.sources");
  ComposeRequest request = RequestOf({});
  request.question = {};
  EXPECT_FAILS(store_.Compose(request), StatusCode::kInvalidArgument, "no tokens");
  request.model = ModelId{99};
  EXPECT_FAILS(store_.Compose(request), StatusCode::kNotFound, "request.model: 99");
  ModelSpec other = spec_;
  other.identity.name = "other";
  request = RequestOf({{.name = "doc/a"}});
  request.model = Register(other);
  EXPECT_FAILS(store_.Compose(request), StatusCode::kModelMismatch, "document \"doc/a\"");
}

}  // namespace
}  // namespace cairn::testing
