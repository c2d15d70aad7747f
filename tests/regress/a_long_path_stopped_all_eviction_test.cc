// SPDX-License-Identifier: Apache-2.0
//
// The bug: what one branch loses was one record of the log, however long its path. Of 430 nodes
// with 15 groups that is more than a record may be. The branch could never be evicted, and every
// round of its namespace ended with it: appends there were refused for ever.
// Method: a path with a branch at every node, which go first and leave all of its KV to the last
// one.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kNodes = 450;
constexpr uint32_t kGroups = 15;

ModelSpec ManyGroups() {
  ModelSpec model = TinyModel();
  LayerGroup group = model.groups[0];
  model.groups.clear();
  for (uint32_t i = 0; i < kGroups; ++i) {
    group.name = "group " + std::to_string(i);
    model.groups.push_back(group);
  }
  return model;
}

class ALongPathStoppedAllEviction : public ::testing::TestWithParam<Evict> {};
INSTANTIATE_TEST_SUITE_P(Policies, ALongPathStoppedAllEviction,
                         ::testing::Values(Evict::kKv, Evict::kBranches));

TEST_P(ALongPathStoppedAllEviction, ItGoesInSteps) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.tree_memory_bytes = 0;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  const ModelSpec model = ManyGroups();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  const uint64_t position_bytes = model.token_bytes() + sizeof(TokenId);
  ASSERT_OK(store.SetNamespace("t", {.max_bytes = kNodes * position_bytes, .evict = GetParam()}));
  ASSERT_OK(store.PauseBackground());
  ASSERT_OK_ASSIGN(Branch leaf, store.CreateBranch(id, {.ns = "t"}));
  for (uint64_t length = 0; length < kNodes; ++length) {
    if (length != 0) {
      ASSERT_OK_ASSIGN(leaf, leaf.ForkAt(length, {.ns = "t"}));
    }
    ASSERT_OK(AppendSome(leaf, model, length, 1));
  }
  ASSERT_EQ(kNodes, leaf.Path()->size());
  ASSERT_OK(store.ResumeBackground());

  ASSERT_OK_ASSIGN(Branch next, store.CreateBranch(id, {.ns = "t"}));
  EXPECT_OK(AppendSome(next, model, 0, kNodes / 2));
  EXPECT_TRUE(HasKv(next, model, 0, kNodes / 2));
  EXPECT_EQ(0U, store.Metrics().background_failing);
  for (int opened = 0; opened < 2; ++opened) {
    ASSERT_OK_ASSIGN(leaf, store.GetBranch(leaf.id()));
    ASSERT_OK_ASSIGN(const std::vector<KvHole> holes, leaf.EvictedKv());
    ASSERT_EQ(kGroups, holes.size()) << "all of it, in each group";
    for (const KvHole& hole : holes) EXPECT_EQ(kNodes, hole.end - hole.begin);
    EXPECT_EQ(kNodes, leaf.ReadTokens(0, kNodes)->size());
    ASSERT_OK(store.Close());
    ASSERT_OK_ASSIGN(store, world->Open(options));
  }
  EXPECT_TRUE(store.Verify(VerifyLevel::kAll)->damages.empty());
}

}  // namespace
}  // namespace cairn::testing
