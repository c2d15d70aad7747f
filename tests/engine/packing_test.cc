// SPDX-License-Identifier: Apache-2.0
//
// Property: state whose bytes lie in one order is never given to whom another one is natural, by
// the pairing of the rotation or the packing of the blocks: registering the other names the field.
// No packing is a packing of its own, so a store from before the field existed refuses as well, and
// a model without it has the bytes that it had. Method: one identity, registered as each of several
// engines would; records by hand.
#include "base/codec/fields.h"
#include "engine/tree/memory/op.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 64;

ModelSpec Plain(RotaryPairing pairing) {
  ModelSpec spec = TinyModel();
  spec.groups = {LayerGroup::FullAttention(2, 2, 64, Dtype::kBf16)};
  spec.groups[0].planes[0].rotary.pairing = pairing;
  return spec;
}

// It has the bytes per token of the plain one: only the name distinguishes them.
ModelSpec Packed(const std::string& packing) {
  ModelSpec spec = TinyModel();
  LayerGroup group;
  group.name = "attention";
  group.layers = 2;
  group.planes = {
      {.name = "kv", .role = PlaneRole::kOpaque, .heads = 2, .row_bytes = 256, .rotary = {}}};
  group.packing = packing;
  spec.groups = {group};
  return spec;
}

class PackingTest : public WorldTest {
 protected:
  void ExpectRefused(const ModelSpec& spec, const std::string& field) {
    EXPECT_FAILS(store_.RegisterModel(spec), StatusCode::kModelMismatch, field);
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, PackingTest, ::testing::Values("memory", "threads", "simulated"),
                         NameOf);

TEST_P(PackingTest, StateOfOnePackingIsRefusedByTheOthers) {
  const ModelSpec amx = Packed("vllm-cpu amx bf16 32");
  const ModelId id = Register(amx);
  Branch chat = Create(id, "chat");
  ASSERT_OK(AppendSome(chat, amx, 0, kTokens));
  for (const bool sealed : {false, true}) {
    if (sealed) {
      ASSERT_OK(store_.Compact());
    }
    Reopen();
    ExpectRefused(Packed("vllm-cpu vec bf16 32"),
                  "groups[0].packing is \"vllm-cpu amx bf16 32\", not \"vllm-cpu vec bf16 32\"");
    ExpectRefused(Packed("vllm-cpu amx bf16 64"), "groups[0].packing");
    ExpectRefused(Packed(""), "groups[0].packing is \"vllm-cpu amx bf16 32\", not \"\"");
    EXPECT_EQ(id, Register(amx));
    ASSERT_OK_ASSIGN(const ModelInfo info, store_.GetModel(id));
    EXPECT_TRUE(info.spec == amx);
    EXPECT_TRUE(HasKv(Find("chat"), amx, 0, kTokens));
  }
}

// Unset fields agree with what others say; this one does not: before the field, rows were in order.
TEST_P(PackingTest, NoPackingIsRefusedByOne) {
  const ModelId id = Register(Packed(""));
  Reopen();
  ExpectRefused(Packed("x"), "groups[0].packing is \"\", not \"x\"");
  EXPECT_EQ(id, Register(Packed("")));
  EXPECT_FALSE(Packed("").TakeUnset(Packed("")));
}

TEST_P(PackingTest, StateOfOnePairingIsRefusedByTheOther) {
  const ModelSpec halves = Plain(RotaryPairing::kHalves);
  const ModelId id = Register(halves);
  Branch chat = Create(id, "chat");
  ASSERT_OK(AppendSome(chat, halves, 0, kTokens));
  for (const bool sealed : {false, true}) {
    if (sealed) {
      ASSERT_OK(store_.Compact());
    }
    Reopen();
    ExpectRefused(Plain(RotaryPairing::kAdjacent),
                  "groups[0].planes[0].rotary.pairing is \"halves\", not \"adjacent\"");
    EXPECT_TRUE(HasKv(Find("chat"), halves, 0, kTokens));
  }
}

// Bytes without elements would be computed with as if they were elements.
TEST(PackingSpecTest, OnlyOpaqueBytesArePacked) {
  ModelSpec spec = Plain(RotaryPairing::kHalves);
  spec.groups[0].packing = "amx";
  EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument,
               "groups[0].packing is \"amx\"; planes of packed bytes are opaque, and planes[0] is "
               "bf16");
  for (Plane& plane : spec.groups[0].planes) {
    plane.dtype = Dtype::kOpaque;
    plane.rotary.state = RotaryState::kUnset;
  }
  EXPECT_OK(spec.Validate());
  spec.groups[0].planes[1].dtype = Dtype::kU8;
  EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, "planes[1] is u8");
}

TEST(PackingFormatTest, EmptyTakesNoByteAndTheWordComesBack) {
  const ModelSpec plain = Packed(""), packed = Packed("amx");
  ASSERT_OK_ASSIGN(const ModelSpec back, engine::DecodeModel(engine::EncodeModel(packed)));
  EXPECT_TRUE(packed == back);
  constexpr size_t kTextBytes = 16;  // Header of the field, and three letters to a multiple of 8.
  EXPECT_EQ(engine::EncodeModel(plain).size() + kTextBytes, engine::EncodeModel(packed).size());
}

// Each bit of the record changed: it is refused, or says something that is written as it was read.
TEST(PackingFormatTest, AChangedRecordIsRefusedOrReadAsItIs) {
  const std::vector<std::byte> record = engine::EncodeModel(Packed("amx"));
  size_t refused = 0, sound = 0;
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    std::vector<std::byte> changed = record;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    const Result<ModelSpec> model = engine::DecodeModel(changed);
    if (!model.ok()) {
      ++refused;
      continue;
    }
    ASSERT_OK_ASSIGN(const ModelSpec again, engine::DecodeModel(engine::EncodeModel(*model)));
    EXPECT_TRUE(*model == again) << "bit " << bit;
    ++sound;
  }
  EXPECT_LT(0U, refused);
  EXPECT_LT(0U, sound);
}

// A record that says both: elements of bf16, and packed.
TEST(PackingFormatTest, APackedPlaneOfElementsIsCorruption) {
  ModelSpec spec = Packed("amx");
  spec.groups[0].planes[0].dtype = Dtype::kBf16;
  EXPECT_FAILS(engine::DecodeModel(engine::EncodeModel(spec)), StatusCode::kCorruption,
               "groups[0].packing is \"amx\"");
}

}  // namespace
}  // namespace cairn::testing
