// SPDX-License-Identifier: Apache-2.0
//
// The bug: a hint that outlived its node, for a power loss took that, named the node that got its
// number afterwards. Where that held the same tokens the hit counted as confirmed, though it was
// another model's KV, or another namespace's node. Method: two machines on which the same happens,
// but for whose the node is, so that their stores have the same name; one gets the hints of the
// other.
#include "engine/manifest/manifest.h"
#include "sim/world.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class AHint : public ::testing::Test {
 protected:
  struct Machine {
    io::SimWorld sim = io::MakeSimWorld(1);
    ModelId models[2];
    Store store;
  };
  // A store in which this one has the ids.
  void Fill(Machine* machine, size_t model, const std::string& ns) {
    ASSERT_NO_FATAL_FAILURE(Open(machine));
    ModelSpec spec = TokenModel();
    for (ModelId& id : machine->models) {
      ASSERT_OK_ASSIGN(id, machine->store.RegisterModel(spec));
      spec.identity.revision = "another";
    }
    ASSERT_OK_ASSIGN(Branch branch, machine->store.CreateBranch(machine->models[model],
                                                                {.name = "chat", .ns = ns}));
    ASSERT_OK(branch.AppendSync(MakeDelta(ids_)));
    ASSERT_OK(machine->store.Compact());
    ASSERT_OK(machine->store.Close());
  }
  void Open(Machine* machine) {
    Options options = FindingOptions();
    options.world = std::make_shared<io::World>(machine->sim.world());
    ASSERT_OK_ASSIGN(machine->store, Store::Open("/store", options));
  }
  static std::vector<sstable::LiveTable> Hints(const Machine& machine) {
    const auto manifest = engine::ReadManifest(*machine.sim.disk, "/store");
    EXPECT_OK(manifest);
    return manifest->named.at(0).tables;
  }
  // The part of the ids that `to` has, by the hints of `from`.
  PrefixHit AskByHintsOf(const Machine& from, Machine* to, std::string_view ns) {
    const auto theirs = Hints(from), own = Hints(*to);
    EXPECT_EQ(1u, own.size());
    EXPECT_EQ(own[0].number, theirs[0].number);
    EXPECT_EQ(own[0].bytes, theirs[0].bytes);
    const std::string path = sstable::IndexTablePath("/store/tables", own[0].number);
    const auto bytes = from.sim.disk->ReadRaw(path);
    EXPECT_OK(bytes);
    EXPECT_OK(to->sim.disk->WriteRaw(path, 0, *bytes));
    Open(to);
    PrefixQuery query;
    query.model = to->models[0];
    query.tokens = ids_;
    query.ns = ns;
    const auto hit = to->store.FindPrefix(query);
    EXPECT_OK(hit);
    return hit.ok() ? *hit : PrefixHit();
  }

  const std::vector<TokenId> ids_ = Tokens(200, 5);
};

TEST_F(AHint, OfAnotherModelsNode) {
  Machine hinted, asked;
  ASSERT_NO_FATAL_FAILURE(Fill(&hinted, 0, "tenant"));
  ASSERT_NO_FATAL_FAILURE(Fill(&asked, 1, "tenant"));
  EXPECT_FALSE(AskByHintsOf(hinted, &asked, "tenant").found());
}

TEST_F(AHint, OfAnotherNamespacesNode) {
  Machine hinted, asked;
  ASSERT_NO_FATAL_FAILURE(Fill(&hinted, 0, "tenant"));
  ASSERT_NO_FATAL_FAILURE(Fill(&asked, 0, "others"));
  EXPECT_FALSE(AskByHintsOf(hinted, &asked, "tenant").found());
}

// The method finds what exists.
TEST_F(AHint, OfTheSameNode) {
  Machine hinted, asked;
  ASSERT_NO_FATAL_FAILURE(Fill(&hinted, 0, "tenant"));
  ASSERT_NO_FATAL_FAILURE(Fill(&asked, 0, "tenant"));
  EXPECT_EQ(200u, AskByHintsOf(hinted, &asked, "tenant").matched);
}

}  // namespace
}  // namespace cairn::testing
