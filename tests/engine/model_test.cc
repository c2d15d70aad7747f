// SPDX-License-Identifier: Apache-2.0
//
// Property: a model's identity decides which state may be exchanged. The same spec gives the same
// id for ever; another shape under a known identity is refused by the name of the field.
// Method: one spec, changed field by field.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class ModelTest : public WorldTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, ModelTest, ::testing::Values("memory", "threads", "simulated"),
                         NameOf);

TEST_P(ModelTest, RegisteringIsIdempotentAndSurvives) {
  ModelSpec spec = HybridModel();
  spec.groups[0].inv_freq = {1.0F, 0.5F, 0.25F};
  spec.groups[0].mscale = 1.5F;
  spec.groups[3].optional = true;
  spec.extent_tokens = 128;
  spec.identity = {.name = "hybrid",
                   .revision = "r1",
                   .weights_digest = "w",
                   .tokenizer_digest = "t",
                   .quantization = "q",
                   .cache_dtype = "c"};
  const ModelId id = Register(spec);
  EXPECT_EQ(id, Register(spec));
  Reopen();
  EXPECT_EQ(id, Register(spec));
  ASSERT_OK_ASSIGN(const ModelInfo info, store_.GetModel(id));
  EXPECT_EQ(spec, info.spec);
  EXPECT_EQ("", spec.FirstDifference(info.spec));
  EXPECT_EQ(1u, store_.Models().size());
  EXPECT_FAILS(store_.GetModel(ModelId{999}), StatusCode::kNotFound, "999");
  EXPECT_FAILS(store_.CreateBranch(ModelId{999}), StatusCode::kNotFound, "999");
}

// Somebody else registered it, and did not wait.
TEST(ModelInSimulationTest, OneThatIsThereIsAsSafeAsWasAskedFor) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId first, store.RegisterModel(TinyModel(), Durability::kMemory));
  ASSERT_OK_ASSIGN(const ModelId again, store.RegisterModel(TinyModel(), Durability::kPower));
  EXPECT_EQ(first, again);
  const io::SimWorld after = io::CrashWorld(*machine.disk, io::CrashChoice::LoseAll());
  options.world = std::make_shared<io::World>(after.world());
  ASSERT_OK_ASSIGN(const Store found, Store::Open("/store", options));
  EXPECT_EQ(1U, found.Models().size());
}

TEST_P(ModelTest, OtherIdentitiesVariantsAndShardsAreOtherModels) {
  std::vector<ModelSpec> specs(10, TinyModel());
  specs[1].identity.revision = "2";
  specs[2].identity.weights_digest = "2";
  specs[3].identity.tokenizer_digest = "2";
  specs[4].identity.quantization = "2";
  specs[5].identity.cache_dtype = "2";
  specs[6].variant.name = "lora";
  specs[7].variant = {.name = "lora", .digest = "2", .scale = 1.0};
  specs[8].variant = {.name = "lora", .digest = "", .scale = 0.5};
  specs[9].shard = {.layer_begin = 0,
                    .layer_end = 2,
                    .kv_head_begin = 0,
                    .kv_head_end = 2,
                    .context_rank = 1,
                    .context_size = 2,
                    .replicated = true};
  std::vector<ModelId> ids;
  for (const ModelSpec& spec : specs) ids.push_back(Register(spec));
  Reopen();
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(ids[i], Register(specs[i])) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_NE(ids[i], ids[j]);
  }
}

TEST_P(ModelTest, AnotherShapeIsRefusedByTheNameOfTheField) {
  ModelSpec spec = HybridModel();
  spec.groups[0].inv_freq = {1.0F, 0.5F};
  Register(spec);
  const auto mismatch = [&](auto change, const std::string& field) {
    ModelSpec other = spec;
    change(other);
    EXPECT_FAILS(store_.RegisterModel(other), StatusCode::kModelMismatch, field);
    EXPECT_NE("", spec.FirstDifference(other));
  };
  mismatch([](ModelSpec& m) { m.groups.pop_back(); }, "groups.size is 4, not 3");
  mismatch([](ModelSpec& m) { m.groups[1].name = "x"; },
           "groups[1].name is \"window\", not \"x\"");
  mismatch([](ModelSpec& m) { m.groups[0].layers = 9; }, "groups[0].layers is 2, not 9");
  mismatch([](ModelSpec& m) { m.groups[2].planes.pop_back(); }, "groups[2].planes.size");
  mismatch([](ModelSpec& m) { m.groups[0].planes[1].name = "x"; }, "groups[0].planes[1].name");
  mismatch([](ModelSpec& m) { m.groups[0].planes[1].role = PlaneRole::kKey; },
           "groups[0].planes[1].role");
  mismatch([](ModelSpec& m) { m.groups[0].planes[1].heads = 8; },
           "groups[0].planes[1].heads is 2, not 8");
  mismatch([](ModelSpec& m) { m.groups[0].planes[0].row_bytes = 16; },
           "groups[0].planes[0].row_bytes is 8, not 16");
  mismatch([](ModelSpec& m) { m.groups[0].planes[0].dtype = Dtype::kF16; },
           "groups[0].planes[0].dtype is \"bf16\", not \"f16\"");
  mismatch([](ModelSpec& m) { m.groups[0].planes[0].rotary = {}; }, "groups[0].planes[0].rotary");
  mismatch([](ModelSpec& m) { m.groups[0].planes[0].sealed_as = SealedAs::kInt8; },
           "groups[0].planes[0].sealed_as is \"lossless\", not \"int8\"");
  mismatch([](ModelSpec& m) { m.groups[1].retention.window = 17; }, "groups[1].retention");
  mismatch([](ModelSpec& m) { m.groups[0].optional = true; }, "groups[0].optional");
  mismatch([](ModelSpec& m) { m.groups[0].inv_freq = {1.0F}; }, "groups[0].inv_freq");
  mismatch([](ModelSpec& m) { m.groups[0].mscale = 2.0F; }, "groups[0].mscale");
  mismatch([](ModelSpec& m) { m.extent_tokens = 64; }, "extent_tokens");
  EXPECT_EQ(1u, store_.Models().size());
}

TEST(ModelSpecTest, EachBadFieldIsNamed) {
  const auto bad = [](auto change, const std::string& field) {
    ModelSpec spec = HybridModel();
    change(spec);
    EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, field);
  };
  EXPECT_OK(HybridModel().Validate());
  EXPECT_OK(TokenModel().Validate());
  bad([](ModelSpec& m) { m.identity.name = ""; }, "identity.name");
  bad([](ModelSpec& m) { m.identity.revision = std::string(1025, 'x'); }, "1024");
  bad([](ModelSpec& m) { m.groups.resize(16, m.groups[0]); }, "at most 15");
  bad([](ModelSpec& m) { m.groups[1].name = m.groups[0].name; }, "groups[1].name");
  bad([](ModelSpec& m) { m.groups[0].layers = 0; }, "groups[0].layers");
  bad([](ModelSpec& m) { m.groups[0].layers = 65537; }, "groups[0].layers");
  bad([](ModelSpec& m) { m.groups[0].planes.clear(); }, "groups[0].planes");
  bad([](ModelSpec& m) { m.groups[0].planes.resize(65, m.groups[0].planes[0]); }, "planes");
  bad([](ModelSpec& m) { m.groups[0].planes[1].heads = 0; }, "groups[0].planes[1].heads");
  bad([](ModelSpec& m) { m.groups[0].planes[0].row_bytes = 0; }, "row_bytes");
  bad([](ModelSpec& m) { m.groups[0].planes[0].row_bytes = 7; }, "multiple");
  bad([](ModelSpec& m) { m.groups[0].planes[0].dtype = Dtype{99}; }, "dtype");
  bad([](ModelSpec& m) { m.groups[0].planes[0].role = PlaneRole{0}; }, "role");
  bad([](ModelSpec& m) { m.groups[3].planes.back().rotary.state = RotaryState::kApplied; },
      "rotary");
  bad([](ModelSpec& m) { m.groups[0].planes[0].sealed_as = SealedAs{2}; }, "sealed_as is unknown");
  bad([](ModelSpec& m) { m.groups[2].planes[0].sealed_as = SealedAs::kInt8; },
      "groups[2].planes[0].sealed_as: int8 is for keys and values");
  for (const Dtype dtype : {Dtype::kOpaque, Dtype::kF32, Dtype::kF8E4M3, Dtype::kI8, Dtype::kU8}) {
    bad(
        [dtype](ModelSpec& m) {
          Plane& plane = m.groups[0].planes[1];
          plane.dtype = dtype;
          plane.sealed_as = SealedAs::kInt8;
        },
        std::string("value plane, and ") + DtypeName(dtype));
  }
  bad([](ModelSpec& m) { m.groups[0].retention.kind = Retention{0}; }, "retention.kind");
  bad([](ModelSpec& m) { m.groups[1].retention.window = 0; }, "retention.window");
  bad([](ModelSpec& m) { m.groups[1].retention = {.kind = Retention::kChunkLocal}; },
      "retention.chunk");
  bad([](ModelSpec& m) { m.extent_tokens = 32; }, "extent_tokens");
  bad([](ModelSpec& m) { m.extent_tokens = 100; }, "extent_tokens");
  bad([](ModelSpec& m) { m.shard.context_rank = 1; }, "context_rank");
  bad([](ModelSpec& m) { m.shard.layer_begin = 1; }, "shard");
}

TEST_P(ModelTest, ABadModelIsNotRegistered) {
  EXPECT_FAILS(store_.RegisterModel(ModelSpec()), StatusCode::kInvalidArgument, "identity.name");
  EXPECT_TRUE(store_.Models().empty());
}

}  // namespace
}  // namespace cairn::testing
