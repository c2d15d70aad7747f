// SPDX-License-Identifier: Apache-2.0
//
// Property: of a prompt the chunk search finds the runs of 47 ids and more that a namespace has
// with exact KV, wherever they stand there, and nothing else: never another id, never content that
// is gone, nothing of another model or namespace, nothing that was appended as approximate. Every
// match is checked: a fork of its node has those ids and that KV.
#include "tests/engine/chunk_test.h"

namespace cairn::testing {
namespace {

class ChunkFindTest : public ChunkTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, ChunkFindTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(ChunkFindTest, ARunIsFoundWhereverItStands) {
  const std::vector<TokenId> doc = Tokens(600, 5);
  Make("doc", Joined({Tokens(100, 4), doc}), "docs");
  for (const auto& [begin, end] : {std::pair(50, 450), std::pair(0, 600), std::pair(3, 50)}) {
    const auto prompt = Joined({Tokens(77, 8), Part(doc, begin, end), Tokens(90, 9)});
    ExpectOne(Chunks(prompt), 77, 77 + end - begin, 100 + begin);
  }
  EXPECT_TRUE(Chunks(Tokens(600, 7)).matches.empty());
  EXPECT_TRUE(Chunks(Part(doc, 100, 146)).matches.empty()) << "46 ids have no window";
  EXPECT_TRUE(Chunks(std::vector<TokenId>()).matches.empty());
}

TEST_P(ChunkFindTest, ShuffledDocumentsAreAllFound) {
  std::vector<std::vector<TokenId>> docs;
  for (uint64_t i = 0; i < 20; ++i) {
    docs.push_back(Tokens(60 + 40 * i, 100 + i));
    Make("doc-" + std::to_string(i), docs.back(), "docs");
  }
  std::reverse(docs.begin(), docs.end());
  const std::vector<TokenId> prompt = Joined(docs);
  const ChunkMatches found = Chunks(prompt);
  ASSERT_EQ(20u, found.matches.size());
  uint64_t at = 0;
  for (size_t i = 0; i < docs.size(); ++i) {
    EXPECT_EQ(at, found.matches[i].begin);
    EXPECT_EQ(at += docs[i].size(), found.matches[i].end);
    EXPECT_EQ(0u, found.matches[i].source);
  }
  EXPECT_LT(found.looked_up, prompt.size() / 64) << "more than a few for each document";
}

TEST_P(ChunkFindTest, ARunAcrossNodesIsOneMatch) {
  const std::vector<TokenId> first = Tokens(300, 5), second = Tokens(300, 6);
  const Branch root = Make("root", first, "docs");
  ASSERT_OK_ASSIGN(Branch fork, root.ForkAt(200, {.name = "fork", .ns = "docs"}));
  ASSERT_OK(Append(fork, second));
  const auto prompt = Joined({Tokens(10, 8), Part(first, 20, 200), second});
  ExpectOne(Chunks(prompt), 10, 490, 20);
  // What the fork left stays a run of the root.
  ExpectOne(Chunks(Part(first, 150, 300)), 0, 150, 150);
}

// The window that ends there had chosen its fingerprint on the parent already, and so the fork,
// which had the id behind it, got no entry of its own.
TEST_P(ChunkFindTest, ARunThatEndsJustBehindAForkIsFoundWhole) {
  const std::vector<TokenId> first = Tokens(300, 5), second = Tokens(60, 6);
  const Branch root = Make("root", first, "docs");
  ASSERT_OK_ASSIGN(Branch fork, root.ForkAt(200, {.name = "fork", .ns = "docs"}));
  ASSERT_OK(Append(fork, second));
  for (size_t more = 1; more < second.size(); ++more) {
    SCOPED_TRACE(more);
    ExpectOne(Chunks(Joined({Part(first, 100, 200), Part(second, 0, more)})), 0, 100 + more, 100);
  }
}

TEST_P(ChunkFindTest, OneIdAfterTheOtherIsIndexedAsAllAtOnce) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  for (size_t at = 0; at < ids.size(); at += 10) {
    ASSERT_OK(Append(branch, Part(ids, at, at + 10)));
    Chunks(Part(ids, 0, 60));  // Indexes what is there.
  }
  const uint64_t in_steps = store_.Metrics().hint_chunk_entries;
  ExpectOne(Chunks(Joined({Tokens(5, 3), ids})), 5, 205, 0);
  ASSERT_OK(store_.SetNamespace("other", {.index = Index::kChunks}));
  Make("b", ids, "other");
  Chunks(QueryOf(ids, "other"));
  EXPECT_EQ(2 * in_steps, store_.Metrics().hint_chunk_entries) << "none twice, and none missing";
}

TEST_P(ChunkFindTest, OnlyExactKvOfAllGroupsIsIndexed) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  ASSERT_OK_ASSIGN(Branch approximate, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  ASSERT_OK(Append(approximate, ids, kSeed, {}, /*exact=*/false));
  ASSERT_OK_ASSIGN(Branch alone, store_.CreateBranch(model_, {.name = "b", .ns = "docs"}));
  ASSERT_OK(alone.AppendSync(MakeDelta(ids)));
  EXPECT_TRUE(Chunks(ids).matches.empty());
  EXPECT_EQ(0u, store_.Metrics().hint_chunk_entries);
  // Only what is exact of a mixed branch.
  ASSERT_OK_ASSIGN(Branch mixed, store_.CreateBranch(model_, {.name = "c", .ns = "docs"}));
  ASSERT_OK(Append(mixed, Part(ids, 0, 100)));
  ASSERT_OK(Append(mixed, Part(ids, 100, 200), kSeed, {}, /*exact=*/false));
  ASSERT_OK(Append(mixed, Part(ids, 200, 300)));
  const ChunkMatches found = Chunks(ids);
  ASSERT_EQ(2u, found.matches.size());
  EXPECT_EQ(100u, found.matches[0].end);
  EXPECT_EQ(200u, found.matches[1].begin);
  EXPECT_EQ(300u, found.matches[1].end);
}

TEST_P(ChunkFindTest, KvThatComesLaterIsIndexedThen) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  ASSERT_OK(Append(branch, Part(ids, 0, 20)));
  ASSERT_OK(branch.AppendSync(MakeDelta(Part(ids, 20, 300))));
  EXPECT_TRUE(Chunks(ids).matches.empty());
  KvSet kv(spec_, Layout::kContiguous, 20, 280);
  kv.Write(kSeed, 20, 300);
  ASSERT_OK(branch.Fill(*kv.View(20, 280)));
  ExpectOne(Chunks(ids), 0, 300, 0);
}

TEST_P(ChunkFindTest, NamespacesAndModelsDoNotMix) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  EXPECT_FAILS(FindChunks(store_, QueryOf(ids, "")), StatusCode::kInvalidState, "indexes chunks");
  ASSERT_OK(store_.SetNamespace("more", {.index = Index::kChunks}));
  Make("a", ids, "more");
  Make("b", ids);
  EXPECT_TRUE(Chunks(ids).matches.empty());
  PrefixQuery query = QueryOf(ids);
  const std::vector<std::string_view> also = {"more", "", "more"};
  query.also = also;
  EXPECT_EQ(1u, Chunks(query).matches.size());
  ModelSpec other = spec_;
  other.identity.weights_digest.assign("other");
  query.model = Register(other);
  EXPECT_TRUE(Chunks(query).matches.empty());
}

TEST_P(ChunkFindTest, ContentSpansEndARun) {
  const std::vector<TokenId> ids(300, 7);  // As placeholders of pictures are.
  const auto spans = [](uint64_t hash) {
    return std::vector<ContentSpan>{{.begin = 50, .end = 150, .hash = {hash, 1}}};
  };
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = "a", .ns = "docs"}));
  const std::vector<TokenId> doc = Joined({Tokens(50, 2), Part(ids, 0, 100), Tokens(150, 3)});
  const std::vector<ContentSpan> own = spans(5), other = spans(6);
  ASSERT_OK(Append(branch, doc, kSeed, own));
  PrefixQuery query = QueryOf(doc);
  query.spans = own;
  ExpectOne(Chunks(query), 0, 300, 0);
  query.spans = other;
  const ChunkMatches found = Chunks(query);
  ASSERT_EQ(2u, found.matches.size());
  EXPECT_EQ(50u, found.matches[0].end);
  EXPECT_EQ(150u, found.matches[1].begin);
  // The same picture elsewhere.
  const std::vector<TokenId> moved = Joined({Tokens(80, 9), Part(doc, 20, 300)});
  const std::vector<ContentSpan> there = {{.begin = 110, .end = 210, .hash = {5, 1}}};
  query = QueryOf(moved);
  query.spans = there;
  ExpectOne(Chunks(query), 80, 360, 20);
}

TEST_P(ChunkFindTest, WhatIsGoneIsNotNamed) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Branch branch = Make("a", ids, "docs");
  ExpectOne(Chunks(ids), 0, 400, 0);
  ASSERT_OK(branch.Rewind(250));
  ExpectOne(Chunks(ids), 0, 250, 0);
  ASSERT_OK(Append(branch, Tokens(150, 6)));
  ExpectOne(Chunks(ids), 0, 250, 0);
  ExpectOne(Chunks(Joined({Part(ids, 100, 250), Tokens(150, 6)})), 0, 300, 100);
  ASSERT_OK(branch.Drop());
  EXPECT_TRUE(Chunks(ids).matches.empty());
}

TEST_P(ChunkFindTest, EvictedKvIsNotNamedAndFilledKvIs) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Make("a", ids, "docs");
  ExpectOne(Chunks(ids), 0, 400, 0);
  const uint64_t bytes = 400 * (spec_.token_bytes() + sizeof(TokenId));
  ASSERT_OK(store_.SetNamespace(
      "docs", {.max_bytes = bytes + bytes / 4, .evict = Evict::kKv, .index = Index::kChunks}));
  Make("b", Tokens(400, 6), "docs");  // Which evicts the KV of the other.
  ASSERT_OK_ASSIGN(Branch evicted, store_.FindBranch("a", "docs"));
  ASSERT_OK_ASSIGN(const auto holes, evicted.EvictedKv());
  ASSERT_FALSE(holes.empty());
  for (const ChunkMatch& match : Chunks(ids).matches) {
    for (const KvHole& hole : holes) {
      EXPECT_TRUE(match.source + match.end - match.begin <= hole.begin || match.source >= hole.end);
    }
  }
  ASSERT_OK(store_.SetNamespace("docs", {.index = Index::kChunks}));
  KvSet kv(spec_, Layout::kContiguous, 0, 400);
  kv.Write(kSeed, 0, 400);
  ASSERT_OK(evicted.Fill(*kv.View(0, 400)));
  ExpectOne(UntilComplete(ids), 0, 400, 0);
}

// Windows of a fork reach into what it was forked from: they were left out, and the fork with them.
TEST_P(ChunkFindTest, WhatIsFilledAboveAForkIsIndexedForTheFork) {
  const std::vector<TokenId> ids = Tokens(430, 5);
  Branch root = Make("root", Part(ids, 0, 400), "docs");
  const uint64_t bytes = 400 * (spec_.token_bytes() + sizeof(TokenId));
  ASSERT_OK(store_.SetNamespace(
      "docs", {.max_bytes = bytes + bytes / 4, .evict = Evict::kKv, .index = Index::kChunks}));
  Make("other", Tokens(400, 6), "docs");  // Which evicts the KV of the root.
  ASSERT_OK_ASSIGN(const auto holes, root.EvictedKv());
  ASSERT_FALSE(holes.empty());
  ASSERT_OK(store_.SetNamespace("docs", {.index = Index::kChunks}));
  ASSERT_OK_ASSIGN(Branch fork, root.ForkAt(400, {.name = "fork", .ns = "docs"}));
  ASSERT_OK(Append(fork, Part(ids, 400, 430)));
  for (const ChunkMatch& match : UntilComplete(ids).matches) EXPECT_LE(match.end, 400u);
  KvSet kv(spec_, Layout::kContiguous, 0, 400);
  kv.Write(kSeed, 0, 400);
  ASSERT_OK(fork.Fill(*kv.View(0, 400)));
  ExpectOne(UntilComplete(ids), 0, 430, 0);
}

// The eight newest that live are looked at, among any number that are gone.
TEST_P(ChunkFindTest, OfManyThatHaveItTheNewestThatLiveAreFound) {
  const std::vector<TokenId> common = Tokens(100, 5);
  std::vector<Branch> branches;
  for (uint64_t i = 0; i < 20; ++i) {
    branches.push_back(
        Make("b-" + std::to_string(i), Joined({Tokens(10, 50 + i), common}), "docs"));
  }
  EXPECT_EQ(8u, Chunks(common).matches.size());
  for (size_t i = 2; i < 20; ++i) ASSERT_OK(branches[i].Drop());
  EXPECT_EQ(2u, Chunks(common).matches.size());
}

TEST_P(ChunkFindTest, BlendedRoundsChangeNothing) {
  std::vector<std::vector<TokenId>> docs;
  for (uint64_t i = 0; i < 4; ++i) {
    docs.push_back(Tokens(150, 10 + i));
    Make("doc-" + std::to_string(i), docs.back(), "docs");
  }
  const std::vector<ChunkMatch> before = Chunks(Joined(docs)).matches;
  EXPECT_EQ(4u, before.size());
  const uint64_t entries = store_.Metrics().hint_chunk_entries;
  for (uint64_t round = 0; round < 100; ++round) {
    std::next_permutation(docs.begin(), docs.end());
    ASSERT_OK_ASSIGN(Branch blended, store_.CreateBranch(model_, {.name = {}, .ns = "docs"}));
    ASSERT_OK(Append(blended, Joined(docs), kSeed, {}, /*exact=*/false));
  }
  std::sort(docs.begin(), docs.end());
  EXPECT_EQ(4u, Chunks(Joined(docs)).matches.size());
  EXPECT_EQ(entries, store_.Metrics().hint_chunk_entries);
}

TEST_P(ChunkFindTest, OneIdRepeatedAndADocumentTwiceAreFound) {
  const std::vector<TokenId> same(2000, 7), doc = Tokens(300, 5);
  Make("same", same, "docs");
  Make("doc", doc, "docs");
  const ChunkMatches repeated = Chunks(Joined({Tokens(20, 8), Part(same, 0, 1500)}));
  EXPECT_TRUE(std::ranges::any_of(repeated.matches, [](const ChunkMatch& match) {
    return match.begin == 20 && match.end == 1520;
  }));
  const ChunkMatches twice = Chunks(Joined({doc, doc}));
  ASSERT_EQ(2u, twice.matches.size());
  EXPECT_EQ(300u, twice.matches[0].end);
  EXPECT_EQ(300u, twice.matches[1].begin);
  EXPECT_EQ(600u, twice.matches[1].end);
}

// Each of its ids may stand for each other one: a search would compare for minutes.
TEST_P(ChunkFindTest, WhatRepeatsItselfIsNotComparedForEver) {
  spec_ = ModelSpec::FullAttention("small", 1, 1, 1, Dtype::kBf16);
  model_ = Register(spec_);
  std::vector<TokenId> ids;
  for (size_t i = 0; i < 40'000; ++i) ids.push_back(static_cast<TokenId>(i % 3));
  Make("same", ids, "docs");
  const ChunkMatches found = Chunks(QueryOf(ids));
  EXPECT_FALSE(found.complete);
  EXPECT_FALSE(found.matches.empty());
  // A round of reads may begin just below the bound.
  EXPECT_LT(found.compared, (engine::kComparedShare + 1) * ids.size() + 2 * engine::kConfirmTokens);
}

// More than one look at the index has in hand, and more ids than one read of many.
TEST_P(ChunkFindTest, ALongPromptIsFoundWhole) {
  const std::vector<TokenId> doc = Tokens(60'000, 5);
  spec_ = ModelSpec::FullAttention("small", 1, 1, 1, Dtype::kBf16);
  model_ = Register(spec_);
  Make("doc", doc, "docs");
  ExpectOne(Chunks(Joined({Tokens(20, 8), doc})), 20, 60'020, 0);
  std::vector<std::vector<TokenId>> pieces;  // None has the neighbours that it had.
  for (size_t at = doc.size(); at >= 100; at -= 100) pieces.push_back(Part(doc, at - 100, at));
  EXPECT_EQ(600u, Chunks(Joined(pieces)).matches.size());
}

TEST_P(ChunkFindTest, MemoryOnlyIsBusyRatherThanReading) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Make("a", ids, "docs");
  Chunks(ids);
  PrefixQuery query = QueryOf(ids);
  query.memory_only = true;
  ExpectOne(Chunks(query), 0, 400, 0);
  SealAndReopen();
  EXPECT_FAILS(FindChunks(store_, query), StatusCode::kBusy);
}

TEST_P(ChunkFindTest, BadQueriesAreRefusedByTheirField) {
  const std::vector<TokenId> ids = Tokens(100, 5);
  PrefixQuery query = QueryOf(ids);
  query.model = ModelId{99};
  EXPECT_FAILS(FindChunks(store_, query), StatusCode::kNotFound, "query.model");
  query = QueryOf(ids);
  const std::vector<ContentSpan> spans = {{.begin = 5, .end = 101, .hash = {1, 2}}};
  query.spans = spans;
  EXPECT_FAILS(FindChunks(store_, query), StatusCode::kInvalidArgument, "query.spans");
}

}  // namespace
}  // namespace cairn::testing
