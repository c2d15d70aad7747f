// SPDX-License-Identifier: Apache-2.0
//
// Property: sealing changes where content lies and nothing else. Sealed content comes back bit for
// bit, at any position, for any branch, also after reopening; content that nobody reaches any more
// goes; an error while sealing costs nothing; damage to a table is named and never served.
#include <cerrno>
#include <cstring>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class SealTest : public WorldTest {
 protected:
  std::vector<std::string> Tables() {
    auto names = world_->world().files->List(world_->path() + "/tables");
    EXPECT_OK(names);
    std::vector<std::string> tables = names.ok() ? *names : std::vector<std::string>();
    std::erase_if(tables, [](const std::string& name) { return !name.ends_with(".snapshot"); });
    return tables;
  }
  std::vector<TokenId> Ids(const Branch& branch) {
    auto length = branch.length();
    EXPECT_OK(length);
    auto tokens = branch.ReadTokens(0, *length);
    EXPECT_OK(tokens);
    return *tokens;
  }
};

TEST_P(SealTest, AnyRangeComesBackFromTables) {
  for (const ModelSpec& model : {TinyModel(), HybridModel(), WideModel(), TokenModel()}) {
    SCOPED_TRACE(model.identity.name);
    Branch chat = Create(Register(model), model.identity.name);
    uint64_t length = 0;
    for (const uint64_t count : {1, 7, 64, 3, 200, 1, 30}) {
      ASSERT_OK(AppendSome(chat, model, length, count));
      length += count;
    }
    const std::vector<TokenId> before = Ids(chat);
    ASSERT_OK(store_.Compact());
    for (int opened = 0; opened < 2; ++opened) {
      EXPECT_EQ(before, Ids(chat));
      if (!model.groups.empty()) {
        EXPECT_TRUE(HasKv(chat, model, 0, length));
        EXPECT_TRUE(HasKv(chat, model, 5, 6));
        EXPECT_TRUE(HasKv(chat, model, 63, 140));
        EXPECT_TRUE(HasKv(chat, model, length - 1, length));
      }
      Reopen();
      chat = Find(model.identity.name);
    }
  }
}

// Nobody asks, and the log is far from full.
TEST_P(SealTest, LongChainsAreSealedByThemselves) {
  const ModelSpec model = WideModel();
  for (const auto& [tokens, deltas] : {std::pair{64, 0}, std::pair{0, 20}, std::pair{0, 0}}) {
    SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(deltas) + " deltas");
    Options options = world_->options();
    options.snapshot_interval_tokens = tokens;
    options.max_delta_chain = deltas;
    Reopen(options);
    const std::string name = "chat" + std::to_string(tokens + deltas);
    Branch chat = Create(Register(model), name);
    const uint64_t chain_before = store_.Metrics().chain_deltas;
    uint64_t length = 0;
    for (; length < 2400; length += 8) ASSERT_OK(AppendSome(chat, model, length, 8));  // 19 MiB.
    StoreMetrics metrics = store_.Metrics();
    // Leftovers of the round before may be sealed as well, so this chain decides.
    for (int i = 0; i < 5000 && tokens + deltas > 0 &&
                    (metrics.seals == 0 || metrics.chain_deltas - chain_before >= 300);
         ++i) {
      world_->world().scheduler->Sleep(1'000'000);
      metrics = store_.Metrics();
    }
    if (tokens + deltas == 0) {
      EXPECT_EQ(0u, metrics.seals);
      EXPECT_EQ(300u, metrics.chain_deltas - chain_before);
    } else {
      EXPECT_LT(0u, metrics.seals);
      EXPECT_GT(300u, metrics.chain_deltas - chain_before);
    }
    EXPECT_TRUE(HasKv(chat, model, 0, length));
  }
}

TEST_P(SealTest, NothingIsReadFromTheLogAfterwards) {
  const ModelSpec model = WideModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 20));
  ASSERT_OK(store_.Compact());
  KvSet got(model, Layout::kNhd, 0, 20);
  RestoreRequest request;
  request.into = got.View(0, 20);
  ASSERT_OK_ASSIGN(const RestoreResult result, chat.Restore(request));
  EXPECT_EQ(0U, result.hot_bytes);
  EXPECT_EQ(20 * model.token_bytes(), result.bytes);
}

TEST_P(SealTest, LifeGoesOnAfterIt) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 40));
  ASSERT_OK_ASSIGN(Branch early, chat.ForkAt(10, {.name = "early"}));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(AppendSome(chat, model, 40, 5));
  ASSERT_OK(AppendSome(early, model, 10, 5, kSeed));
  ASSERT_OK(chat.Rewind(20));
  ASSERT_OK(AppendSome(chat, model, 20, 8));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(AppendSome(chat, model, 28, 2));
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_TRUE(HasKv(chat, model, 0, 30));
    EXPECT_TRUE(HasKv(early, model, 0, 15));
    Reopen();
    chat = Find("chat");
    early = Find("early");
  }
}

TEST_P(SealTest, StatesAreSealedToo) {
  const ModelSpec model = TokenModel();
  Branch chat = Create(Register(model), "chat");
  SamplerState sampler;
  sampler.generator = GeneratorKind::kPhilox;
  AppMetadata metadata;
  for (uint64_t i = 0; i < 4; ++i) {
    sampler.philox_offset = i;
    metadata.bytes.assign(3 + i, std::byte{1});
    const std::vector<TokenId> tokens = Tokens(2, i);
    Delta delta = MakeDelta(tokens);
    delta.sampler = &sampler;
    delta.metadata = &metadata;
    ASSERT_OK(chat.AppendSync(delta, {}));
  }
  ASSERT_OK(store_.Compact());
  Reopen();
  chat = Find("chat");
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_OK_ASSIGN(const Branch::StateAt state, chat.SamplerAt(2 * i + 3));
    EXPECT_EQ(2 * i + 2, state.position);
    EXPECT_EQ(i, state.sampler->philox_offset);
    ASSERT_OK_ASSIGN(const Branch::StateAt meta, chat.MetadataAt(2 * i + 2));
    EXPECT_EQ(3 + i, meta.metadata.value_or(AppMetadata()).bytes.size());
  }
}

TEST_P(SealTest, WhatNobodyReachesIsDeleted) {
  const ModelSpec model = WideModel();
  const ModelId id = Register(model);
  Branch chat = Create(id, "chat");
  Branch other = Create(id, "other");
  ASSERT_OK(AppendSome(chat, model, 0, 60));
  ASSERT_OK(store_.Compact());
  const std::vector<std::string> first = Tables();
  ASSERT_EQ(1U, first.size());
  const uint64_t full = store_.Metrics().physical_bytes;
  ASSERT_OK(AppendSome(other, model, 0, 10));
  ASSERT_OK(chat.Drop());
  ASSERT_OK(store_.Compact());
  const std::vector<std::string> second = Tables();
  ASSERT_EQ(1U, second.size());
  EXPECT_NE(first, second);
  EXPECT_LT(store_.Metrics().physical_bytes, full);
  EXPECT_TRUE(HasKv(other, model, 0, 10));
  Reopen();
  EXPECT_EQ(second, Tables());
  EXPECT_TRUE(HasKv(Find("other"), model, 0, 10));
}

TEST_P(SealTest, AHalfEmptyTableIsRewritten) {
  const ModelSpec model = WideModel();
  const ModelId id = Register(model);
  Branch chat = Create(id, "chat"), other = Create(id, "other");
  ASSERT_OK(AppendSome(chat, model, 0, 12));
  ASSERT_OK(AppendSome(other, model, 0, 8));
  ASSERT_OK(store_.Compact());
  const std::vector<std::string> first = Tables();
  ASSERT_EQ(1U, first.size());
  const uint64_t full = store_.Metrics().table_bytes;
  ASSERT_OK_ASSIGN(Branch start, chat.ForkAt(2, {.name = "start"}));
  ASSERT_OK(chat.Drop());
  // The fork keeps the whole node, until it is cut to what is reached.
  EXPECT_TRUE(HasKv(start, model, 0, 2));
  ASSERT_OK(start.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(1U, store_.Metrics().rewritten_tables);
  EXPECT_LT(store_.Metrics().table_bytes, full / 2);
  EXPECT_NE(first, Tables());
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(1U, Tables().size());
    EXPECT_TRUE(HasKv(Find("other"), model, 0, 8));
    Reopen();
  }
}

TEST_P(SealTest, TheLogStaysBounded) {
  const ModelSpec model = WideModel();
  Options options = world_->options();
  options.log_bytes_max = 1;
  Reopen(options);
  const ModelId id = Register(model);
  std::vector<Branch> chats = {Create(id, "a"), Create(id, "b"), Create(id, "c")};
  for (uint64_t length = 0; length < 240; length += 8) {
    for (Branch& chat : chats) ASSERT_OK(AppendSome(chat, model, length, 8));
    if (length == 120) {
      ASSERT_OK(chats[0].ForkAt(77, {.name = "twin"}));
    }
  }
  // Five megabytes went through a log of one.
  for (int i = 0; i < 10'000 && store_.Metrics().log_segments > 8; ++i) {
    world_->world().scheduler->Sleep(1'000'000);
  }
  EXPECT_LE(store_.Metrics().log_segments, 8U);
  EXPECT_GT(store_.Metrics().retired_segments, 8U);
  for (int opened = 0; opened < 2; ++opened) {
    for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(HasKv(Find(name), model, 0, 240)) << name;
    EXPECT_TRUE(HasKv(Find("twin"), model, 0, 77));
    Reopen(options);
  }
  ASSERT_OK(Find("a").Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_LE(store_.Metrics().log_segments, 2U);
  Reopen(options);
  EXPECT_TRUE(HasKv(Find("b"), model, 0, 240));
  EXPECT_TRUE(HasKv(Find("twin"), model, 0, 77));
  EXPECT_FAILS(store_.FindBranch("a"), StatusCode::kNotFound);
}

TEST_P(SealTest, ALargeAppendKeepsItsPartsWhileItIsGathered) {
  const ModelSpec model = WideModel();
  Options options = world_->options();
  options.log_bytes_max = 1;
  Reopen(options);
  Branch chat = Create(Register(model), "chat");
  // Parts fill segment after segment before the record that counts them.
  ASSERT_OK(AppendSome(chat, model, 0, 500));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(AppendSome(chat, model, 500, 300));
  EXPECT_TRUE(HasKv(chat, model, 0, 800));
  Reopen(options);
  EXPECT_TRUE(HasKv(Find("chat"), model, 0, 800));
}

INSTANTIATE_TEST_SUITE_P(Worlds, SealTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

// Whatever fails while deltas are sealed and the log is given back, once, costs nothing: another
// try succeeds or the log was poisoned, and the content afterwards is the same.
TEST(SealFaultTest, EveryOperationFailed) {
  const ModelSpec model = TinyModel();
  uint64_t struck = 0;
  for (uint64_t at = 0;; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    io::SimWorld sim = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK_ASSIGN(Branch doomed, store.CreateBranch(id, {.name = "doomed"}));
    ASSERT_OK(AppendSome(chat, model, 0, 20));
    ASSERT_OK(AppendSome(doomed, model, 0, 20));
    ASSERT_OK_ASSIGN(Branch twin, doomed.ForkAt(10, {.name = "twin"}));
    ASSERT_OK(AppendSome(twin, model, 10, 5));
    ASSERT_OK(store.Compact());
    // Parents and children that the index knows are gone; half of the table is dead.
    ASSERT_OK(twin.Drop());
    ASSERT_OK(doomed.Drop());
    ASSERT_OK(AppendSome(chat, model, 20, 20, kSeed, Durability::kPower));
    sim.disk->AddFault({.when = {}, .at_index = sim.disk->operations() + at, .error = EIO});
    const uint64_t struck_before = sim.disk->faults_struck();
    const Status first = store.Compact();
    const bool hit = sim.disk->faults_struck() != struck_before;
    struck += hit;
    sim.disk->ClearFaults();
    if (store.poisoned().ok()) {
      EXPECT_OK(store.Compact()) << "after " << first.ToString();
    }
    EXPECT_TRUE(HasKv(chat, model, 0, 40));
    (void)store.Close();  // A poisoned store says so.
    ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
    EXPECT_TRUE(HasKv(chat, model, 0, 40));
    EXPECT_FAILS(store.FindBranch("doomed"), StatusCode::kNotFound);
    EXPECT_EQ(1U, store.Metrics().nodes);
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty());
    ASSERT_OK(store.Close());
    if (!hit) break;
  }
  EXPECT_GT(struck, 20U);
}

// Every byte of a table is either checked or means nothing.
TEST(SealDamageTest, EveryFlippedByteIsNamedOrHarmless) {
  io::SimWorld sim = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(sim.world());
  const ModelSpec model = TinyModel();
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat, model, 0, 20));
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.Close());
  }
  std::string table;
  for (const std::string& path : sim.disk->Files()) {
    if (path.ends_with(".snapshot")) table = path;
  }
  ASSERT_NE("", table);
  ASSERT_OK_ASSIGN(const std::vector<std::byte> original, sim.disk->ReadRaw(table));
  size_t noticed = 0;
  for (size_t at = 0; at < original.size(); at += 13) {
    std::vector<std::byte> damaged = original;
    damaged[at] ^= std::byte{1};
    ASSERT_OK(sim.disk->WriteRaw(table, 0, damaged));
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    KvSet got(model, Layout::kContiguous, 0, 20), want(model, Layout::kContiguous, 0, 20);
    want.Write(kSeed, 0, 20);
    RestoreRequest request;
    std::vector<TokenId> tokens(20);
    request.into = got.View(0, 20);
    request.tokens = tokens;
    const auto restored = chat.Restore(request);
    if (restored.ok()) {
      EXPECT_TRUE(got == want) << "offset " << at;
      EXPECT_EQ(Tokens(20, kSeed), tokens) << "offset " << at;
    } else {
      ++noticed;
      EXPECT_EQ(StatusCode::kCorruption, restored.status().code()) << restored.status().ToString();
      EXPECT_NE(std::string::npos, restored.status().ToString().find(".snapshot"))
          << restored.status().ToString();
      EXPECT_OK(AppendSome(chat, model, 20, 1)) << "what is whole goes on";
      EXPECT_OK(chat.Rewind(20));
    }
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(restored.ok() || !report.damages.empty()) << "offset " << at;
    ASSERT_OK(store.Close());
  }
  EXPECT_GT(noticed, 50U);
}

}  // namespace
}  // namespace cairn::testing
