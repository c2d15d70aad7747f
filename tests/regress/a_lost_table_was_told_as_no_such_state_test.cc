// SPDX-License-Identifier: Apache-2.0
//
// The bug: where a snapshot table was gone, reads said kNotFound, as for a branch that was dropped
// or a sampler state that never was: damage passed for an answer.
// Method: the tables of a sealed store are removed.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

void RemoveAll(const io::SimWorld& machine, const char* suffix) {
  int removed = 0;
  for (const std::string& file : machine.disk->Files()) {
    if (!file.ends_with(suffix)) continue;
    ASSERT_OK(machine.disk->Remove("/" + file));
    ++removed;
  }
  ASSERT_GT(removed, 0);
}

TEST(ALostTable, IsDamage) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = WideModel();
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    const SamplerState sampler{.generator = GeneratorKind::kPhilox, .philox_seed = 3};
    KvSet kv(model, Layout::kContiguous, 0, 8);
    kv.Write(kSeed, 0, 8);
    const std::vector<TokenId> tokens = Tokens(8);
    Delta delta = MakeDelta(tokens, kv.View(0, 8));
    delta.sampler = &sampler;
    ASSERT_OK(chat.AppendSync(delta));
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.Close());
  }
  RemoveAll(machine, ".snapshot");
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const Branch chat, store.FindBranch("chat"));
  KvSet kv(model, Layout::kContiguous, 0, 8);
  RestoreRequest request;
  request.into = kv.View(0, 8);
  EXPECT_FAILS(chat.Restore(request), StatusCode::kCorruption, ".snapshot");
  EXPECT_FAILS(chat.ReadTokens(0, 8), StatusCode::kCorruption, ".snapshot");
  EXPECT_FAILS(chat.SamplerAt(8), StatusCode::kCorruption, ".snapshot");
  EXPECT_FAILS(chat.MetadataAt(8), StatusCode::kNotFound) << "there was none";
  EXPECT_FAILS(store.Checkpoint("/copy"), StatusCode::kCorruption, ".snapshot");
}

TEST(ALostTable, OfTheIndexIsDamageToAnOpening) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(WideModel()));
    ASSERT_OK(store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.Close());
  }
  RemoveAll(machine, ".index");
  EXPECT_FAILS(Store::Open("/store", options), StatusCode::kCorruption, ".index");
  options.create_if_missing = false;
  options.read_only = true;
  EXPECT_FAILS(Store::Open("/store", options), StatusCode::kCorruption, ".index");
}

TEST(ALostTable, IsDamageToGivingBack) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = WideModel();
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    for (const char* name : {"one", "two", "three"}) {
      ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = name}));
      ASSERT_OK(AppendSome(chat, model, 0, 8));
    }
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.Close());
  }
  RemoveAll(machine, ".snapshot");
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  for (const char* name : {"one", "two"}) {
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch(name));
    ASSERT_OK(chat.Drop());
  }
  EXPECT_FAILS(store.Compact(), StatusCode::kCorruption, ".snapshot");
}

}  // namespace
}  // namespace cairn::testing
