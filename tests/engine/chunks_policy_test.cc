// SPDX-License-Identifier: Apache-2.0
//
// What a namespace is told to index: kept, and what a newer version says is not taken for damage.
#include <cstring>

#include "engine/tree/memory/op.h"
#include "engine/tree/records/tree_keys.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

using engine::Op;
using engine::OpKind;
using engine::OpPolicy;

class ChunksPolicyTest : public WorldTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, ChunksPolicyTest, ::testing::Values("simulated"), NameOf);

Index IndexOf(const Store& store, const std::string& ns) {
  const auto all = store.Namespaces();
  EXPECT_OK(all);
  for (const NamespaceInfo& one : *all) {
    if (one.name == ns) return one.policy.index;
  }
  return Index::kPrefix;
}

TEST_P(ChunksPolicyTest, ANamespaceIndexesChunksAfterARestart) {
  ASSERT_OK(store_.SetNamespace("docs", {.index = Index::kChunks}));
  EXPECT_EQ(Index::kChunks, IndexOf(store_, "docs"));
  Reopen();  // From the log.
  EXPECT_EQ(Index::kChunks, IndexOf(store_, "docs"));
  ASSERT_OK(store_.Compact());
  Reopen();  // From the tree's index.
  EXPECT_EQ(Index::kChunks, IndexOf(store_, "docs"));
  EXPECT_EQ(Index::kPrefix, IndexOf(store_, "others"));
}

TEST(PolicyOfANewerVersion, InTheLogIsUnsupportedAndNotDamage) {
  const auto decoded = [](const OpPolicy& policy) {
    Op op;
    op.kind = OpKind::kNamespace;
    op.ns = "docs";
    op.policy = policy;
    FieldWriter fields;
    EncodeOp(op, &fields);
    return engine::DecodeOp(fields.bytes()).status();
  };
  EXPECT_OK(decoded({.evict = 3, .persist = 3, .index = 2}));
  EXPECT_FAILS(decoded({.index = 3}), StatusCode::kUnsupportedFormat, "policy");
  EXPECT_FAILS(decoded({.persist = 4}), StatusCode::kUnsupportedFormat, "policy");
  EXPECT_FAILS(decoded({.evict = 4}), StatusCode::kUnsupportedFormat, "policy");
}

TEST(PolicyOfANewerVersion, InTheIndexIsUnsupportedAndNotDamage) {
  const auto got = [](std::string_view key, const OpPolicy& policy) {
    const engine::NamespaceBytes bytes{policy, 1, 1, 1};
    std::string value(sizeof(bytes), '\0');
    std::memcpy(value.data(), &bytes, sizeof(bytes));
    return engine::GetNamespace(key, value).status();
  };
  EXPECT_OK(got("Pdocs", {.evict = 3, .persist = 3, .index = 2}));
  EXPECT_FAILS(got("Pdocs", {.index = 3}), StatusCode::kUnsupportedFormat, "docs");
  EXPECT_FAILS(got("Pdocs", {.persist = 4}), StatusCode::kUnsupportedFormat, "docs");
  EXPECT_FAILS(got("Pdocs", {.evict = 4}), StatusCode::kUnsupportedFormat, "docs");
  EXPECT_FAILS(engine::GetNamespace("Pdocs", "short").status(), StatusCode::kCorruption);
}

}  // namespace
}  // namespace cairn::testing
