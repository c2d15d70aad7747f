// SPDX-License-Identifier: Apache-2.0
//
// Property: before keys are turned for the first time, stored keys say whether the model's
// description is right: of a first layer they must turn into each other. A wrong base or pairing is
// named; groups that begin behind the first layer are left out; nothing is asked of the caller.
#include <cmath>
#include <cstring>
#include <random>

#include "base/codec/float16.h"
#include "tests/engine/blend_test.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kElements = 32;

class BlendPositionsTest : public BlendTest {
 protected:
  // The model's description, and how its keys are really made.
  ModelSpec ModelOf(const std::string& name, Dtype dtype) {
    ModelSpec model;
    model.identity.name = name;
    model.groups.push_back(LayerGroup::FullAttention(2, 2, kElements, dtype));
    model.groups[0].inv_freq = RotaryFrequencies(kElements, 10'000.0);
    return model;
  }
  // A branch whose keys of the first layer follow from id and position, as `truth` rotates them; or
  // not at all from the id.
  void Write(const ModelSpec& said, const LayerGroup& truth, std::span<const TokenId> ids,
             bool first_layer = true) {
    spec_ = said;
    model_ = Register(said);
    ASSERT_OK_ASSIGN(Branch branch,
                     store_.CreateBranch(model_, {.name = said.identity.name, .ns = "docs"}));
    KvSet kv(said, Layout::kContiguous, 0, ids.size());
    kv.Write(kSeed, 0, ids.size());
    const KvView* const view = kv.View(0, ids.size());
    const Plane& plane = said.groups[0].planes[0];
    const Rotation rotation = Rotation::Of(truth, 0).value();
    std::vector<RotaryTurn> turns(rotation.pairs());
    for (uint64_t at = 0; at < ids.size(); ++at) {
      rotation.At({&at, 1}, turns);
      std::vector<std::byte> rows(SliceBytes(plane, 1));
      for (uint32_t head = 0; head < plane.heads; ++head) {
        std::mt19937 random(first_layer ? ids[at] : static_cast<uint32_t>(7 * at) + ids[at]);
        const auto row = std::span(rows).subspan(size_t{head} * plane.row_bytes, plane.row_bytes);
        std::vector<float> values;
        double squares = 0;
        for (uint32_t i = 0; i < kElements; ++i) {
          values.push_back(static_cast<float>(random() % 2000) / 500.0F - 2.0F);
          squares += double{values.back()} * double{values.back()};
        }
        const float scale = normalised_ ? static_cast<float>(1 / std::sqrt(squares)) : 1.0F;
        for (uint32_t i = 0; i < kElements; ++i) Put(plane.dtype, scale * values[i], row, i);
        rotation.Turn(turns, row, row);
      }
      const GroupView& group = view->groups[0];
      ScatterSlice(plane, group.planes[0], 0, PositionMap(group, at, 1), rows.data(), 1, 0);
    }
    ASSERT_OK(branch.AppendSync(MakeDelta(ids, view)));
  }
  static void Put(Dtype dtype, float value, std::span<std::byte> row, uint32_t i) {
    if (dtype == Dtype::kF32) {
      std::memcpy(&row[4 * i], &value, 4);
      return;
    }
    const uint16_t bits = Narrowed(dtype == Dtype::kF16, value);
    std::memcpy(&row[2 * i], &bits, 2);
  }
  static std::vector<TokenId> Repeating() {
    std::vector<TokenId> ids = Tokens(400, 5);
    for (size_t i = 0; i < 40; ++i) ids[10 * i] = static_cast<TokenId>(i % 5);
    return ids;
  }
  bool normalised_ = false;
  Result<BlendPlan> Plan(std::span<const TokenId> ids) {
    const std::vector<TokenId> prompt = Joined({Tokens(77, 8), {ids.begin(), ids.end()}});
    return store_.PlanBlend(QueryOf(prompt));
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, BlendPositionsTest, ::testing::Values("simulated"), NameOf);

TEST_P(BlendPositionsTest, ARightDescriptionIsChecked) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    const ModelSpec model = ModelOf(DtypeName(dtype), dtype);
    Write(model, model.groups[0], Repeating());
    ASSERT_OK_ASSIGN(const BlendPlan plan, Plan(Repeating()));
    EXPECT_TRUE(plan.positions_checked) << DtypeName(dtype);
    ASSERT_OK_ASSIGN(const BlendPlan in_place, store_.PlanBlend(QueryOf(Repeating())));
    EXPECT_FALSE(in_place.positions_checked) << "nothing is shifted";
  }
}

TEST_P(BlendPositionsTest, AWrongBaseOrPairingIsNamed) {
  const ModelSpec said = ModelOf("base", Dtype::kBf16);
  LayerGroup truth = said.groups[0];
  truth.inv_freq = RotaryFrequencies(kElements, 500'000.0);
  Write(said, truth, Repeating());
  for (int i = 0; i < 2; ++i) {  // It stays refused.
    EXPECT_FAILS(Plan(Repeating()), StatusCode::kModelMismatch,
                 "plane \"k\" do not turn into each other as the model says");
    EXPECT_FAILS(Plan(Repeating()), StatusCode::kModelMismatch, "a base of 500000 would fit");
  }
  EXPECT_EQ(1u, store_.Metrics().blend_failed_checks);
  const ModelSpec halves = ModelOf("pairing", Dtype::kF32);
  truth = halves.groups[0];
  truth.planes[0].rotary.pairing = RotaryPairing::kAdjacent;
  Write(halves, truth, Repeating());
  EXPECT_FAILS(Plan(Repeating()), StatusCode::kModelMismatch, "pairing adjacent would fit");
  const ModelSpec both = ModelOf("both", Dtype::kF16);
  truth.inv_freq = RotaryFrequencies(kElements, 1'000'000.0);
  truth.planes[0] = both.groups[0].planes[0];
  truth.planes[0].rotary.pairing = RotaryPairing::kAdjacent;
  Write(both, truth, Repeating());
  EXPECT_FAILS(Plan(Repeating()), StatusCode::kModelMismatch,
               "a base of 1000000 with pairing adjacent would fit");
  // Measured without turning.
  BlendOptions as_they_are;
  as_they_are.position_correction = false;
  const std::vector<TokenId> prompt = Joined({Tokens(77, 8), Repeating()});
  EXPECT_OK(store_.PlanBlend(QueryOf(prompt), as_they_are));
}

TEST_P(BlendPositionsTest, ALaterLayerIsLeftOut) {
  const ModelSpec model = ModelOf("later", Dtype::kBf16);
  Write(model, model.groups[0], Repeating(), /*first_layer=*/false);
  ASSERT_OK_ASSIGN(const BlendPlan plan, Plan(Repeating()));
  EXPECT_FALSE(plan.positions_checked);
}

// As of models that normalise keys: the lengths of all keys are one, and yet it is no first layer.
TEST_P(BlendPositionsTest, ALaterLayerIsLeftOutWhoseKeysAllHaveOneLength) {
  const ModelSpec model = ModelOf("normalised", Dtype::kF32);
  normalised_ = true;
  Write(model, model.groups[0], Repeating(), /*first_layer=*/false);
  ASSERT_OK_ASSIGN(const BlendPlan plan, Plan(Repeating()));
  EXPECT_FALSE(plan.positions_checked);
}

// Which group begins with the first layer is not said: another one is refused only where the right
// description is found.
TEST_P(BlendPositionsTest, WithoutAFitAGroupThatMayBeginLaterIsLeftOut) {
  for (const uint32_t layer_begin : {0U, 4U}) {
    ModelSpec said = ModelOf("shard " + std::to_string(layer_begin), Dtype::kBf16);
    if (layer_begin != 0) said.shard = {.layer_begin = 4, .layer_end = 6};
    LayerGroup truth = said.groups[0];
    truth.inv_freq = RotaryFrequencies(kElements, 123.0);
    Write(said, truth, Repeating());
    if (layer_begin == 0) {
      EXPECT_FAILS(Plan(Repeating()), StatusCode::kModelMismatch, "do not turn into each other");
    } else {
      EXPECT_OK(Plan(Repeating()));
    }
  }
}

TEST_P(BlendPositionsTest, WithoutAnIdTwiceNothingIsCompared) {
  const ModelSpec said = ModelOf("once", Dtype::kBf16);
  LayerGroup truth = said.groups[0];
  truth.inv_freq = RotaryFrequencies(kElements, 500'000.0);
  std::vector<TokenId> ids(300);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(1000 + i);
  Write(said, truth, ids);
  ASSERT_OK_ASSIGN(const BlendPlan plan, Plan(ids));
  EXPECT_FALSE(plan.positions_checked);
  // It is compared when there is something.
  ASSERT_OK_ASSIGN(Branch other, store_.FindBranch("once", "docs"));
  ASSERT_OK(other.Drop());
  Write(said, truth, Repeating());
  EXPECT_FAILS(Plan(Repeating()), StatusCode::kModelMismatch);
}

}  // namespace
}  // namespace cairn::testing
