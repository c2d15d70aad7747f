// SPDX-License-Identifier: Apache-2.0
//
// Property: what a registration leaves unset agrees with whatever another one says, which is
// written down once and compared from then on; what both say and differs is refused by the name of
// the field; a model that says none of it has the bytes that it had before there were these fields.
// Method: a model as an old library registered it, and the same with each field said.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/codec/fields.h"
#include "engine/tree/memory/op.h"
#include "tests/engine/engine_test.h"
#include "tests/support/power_cuts.h"

namespace cairn::testing {
namespace {

// Attention and a recurrent state, with nothing said that is new.
ModelSpec OldModel() {
  ModelSpec model;
  model.identity.name = "old";
  model.groups = {LayerGroup::FullAttention(2, 4, 8, Dtype::kBf16), LayerGroup::Recurrent(1, 64)};
  for (LayerGroup& group : model.groups) {
    for (Plane& plane : group.planes) {
      const bool applied = plane.rotary.state == RotaryState::kApplied;
      plane.rotary = {};
      if (applied) plane.rotary.state = RotaryState::kApplied;
    }
  }
  model.groups[0].mscale = 1.5F;  // Says nothing without the frequencies.
  return model;
}

struct Said {
  const char* field;  // As messages name it.
  std::function<void(ModelSpec&)> one, other;
};

std::vector<Said> AllThatCanBeSaid() {
  const auto key = [](auto change) {
    return [change](ModelSpec& m) { change(m.groups[0].planes[0].rotary); };
  };
  const auto logical = [](auto change) {
    return [change](ModelSpec& m) {
      m.logical = {{.name = "attention",
                    .layers = 6,
                    .heads = 8,
                    .layer_begin = 2,
                    .layer_end = 4,
                    .head_begin = 4,
                    .head_end = 8},
                   {.name = "recurrent",
                    .layers = 1,
                    .heads = 16,
                    .layer_end = 1,
                    .head_end = 8,
                    .replicated = true},
                   {.name = "elsewhere", .layers = 3, .heads = 1}};
      change(m.logical);
    };
  };
  const auto nothing = [](std::vector<LogicalGroup>&) {};
  const auto angles = [](double theta, float mscale) {
    return [=](ModelSpec& m) {
      m.groups[0].inv_freq = RotaryFrequencies(8, theta);
      m.groups[0].mscale = mscale;
    };
  };
  return {
      {"groups[0].inv_freq", angles(10'000.0, 1.0F), angles(500'000.0, 1.0F)},
      {"groups[0].mscale", angles(10'000.0, 1.0F), angles(10'000.0, 1.5F)},
      {"groups[0].planes[0].rotary.pairing",
       key([](RotarySpec& r) { r.pairing = RotaryPairing::kHalves; }),
       key([](RotarySpec& r) { r.pairing = RotaryPairing::kAdjacent; })},
      {"groups[0].planes[0].rotary.sections", key([](RotarySpec& r) {
         r.width = 8;
         r.sections = {2, 1, 1};
       }),
       key([](RotarySpec& r) {
         r.width = 8;
         r.sections = {1, 3};
       })},
      {"groups[0].planes[0].rotary.interleaved", key([](RotarySpec& r) {
         r.width = 8;
         r.sections = {2, 1, 1};
       }),
       key([](RotarySpec& r) {
         r.width = 8;
         r.sections = {2, 1, 1};
         r.interleaved = true;
       })},
      {"groups[0].planes[1].rotary.state",
       [](ModelSpec& m) { m.groups[0].planes[1].rotary.state = RotaryState::kNone; },
       [](ModelSpec& m) { m.groups[0].planes[1].rotary.state = RotaryState::kBefore; }},
      {"groups[1].planes[0].state_parts",
       [](ModelSpec& m) { m.groups[1].planes[0].state_parts = 8; },
       [](ModelSpec& m) { m.groups[1].planes[0].state_parts = 4; }},
      {"logical.size", logical(nothing), logical([](auto& groups) { groups.pop_back(); })},
      {"logical[0].heads is 8, not 16", logical(nothing),
       logical([](auto& groups) { groups[0].heads = 16; })},
      {"logical[0].layer_begin", logical(nothing), logical([](auto& groups) {
         groups[0].layer_begin = 0;
         groups[0].layer_end = 2;
       })},
      {"logical[0].head_begin", logical(nothing), logical([](auto& groups) {
         groups[0].head_begin = 0;
         groups[0].head_end = 4;
       })},
      {"logical[1].replicated", logical(nothing),
       logical([](auto& groups) { groups[1].replicated = false; })},
      {"logical[2].layers", logical(nothing), logical([](auto& groups) { groups[2].layers = 2; })},
      {"logical[2].name", logical(nothing), logical([](auto& groups) { groups[2].name = "x"; })},
  };
}

class ModelFieldsTest : public WorldTest {
 protected:
  uint64_t LastSequence() { return store_.Metrics().last_sequence; }
};
INSTANTIATE_TEST_SUITE_P(Worlds, ModelFieldsTest,
                         ::testing::Values("memory", "threads", "simulated"), NameOf);

TEST_P(ModelFieldsTest, WhatIsUnsetAgreesAndIsWrittenOnce) {
  size_t number = 0;
  for (const Said& said : AllThatCanBeSaid()) {
    SCOPED_TRACE(said.field);
    ModelSpec old = OldModel(), one = OldModel(), other = OldModel();
    for (ModelSpec* const spec : {&old, &one, &other}) {
      spec->identity.name = "old " + std::to_string(number);
    }
    ++number;
    said.one(one);
    said.other(other);
    EXPECT_EQ("", old.FirstDifference(one));
    EXPECT_EQ("", one.FirstDifference(old));
    const ModelId id = Register(old);
    Branch chat = Create(id, old.identity.name);
    ASSERT_OK(AppendSome(chat, old, 0, 5));
    const uint64_t before = LastSequence();
    EXPECT_EQ(id, Register(one));
    EXPECT_EQ(before + 1, LastSequence());
    EXPECT_EQ(id, Register(one));
    EXPECT_EQ(id, Register(old));
    EXPECT_EQ(before + 1, LastSequence());
    const std::string differs = one.FirstDifference(other);
    EXPECT_TRUE(differs.starts_with(said.field)) << differs;
    EXPECT_FAILS(store_.RegisterModel(other), StatusCode::kModelMismatch, said.field);
    for (const bool sealed : {false, true}) {
      if (sealed) {
        ASSERT_OK(store_.Compact());
      }
      Reopen();
      ASSERT_OK_ASSIGN(const ModelInfo info, store_.GetModel(id));
      EXPECT_TRUE(info.spec == one);
      EXPECT_FAILS(store_.RegisterModel(other), StatusCode::kModelMismatch, said.field);
      EXPECT_TRUE(HasKv(Find(old.identity.name), one, 0, 5));
    }
  }
}

// Bit by bit, each once; then there is nothing left to say.
TEST_P(ModelFieldsTest, OneAfterTheOther) {
  const ModelId id = Register(OldModel());
  ModelSpec all = OldModel();
  for (const Said& said : AllThatCanBeSaid()) {
    ModelSpec one = OldModel();
    said.one(one);
    if (all.FirstDifference(one).empty()) static_cast<void>(all.TakeUnset(one));
    EXPECT_EQ(id, Register(one));
  }
  Reopen();
  ASSERT_OK_ASSIGN(const ModelInfo info, store_.GetModel(id));
  EXPECT_TRUE(info.spec == all);
  EXPECT_FALSE(all.TakeUnset(info.spec));
  EXPECT_EQ(1u, store_.Models().size());
}

// The old bool: applied, or not.
TEST_P(ModelFieldsTest, WhatAnOldRegistrationCouldSayIsCompared) {
  Register(OldModel());
  ModelSpec other = OldModel();
  other.groups[0].planes[1].rotary.state = RotaryState::kApplied;
  EXPECT_FAILS(store_.RegisterModel(other), StatusCode::kModelMismatch,
               "groups[0].planes[1].rotary.state is \"unset\", not \"applied\"");
  for (const RotaryState state : {RotaryState::kUnset, RotaryState::kNone, RotaryState::kBefore}) {
    other = OldModel();
    other.groups[0].planes[0].rotary.state = state;
    EXPECT_FAILS(store_.RegisterModel(other), StatusCode::kModelMismatch,
                 "groups[0].planes[0].rotary.state is \"applied\", not");
  }
}

TEST_P(ModelFieldsTest, WhatMakesNoModelTogetherIsRefused) {
  ModelSpec parts = OldModel(), logical = OldModel();
  parts.groups[1].planes[0].state_parts = 4;
  logical.logical = {{.name = "attention", .layers = 2, .heads = 4, .layer_end = 2, .head_end = 4},
                     {.name = "recurrent", .layers = 1, .heads = 8, .layer_end = 1, .head_end = 8}};
  ASSERT_OK(logical.Validate());
  const ModelId id = Register(parts);
  EXPECT_FAILS(store_.RegisterModel(logical), StatusCode::kModelMismatch, "logical[1]: 8 heads");
  ModelSpec window = OldModel(), angles = OldModel();
  window.identity.name = angles.identity.name = "window";
  window.groups[0].planes[0].rotary.width = 6;
  angles.groups[0].inv_freq = RotaryFrequencies(8, 10'000.0);
  Register(window);
  EXPECT_FAILS(store_.RegisterModel(angles), StatusCode::kModelMismatch,
               "width is 6; the group's inv_freq has 4");
  // A field that is wrong alone is an invalid argument.
  logical.logical[0].head_end = 3;
  EXPECT_FAILS(store_.RegisterModel(logical), StatusCode::kInvalidArgument, "logical[0]: 3 heads");
  ASSERT_OK_ASSIGN(const ModelInfo info, store_.GetModel(id));
  EXPECT_TRUE(info.spec == parts);
}

// Stored models are not checked against these limits, so a completion is.
TEST_P(ModelFieldsTest, AnglesThatCannotBeRegisteredCompleteNothing) {
  const ModelId id = Register(OldModel());
  const auto refused = [&](std::vector<float> inv_freq, float mscale, const std::string& why) {
    ModelSpec more = OldModel();
    more.groups[0].inv_freq = std::move(inv_freq);
    more.groups[0].mscale = mscale;
    EXPECT_FAILS(store_.RegisterModel(more), StatusCode::kInvalidArgument, "groups[0]." + why);
  };
  refused({1.0F, NAN, 0.5F, 0.25F}, 1.0F, "inv_freq[1] is not finite");
  refused({1.0F, 0.5F, 0.25F, 0.125F}, INFINITY, "mscale is not finite");
  refused(std::vector<float>(kMaxInvFreq + 1, 1.0F), 1.0F, "inv_freq holds 4097 numbers");
  ASSERT_OK_ASSIGN(const ModelInfo info, store_.GetModel(id));
  EXPECT_TRUE(info.spec == OldModel());
}

TEST_P(ModelFieldsTest, AReaderAgreesAndWritesNothing) {
  const ModelId id = Register(OldModel());
  if (GetParam() == "memory") return;  // Nobody else opens it.
  Options options = world_->options();
  options.read_only = true;
  options.create_if_missing = false;
  Reopen(options);
  ModelSpec more = OldModel();
  more.groups[0].planes[0].rotary.pairing = RotaryPairing::kHalves;
  EXPECT_EQ(id, Register(more));
  more.groups[0].layers = 3;
  EXPECT_FAILS(store_.RegisterModel(more), StatusCode::kModelMismatch, "layers");
}

// Either description, never less than what was acknowledged, and all KV beside it.
TEST(ModelFieldsInSimulationTest, PowerCutBeforeEveryOperationLeavesOneOfTheTwo) {
  io::SimWorld sim = io::MakeSimWorld(1);
  const auto open = [](const io::SimWorld& machine) {
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine.world());
    return Store::Open("/store", options);
  };
  ModelSpec more = OldModel();
  more.groups[0].inv_freq = RotaryFrequencies(8, 10'000.0);
  more.groups[0].mscale = 1.25F;
  more.groups[1].planes[0].state_parts = 2;
  PowerCuts cuts(sim);
  ModelId id{};
  {
    ASSERT_OK_ASSIGN(Store store, open(sim));
    ASSERT_OK_ASSIGN(id, store.RegisterModel(OldModel()));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat, OldModel(), 0, 5, kSeed, Durability::kPower));
    cuts.Begin();
    ASSERT_OK_ASSIGN(const ModelId again, store.RegisterModel(more, Durability::kPower));
    EXPECT_EQ(id, again);
    cuts.Acknowledge();
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.Close());
    cuts.End();
  }
  size_t before = 0, after = 0;
  for (const PowerCuts::Machine& one : cuts.machines()) {
    SCOPED_TRACE("power lost before " + one.when);
    ASSERT_OK_ASSIGN(const Store store, open(one.world));
    ASSERT_OK_ASSIGN(const ModelInfo info, store.GetModel(id));
    EXPECT_TRUE(info.spec == more || (one.acknowledged == 0 && info.spec == OldModel()));
    ++(info.spec == more ? after : before);
    ASSERT_OK_ASSIGN(const Branch chat, store.FindBranch("chat"));
    EXPECT_TRUE(HasKv(chat, more, 0, 5));
  }
  EXPECT_GT(before, 0u);
  EXPECT_GT(after, 10u);
}

TEST(ModelFieldsFormat, WhatIsUnsetTakesNoByte) {
  const std::vector<std::byte> bytes = engine::EncodeModel(OldModel());
  ASSERT_OK_ASSIGN(const FieldReader model, FieldReader::Parse(bytes));
  for (const Field& field : model.fields()) {
    EXPECT_LE(field.id, 18);
    if (field.id != 18) continue;  // A group.
    ASSERT_OK_ASSIGN(const FieldReader group, FieldReader::Parse(field.value));
    for (const Field& part : group.fields()) {
      if (part.id != 10) continue;  // A plane.
      ASSERT_OK_ASSIGN(const FieldReader plane, FieldReader::Parse(part.value));
      for (const Field& one : plane.fields()) EXPECT_LE(one.id, 6);
    }
  }
}

TEST(ModelFieldsFormat, EachIsCriticalAndComesBack) {
  for (const Said& said : AllThatCanBeSaid()) {
    SCOPED_TRACE(said.field);
    for (const auto& change : {said.one, said.other}) {
      ModelSpec spec = OldModel();
      change(spec);
      ASSERT_OK(spec.Validate());
      ASSERT_OK_ASSIGN(const ModelSpec decoded, engine::DecodeModel(engine::EncodeModel(spec)));
      EXPECT_TRUE(spec == decoded);
    }
  }
}

TEST(ModelFieldsSpec, WindowsAreComparedWhereBothAreSaid) {
  const auto window = [](uint32_t first, uint32_t width) {
    ModelSpec spec = OldModel();
    spec.groups[0].planes[0].rotary.first = first;
    spec.groups[0].planes[0].rotary.width = width;
    EXPECT_OK(spec.Validate());
    return spec;
  };
  EXPECT_EQ("groups[0].planes[0].rotary.first is 0, not 4",
            window(0, 4).FirstDifference(window(4, 4)));
  EXPECT_EQ("groups[0].planes[0].rotary.width is 4, not 8",
            window(0, 4).FirstDifference(window(0, 8)));
  ModelSpec unset = window(0, 0);
  EXPECT_EQ("", unset.FirstDifference(window(4, 4)));
  EXPECT_TRUE(unset.TakeUnset(window(4, 4)));
  EXPECT_TRUE(unset == window(4, 4));
}

TEST(ModelFieldsSpec, EachBadFieldIsNamed) {
  const auto bad = [](auto change, const std::string& field) {
    ModelSpec spec = OldModel();
    spec.groups[0].inv_freq = RotaryFrequencies(8, 10'000.0);
    change(spec);
    EXPECT_FAILS(spec.Validate(), StatusCode::kInvalidArgument, field);
  };
  const auto key = [&](auto change, const std::string& field) {
    bad([&](ModelSpec& m) { change(m.groups[0].planes[0].rotary); },
        "groups[0].planes[0].rotary." + field);
  };
  key([](RotarySpec& r) { r.state = RotaryState{9}; }, "state is unknown");
  key([](RotarySpec& r) { r.pairing = RotaryPairing{9}; }, "pairing is unknown");
  key([](RotarySpec& r) { r.width = 7; }, "width");
  key([](RotarySpec& r) { r.width = 10; }, "width");
  key([](RotarySpec& r) { r.width = 6; }, "width is 6; the group's inv_freq has 4");
  key([](RotarySpec& r) { r.width = UINT32_MAX - 1; }, "width");
  key([](RotarySpec& r) { r.first = 1; }, "first");
  key([](RotarySpec& r) { r.sections = {4}; }, "sections");
  key([](RotarySpec& r) { r.interleaved = true; }, "interleaved");
  key(
      [](RotarySpec& r) {
        r.width = 8;
        r.sections = {1, 1};
      },
      "sections: 2 pairs");
  key(
      [](RotarySpec& r) {
        r.width = 8;
        r.sections = {0, 2, 2};  // Not what taking turns comes to.
        r.interleaved = true;
      },
      "sections");
  key(
      [](RotarySpec& r) {
        r.width = 8;
        r.sections.assign(9, 0);
      },
      "sections: 9 given");
  bad([](ModelSpec& m) { m.groups[1].planes[0].rotary.state = RotaryState::kBefore; },
      "groups[1].planes[0].rotary: opaque");
  bad([](ModelSpec& m) { m.groups[1].planes[0].state_parts = 7; },
      "groups[1].planes[0].state_parts is 7");
  bad([](ModelSpec& m) { m.groups[0].planes[1].state_parts = 2; },
      "groups[0].planes[1].state_parts");
  const auto logical = [&](auto change, const std::string& field) {
    bad(
        [&](ModelSpec& m) {
          m.logical = {
              {.name = "attention", .layers = 2, .heads = 4, .layer_end = 2, .head_end = 4},
              {.name = "recurrent", .layers = 1, .heads = 1, .layer_end = 1, .head_end = 1}};
          change(m.logical);
        },
        field);
  };
  logical([](auto& groups) { groups.pop_back(); }, "\"recurrent\" is not among them");
  logical([](auto& groups) { groups[1].name = "attention"; }, "logical[1].name");
  logical([](auto& groups) { groups[0].layer_end = 1; }, "logical[0]: 1 layers");
  logical([](auto& groups) { groups[0].layers = 1; }, "logical[0]: what is held");
  logical([](auto& groups) { groups[0].head_begin = 5; }, "logical[0]: what is held");
  logical([](auto& groups) { groups[0].head_end = 3; }, "logical[0]: 3 heads");
  logical(
      [](auto& groups) {
        groups.push_back({.name = "x", .layers = 1, .heads = 1, .layer_end = 1});
      },
      "logical[2]: 1 layers");
  logical(
      [](auto& groups) {
        groups.emplace_back();
        groups.back().name.assign(257, 'x');
      },
      "logical[2].name");
}

}  // namespace
}  // namespace cairn::testing
