// SPDX-License-Identifier: Apache-2.0
//
// A segment that the index knew lost its header, and the epoch in it with that. A salvage began the
// next segment with the same number and the same epoch, and records that the index still had of the
// lost one were looked for among the new ones: a read waited for ever for the record that it found
// there in memory to be published, and a new record in the place of an old one was taken for it.
// Now the manifest says which epochs were used.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

enum class Written { kZeros, kTheSameShapes };

class ASalvagedStore : public ::testing::TestWithParam<Written> {};

TEST_P(ASalvagedStore, NeverTakesNewRecordsForLostOnes) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.replay_records_max = 16;
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = TinyModel();
  std::vector<TokenId> tokens;
  for (const bool again : {false, true}) {  // An opening begins a segment.
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    if (!again) {
      ASSERT_OK(store.CreateBranch(id, {.name = "old"}));
    }
    ASSERT_OK_ASSIGN(Branch old, store.FindBranch("old"));
    for (uint64_t i = 0; i < 40; ++i) {
      ASSERT_OK(AppendSome(old, model, 40 * again + i, 1, kSeed, Durability::kPower));
    }
    ASSERT_OK_ASSIGN(tokens, old.ReadTokens(0, 40 + 40 * again));
    ASSERT_OK(store.Close());
  }
  const std::string lost = "store/log/0000000000000002.log";
  ASSERT_OK_ASSIGN(const std::vector<std::byte> before, machine.disk->ReadRaw(lost));
  ASSERT_OK(machine.disk->WriteRaw(lost, 0, std::vector(before.size(), std::byte{0})));

  options.recovery = Recovery::kSetAside;
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(Branch made, store.CreateBranch(store.Models().at(0).id, {.name = "new"}));
  if (GetParam() == Written::kZeros) {
    const std::vector<TokenId> zeros(9000, 0);  // Nowhere in them is a header.
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(made.AppendSync(MakeDelta(zeros), {.durability = Durability::kPower}));
    }
  } else {
    for (uint64_t i = 0; i < 40; ++i) {
      ASSERT_OK(AppendSome(made, model, i, 1, kSeed + 1, Durability::kPower));
    }
  }
  ASSERT_OK_ASSIGN(const Branch old, store.FindBranch("old"));
  ASSERT_OK_ASSIGN(const uint64_t length, old.length());
  ASSERT_EQ(length, 80u) << "the index has what the log lost";
  for (uint64_t i = 0; i < length; ++i) {
    const auto read = old.ReadTokens(i, i + 1);
    if (i < 40) {
      ASSERT_OK(read);
      EXPECT_EQ(read->at(0), tokens[i]) << i;
    } else {
      EXPECT_FAILS(read, StatusCode::kCorruption) << i;
    }
  }
  EXPECT_FAILS(store.Compact(), StatusCode::kCorruption);
  EXPECT_OK(store.Close());
}

INSTANTIATE_TEST_SUITE_P(Every, ASalvagedStore,
                         ::testing::Values(Written::kZeros, Written::kTheSameShapes));

}  // namespace
}  // namespace cairn::testing
