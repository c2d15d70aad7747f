// SPDX-License-Identifier: Apache-2.0
//
// The background looked for the farthest branch that needs an untrimmed node, then forgot the node
// for want of memory, read it again with only dropped branches, found nothing to cut, and began
// again, for ever. Now a node that it has looked at stays in memory until it is cut.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(ACutOfANodeThatWasForgotten, Ends) {
  constexpr int kForks = 80;  // More than are read at once.
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.tree_memory_bytes = 0;
  options.replay_records_max = 4'000;
  options.world = std::make_shared<io::World>(machine.world());
  const auto name = [](int fork) { return "f" + std::to_string(fork); };
  const ModelSpec model = TinyModel();
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch base, store.CreateBranch(id, {.name = "base"}));
    ASSERT_OK(AppendSome(base, model, 0, 32));
    ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(id, {.name = "other"}));
    ASSERT_OK(base.ForkAt(8, {.name = "low"}));
    for (int i = 0; i < kForks; ++i) ASSERT_OK(base.ForkAt(31, {.name = name(i)}));
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.PauseBackground());
    for (uint64_t i = 0; i < 300; ++i) ASSERT_OK(AppendSome(other, model, i, 1));
    ASSERT_OK(base.Drop());
    ASSERT_OK(store.Close());
  }
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  for (int i = 0; i < kForks; ++i) {
    ASSERT_OK_ASSIGN(Branch fork, store.FindBranch(name(i)));
    ASSERT_OK(fork.Drop(Durability::kMemory));
  }
  ASSERT_OK(store.Compact());
  EXPECT_GT(store.Metrics().cut_nodes, 0u);
}

}  // namespace
}  // namespace cairn::testing
