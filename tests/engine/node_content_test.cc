// SPDX-License-Identifier: Apache-2.0
//
// Property: Lookup::ContentOf tells where each position of a node lies, whether its KV is exact,
// its states and spans, and bytes that add up to what the namespace counts; before and after
// sealing, of evicted KV and of gaps. Method: a branch of each kind, alone in its namespace.
#include <numeric>

#include "engine/store/store_core.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

using Stretch = engine::Lookup::Stretch;
using Where = Stretch::Where;

class NodeContentTest : public WorldTest {
 protected:
  static constexpr uint64_t kEach = 8;  // Positions.

  engine::Lookup::NodeContent ContentOf(const Branch& branch) {
    const auto info = branch.Info();
    EXPECT_OK(info);
    auto content = store_.core()->lookup().ContentOf(info->node);
    EXPECT_OK(content);
    return std::move(*content);
  }
  static uint64_t BytesOf(const engine::Lookup::NodeContent& content) {
    uint64_t bytes = 0;
    for (const std::vector<Stretch>& lane : content.lanes) {
      for (const Stretch& stretch : lane) bytes += stretch.bytes;
    }
    return bytes;
  }
  uint64_t CountedBytes() {
    const auto namespaces = store_.Namespaces();
    EXPECT_OK(namespaces);
    return std::accumulate(namespaces->begin(), namespaces->end(), uint64_t{0},
                           [](uint64_t sum, const NamespaceInfo& one) { return sum + one.bytes; });
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, NodeContentTest, ::testing::Values("memory"), NameOf);

TEST_P(NodeContentTest, ALaneIsToldByWhereItLies) {
  const ModelSpec spec = WideModel();
  const ModelId model = Register(spec);
  Branch chat = Create(model, "chat");
  KvSet kv(spec, Layout::kContiguous, 0, 3 * kEach);
  kv.Write(kSeed, 0, 3 * kEach);
  const std::vector<TokenId> tokens = Tokens(kEach);
  const SamplerState sampler;
  const AppMetadata metadata;
  const std::vector<ContentSpan> spans = {{.begin = 2, .end = 5, .hash = {1, 2}}};
  ASSERT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, kEach), .spans = spans}));
  ASSERT_OK(chat.AppendSync(
      {.tokens = tokens, .kv = kv.View(kEach, kEach), .sampler = &sampler, .exact = false}));
  ASSERT_OK(chat.AppendSync({.tokens = tokens, .metadata = &metadata}));
  for (const Where where : {Where::kLog, Where::kTable}) {
    if (where == Where::kTable) {
      ASSERT_OK(store_.Compact());
    }
    const auto content = ContentOf(chat);
    ASSERT_EQ(2u, content.lanes.size());
    ASSERT_EQ(1u, content.lanes[0].size());
    EXPECT_EQ(3 * kEach, content.lanes[0][0].end);
    EXPECT_EQ(where, content.lanes[0][0].where);
    ASSERT_EQ(2u, content.lanes[1].size());
    for (const size_t i : {0, 1}) {
      const Stretch& stretch = content.lanes[1][i];
      EXPECT_EQ(i * kEach, stretch.begin);
      EXPECT_EQ((i + 1) * kEach, stretch.end);
      EXPECT_EQ(where, stretch.where);
      EXPECT_EQ(i == 0, stretch.exact);
    }
    ASSERT_EQ(2u, content.states.size());
    EXPECT_EQ(2 * kEach, content.states[0].position);
    EXPECT_TRUE(content.states[0].sampler && !content.states[0].metadata);
    EXPECT_EQ(3 * kEach, content.states[1].position);
    EXPECT_TRUE(content.states[1].metadata && !content.states[1].sampler);
    EXPECT_EQ(spans, content.spans);
    EXPECT_EQ("", content.ns);
    EXPECT_EQ(CountedBytes(), BytesOf(content));
  }
}

TEST_P(NodeContentTest, EvictedKvAndGapsTakeNoBytes) {
  const ModelSpec spec = WideModel();
  const ModelId model = Register(spec);
  KvSet kv(spec, Layout::kContiguous, 0, kEach);
  kv.Write(kSeed, 0, kEach);
  const std::vector<TokenId> tokens = Tokens(kEach);
  // Room for the KV of one of the two.
  ASSERT_OK(store_.SetNamespace("t", {.max_bytes = 100'000, .evict = Evict::kKv}));
  std::vector<Branch> branches;
  for (const char* name : {"first", "second"}) {
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model, {.name = name, .ns = "t"}));
    ASSERT_OK(branch.AppendSync({.tokens = tokens, .kv = kv.View(0, kEach)}));
    branches.push_back(branch);
  }
  const auto evicted = ContentOf(branches[0]);
  ASSERT_EQ(1u, evicted.lanes[1].size());
  EXPECT_EQ(Where::kEvicted, evicted.lanes[1][0].where);
  EXPECT_EQ(0u, evicted.lanes[1][0].bytes);
  EXPECT_EQ(kEach * sizeof(TokenId), BytesOf(evicted));
  EXPECT_EQ(CountedBytes(), BytesOf(evicted) + BytesOf(ContentOf(branches[1])));

  // A window of the model is given its last positions alone.
  const ModelSpec hybrid = HybridModel();
  Branch branch = Create(Register(hybrid), "hybrid");
  KvSet all(hybrid, Layout::kContiguous, 0, kEach);
  all.Write(kSeed, 0, kEach);
  std::vector<std::pair<uint64_t, uint64_t>> given(hybrid.groups.size(), {0, kEach});
  given[1] = {kEach - 2, 2};
  ASSERT_OK(branch.AppendSync({.tokens = tokens, .kv = all.View(given)}));
  const auto gap = ContentOf(branch);
  ASSERT_EQ(2u, gap.lanes[2].size());
  EXPECT_EQ(Where::kGap, gap.lanes[2][0].where);
  EXPECT_EQ(kEach - 2, gap.lanes[2][0].end);
  EXPECT_EQ(0u, gap.lanes[2][0].bytes);
  EXPECT_EQ(Where::kLog, gap.lanes[2][1].where);
}

TEST_P(NodeContentTest, ANodeThatIsNotThere) {
  EXPECT_FAILS(store_.core()->lookup().ContentOf(NodeId{4444}), StatusCode::kNotFound, "4444");
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(store_.core()->lookup().ContentOf(NodeId{1}), StatusCode::kInvalidState);
}

}  // namespace
}  // namespace cairn::testing
