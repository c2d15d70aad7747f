// SPDX-License-Identifier: Apache-2.0
//
// Property: an append of direct_ingest_bytes or more is written once, into a table of its own, and
// is in everything else an append like any other: whole or not at all, bit for bit, cancelled
// without a trace, refused without a byte in the log.
// Method: a small threshold in every world; every operation of the disk failed once, and the power
// cut before every one.
#include <atomic>
#include <cerrno>
#include <random>

#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "tests/support/strike.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kThreshold = 16 << 10;

std::vector<std::string> Tables(io::FileSystem& files, const std::string& store) {
  auto names = files.List(store + "/tables");
  EXPECT_OK(names);
  std::vector<std::string> tables = names.ok() ? *names : std::vector<std::string>();
  std::erase_if(tables, [](const std::string& name) {
    return name.find(".snapshot") == std::string::npos;  // Unfinished ones count.
  });
  return tables;
}

class IngestTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    options_ = world_->options();
    options_.direct_ingest_bytes = kThreshold;
    Reopen(options_);
  }
  size_t TableCount() { return Tables(*world_->world().files, world_->path()).size(); }
  Options options_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, IngestTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(IngestTest, AnyModelComesBackBitForBit) {
  for (const ModelSpec& model : {TinyModel(), HybridModel(), WideModel()}) {
    SCOPED_TRACE(model.identity.name);
    const uint64_t ingests = store_.Metrics().ingests;
    Branch chat = Create(Register(model), model.identity.name);
    // The first begins a node, the second goes on within a page, the third spans several.
    const uint64_t large = kThreshold / model.token_bytes() + 1;
    const uint64_t counts[] = {large, 1, large, 1, 4 * large};
    uint64_t length = 0;
    for (const uint64_t count : counts) {
      ASSERT_OK(AppendSome(chat, model, length, count));
      length += count;
    }
    EXPECT_EQ(ingests + 3, store_.Metrics().ingests);
    for (int opened = 0; opened < 3; ++opened) {
      SCOPED_TRACE(opened);
      EXPECT_TRUE(HasKv(chat, model, 0, length));
      EXPECT_TRUE(HasKv(chat, model, large / 2, large + 3));
      EXPECT_TRUE(HasKv(chat, model, length - 1, length));
      ASSERT_OK_ASSIGN(const auto tokens, chat.ReadTokens(large + 1, 2 * large + 1));
      EXPECT_EQ(Tokens(large, kSeed + large + 1), tokens);
      if (opened == 1) {
        ASSERT_OK(store_.Compact());  // Ids move from the log into a table; KV stays.
      }
      Reopen(options_);
      chat = Find(model.identity.name);
    }
    ASSERT_OK(AppendSome(chat, model, length, 2));
    EXPECT_TRUE(HasKv(chat, model, length - 5, length + 2));
  }
}

// Blocking, borrowed, as a draft, as a fill: with every layout a view may have, and with all that a
// delta may carry.
TEST_P(IngestTest, EveryWayIn) {
  const ModelSpec model = HybridModel();
  const ModelId id = Register(model);
  const uint64_t count = kThreshold / model.token_bytes() + 30;
  const std::vector<TokenId> tokens = Tokens(count);
  const ContentSpan spans[] = {{.begin = 3, .end = count, .hash = {1, 2}, .atomic = true}};
  SamplerState sampler;
  sampler.generator = GeneratorKind::kPhilox;
  sampler.philox_seed = 5;
  AppMetadata metadata;
  metadata.bytes.assign(100, std::byte{9});
  uint64_t made = 0;
  for (const Layout layout : AllLayouts()) {
    SCOPED_TRACE(LayoutName(layout));
    Branch chat = Create(id, LayoutName(layout));
    KvSet kv(model, layout, 0, count);
    kv.Write(kSeed, 0, count);
    Delta delta = MakeDelta(tokens, kv.View(0, count));
    delta.spans = spans;
    delta.sampler = &sampler;
    delta.metadata = &metadata;
    if (made % 2 == 0) {
      ASSERT_OK(chat.AppendSync(delta, {.expected_length = 0}));
    } else {
      ASSERT_OK_ASSIGN(Ticket ticket, chat.Append(delta, {.durability = Durability::kPower}));
      ASSERT_OK(ticket.Wait());
      EXPECT_TRUE(ticket.released());
      EXPECT_EQ(count, ticket.length());
    }
    EXPECT_EQ(++made, store_.Metrics().ingests);
    EXPECT_TRUE(HasKv(chat, model, 0, count));
  }
  Branch filled = Create(id, "filled");
  KvSet kv(model, Layout::kNhd, 0, count);
  kv.Write(kSeed, 0, count);
  ASSERT_OK(filled.AppendSync(MakeDelta(tokens)));
  ASSERT_OK(filled.Fill(*kv.View(0, count)));
  EXPECT_EQ(made + 1, store_.Metrics().ingests);
  Branch drafted = Create(id, "drafted");
  ASSERT_OK_ASSIGN(Draft draft, drafted.BeginAppend(count));
  for (uint32_t group = 0; group < model.groups.size(); ++group) {
    for (uint32_t layer = 0; layer < model.groups[group].layers; ++layer) {
      ASSERT_OK(draft.Put(layer, kv.pool(group).View(0, count, layer, 1)));
    }
  }
  ASSERT_OK_ASSIGN(Ticket ticket, draft.Commit(MakeDelta(tokens), {}));
  ASSERT_OK(ticket.Wait());
  EXPECT_EQ(made + 2, store_.Metrics().ingests);
  Reopen(options_);
  for (const char* name : {"filled", "drafted"}) EXPECT_TRUE(HasKv(Find(name), model, 0, count));
  for (const Layout layout : AllLayouts()) {
    SCOPED_TRACE(LayoutName(layout));
    Branch chat = Find(LayoutName(layout));
    EXPECT_TRUE(HasKv(chat, model, 0, count));
    EXPECT_EQ(tokens, *chat.ReadTokens(0, count));
    ASSERT_OK_ASSIGN(const auto state, chat.SamplerAt(count));
    EXPECT_EQ(sampler, *state.sampler);
    ASSERT_OK_ASSIGN(const auto about, chat.MetadataAt(count));
    EXPECT_EQ(metadata.bytes, about.metadata->bytes);
    ASSERT_OK_ASSIGN(const auto found, chat.Spans(0, count));
    ASSERT_EQ(1U, found.size());
    EXPECT_EQ(count, found[0].end);
  }
}

TEST_P(IngestTest, BelowTheThresholdAndWithoutOneTheLogHasIt) {
  const ModelSpec model = WideModel();
  const uint64_t position_bytes = model.token_bytes() + sizeof(TokenId);
  Options options = options_;
  options.direct_ingest_bytes = 40 * position_bytes;
  Reopen(options);
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 39));
  EXPECT_EQ(0U, store_.Metrics().ingests);
  EXPECT_EQ(0U, TableCount());
  ASSERT_OK(AppendSome(chat, model, 39, 40));
  EXPECT_EQ(1U, store_.Metrics().ingests);
  EXPECT_EQ(40 * model.token_bytes(), store_.Metrics().ingested_bytes);
  EXPECT_EQ(1U, TableCount());
  options.direct_ingest_bytes = 0;
  Reopen(options);
  chat = Find("chat");
  ASSERT_OK(AppendSome(chat, model, 79, 400));
  EXPECT_EQ(0U, store_.Metrics().ingests);
  EXPECT_TRUE(HasKv(chat, model, 0, 479));
}

// The disk writes of a prefill, by the store's own account: random bytes, which no codec packs.
TEST_P(IngestTest, APrefillIsWrittenOnce) {
  const ModelSpec model = WideModel();
  Branch chat = Create(Register(model), "chat");
  const StoreMetrics before = store_.Metrics();
  constexpr uint64_t kCount = 2048;  // 16 MiB.
  ASSERT_OK(AppendSome(chat, model, 0, kCount, kSeed, Durability::kPower));
  const StoreMetrics after = store_.Metrics();
  const auto raw = static_cast<double>(kCount * (model.token_bytes() + sizeof(TokenId)));
  const auto written = static_cast<double>(after.log_bytes_written - before.log_bytes_written +
                                           after.table_bytes_written - before.table_bytes_written);
  RecordProperty("write_amplification", std::to_string(written / raw));
  EXPECT_GT(written / raw, 0.5);
  EXPECT_LE(written / raw, 1.02);
}

TEST_P(IngestTest, IdsThatFitNoRecordGoIntoTheTable) {
  const ModelSpec model = TokenModel();
  Branch chat = Create(Register(model), "chat");
  const std::vector<TokenId> tokens = Tokens(200'000);  // More than a segment.
  ASSERT_OK(chat.AppendSync(MakeDelta(tokens)));
  EXPECT_EQ(1U, store_.Metrics().ingests);
  EXPECT_EQ(0U, store_.Metrics().kv_bytes_appended);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_EQ(tokens, *chat.ReadTokens(0, tokens.size()));
    EXPECT_EQ(std::vector<TokenId>(tokens.begin() + 4000, tokens.begin() + 4200),
              *chat.ReadTokens(4000, 4200));
    Reopen(options_);
    chat = Find("chat");
  }
}

TEST(IngestOfIds, ThatCannotBeWrittenIsRefused) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.direct_ingest_bytes = kThreshold;
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id));
  std::mt19937 random(1);
  std::vector<TokenId> tokens(3'000'000);  // More than a table's writer holds in memory.
  for (TokenId& token : tokens) token = random() % 150'000;
  uint64_t refused = 0;
  bool met = true;
  for (uint64_t n = 0; met; ++n) {
    Status status;
    {
      const Strike strike(*machine.disk, n, [](const io::SimOperation& op) {
        return op.op == io::SimOp::kWrite && op.path.find("/tables/") != op.path.npos;
      });
      status = chat.AppendSync(MakeDelta(tokens)).status();
      met = strike.met();
    }
    if (status.ok()) continue;
    EXPECT_FAILS(status, StatusCode::kIoError, "/tables/");
    EXPECT_EQ(0u, *chat.length());
    EXPECT_TRUE(Tables(*machine.disk, "store").empty());
    ++refused;
  }
  EXPECT_GT(refused, 3u);
  EXPECT_EQ(tokens, *chat.ReadTokens(0, tokens.size()));
}

TEST_P(IngestTest, ForksRewindsAndDropsOfIngestedPositions) {
  const ModelSpec model = WideModel();
  const ModelId id = Register(model);
  Branch chat = Create(id, "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 100));
  ASSERT_OK_ASSIGN(Branch twin, chat.ForkAt(70, {.name = "twin"}));
  ASSERT_OK(AppendSome(twin, model, 70, 30, kSeed));  // On a node of its own, again ingested.
  ASSERT_OK(chat.Rewind(80));
  ASSERT_OK(AppendSome(chat, model, 80, 50));
  ASSERT_OK(chat.Rewind(81));
  EXPECT_EQ(3U, store_.Metrics().ingests);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_TRUE(HasKv(Find("chat"), model, 0, 81));
    EXPECT_TRUE(HasKv(Find("twin"), model, 0, 100));
    Reopen(options_);
  }
  // One position of fifty is left of the third table, which is rewritten; 80 of 100 of the first.
  ASSERT_OK(store_.Compact());
  EXPECT_LT(store_.Metrics().table_bytes, 140 * model.token_bytes());
  EXPECT_TRUE(HasKv(Find("chat"), model, 0, 81));
  ASSERT_OK(Find("chat").Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_TRUE(HasKv(Find("twin"), model, 0, 100));
  ASSERT_OK(Find("twin").Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, TableCount());
  EXPECT_EQ(0U, store_.Metrics().table_bytes);
}

// A refused append leaves nothing: no table, no byte in the log, and the branch goes on.
TEST_P(IngestTest, WhatDoesNotFitTheBranchIsRefusedBeforeAByteIsWritten) {
  const ModelSpec model = WideModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 1));
  const StoreMetrics before = store_.Metrics();
  KvSet kv(model, Layout::kNhd, 0, 60);
  const std::vector<TokenId> tokens = Tokens(50);
  EXPECT_FAILS(chat.AppendSync(MakeDelta(tokens, kv.View(2, 49))), StatusCode::kInvalidArgument,
               "begins at position 2");
  EXPECT_FAILS(chat.AppendSync(MakeDelta(tokens, kv.View(1, 51))), StatusCode::kInvalidArgument,
               "beyond");
  EXPECT_FAILS(chat.AppendSync(MakeDelta(tokens, kv.View(1, 50)), {.expected_length = 3}),
               StatusCode::kConflict);
  EXPECT_FAILS(chat.AppendSync(MakeDelta(tokens, kv.View(1, 50)), {.timeout_ns = 0}),
               StatusCode::kDeadlineExceeded);
  EXPECT_EQ(before.log_records, store_.Metrics().log_records);
  EXPECT_EQ(before.table_bytes_written, store_.Metrics().table_bytes_written);
  EXPECT_EQ(0U, TableCount());
  ASSERT_OK(AppendSome(chat, model, 1, 50));
  EXPECT_TRUE(HasKv(chat, model, 0, 51));
}

TEST_P(IngestTest, WithoutRoomNothingIsWrittenToTheLog) {
  const ModelSpec model = WideModel();
  Options options = options_;
  options.max_bytes = 4 << 20;
  Reopen(options);
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 50));
  const StoreMetrics before = store_.Metrics();
  for (int i = 0; i < 3; ++i) {  // Taken space is returned: the next one fits.
    EXPECT_FAILS(AppendSome(chat, model, 50, 600), StatusCode::kNoSpace, "max_bytes");
  }
  EXPECT_EQ(before.log_records, store_.Metrics().log_records);
  EXPECT_EQ(1U, TableCount());
  ASSERT_OK(AppendSome(chat, model, 50, 50));
  Reopen(options);
  EXPECT_TRUE(HasKv(Find("chat"), model, 0, 100));
}

// Cancelled wherever it is, the source is not touched afterwards, and the append counts whole or
// not at all.
TEST_P(IngestTest, CancelIsABarrierForTheSource) {
  const ModelSpec model = WideModel();
  Branch chat = Create(Register(model), "chat");
  constexpr uint64_t kCount = 512;
  const std::vector<TokenId> tokens = Tokens(kCount);
  uint64_t cancelled = 0;
  for (uint64_t wait = 0; wait < 12; ++wait) {
    uint64_t length = 0;
    {
      KvSet kv(model, Layout::kContiguous, 0, kCount);
      kv.Write(kSeed, 0, kCount);
      ASSERT_OK_ASSIGN(Ticket ticket, chat.Append(MakeDelta(tokens, kv.View(0, kCount)), {}));
      world_->world().scheduler->Sleep(wait * 300'000);
      const Status status = ticket.Cancel();
      EXPECT_TRUE(ticket.released());
      if (status.code() == StatusCode::kCancelled) {
        ++cancelled;
      } else {
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnknownOutcome)
            << status.ToString();
        length = kCount;
      }
    }  // The source is gone.
    ASSERT_EQ(length, *chat.length());
    if (length != 0) {
      EXPECT_TRUE(HasKv(chat, model, 0, kCount));
      ASSERT_OK(chat.Rewind(0));
    }
  }
  EXPECT_GT(cancelled, 0U);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, TableCount());
}

// Appends to several branches at once, while tables are made and given back beside them.
TEST_P(IngestTest, ManyAtOnceBesideSealing) {
  const ModelSpec model = WideModel();
  Options options = options_;
  options.log_bytes_max = 1;
  Reopen(options);
  const ModelId id = Register(model);
  constexpr int kThreads = 4;
  constexpr uint64_t kSteps = 6;
  std::vector<Branch> chats;
  for (int i = 0; i < kThreads; ++i) chats.push_back(Create(id, std::to_string(i)));
  {
    std::vector<std::unique_ptr<io::Thread>> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.push_back(world_->world().scheduler->StartThread("append", [&, i] {
        uint64_t length = 0;
        for (uint64_t step = 0; step < kSteps; ++step) {
          EXPECT_OK(AppendSome(chats[i], model, length, 40, kSeed));  // Into a table.
          EXPECT_OK(AppendSome(chats[i], model, length + 40, 1, kSeed));
          EXPECT_OK(chats[i].Rewind(length + 21));
          length += 21;
          if (i == 0) {
            EXPECT_OK(store_.Compact());
          }
        }
      }));
    }
  }
  EXPECT_EQ(kThreads * kSteps, store_.Metrics().ingests);
  for (int opened = 0; opened < 2; ++opened) {
    for (int i = 0; i < kThreads; ++i) {
      EXPECT_TRUE(HasKv(Find(std::to_string(i)), model, 0, kSteps * 21));
    }
    Reopen(options);
  }
}

// The branch is taken until its ticket is over; others are not, and what waits comes after it.
TEST(IngestOrderTest, TheBranchQueuesAndOthersGoOn) {
  io::SimWorld sim = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.direct_ingest_bytes = kThreshold;
  options.world = std::make_shared<io::World>(sim.world());
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(id, {.name = "other"}));
  constexpr uint64_t kCount = 600;
  KvSet kv(model, Layout::kContiguous, 0, kCount);
  kv.Write(kSeed, 0, kCount);
  const std::vector<TokenId> tokens = Tokens(kCount);
  ASSERT_OK_ASSIGN(Ticket ticket, chat.Append(MakeDelta(tokens, kv.View(0, kCount)), {}));
  EXPECT_FAILS(chat.Append(MakeDelta(Tokens(1))), StatusCode::kBusy);
  EXPECT_FAILS(chat.Rewind(0), StatusCode::kBusy);
  EXPECT_FAILS(chat.Drop(), StatusCode::kBusy);
  ASSERT_OK(AppendSome(other, model, 0, 1, kSeed, Durability::kMemory));
  EXPECT_FALSE(ticket.done());
  ASSERT_OK(AppendSome(other, model, 1, 10, kSeed, Durability::kPower));  // Into another table.
  ASSERT_OK(AppendSome(chat, model, kCount, 1));
  EXPECT_TRUE(HasKv(chat, model, 0, kCount + 1));
  ASSERT_OK(ticket.Wait());
  ASSERT_OK(store.Close());
}

// Every allocation that the host refuses costs the append and nothing else.
TEST(IngestMemoryTest, WithoutMemoryTheAppendFails) {
  struct Refusing {
    std::atomic<int64_t> left{INT64_MAX};
    static void* Allocate(void* context, size_t bytes, size_t alignment) {
      if (static_cast<Refusing*>(context)->left.fetch_sub(1) == 0) return nullptr;
      return Allocator::Default().allocate(nullptr, bytes, alignment);
    }
    static void Deallocate(void*, void* memory, size_t bytes, size_t alignment) {
      Allocator::Default().deallocate(nullptr, memory, bytes, alignment);
    }
  } refusing;
  Options options = TinyOptions();
  options.direct_ingest_bytes = kThreshold;
  options.allocator = {Refusing::Allocate, Refusing::Deallocate, &refusing};
  const ModelSpec model = WideModel();
  uint64_t refused = 0;
  // Now and then it is another thread that is refused, so it takes some tries to meet all. Each in
  // a store of its own: what an append gave back is kept for the next.
  for (int64_t at = 0; at < 24; ++at) {
    ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    refusing.left = at % 12;
    const auto appended = AppendSome(chat, model, 0, 100);
    refusing.left = INT64_MAX;
    if (appended.ok()) continue;
    EXPECT_EQ(StatusCode::kOutOfMemory, appended.status().code()) << appended.status().ToString();
    EXPECT_EQ(0U, *chat.length());
    ++refused;
    ASSERT_OK(AppendSome(chat, model, 0, 100));
    EXPECT_TRUE(HasKv(chat, model, 0, 100));
  }
  EXPECT_GE(refused, 3U);
}

TEST(IngestOptionsTest, AThresholdThatMakesNoSenseIsRefused) {
  Options options = TinyOptions();
  options.direct_ingest_bytes = 4095;
  EXPECT_FAILS(Store::Open(":memory:", options), StatusCode::kInvalidArgument,
               "direct_ingest_bytes is 4095");
  options.direct_ingest_bytes = 4096;
  EXPECT_OK(Store::Open(":memory:", options));
}

// ---------------------------------------------------------------- faults and crashes

class IngestFaultTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kCount = 300;  // 19 KB of KV.

  Options OptionsOf(const io::SimWorld& sim) {
    Options options = TinyOptions();
    options.direct_ingest_bytes = kThreshold;
    options.world = std::make_shared<io::World>(sim.world());
    return options;
  }
  const ModelSpec model_ = TinyModel();
};

// Whatever fails once: an error of the table costs the append alone; one of the log poisons the
// store, as ever. In both cases it exists whole or not at all.
TEST_F(IngestFaultTest, EveryOperationFailed) {
  uint64_t struck = 0, refused = 0, poisoned = 0;
  for (uint64_t at = 0;; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    io::SimWorld sim = io::MakeSimWorld(1);
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(sim)));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model_));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat, model_, 0, 20, kSeed, Durability::kPower));
    Result<uint64_t> appended = uint64_t{0};
    bool hit = false;
    {
      const Strike strike(*sim.disk, at);
      appended = AppendSome(chat, model_, 20, kCount, kSeed, Durability::kPower);
      hit = strike.met();
    }
    struck += hit;
    uint64_t length = 20;
    if (appended.ok()) {
      length += kCount;
    } else if (store.poisoned().ok()) {
      ++refused;
      EXPECT_EQ(StatusCode::kIoError, appended.status().code()) << appended.status().ToString();
      EXPECT_EQ(20U, *chat.length());
      EXPECT_EQ(0U, store.Metrics().table_bytes);
      // Once more is enough.
      ASSERT_OK(AppendSome(chat, model_, 20, kCount, kSeed, Durability::kPower));
      length += kCount;
    } else {
      ++poisoned;
    }
    EXPECT_TRUE(HasKv(chat, model_, 0, 20));
    (void)store.Close();
    ASSERT_OK_ASSIGN(store, Store::Open("/store", OptionsOf(sim)));
    ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
    ASSERT_OK_ASSIGN(const uint64_t found, chat.length());
    EXPECT_TRUE(found == length || (!appended.ok() && found == 20 + kCount)) << found;
    EXPECT_TRUE(HasKv(chat, model_, 0, found));
    EXPECT_EQ(found == 20 ? 0U : 1U, Tables(*sim.world().files, "/store").size());
    ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty());
    ASSERT_OK(store.Close());
    if (!hit) break;
  }
  EXPECT_GT(refused, 5U);
  EXPECT_GT(poisoned, 0U);
  RecordProperty("operations", std::to_string(struck));
}

// The power cut before every operation of the disk: the append survives whole or not at all, what
// was acknowledged survives, and no file is left that nothing names. A reader deletes none.
TEST_F(IngestFaultTest, PowerCutBeforeEveryOperation) {
  struct Found {
    io::SimWorld machine;
    bool acknowledged;
    std::string when;
  };
  io::SimWorld sim = io::MakeSimWorld(1);
  std::vector<Found> found;
  bool acknowledged = false, counting = false;
  sim.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (!counting) return;
    const auto cut = [&](const io::CrashChoice& choice) {
      found.push_back({io::CrashWorld(*sim.disk, choice), acknowledged, operation.ToString()});
    };
    cut(io::CrashChoice::KeepAll());
    for (uint64_t seed = 0; seed < 6; ++seed) cut(io::CrashChoice::Seeded(seed));
  });
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(sim)));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model_));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat, model_, 0, 20, kSeed, Durability::kPower));
    counting = true;
    ASSERT_OK(AppendSome(chat, model_, 20, kCount, kSeed, Durability::kPower));
    acknowledged = true;
    ASSERT_OK(AppendSome(chat, model_, 20 + kCount, 1, kSeed, Durability::kPower));
    counting = false;
    ASSERT_OK(store.Close());
  }
  sim.disk->set_on_operation(nullptr);
  ASSERT_GT(found.size(), 50U);
  uint64_t orphans = 0, whole = 0;
  for (Found& one : found) {
    SCOPED_TRACE("power lost before " + one.when);
    const auto files = [&] { return Tables(*one.machine.world().files, "/store"); };
    auto listed = one.machine.world().files->List("/store/tables");
    const std::vector<std::string> left = listed.ok() ? files() : std::vector<std::string>();
    uint64_t seen = 0;
    {
      Options reading = OptionsOf(one.machine);
      reading.create_if_missing = false;
      reading.read_only = true;
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", reading));
      ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
      seen = *chat.length();
      EXPECT_TRUE(HasKv(chat, model_, 0, seen));
    }
    if (listed.ok()) {
      EXPECT_EQ(left, files());
    }
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(one.machine)));
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    ASSERT_OK_ASSIGN(const uint64_t length, chat.length());
    EXPECT_EQ(seen, length);
    EXPECT_TRUE(length == 20 || length == 20 + kCount || length == 21 + kCount) << length;
    if (one.acknowledged) {
      EXPECT_LE(20 + kCount, length);
    }
    EXPECT_TRUE(HasKv(chat, model_, 0, length));
    EXPECT_EQ(length == 20 ? 0U : 1U, files().size());
    orphans += length == 20 && !left.empty();
    whole += length != 20;
    // Later appends reuse no number and no id.
    ASSERT_OK(AppendSome(chat, model_, length, kCount, kSeed, Durability::kPower));
    EXPECT_TRUE(HasKv(chat, model_, 0, length + kCount));
  }
  EXPECT_GT(orphans, 0U);
  EXPECT_GT(whole, 0U);
}

// A log that fails beside a table being written takes the append with it.
TEST_F(IngestFaultTest, PoisonedMeanwhile) {
  io::SimWorld sim = io::MakeSimWorld(1);
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(sim)));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model_));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(id, {.name = "other"}));
  ASSERT_OK(store.Flush());
  KvSet kv(model_, Layout::kContiguous, 0, 20 * kCount);
  const std::vector<TokenId> tokens = Tokens(20 * kCount);
  ASSERT_OK_ASSIGN(Ticket ticket, chat.Append(MakeDelta(tokens, kv.View(0, 20 * kCount)), {}));
  sim.disk->AddFault({.when =
                          [](const io::SimOperation& operation) {
                            return operation.path.find("/log/") != std::string::npos;
                          },
                      .error = EIO});
  EXPECT_FALSE(AppendSome(other, model_, 0, 1, kSeed, Durability::kPower).ok());
  EXPECT_EQ(StatusCode::kPoisoned, ticket.Wait().code());
  EXPECT_EQ(0U, *chat.length());
  (void)store.Close();
}

}  // namespace
}  // namespace cairn::testing
