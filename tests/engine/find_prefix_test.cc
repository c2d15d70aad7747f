// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever branches hold of a prompt is found by its ids, to the token, in the namespaces
// that were asked for and nowhere else; what differs in a picture, a model or a shard is no hit;
// and what cannot be used is not promised.
#include "cairn/objects.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindPrefixTest : public FindTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, FindPrefixTest,
                         ::testing::Values("memory", "threads", "simulated"), NameOf);

TEST_P(FindPrefixTest, ToTheToken) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  const Branch chat = Make("chat", ids);
  for (const uint64_t count : {64, 65, 127, 128, 129, 191, 200, 255, 256, 299, 300}) {
    SCOPED_TRACE(count);
    const std::vector<TokenId> prompt = Like(ids, count, 70, 900 + count);
    const PrefixHit hit = Ask(prompt);
    EXPECT_EQ(count, hit.matched);
    EXPECT_EQ(count, hit.restorable);
    EXPECT_EQ(count, hit.exact);
    EXPECT_TRUE(hit.confirmed);
    EXPECT_TRUE(hit.complete);
    ExpectForks(hit, prompt, count);
    ExpectForks(hit, prompt, count / 2);
    ExpectForks(hit, prompt, 0);
    EXPECT_EQ(count, Ask(std::span(prompt).first(count)).matched);
  }
  // Shorter than a block.
  EXPECT_FALSE(Ask(Like(ids, 63, 70, 1)).found());
  EXPECT_FALSE(Ask(std::span(ids).first(63)).found());
  EXPECT_FALSE(Ask(Tokens(300, 6)).found());
  EXPECT_FALSE(Ask(std::span<const TokenId>()).found());
  EXPECT_EQ(300u, *chat.length());
}

// Children that leave anywhere, of which some hold what their parent holds, too.
TEST_P(FindPrefixTest, AlongForks) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Branch base = Make("base", std::span(ids).first(330));
  for (const uint64_t at : {70, 128, 150, 193}) {
    SCOPED_TRACE(at);
    ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(at, {}));
    const std::vector<TokenId> other = Like(ids, at, 90, at);
    ASSERT_OK(Append(fork, std::span(other).subspan(at)));
    for (const uint64_t count : {at, at + 1, at + 40, at + 90}) {
      const std::vector<TokenId> prompt = Like(other, count, 50, 700 + count);
      const PrefixHit hit = Ask(prompt);
      EXPECT_EQ(count, hit.matched);
      ExpectForks(hit, prompt, count);
    }
    // Goes on as its parent does, and then further.
    ASSERT_OK_ASSIGN(Branch twin, base.ForkAt(at + 100, {}));
    ASSERT_OK(Append(twin, std::span(ids).subspan(at + 100, 20)));
    const std::vector<TokenId> beyond = Like(ids, at + 120, 30, 31 * at);
    ASSERT_OK(Append(twin, std::span(beyond).subspan(at + 120)));
    EXPECT_EQ(at + 150, Ask(Like(beyond, at + 150, 9, at)).matched);
  }
  EXPECT_EQ(330u, Ask(ids).matched);
}

TEST_P(FindPrefixTest, AfterSealingAndReopening) {
  const std::vector<TokenId> ids = Tokens(500, 5);
  Branch base = Make("base", ids);
  ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(200, {.name = "fork"}));
  const std::vector<TokenId> other = Like(ids, 200, 150, 3);
  ASSERT_OK(Append(fork, std::span(other).subspan(200)));
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(i == 0 ? Reopen() : SealAndReopen());
    PrefixHit hit;
    for (int asked = 0; asked < 1000 && !(hit = Ask(ids)).complete; ++asked) {
      world_->world().scheduler->Sleep(1'000'000);
    }
    ASSERT_TRUE(hit.complete);
    EXPECT_EQ(500u, hit.matched);
    EXPECT_EQ(500u, hit.restorable);
    ExpectForks(hit, ids, 500);
    EXPECT_EQ(350u, Ask(other).matched);
    EXPECT_EQ(340u, Ask(Like(other, 340, 20, 1)).matched);
  }
}

// Hashes of a path are remembered where branches leave it, and here and there: also where a picture
// lies across, and not what was rewound.
TEST_P(FindPrefixTest, ForksOfALongPrompt) {
  const std::vector<TokenId> ids = Tokens(9000, 5);
  const ContentSpan picture{.begin = 4000, .end = 4200, .hash = {1, 2}};
  ASSERT_OK_ASSIGN(Branch base, store_.CreateBranch(model_, {.name = "base"}));
  ASSERT_OK(Append(base, ids, kSeed, {{picture}}));
  std::vector<std::vector<TokenId>> prompts;
  const auto fork = [&](Branch& from, std::span<const TokenId> of, uint64_t at) {
    ASSERT_OK_ASSIGN(Branch made, from.ForkAt(at, {}));
    prompts.push_back(Like(of, at, 100, at));
    ASSERT_OK(Append(made, std::span(prompts.back()).subspan(at)));
  };
  const auto ask_all = [&] {
    for (const std::vector<TokenId>& prompt : prompts) {
      SCOPED_TRACE(prompt.size());
      PrefixQuery query = Query(prompt);
      ContentSpan shown = picture;
      shown.end = std::min<uint64_t>(shown.end, prompt.size() - 100);
      if (shown.begin < shown.end) query.spans = {&shown, 1};
      EXPECT_EQ(prompt.size(), Ask(query).matched);
    }
  };
  for (const uint64_t at : {4050, 8999, 4096, 4095, 4097, 8192, 8200, 4160, 100, 8999, 4200}) {
    ASSERT_NO_FATAL_FAILURE(fork(base, ids, at));
    if (at % 2 == 0) ask_all();
  }
  ask_all();
  // The branch is alone, so that what is rewound is written over.
  const std::vector<TokenId> mine = Like(ids, 100, 8000, 9);
  ASSERT_OK_ASSIGN(Branch alone, base.ForkAt(100, {}));
  ASSERT_OK(Append(alone, std::span(mine).subspan(100)));
  EXPECT_EQ(8100u, Ask(mine).matched);
  ASSERT_OK(alone.Rewind(4090));
  const std::vector<TokenId> other = Like(mine, 4090, 5000, 10);
  ASSERT_OK(Append(alone, std::span(other).subspan(4090)));
  for (const uint64_t at : {8100, 4100, 4096, 9000}) {
    ASSERT_NO_FATAL_FAILURE(fork(alone, other, at));
    EXPECT_EQ(prompts.back().size(), Ask(prompts.back()).matched);
    prompts.pop_back();
  }
  EXPECT_EQ(4090u, Ask(mine).matched);
}

TEST_P(FindPrefixTest, OtherNamespacesOnlyWhereTheyAreAskedFor) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  Branch theirs = Make("a", ids, "theirs");
  EXPECT_FALSE(Ask(ids).found());
  PrefixQuery query = Query(ids);
  const std::string_view also[] = {"nobody", "theirs", "theirs"};
  query.also = also;
  EXPECT_EQ(200u, Ask(query).matched);
  query.also = {};
  query.ns = "theirs";
  EXPECT_EQ(200u, Ask(query).matched);
  // The first of another namespace has all that is above it.
  ASSERT_OK_ASSIGN(Branch ours, theirs.ForkAt(150, {.name = "b", .ns = "ours"}));
  const std::vector<TokenId> other = Like(ids, 150, 80, 2);
  query.ns = "ours";
  query.tokens = other;
  EXPECT_FALSE(Ask(query).found());
  ASSERT_OK(Append(ours, std::span(other).subspan(150)));
  for (const uint64_t count : {64, 100, 128, 149, 150, 151, 200, 230}) {
    const std::vector<TokenId> prompt = Like(other, count, 70, count);
    query.tokens = prompt;
    EXPECT_EQ(count, Ask(query).matched);
  }
  query.ns = "theirs";
  query.tokens = other;
  EXPECT_EQ(150u, Ask(query).matched);
}

TEST_P(FindPrefixTest, ANamespaceThatIsNotIndexed) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  ASSERT_OK(store_.SetNamespace("quiet", {.index = Index::kNone}));
  Branch quiet = Make("a", ids, "quiet");
  PrefixQuery query = Query(ids);
  query.ns = "quiet";
  EXPECT_FALSE(Ask(query).found());
  ASSERT_OK(store_.SetNamespace("quiet", {}));
  EXPECT_FALSE(Ask(query).complete);
  ASSERT_OK(Append(quiet, Tokens(3, 9)));
  ASSERT_OK(store_.Compact());  // From the next checkpoint on it is indexed, with what it has.
  PrefixHit hit;
  for (int asked = 0; asked < 1000 && !(hit = Ask(query)).complete; ++asked) {
    world_->world().scheduler->Sleep(1'000'000);
  }
  EXPECT_EQ(200u, hit.matched);
  EXPECT_FAILS(store_.SetNamespace("quiet", {.index = static_cast<Index>(3)}),
               StatusCode::kInvalidArgument, "policy.index");
}

TEST_P(FindPrefixTest, ModelsNeverMix) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  Make("a", ids);
  PrefixQuery query = Query(ids);
  ModelSpec other = spec_;
  other.identity.revision = "another";
  query.model = Register(other);
  EXPECT_FALSE(Ask(query).found());
  query.model = ModelId{12345};
  EXPECT_FAILS(store_.FindPrefix(query), StatusCode::kNotFound, "query.model: 12345");
}

// Ids of a picture are all alike; what it shows is in the span.
TEST_P(FindPrefixTest, TheSameIdsWithTwoPictures) {
  std::vector<TokenId> ids = Tokens(300, 5);
  std::fill(ids.begin() + 100, ids.begin() + 180, 7);
  const ContentSpan cat{.begin = 100, .end = 180, .hash = {1, 1}};
  const ContentSpan dog{.begin = 100, .end = 180, .hash = {1, 2}};
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_, {.name = "cat"}));
  ASSERT_OK(Append(chat, ids, kSeed, {{cat}}));
  PrefixQuery query = Query(ids);
  EXPECT_EQ(100u, Ask(query).matched);
  query.spans = {&cat, 1};
  const PrefixHit hit = Ask(query);
  EXPECT_EQ(300u, hit.matched);
  query.spans = {&dog, 1};
  EXPECT_EQ(100u, Ask(query).matched);
  const ContentSpan later{.begin = 101, .end = 180, .hash = {1, 1}};
  query.spans = {&later, 1};
  EXPECT_EQ(100u, Ask(query).matched);
  const ContentSpan shorter{.begin = 100, .end = 150, .hash = {1, 1}};
  query.spans = {&shorter, 1};
  EXPECT_EQ(150u, Ask(query).matched);
}

// No hit ends where a branch may not.
TEST_P(FindPrefixTest, OutsideOfAtomicSpans) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  const ContentSpan picture{.begin = 100, .end = 180, .hash = {1, 1}, .atomic = true};
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_, {.name = "chat"}));
  ASSERT_OK(Append(chat, ids, kSeed, {{picture}}));
  const std::vector<TokenId> prompt = Like(ids, 150, 100, 1);
  PrefixQuery query = Query(prompt);
  query.spans = {&picture, 1};
  const PrefixHit hit = Ask(query);
  EXPECT_EQ(100u, hit.matched);
  EXPECT_EQ(100u, hit.restorable);
  ExpectForks(hit, prompt, 100);
}

// Blocks end within it, where no branch may: that is no reason to look no further.
TEST_P(FindPrefixTest, BehindAnAtomicPicture) {
  const std::vector<TokenId> ids = Tokens(1000, 5);
  const ContentSpan picture{.begin = 0, .end = 700, .hash = {1, 2}, .atomic = true};
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_, {.name = "chat"}));
  ASSERT_OK(Append(chat, ids, kSeed, {{picture}}));
  ASSERT_OK(store_.Flush());
  Options options = FindingOptions();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(const Store follower, world_->Open(options));  // It has no filter.
  for (const uint64_t count : {300, 700, 701, 900, 1000}) {
    SCOPED_TRACE(count);
    const std::vector<TokenId> prompt = Like(ids, count, 70, 1);
    ContentSpan asked = picture;
    asked.end = std::min<uint64_t>(picture.end, prompt.size());
    PrefixQuery query = Query(prompt);
    query.spans = {&asked, 1};
    for (const Store* store : std::initializer_list<const Store*>{&store_, &follower}) {
      ASSERT_OK_ASSIGN(const PrefixHit hit, store->FindPrefix(query));
      EXPECT_EQ(count < 700 ? 0u : count, hit.matched);
      EXPECT_TRUE(hit.complete);
    }
  }
}

TEST_P(FindPrefixTest, ForksNeitherIntoObjectsNorFromThem) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make("chat", ids);
  Objects space(store_);
  ASSERT_OK_ASSIGN(const ObjectClassId pages,
                   space.RegisterClass({.name = "pages", .page_bytes = 512}));
  const std::vector<std::byte> value(5000);
  const ObjectPut put{.key = "key", .value = value};
  ASSERT_OK(space.PutBatch({&put, 1}, {.object_class = pages}));
  PrefixHit hit = Ask(ids);
  EXPECT_FAILS(store_.Fork(hit, 100, {.ns = "\x01ot"}), StatusCode::kInvalidArgument, "objects");
  EXPECT_FAILS(store_.Fork(hit, 100, {.ns = "\x01o"}), StatusCode::kInvalidArgument, "objects");
  // A hit that was made up, of any node.
  size_t refused = 0;
  hit.matched = 1;
  for (uint64_t node = 1; node < 20; ++node) {
    hit.node = NodeId{node};
    const Status forked = store_.Fork(hit, 1).status();
    if (forked.ToString().find("holds objects") != std::string::npos) ++refused;
  }
  EXPECT_EQ(1u, refused);
}

TEST_P(FindPrefixTest, EndsWhereKvIsApproximate) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_, {.name = "blend"}));
  ASSERT_OK(Append(chat, std::span(ids).first(200)));
  ASSERT_OK(Append(chat, std::span(ids).subspan(200), kSeed, {}, /*exact=*/false));
  PrefixQuery query = Query(ids);
  PrefixHit hit = Ask(query);
  EXPECT_EQ(200u, hit.matched);
  EXPECT_EQ(200u, hit.exact);
  query.approximate = true;
  hit = Ask(query);
  EXPECT_EQ(300u, hit.matched);
  EXPECT_EQ(300u, hit.restorable);
  EXPECT_EQ(200u, hit.exact);
  // The part that a fork leaves behind is not the fork's own.
  ASSERT_OK_ASSIGN(Branch fork, chat.ForkAt(150, {}));
  const std::vector<TokenId> other = Like(ids, 150, 150, 2);
  ASSERT_OK(Append(fork, std::span(other).subspan(150)));
  hit = Ask(other);
  EXPECT_EQ(300u, hit.matched);
  EXPECT_EQ(300u, hit.exact);
  // Somebody computed it, though less of it.
  Make("exact", std::span(ids).first(260));
  query.approximate = false;
  EXPECT_EQ(260u, Ask(query).matched);
}

// Positions without KV are matched and not restorable; of equal hits the restorable one is found.
TEST_P(FindPrefixTest, WhatCanBeRestored) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  ASSERT_OK_ASSIGN(Branch bare, store_.CreateBranch(model_, {.name = "bare"}));
  ASSERT_OK(bare.AppendSync(MakeDelta(ids)));
  PrefixHit hit = Ask(ids);
  EXPECT_EQ(300u, hit.matched);
  EXPECT_EQ(0u, hit.restorable);
  EXPECT_EQ(300u, hit.longest.matched);
  Make("whole", std::span(ids).first(280));
  hit = Ask(ids);
  EXPECT_EQ(280u, hit.restorable);
  EXPECT_EQ(300u, hit.longest.matched) << "of ids";

  KvSet got(spec_, Layout::kContiguous, 0, 280), want(spec_, Layout::kContiguous, 0, 280);
  want.Write(kSeed, 0, 280);
  RestoreRequest request;
  request.into = got.View(0, 280);
  request.require_kv = true;
  ASSERT_OK_ASSIGN(const RestoreResult restored, store_.Restore(hit, request));
  EXPECT_EQ(280u, restored.end);
  EXPECT_TRUE(got == want);
  request.end = 281;
  EXPECT_FAILS(store_.Restore(hit, request), StatusCode::kInvalidArgument, "281");
}

TEST_P(FindPrefixTest, AfterTheBranchThatHadIt) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch base = Make("base", ids);
  ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(170, {.name = "fork"}));
  ASSERT_OK(Append(fork, Tokens(100, 8)));
  ASSERT_OK(base.Drop());
  ASSERT_OK(store_.Compact());  // The node of both is trimmed, and joined with what is left.
  const PrefixHit hit = Ask(ids);
  EXPECT_EQ(170u, hit.matched);
  ExpectForks(hit, ids, 170);
  ASSERT_OK(fork.Drop());
  EXPECT_FALSE(Ask(ids).found());
}

// More of the same than are looked at.
TEST_P(FindPrefixTest, ManyWithOnePrompt) {
  const std::vector<TokenId> ids = Tokens(256, 5);
  for (uint64_t i = 0; i < 40; ++i) {
    Make("chat-" + std::to_string(i), Like(ids, 200, 20, 1000 + i));
  }
  const PrefixHit hit = Ask(ids);
  EXPECT_EQ(200u, hit.matched);
  ExpectForks(hit, ids, 200);
}

TEST_P(FindPrefixTest, FromMemoryAlone) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  ASSERT_OK(store_.PauseBackground());  // It indexes, too.
  Make("a", ids);
  PrefixQuery query = Query(ids);
  query.memory_only = true;
  PrefixHit hit = Ask(query);  // Nothing is indexed for it.
  EXPECT_FALSE(hit.found());
  EXPECT_FALSE(hit.complete);
  EXPECT_TRUE(Ask(ids).complete);
  hit = Ask(query);
  EXPECT_EQ(200u, hit.matched);
  EXPECT_TRUE(hit.confirmed);
  EXPECT_TRUE(hit.complete);
  ASSERT_OK(store_.ResumeBackground());
}

TEST_P(FindPrefixTest, Unconfirmed) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  Branch chat = Make("a", ids);
  PrefixQuery query = Query(ids);
  query.confirm = false;
  PrefixHit hit = Ask(query);
  EXPECT_EQ(192u, hit.matched) << "by the hash of whole blocks";
  EXPECT_FALSE(hit.confirmed);
  ExpectForks(hit, ids, 192);
  // The hash is still there, the ids are not.
  ASSERT_OK(chat.Rewind(100));
  ASSERT_OK(Append(chat, Tokens(100, 77)));
  hit = Ask(query);
  EXPECT_EQ(192u, hit.matched);
  EXPECT_FAILS(store_.Fork(hit, 192), StatusCode::kConflict, "other tokens");
  EXPECT_EQ(100u, Ask(ids).matched);
}

TEST_P(FindPrefixTest, BadInput) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  Make("a", ids);
  PrefixQuery query = Query(ids);
  const ContentSpan spans[] = {{.begin = 20, .end = 30}, {.begin = 10, .end = 20}};
  query.spans = spans;
  EXPECT_FAILS(store_.FindPrefix(query), StatusCode::kInvalidArgument, "query.spans: [10, 20)");
  const ContentSpan beyond{.begin = 190, .end = 201};
  query.spans = {&beyond, 1};
  EXPECT_FAILS(store_.FindPrefix(query), StatusCode::kInvalidArgument, "query.spans: [190, 201)");
  query.spans = {};
  query.tokens = {ids.data(), uint64_t{1} << 31};  // Refused before it is looked at.
  EXPECT_FAILS(store_.FindPrefix(query), StatusCode::kInvalidArgument, "query.tokens: 2147483648");
  query.tokens = ids;
  const std::vector<std::string_view> many(kMaxQueryNamespaces, "x");
  query.also = many;
  EXPECT_FAILS(store_.FindPrefix(query), StatusCode::kInvalidArgument, "query.also: 16");
  const PrefixHit hit = Ask(ids);
  EXPECT_FAILS(store_.Fork(hit, 201), StatusCode::kInvalidArgument, "position 201");
  EXPECT_FAILS(store_.Fork(PrefixHit(), 0), StatusCode::kInvalidArgument, "nothing was found");
  EXPECT_FAILS(Store().FindPrefix(query), StatusCode::kInvalidState);
}

TEST_P(FindPrefixTest, WhereNothingIsIndexed) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  Make("a", ids);
  const PrefixHit hit = Ask(ids);
  Options none = FindingOptions();
  none.index = Index::kNone;
  WorldTest::Reopen(none);
  EXPECT_FAILS(store_.FindPrefix(Query(ids)), StatusCode::kInvalidState, "options.index");
  EXPECT_FAILS(store_.Fork(hit, 3), StatusCode::kInvalidState, "indexed");
  EXPECT_OK(store_.Release(LeaseId{}));
  none.read_only = true;
  none.create_if_missing = false;
  WorldTest::Reopen(none);
  EXPECT_FAILS(store_.FindPrefix(Query(ids)), StatusCode::kInvalidState, "options.index");
  Options options = FindingOptions();
  options.reuse_memory_bytes = 1000;
  EXPECT_FAILS(world_->Open(options), StatusCode::kInvalidArgument, "reuse_memory_bytes is 1000");
  options = FindingOptions();
  options.index = static_cast<Index>(3);
  EXPECT_FAILS(world_->Open(options), StatusCode::kInvalidArgument, "index is none that exists");
}

TEST_P(FindPrefixTest, IsCounted) {
  ASSERT_OK(store_.PauseBackground());  // Which would index as well.
  const std::vector<TokenId> ids = Tokens(200, 5);
  Make("a", ids);
  EXPECT_EQ(1u, store_.Metrics().hint_nodes_behind);
  Ask(ids);
  Ask(Tokens(200, 6));
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(2u, metrics.finds);
  EXPECT_EQ(1u, metrics.find_hits);
  EXPECT_EQ(3u, metrics.hint_entries);
  EXPECT_EQ(0u, metrics.hint_nodes_behind);
  EXPECT_EQ(0u, metrics.hints_incomplete);
  EXPECT_GT(metrics.hint_bytes, 0u);
  EXPECT_EQ(0u, metrics.restores) << "what is read to index and to compare is no restore";
  ASSERT_OK(store_.ResumeBackground());
}

}  // namespace
}  // namespace cairn::testing
