// SPDX-License-Identifier: Apache-2.0
//
// Stores whose namespace "docs" indexes chunks, and what is asked of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/store/store_core.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {

using engine::ChunkMatch;
using engine::ChunkMatches;

inline Result<ChunkMatches> FindChunks(const Store& store, const PrefixQuery& query) {
  return store.core()->chunks().Find(query);
}

// Ids one behind the other.
inline std::vector<TokenId> Joined(const std::vector<std::vector<TokenId>>& parts) {
  std::vector<TokenId> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
inline std::vector<TokenId> Part(std::span<const TokenId> ids, size_t begin, size_t end) {
  return {ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end)};
}

class ChunkTest : public FindTest {
 protected:
  void SetUp() override {
    FindTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_OK(store_.SetNamespace("docs", {.index = Index::kChunks}));
  }
  PrefixQuery QueryOf(std::span<const TokenId> ids, std::string_view ns = "docs") const {
    PrefixQuery query = Query(ids);
    query.ns = ns;
    return query;
  }
  ChunkMatches Chunks(const PrefixQuery& query) {
    const auto found = FindChunks(store_, query);
    EXPECT_OK(found);
    return found.ok() ? *found : ChunkMatches();
  }
  ChunkMatches Chunks(std::span<const TokenId> ids) {
    const ChunkMatches found = Chunks(QueryOf(ids));
    for (const ChunkMatch& match : found.matches) ExpectTrue(ids, match);
    return found;
  }
  ChunkMatches UntilComplete(std::span<const TokenId> ids) {
    ChunkMatches found;
    for (int i = 0; i < 1000 && !(found = Chunks(ids)).complete; ++i) {
      world_->world().scheduler->Sleep(1'000'000);
    }
    EXPECT_TRUE(found.complete);
    return found;
  }

  // A fork of the node there has these ids, with exact KV.
  void ExpectTrue(std::span<const TokenId> ids, const ChunkMatch& match) {
    SCOPED_TRACE("[" + std::to_string(match.begin) + ", " + std::to_string(match.end) + ") from " +
                 std::to_string(match.source) + " of node " + std::to_string(match.node));
    ASSERT_LE(match.begin + engine::kChunkIds, match.end);
    const uint64_t end = match.source + match.end - match.begin;
    ASSERT_OK_ASSIGN(const BranchId id, store_.core()->changes().ForkNode(
                                            NodeId{match.node}, end, {.name = {}, .ns = "forks"}));
    Branch fork(store_.core(), id);
    ASSERT_OK_ASSIGN(const std::vector<TokenId> got, fork.ReadTokens(match.source, end));
    EXPECT_EQ(Part(ids, match.begin, match.end), got);
    KvSet kv(spec_, Layout::kNhd, match.source, got.size());
    RestoreRequest request;
    request.begin = match.source;
    request.end = end;
    request.into = kv.View(match.source, got.size());
    ASSERT_OK_ASSIGN(const RestoreResult restored, fork.Restore(request));
    EXPECT_EQ(0u, restored.approximate_bytes);
    EXPECT_OK(fork.Drop());
  }
  // One match of these ids, from there.
  void ExpectOne(const ChunkMatches& found, uint64_t begin, uint64_t end, uint64_t source) {
    ASSERT_EQ(1u, found.matches.size());
    EXPECT_EQ(begin, found.matches[0].begin);
    EXPECT_EQ(end, found.matches[0].end);
    EXPECT_EQ(source, found.matches[0].source);
    EXPECT_TRUE(found.complete);
  }
};

}  // namespace cairn::testing
