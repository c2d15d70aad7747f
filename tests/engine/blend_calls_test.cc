// SPDX-License-Identifier: Apache-2.0
//
// Property: a plan stays true or says that it is not: a source that is dropped, rewound or evicted
// is an error of the restore, and nothing of it comes; a lease keeps it. Bad input of every kind is
// refused by its name.
#include <cmath>

#include "tests/engine/blend_test.h"

namespace cairn::testing {
namespace {

class BlendCallsTest : public BlendTest {
 protected:
  void SetUp() override {
    BlendTest::SetUp();
    if (IsSkipped()) return;
    doc_ = Tokens(600, 5);
    branch_ = Make("doc", doc_, "docs");
    prompt_ = Joined({Tokens(77, 8), doc_, Tokens(90, 9)});
  }
  Status PlanStatus(const PrefixQuery& query, const BlendOptions& options = {}) {
    return store_.PlanBlend(query, options).status();
  }
  Status PlanStatus(const BlendOptions& options) { return PlanStatus(QueryOf(prompt_), options); }
  Status RestoreStatus(const BlendPlan& plan, RestoreRequest request = {}) {
    KvSet got(spec_, Layout::kNhd, 0, plan.tokens), untouched(spec_, Layout::kNhd, 0, plan.tokens);
    request.into = got.View(0, plan.tokens);
    const Status status = store_.Restore(plan, request).status();
    EXPECT_TRUE(status.ok() || got == untouched) << "part of it came";
    return status;
  }

  std::vector<TokenId> doc_, prompt_;
  Branch branch_;
};
INSTANTIATE_TEST_SUITE_P(Worlds, BlendCallsTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(BlendCallsTest, BadOptionsAreRefusedByName) {
  const auto refuses = [&](const char* field, const auto& change) {
    BlendOptions options;
    change(&options);
    EXPECT_FAILS(PlanStatus(options), StatusCode::kInvalidArgument, field);
  };
  using O = BlendOptions;
  refuses("options.min_tokens: 31; at least 32", [](O* o) { o->min_tokens = 31; });
  for (const double ratio : {std::nan(""), -0.1, 1.1}) {
    refuses("options.recompute_ratio", [&](O* o) { o->recompute_ratio = ratio; });
    refuses("options.min_match_ratio", [&](O* o) { o->min_match_ratio = ratio; });
    refuses("options.rope_theta", [&](O* o) { o->rope_theta = ratio < 0 ? ratio : std::nan(""); });
  }
  refuses("options.min_match_ratio", [](O* o) { o->min_match_ratio = 0; });
  refuses("options.rope_theta", [](O* o) { o->rope_theta = INFINITY; });
  refuses("options.chunk_tokens is 0", [](O* o) { o->chunk_tokens = 0; });
  refuses("options.align_tokens is 0", [](O* o) { o->align_tokens = 0; });
  refuses("options.separators[1] is empty", [](O* o) { o->separators = {{1}, {}}; });
  refuses("options.separators[0]: 65 ids; at most 64",
          [](O* o) { o->separators = {std::vector<TokenId>(65)}; });
  refuses("options.sources: 65537; at most 65536",
          [](O* o) { o->sources.resize(kMaxBlendSources + 1); });
  refuses("options.separators: 65; at most 64",
          [](O* o) { o->separators.assign(65, std::vector<TokenId>{1}); });
  for (const std::vector<PromptRange>& ranges :
       {std::vector<PromptRange>{{10, 10}}, {{10, 20}, {19, 30}}, {{700, 768}}}) {
    refuses("options.recompute: [", [&](O* o) { o->recompute = ranges; });
  }
  const BranchId doc = branch_.id();
  for (const std::vector<BlendSource>& sources : {std::vector<BlendSource>{{doc, 5, 5, 0}},
                                                  {{doc, 0, 600, 168}},
                                                  {{doc, 0, 9, UINT64_MAX}},
                                                  {{doc, 0, 100, 0}, {doc, 0, 100, 99}}}) {
    refuses("options.sources: [", [&](O* o) { o->sources = sources; });
  }
  EXPECT_FAILS(PlanStatus(QueryOf(std::vector<TokenId>())), StatusCode::kInvalidArgument,
               "query.tokens");
}

TEST_P(BlendCallsTest, QueriesAreCheckedAsThoseOfPrefixes) {
  EXPECT_FAILS(PlanStatus(QueryOf(prompt_, "")), StatusCode::kInvalidState, "indexes chunks");
  PrefixQuery query = QueryOf(prompt_);
  query.model = ModelId{99};
  EXPECT_FAILS(PlanStatus(query), StatusCode::kNotFound, "query.model");
  query = QueryOf(prompt_);
  const std::vector<ContentSpan> spans = {{.begin = 5, .end = 4}};
  query.spans = spans;
  EXPECT_FAILS(PlanStatus(query), StatusCode::kInvalidArgument, "query.spans");
}

TEST_P(BlendCallsTest, WhatTheCallerTakesTheModelForIsCompared) {
  BlendOptions options;
  options.rope_theta = 10'000.0;
  options.head_dim = 4;
  EXPECT_OK(PlanStatus(options));
  options.head_dim = 128;
  EXPECT_FAILS(PlanStatus(options), StatusCode::kModelMismatch, "options.head_dim is 128");
  options = {};
  options.rope_theta = 500'000.0;
  EXPECT_FAILS(PlanStatus(options), StatusCode::kModelMismatch, "options.rope_theta is 500000");
}

TEST_P(BlendCallsTest, KeysThatCannotBeTurnedAreRefusedWhereTheyWouldHaveToBe) {
  const auto planned = [&](const std::function<void(ModelSpec*)>& change, const char* name) {
    spec_ = TinyModel(name);
    spec_.groups[0].inv_freq = RotaryFrequencies(4, 10'000.0);
    change(&spec_);
    model_ = Register(spec_);
    Make(name, doc_, "docs");
    EXPECT_OK(PlanStatus(QueryOf(doc_))) << "nothing is shifted";
    BlendOptions as_they_are;
    as_they_are.position_correction = false;
    EXPECT_OK(PlanStatus(QueryOf(prompt_), as_they_are));
    return PlanStatus(QueryOf(prompt_));
  };
  EXPECT_OK(planned([](ModelSpec*) {}, "good"));
  EXPECT_FAILS(planned([](ModelSpec* s) { s->groups[0].inv_freq.clear(); }, "no angles"),
               StatusCode::kInvalidArgument, "inv_freq");
  EXPECT_FAILS(
      planned([](ModelSpec* s) { s->groups[0].planes[0].rotary.pairing = RotaryPairing::kUnset; },
              "no pairing"),
      StatusCode::kInvalidArgument, "pairing");
  EXPECT_FAILS(
      planned([](ModelSpec* s) { s->groups[0].planes[0].rotary.state = RotaryState::kUnset; },
              "no state"),
      StatusCode::kInvalidArgument, "rotary.state is unset");
  EXPECT_FAILS(planned([](ModelSpec* s) { s->groups[0].planes[0].dtype = Dtype::kF8E4M3; }, "fp8"),
               StatusCode::kInvalidArgument, "plane \"k\"");
  EXPECT_FAILS(planned(
                   [](ModelSpec* s) {
                     for (Plane& plane : s->groups[0].planes) {
                       plane.dtype = Dtype::kOpaque;
                       plane.rotary = {};
                     }
                     s->groups[0].inv_freq.clear();
                   },
                   "opaque"),
               StatusCode::kInvalidArgument, "is opaque");
  EXPECT_OK(planned(
      [](ModelSpec* s) { s->groups[0].planes[0].rotary.state = RotaryState::kBefore; }, "before"));
}

TEST_P(BlendCallsTest, StatesHaveNoChunks) {
  spec_.identity.name = "states";
  spec_.groups.push_back(LayerGroup::Recurrent(1, 40));
  model_ = Register(spec_);
  EXPECT_FAILS(PlanStatus(QueryOf(prompt_)), StatusCode::kInvalidArgument, "keeps states");
}

// With several positions of a token a shift is right only where no content stands.
TEST_P(BlendCallsTest, ContentBeforeKeysOfSeveralPositionsIsRefused) {
  spec_.identity.name = "sections";
  spec_.groups[0].planes[0].rotary.width = 4;
  spec_.groups[0].planes[0].rotary.sections = {1, 1};
  model_ = Register(spec_);
  Make("sections", doc_, "docs");
  EXPECT_OK(PlanStatus(QueryOf(prompt_)));
  PrefixQuery query = QueryOf(prompt_);
  const std::vector<ContentSpan> spans = {{.begin = 5, .end = 9, .hash = {1, 2}}};
  query.spans = spans;
  EXPECT_FAILS(PlanStatus(query), StatusCode::kInvalidArgument, "several positions");
  const std::vector<ContentSpan> behind = {{.begin = 700, .end = 709, .hash = {1, 2}}};
  query.spans = behind;
  EXPECT_OK(PlanStatus(query));
  // Before the source.
  const std::vector<TokenId> other = Tokens(300, 6);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "b", .ns = "docs"}));
  ASSERT_OK(Append(branch, Joined({Tokens(30, 4), other}), kSeed, spans));
  EXPECT_FAILS(PlanStatus(QueryOf(Joined({Tokens(50, 2), other}))), StatusCode::kInvalidArgument,
               "several positions");
}

// The index is the same, and the position by which keys were turned is not.
TEST_P(BlendCallsTest, ContentBeforeAPieceThatIsNotMovedIsRefusedToo) {
  spec_.identity.name = "sections";
  spec_.groups[0].planes[0].rotary.width = 4;
  spec_.groups[0].planes[0].rotary.sections = {1, 1};
  model_ = Register(spec_);
  const std::vector<ContentSpan> spans = {{.begin = 5, .end = 9, .hash = {1, 2}}};
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "seen", .ns = "docs"}));
  ASSERT_OK(Append(branch, Joined({Tokens(100, 4), doc_}), kSeed, spans));
  PrefixQuery query = QueryOf(doc_);
  const std::vector<TokenId> prompt = Joined({Tokens(100, 3), doc_});
  query.tokens = prompt;
  EXPECT_FAILS(PlanStatus(query), StatusCode::kInvalidArgument, "several positions");
  query.spans = spans;  // Other tokens around the same content.
  EXPECT_OK(PlanStatus(query));
}

// ---------------------------------------------------------------- known sources

TEST_P(BlendCallsTest, KnownSourcesAreTakenWithoutASearch) {
  ASSERT_OK(store_.SetNamespace("docs", NamespacePolicy()));
  BlendOptions options;
  options.sources = {{branch_.id(), 100, 600, 177}};
  const BlendPlan plan = PlanOf(prompt_, options);
  EXPECT_EQ("-177 f677@100 -767", SegmentsOf(plan));
  ExpectRestores(plan);
  options.sources = {{branch_.id(), 0, 300, 0}};
  const BlendPlan first = PlanOf(doc_, options);
  EXPECT_EQ("p300@0 -600", SegmentsOf(first));
  EXPECT_EQ(600u, first.exact);
  ExpectRestores(first);
}

TEST_P(BlendCallsTest, ASourceThatIsNotWhatItWasIsAnError) {
  const auto refused = [&](const BlendSource& source, const std::vector<TokenId>& ids) {
    BlendOptions options;
    options.sources = {source};
    return PlanStatus(QueryOf(ids), options);
  };
  const BlendSource whole{branch_.id(), 0, 600, 77};
  EXPECT_FAILS(refused({BranchId{99}, 0, 600, 77}, prompt_), StatusCode::kNotFound);
  std::vector<TokenId> other = prompt_;
  ++other[300];
  EXPECT_FAILS(refused(whole, other), StatusCode::kConflict,
               "options.sources[0] has other tokens from position 223 on");
  ASSERT_OK(branch_.Rewind(500));
  EXPECT_FAILS(refused(whole, prompt_), StatusCode::kConflict,
               "options.sources[0] ends at position 600 of a branch of 500 tokens");
  ASSERT_OK(branch_.AppendSync(MakeDelta(Part(doc_, 500, 600))));
  EXPECT_FAILS(refused(whole, prompt_), StatusCode::kEvicted,
               "options.sources[0] has no exact KV of position 500");
  ModelSpec model = spec_;
  model.identity.name = "another";
  model_ = Register(model);
  EXPECT_FAILS(refused(whole, prompt_), StatusCode::kModelMismatch, "of another model");
}

TEST_P(BlendCallsTest, ASourceIsAPrefixOnlyWhereAllGroupsAreExact) {
  spec_.identity.name = "drafts";
  LayerGroup drafts = spec_.groups[0];
  drafts.name = "drafts";
  drafts.optional = true;
  spec_.groups.push_back(drafts);
  model_ = Register(spec_);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  KvSet kv(spec_, Layout::kContiguous, 0, 600);
  kv.Write(kSeed, 0, 600);
  ASSERT_OK(branch.AppendSync(MakeDelta(doc_, kv.View({{0, 600}, {0, 0}}))));
  BlendOptions options;
  options.sources = {{branch.id(), 0, 40, 0}};
  EXPECT_EQ("p40@0 -600", SegmentsOf(PlanOf(doc_, options))) << "a prefix has any length";
  const GroupView drafted[] = {kv.pool(1).View(0, 600)};
  ASSERT_OK(branch.Fill({.groups = drafted}, {.exact = false}));
  options.sources = {{branch.id(), 0, 400, 0}};
  const BlendPlan plan = PlanOf(doc_, options);
  EXPECT_EQ("f400@0 -600", SegmentsOf(plan));
  EXPECT_LT(plan.exact, 400u);
}

TEST_P(BlendCallsTest, ADroppedSourceIsNotFoundWithoutTheDisk) {
  PrefixQuery query = QueryOf(prompt_);
  query.memory_only = true;
  BlendOptions options;
  options.sources = {{branch_.id(), 0, 600, 77}};
  EXPECT_OK(PlanStatus(query, options));
  ASSERT_OK(branch_.Drop());
  EXPECT_FAILS(PlanStatus(query, options), StatusCode::kNotFound);
}

// ---------------------------------------------------------------- plans that grow old

TEST_P(BlendCallsTest, AnExactPrefixThatIsApproximateByNowIsAConflict) {
  const BlendPlan plan = PlanOf(doc_);
  ASSERT_OK(branch_.Rewind(0));
  ASSERT_OK(Append(branch_, doc_, kSeed, {}, /*exact=*/false));
  EXPECT_FAILS(RestoreStatus(plan), StatusCode::kConflict, "is not exact by now");
}

// A node of a fork that has KV alone, of positions before its own.
TEST_P(BlendCallsTest, ALeaseKeepsKvThatAForkFilledIn) {
  ASSERT_OK(store_.SetNamespace(
      "small", {.max_bytes = 400'000, .evict = Evict::kKv, .index = Index::kChunks}));
  const std::vector<TokenId> ids = Tokens(1000, 5);
  ASSERT_OK_ASSIGN(Branch bare, store_.CreateBranch(model_, {.name = "bare", .ns = "small"}));
  ASSERT_OK(bare.AppendSync(MakeDelta(ids)));
  ASSERT_OK_ASSIGN(Branch fork, bare.ForkAt(1000, {.name = "fork", .ns = "small"}));
  KvSet kv(spec_, Layout::kContiguous, 0, 1000);
  kv.Write(kSeed, 0, 1000);
  ASSERT_OK(fork.Fill(*kv.View(0, 1000)));
  const std::vector<TokenId> prompt = Joined({Tokens(50, 8), ids});
  PrefixQuery query = QueryOf(prompt, "small");
  query.lease_ns = kMinute;
  const BlendPlan plan = PlanOf(query);
  EXPECT_EQ("-50 f1050@0", SegmentsOf(plan));
  ASSERT_NE(LeaseId{}, plan.lease);
  for (uint64_t i = 0; i < 12; ++i)
    Make("new-" + std::to_string(i), Tokens(1000, 100 + i), "small");
  EXPECT_GT(store_.Metrics().evicted_bytes, 0u);
  ExpectRestores(plan);
}

// Nodes that leave memory while a plan is made are no other tree.
TEST_P(BlendCallsTest, APlanOfManyPiecesNeedsLittleMemoryForTheTree) {
  std::vector<std::vector<TokenId>> docs;
  for (uint64_t i = 0; i < 300; ++i) {
    docs.push_back(Tokens(80, 1000 + i));
    Make("doc-" + std::to_string(i), docs.back(), "docs");
  }
  ASSERT_OK(store_.Compact());
  Options options = FindingOptions();
  options.tree_memory_bytes = 1 << 14;
  WorldTest::Reopen(options);
  const std::vector<TokenId> prompt = Joined({Tokens(30, 8), Joined(docs)});
  PrefixQuery query = QueryOf(prompt);
  query.lease_ns = kMinute;
  const BlendPlan plan = PlanOf(query);
  EXPECT_TRUE(plan.complete);
  EXPECT_NE(LeaseId{}, plan.lease);
  EXPECT_EQ(300 * (80 - 16 - 2) + 1u, plan.load_tokens);
  ExpectRestores(plan);
  ASSERT_OK(store_.Release(plan.lease));
  EXPECT_EQ(0u, store_.Metrics().leases);
}

TEST_P(BlendCallsTest, AnOldPlanIsComparedAgain) {
  const BlendPlan plan = PlanOf(prompt_);
  Branch other = Make("other", Tokens(300, 3));
  ASSERT_OK(other.Rewind(100));  // Something changed, elsewhere.
  ExpectRestores(plan);
  ASSERT_OK(branch_.Rewind(500));
  ASSERT_OK(store_.Compact());
  EXPECT_FAILS(RestoreStatus(plan), StatusCode::kConflict, "does not reach to position 600");
  ASSERT_OK(Append(branch_, Tokens(100, 4)));
  EXPECT_FAILS(RestoreStatus(plan), StatusCode::kConflict, "has other tokens by now");
  ASSERT_OK(branch_.Rewind(500));
  ASSERT_OK(Append(branch_, Part(doc_, 500, 600)));
  ExpectRestores(plan);
  ASSERT_OK(branch_.Drop());
  EXPECT_FAILS(RestoreStatus(plan), StatusCode::kNotFound, "does not exist any more");
  // What loads nothing of it goes on.
  ExpectRestores(plan, 0, 90);
}

TEST_P(BlendCallsTest, ARewindBehindTheSourceInItsContentLeavesItAsItIs) {
  const std::vector<TokenId> ids = Tokens(400, 4);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "seen", .ns = "docs"}));
  const std::vector<ContentSpan> there = {
      {.begin = 200, .end = 300, .hash = {1, 2}, .atomic = false}};
  ASSERT_OK(Append(branch, ids, kSeed, there));
  const std::vector<TokenId> prompt = Joined({Tokens(77, 8), Part(ids, 0, 250), Tokens(9, 9)});
  PrefixQuery query = QueryOf(prompt);
  const std::vector<ContentSpan> here = {
      {.begin = 277, .end = 327, .hash = {1, 2}, .atomic = false}};
  query.spans = here;
  BlendOptions options;
  options.sources = {{.branch = branch.id(), .begin = 0, .end = 250, .at = 77}};
  const BlendPlan plan = PlanOf(query, options);
  ASSERT_OK(branch.Rewind(260));
  ExpectRestores(plan);
  ASSERT_OK(branch.Rewind(240));
  EXPECT_FAILS(RestoreStatus(plan), StatusCode::kConflict, "does not reach to position 250");
}

TEST_P(BlendCallsTest, ALeaseKeepsWhatIsLoaded) {
  PrefixQuery query = QueryOf(prompt_);
  query.lease_ns = kMinute;
  const BlendPlan plan = PlanOf(query);
  ASSERT_NE(LeaseId{}, plan.lease);
  ASSERT_OK(branch_.Rewind(100));
  ASSERT_OK(Append(branch_, Tokens(500, 4)));
  ASSERT_OK(store_.Compact());
  ExpectRestores(plan);
  ASSERT_OK(store_.Release(plan.lease));
  ASSERT_OK(Append(branch_, Tokens(3, 9)));
  ASSERT_OK(store_.Compact());  // Trimmed.
  const Status status = RestoreStatus(plan);
  EXPECT_TRUE(status.code() == StatusCode::kNotFound || status.code() == StatusCode::kConflict)
      << status.ToString();
}

// A lease counts what it holds once, however many pieces share a node.
TEST_P(BlendCallsTest, ALeaseOfManyPiecesCountsADocumentOnce) {
  Options options = FindingOptions();
  options.max_leased_bytes = 3 * 600 * (spec_.token_bytes() + 4) / 2;
  WorldTest::Reopen(options);
  BlendOptions pieces;
  std::vector<TokenId> prompt;
  for (uint64_t i = 0; i < 300; ++i) {
    pieces.sources.push_back({branch_.id(), 100, 180, prompt.size() + 5});
    const std::vector<TokenId> part = Joined({Tokens(5, i), Part(doc_, 100, 180)});
    prompt.insert(prompt.end(), part.begin(), part.end());
  }
  PrefixQuery query = QueryOf(prompt);
  query.lease_ns = kMinute;
  const BlendPlan plan = PlanOf(query, pieces);
  EXPECT_NE(LeaseId{}, plan.lease);
  EXPECT_LT(store_.Metrics().leased_bytes, options.max_leased_bytes);
  ExpectRestores(plan);
  ASSERT_OK(store_.Release(plan.lease));
  query.lease_ns = kMinute;
  options.max_leased_bytes = 1000;
  WorldTest::Reopen(options);
  const BlendPlan unleased = PlanOf(query, pieces);
  EXPECT_EQ(LeaseId{}, unleased.lease) << "there is no room";
  ExpectRestores(unleased);
}

// Eviction takes KV of a fork's parent, where nobody needs it but the lease.
TEST_P(BlendCallsTest, ALeaseKeepsKvOfNodesAbove) {
  ASSERT_OK(store_.SetNamespace(
      "small", {.max_bytes = 400'000, .evict = Evict::kKv, .index = Index::kChunks}));
  const std::vector<TokenId> ids = Tokens(1000, 5);
  Branch held = Make("held", ids, "small");
  ASSERT_OK_ASSIGN(Branch fork, held.ForkAt(800, {.name = "fork", .ns = "small"}));
  ASSERT_OK(Append(fork, Tokens(300, 6)));
  PrefixQuery query = QueryOf(Joined({Tokens(50, 8), Part(ids, 0, 800), Tokens(300, 6)}), "small");
  const std::vector<TokenId> prompt(query.tokens.begin(), query.tokens.end());
  query.tokens = prompt;
  query.lease_ns = kMinute;
  const BlendPlan plan = PlanOf(query);
  ASSERT_NE(LeaseId{}, plan.lease);
  for (uint64_t i = 0; i < 12; ++i)
    Make("new-" + std::to_string(i), Tokens(1000, 100 + i), "small");
  EXPECT_GT(store_.Metrics().evicted_bytes, 0u);
  ExpectRestores(plan);
}

TEST_P(BlendCallsTest, APlanThatIsNotWholeIsRefused) {
  const BlendPlan plan = PlanOf(prompt_);
  const auto refused = [&](const std::function<void(BlendPlan*)>& change) {
    BlendPlan other = plan;
    change(&other);
    return RestoreStatus(other);
  };
  const char* const text = "do not cover the prompt";
  const StatusCode bad = StatusCode::kInvalidArgument;
  EXPECT_FAILS(refused([](BlendPlan* p) { p->segments.pop_back(); }), bad, text);
  EXPECT_FAILS(refused([](BlendPlan* p) { p->steps.pop_back(); }), bad, text);
  EXPECT_FAILS(refused([](BlendPlan* p) { p->steps[0].loads = true; }), bad, text);
  EXPECT_FAILS(refused([](BlendPlan* p) { p->segments[1].source = UINT64_MAX - 5; }), bad, text);
  EXPECT_FAILS(refused([](BlendPlan* p) { ++p->segments[1].begin; }), bad, text);
  EXPECT_FAILS(refused([](BlendPlan* p) { ++p->seen.store; }), bad, "of another store");
  EXPECT_FAILS(refused([](BlendPlan* p) { p->model = ModelId{77}; }), StatusCode::kNotFound);
  EXPECT_FAILS(RestoreStatus(plan, {.begin = 10, .end = 768}), bad, "restore of a plan");
  EXPECT_FAILS(RestoreStatus(BlendPlan()), bad, "of another store");
  std::vector<TokenId> ids(767);
  EXPECT_FAILS(RestoreStatus(plan, {.tokens = ids}), bad, "request.tokens");
  EXPECT_FAILS(RestoreStatus(plan, {.timeout_ns = 0}), StatusCode::kOk);
}

TEST_P(BlendCallsTest, AViewThatIsTooSmallTakesWhatItHasRoomFor) {
  const BlendPlan plan = PlanOf(prompt_);
  KvSet got(spec_, Layout::kNhd, 100, 50), want(spec_, Layout::kNhd, 0, 767);
  RestoreRequest request;
  request.into = got.View(100, 50);
  ASSERT_OK_ASSIGN(const RestoreResult result, store_.Restore(plan, request));
  EXPECT_EQ(50 * spec_.token_bytes(), result.bytes);
}

TEST_P(BlendCallsTest, MemoryOnlyIsBusyWhereTheDiskIsNeeded) {
  SealAndReopen();
  PrefixQuery query = QueryOf(prompt_);
  query.memory_only = true;
  EXPECT_FAILS(PlanStatus(query), StatusCode::kBusy);
  BlendOptions options;
  options.sources = {{branch_.id(), 0, 600, 77}};
  EXPECT_FAILS(PlanStatus(query, options), StatusCode::kBusy);
  PlanOf(prompt_);
  EXPECT_OK(PlanStatus(query));
}

TEST_P(BlendCallsTest, AFollowerPlansWhatItShows) {
  ASSERT_OK(store_.Compact());
  Options options = FindingOptions();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store follower, world_->Open(options));
  PrefixQuery query = QueryOf(prompt_);
  query.lease_ns = kMinute;
  ASSERT_OK_ASSIGN(const BlendPlan plan, follower.PlanBlend(query));
  EXPECT_EQ("-77 f677@0 -767", SegmentsOf(plan));
  EXPECT_EQ(LeaseId{}, plan.lease) << "leases are the writer's";
  std::swap(store_, follower);
  ExpectRestores(plan);
  std::swap(store_, follower);
  ExpectRestores(plan);  // The same store.
}

// ---------------------------------------------------------------- options by name

TEST_P(BlendCallsTest, OptionsHaveAllTheirNames) {
  BlendOptions options, want;
  const auto set = [&](const char* name, const char* value) {
    EXPECT_OK(SetBlendOption(&options, name, value)) << name;
  };
  set("LMCACHE_BLEND_MIN_TOKENS", "256");
  set("blend_recompute_ratio", "0.15");
  set("recompute_boundary", "3");
  set("blend_chunk_size", "32");
  set("min_match_ratio", "0.9");
  set("position_correction", "off");
  set("rope_theta", "500000");
  set("head_dim", "128");
  set("recompute_first", "0");
  set("align_tokens", "16");
  set("separators", "12,13;14");
  set("recompute", "100-116,200-216");
  set("sources", "7:0-512@64,8:1-2@600");
  want.min_tokens = 256;
  want.recompute_ratio = 0.15;
  want.recompute_boundary = 3;
  want.chunk_tokens = 32;
  want.min_match_ratio = 0.9;
  want.position_correction = false;
  want.rope_theta = 500'000;
  want.head_dim = 128;
  want.recompute_first = 0;
  want.align_tokens = 16;
  want.separators = {{12, 13}, {14}};
  want.recompute = {{100, 116}, {200, 216}};
  want.sources = {{BranchId{7}, 0, 512, 64}, {BranchId{8}, 1, 2, 600}};
  EXPECT_EQ(want, options);
  const StatusCode bad = StatusCode::kInvalidArgument;
  EXPECT_FAILS(SetBlendOption(&options, "min_token", "3"), bad,
               "no option is called \"min_token\"");
  EXPECT_FAILS(SetBlendOption(&options, "enable_blending", "true"), bad, "is one of adapters");
  EXPECT_FAILS(SetBlendOption(&options, "LMCACHE_BLEND_SPECIAL_STR", " # # "), bad, "adapters");
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"min_tokens", "12x"},
                                                        {"min_tokens", ""},
                                                        {"min_tokens", "-3"},
                                                        {"recompute_ratio", "a"},
                                                        {"min_tokens", "4294967296"},
                                                        {"position_correction", "maybe"},
                                                        {"separators", "1,a"},
                                                        {"recompute", "5"},
                                                        {"sources", "7:0-512"},
                                                        {"sources", "7@0-512:9"}}) {
    EXPECT_FAILS(SetBlendOption(&options, name, value), bad, "takes ") << name << " " << value;
  }
  EXPECT_EQ(want, options) << "what is refused sets nothing";
  EXPECT_EQ(256u, BlendOptions::Lmcache().min_tokens);
  EXPECT_EQ(0.15, BlendOptions::Lmcache().recompute_ratio);
  EXPECT_EQ(10'000.0, BlendOptions::Ucm().rope_theta);
  EXPECT_EQ(2u, BlendOptions::Ucm().recompute_boundary);
}

}  // namespace
}  // namespace cairn::testing
