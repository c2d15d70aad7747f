// SPDX-License-Identifier: Apache-2.0
//
// Property: a plan covers the prompt, loads only what some branch has with equal ids and exact KV,
// and computes what its options say besides: seams, differences, separators, sinks, the last token.
// What it calls exact is. Restores of it bring just that, turned to the prompt's positions.
#include "tests/engine/blend_test.h"

namespace cairn::testing {
namespace {

class BlendPlanTest : public BlendTest {
 protected:
  // Nothing is computed but what must be.
  static BlendOptions Bare() {
    BlendOptions options;
    options.recompute_first = options.recompute_boundary = 0;
    return options;
  }
  // The model has a second group, which keeps 16 tokens.
  void AddWindow() {
    spec_.identity.name = "window";
    LayerGroup window = spec_.groups[0];
    window.name = "window";
    window.retention = {.kind = Retention::kWindow, .window = 16, .sinks = 0, .chunk = 0};
    spec_.groups.push_back(window);
    model_ = Register(spec_);
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, BlendPlanTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(BlendPlanTest, APrefixIsExactAndAllOfItLoaded) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  const BlendPlan plan = PlanOf(Joined({Part(doc, 0, 500), Tokens(90, 9)}));
  EXPECT_EQ("p500@0 -590", SegmentsOf(plan));
  EXPECT_EQ("L500 C590", StepsOf(plan));
  EXPECT_EQ(590u, plan.exact);
  EXPECT_TRUE(plan.complete);
  ExpectRestores(plan);
}

TEST_P(BlendPlanTest, ADocumentThatStandsElsewhereIsFull) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  const BlendPlan plan = PlanOf(Joined({Tokens(77, 8), doc, Tokens(90, 9)}));
  EXPECT_EQ("-77 f677@0 -767", SegmentsOf(plan));
  EXPECT_EQ("C93 L675 C767", StepsOf(plan)) << "16 behind the seam, 2 before the next";
  EXPECT_EQ(93u, plan.exact);
  ExpectRestores(plan);
  ExpectRestores(plan, 100, 300);
  ExpectRestores(plan, 0, 93);
}

TEST_P(BlendPlanTest, AllOfItMatchesAndTheLastTokenIsComputed) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  EXPECT_EQ("L599 C600", StepsOf(PlanOf(doc)));
  EXPECT_EQ("C1", StepsOf(PlanOf(Part(doc, 0, 1))));
  ExpectRestores(PlanOf(doc));
}

TEST_P(BlendPlanTest, NothingFoundIsComputed) {
  Make("doc", Tokens(600, 5), "docs");
  const BlendPlan plan = PlanOf(Tokens(300, 6));
  EXPECT_EQ("-300", SegmentsOf(plan));
  EXPECT_EQ("C300", StepsOf(plan));
  EXPECT_EQ(300u, plan.exact);
  ExpectRestores(plan);
}

TEST_P(BlendPlanTest, ShuffledDocumentsHaveSeams) {
  const std::vector<TokenId> a = Tokens(200, 5), b = Tokens(300, 6);
  Make("a", a, "docs");
  Make("b", b, "docs");
  const BlendPlan plan = PlanOf(Joined({a, b, a, Tokens(20, 7)}));
  EXPECT_EQ("p200@0 f500@0 f700@0 -720", SegmentsOf(plan));
  EXPECT_EQ("L200 C216 L498 C516 L698 C720", StepsOf(plan)) << "what is exact needs no seam before";
  EXPECT_EQ(216u, plan.exact);
  ExpectRestores(plan);
}

TEST_P(BlendPlanTest, IdsThatDifferAreComputedWithTheirNeighbours) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  std::vector<TokenId> edited = doc;
  for (const size_t at : {200, 201, 260}) ++edited[at];
  const BlendPlan plan = PlanOf(Joined({Tokens(50, 8), edited, Tokens(50, 9)}));
  EXPECT_EQ("-50 ~650@0 -700", SegmentsOf(plan));
  EXPECT_EQ("C66 L248 C254 L308 C313 L648 C700", StepsOf(plan));
  ExpectRestores(plan);
  BlendOptions strict;
  strict.min_match_ratio = 1.0;
  EXPECT_EQ("-50 f250@0 -311 f650@261 -700",
            SegmentsOf(PlanOf(Joined({Tokens(50, 8), edited, Tokens(50, 9)}), strict)));
}

// Of each 64 in a row 12 may differ, and an end is an id that is equal.
TEST_P(BlendPlanTest, ASimilarPieceEndsWhereTooManyDiffer) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  for (const size_t count : {12, 13}) {
    SCOPED_TRACE(count);
    std::vector<TokenId> edited = doc;
    for (size_t i = 0; i < count; ++i) ++edited[200 + 2 * i];
    const BlendPlan plan = PlanOf(Joined({Tokens(50, 8), edited}));
    EXPECT_EQ(count == 12 ? "-50 ~650@0" : "-50 ~274@0 -275 f650@225", SegmentsOf(plan));
    ExpectRestores(plan);
  }
}

TEST_P(BlendPlanTest, ALongerRunComesFirstWithItsTrueLeftNeighbours) {
  const std::vector<TokenId> first = Tokens(200, 5), second = Tokens(300, 6);
  Make("both", Joined({Tokens(10, 4), first, second}), "docs");
  Make("second", second, "docs");  // Newer, and alone.
  const BlendPlan plan = PlanOf(Joined({Tokens(40, 8), first, second, Tokens(9, 9)}));
  EXPECT_EQ("-40 f540@10 -549", SegmentsOf(plan)) << "no seam between them";
  // Of equally long ones that which stood behind something.
  Make("behind", Joined({Tokens(30, 3), Part(second, 0, 250), Tokens(50, 2)}), "docs");
  Make("alone", Part(second, 0, 250), "docs");
  EXPECT_EQ("-40 f290@30 -299",
            SegmentsOf(PlanOf(Joined({Tokens(40, 8), Part(second, 0, 250), Tokens(9, 9)}))));
}

TEST_P(BlendPlanTest, ATokenThatStoodAtPositionZeroIsComputed) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  EXPECT_EQ("C51 L650 C690", StepsOf(PlanOf(Joined({Tokens(50, 8), doc, Tokens(40, 9)}), Bare())));
  EXPECT_EQ("C50 L649 C689",
            StepsOf(PlanOf(Joined({Tokens(50, 8), Part(doc, 1, 600), Tokens(40, 9)}), Bare())));
}

TEST_P(BlendPlanTest, WhatTheOptionsSayIsComputed) {
  const std::vector<TokenId> doc = Tokens(640, 5);
  Make("doc", Joined({Tokens(3, 1), doc}), "docs");
  const std::vector<TokenId> prompt = Joined({Tokens(64, 8), doc, Tokens(64, 9)});
  const auto steps = [&](const BlendOptions& options) { return StepsOf(PlanOf(prompt, options)); };
  BlendOptions options = Bare();
  EXPECT_EQ("C64 L704 C768", steps(options));
  options.recompute_ratio = 0.15;
  EXPECT_EQ("C160 L704 C768", steps(options));
  options.recompute_first = 100;
  EXPECT_EQ("C164 L704 C768", steps(options)) << "the greater one";
  options = Bare();
  options.recompute = {{300, 310}, {317, 320}, {330, 331}};
  EXPECT_EQ("C64 L300 C320 L330 C331 L704 C768", steps(options)) << "7 apart are joined, 10 not";
  options.align_tokens = 16;
  EXPECT_EQ("C64 L300 C320 L330 C336 L704 C768", steps(options));
  options = Bare();
  options.min_tokens = 641;
  EXPECT_EQ("C768", steps(options));
}

TEST_P(BlendPlanTest, SeparatorsAndWhatIsBehindTheLastAreComputed) {
  const std::vector<TokenId> a = Tokens(200, 5), b = Tokens(300, 6), mark = {7, 8, 9};
  Make("all", Joined({Tokens(9, 1), a, mark, b, mark, a}), "docs");
  BlendOptions options = Bare();
  const std::vector<TokenId> prompt = Joined({Tokens(41, 2), a, mark, b, mark, a});
  EXPECT_EQ("C41 L746 C747", StepsOf(PlanOf(prompt, options)));
  options.separators = {{1, 2}, mark};
  EXPECT_EQ("C41 L241 C244 L544 C747", StepsOf(PlanOf(prompt, options)));
  // What is exact stays.
  EXPECT_EQ("L714 C715", StepsOf(PlanOf(Joined({Tokens(9, 1), a, mark, b, mark, a}), options)));
}

TEST_P(BlendPlanTest, WithinAPrefixAWindowIsThere) {
  AddWindow();
  const std::vector<TokenId> doc = Tokens(256, 5);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "doc", .ns = "docs"}));
  // The window group has only what is needed at 128 and at 256.
  for (const uint64_t end : {128, 256}) {
    KvSet kv(spec_, Layout::kContiguous, end - 128, 128);
    kv.Write(kSeed, end - 128, end);
    ASSERT_OK(branch.AppendSync(
        MakeDelta(Part(doc, end - 128, end), kv.View({{end - 128, 128}, {end - 16, 16}}))));
  }
  BlendOptions options;
  options.recompute = {{200, 204}};
  const BlendPlan plan = PlanOf(Joined({doc, Tokens(9, 2)}), options);
  EXPECT_EQ("L128 C204 L256 C265", StepsOf(plan)) << "at 200 no window is there";
  EXPECT_EQ(265u, plan.exact);
}

TEST_P(BlendPlanTest, KeysStayAsTheyAreWithoutCorrection) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  BlendOptions options;
  options.position_correction = false;
  ExpectRestores(PlanOf(Joined({Tokens(77, 8), doc, Tokens(90, 9)}), options));
}

TEST_P(BlendPlanTest, WhatContinuesAnApproximateConversationIsNoPrefix) {
  const std::vector<TokenId> ids = Tokens(600, 5);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  ASSERT_OK(Append(branch, Part(ids, 0, 200)));
  ASSERT_OK(Append(branch, Part(ids, 200, 600), kSeed, {}, /*exact=*/false));
  PrefixQuery query = QueryOf(ids);
  EXPECT_EQ("p200@0 -600", SegmentsOf(PlanOf(query)));
  query.approximate = true;
  const BlendPlan plan = PlanOf(query);
  EXPECT_EQ("p200@0 f600@200", SegmentsOf(plan));
  EXPECT_EQ("L599 C600", StepsOf(plan)) << "it goes on where the prefix ends";
  EXPECT_EQ(200u, plan.exact);
  ExpectRestores(plan);
}

// Both parts are of one path: what a window needs where the exact part ends need not be there.
TEST_P(BlendPlanTest, AnApproximateConversationHasItsWindowWhereItEnds) {
  AddWindow();
  const std::vector<TokenId> ids = Tokens(400, 5);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  for (const uint64_t begin : {0, 200}) {
    KvSet kv(spec_, Layout::kContiguous, begin, 200);
    kv.Write(kSeed, begin, begin + 200);
    const std::vector<TokenId> part = Part(ids, begin, begin + 200);
    Delta delta = MakeDelta(
        part, begin == 0 ? kv.View({{0, 200}, {100, 50}}) : kv.View({{200, 200}, {384, 16}}));
    delta.exact = begin == 0;
    ASSERT_OK(branch.AppendSync(delta));
  }
  const std::vector<TokenId> prompt = Joined({ids, Tokens(20, 9)});
  PrefixQuery query = QueryOf(prompt);
  query.approximate = true;
  const BlendPlan plan = PlanOf(query);
  EXPECT_EQ("p200@0 f400@200 -420", SegmentsOf(plan));
  KvSet got(spec_, Layout::kNhd, 0, 420);
  RestoreRequest request;
  request.into = got.View(0, 420);
  EXPECT_OK(store_.Restore(plan, request));
}

// What FindPrefix found is not extended: what is behind differs, or has no KV.
TEST_P(BlendPlanTest, AnApproximateConversationThatDiffersEndsThere) {
  const std::vector<TokenId> ids = Tokens(600, 5);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  ASSERT_OK(Append(branch, Part(ids, 0, 200)));
  ASSERT_OK(Append(branch, Part(ids, 200, 400), kSeed, {}, /*exact=*/false));
  ASSERT_OK(Append(branch, Part(ids, 400, 600)));
  std::vector<TokenId> edited = ids;
  ++edited[500];
  PrefixQuery query = QueryOf(edited);
  query.approximate = true;
  const BlendPlan plan = PlanOf(query);
  EXPECT_EQ("p200@0 f500@200 -501 f600@501", SegmentsOf(plan));
  EXPECT_TRUE(plan.complete);
  ExpectRestores(plan);
}

TEST_P(BlendPlanTest, PlansAreCounted) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", doc, "docs");
  std::vector<TokenId> edited = Part(doc, 300, 600);
  ++edited[150];
  const BlendPlan plan =
      PlanOf(Joined({Part(doc, 0, 200), edited, Tokens(30, 9), Part(doc, 250, 450)}));
  EXPECT_EQ("p200@0 ~500@300 -530 f730@250", SegmentsOf(plan));
  ExpectRestores(plan);
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(1u, metrics.blend_plans);
  EXPECT_EQ(200u, metrics.blend_prefix_tokens);
  EXPECT_EQ(200u, metrics.blend_full_tokens);
  EXPECT_EQ(300u, metrics.blend_partial_tokens);
  EXPECT_EQ(30u, metrics.blend_unknown_tokens);
  EXPECT_EQ(plan.compute_tokens, metrics.blend_computed_tokens);
  EXPECT_EQ((plan.load_tokens - 200) * spec_.token_bytes() / 2, metrics.blend_turned_bytes);
  EXPECT_EQ(0u, metrics.finds) << "those are calls of FindPrefix";
}

// Blended prompts neither become sources nor hide them.
TEST_P(BlendPlanTest, AHundredRoundsOfShuffledDocumentsAreTheSame) {
  std::vector<std::vector<TokenId>> docs;
  for (uint64_t i = 0; i < 8; ++i) {
    docs.push_back(Tokens(150, 100 + i));
    Make("doc-" + std::to_string(i), docs.back(), "docs");
  }
  PlanOf(docs[0]);
  const uint64_t entries = store_.Metrics().hint_chunk_entries;
  for (int round = 0; round < 100; ++round) {
    std::rotate(docs.begin(), docs.begin() + 1 + round % 3, docs.end());
    const std::vector<TokenId> prompt = Joined({Tokens(20, 7), Joined(docs), Tokens(30, 8)});
    const BlendPlan plan = PlanOf(prompt);
    EXPECT_EQ(8 * (150 - 16) - 2 * 8u, plan.load_tokens) << "round " << round;
    ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_, {.name = {}, .ns = "docs"}));
    ASSERT_OK(Append(chat, prompt, kSeed, {}, /*exact=*/false));
  }
  EXPECT_EQ(entries, store_.Metrics().hint_chunk_entries);
}

}  // namespace
}  // namespace cairn::testing
