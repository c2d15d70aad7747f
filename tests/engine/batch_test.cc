// SPDX-License-Identifier: Apache-2.0
//
// Property: a batch happens whole, in order and in one record, or not at all.
// Method: batches over several branches that create, fork, append, rewind, rename and drop; the
// same batches with one op that cannot work, at every place; both before and after reopening.
#include "tests/engine/engine_test.h"
#include "tests/support/faults.h"

namespace cairn::testing {
namespace {

class BatchTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = HybridModel();
    id_ = Register(model_);
    chat_ = Create(id_, "chat");
    other_ = Create(id_, "other");
    ASSERT_OK(AppendSome(chat_, model_, 0, 8));
    ASSERT_OK(AppendSome(other_, model_, 0, 3));
  }

  // Everything that can be seen.
  std::string Picture() {
    std::string picture;
    for (const std::string& ns : NamesOf(store_)) {
      auto page = store_.ListBranches(ns, "", 1000);
      EXPECT_OK(page);
      for (const BranchInfo& info : page->branches) {
        picture += ns + "/" + info.name + " " + std::to_string(info.length);
        for (const uint64_t kv : info.kv_lengths) picture += " " + std::to_string(kv);
        auto tokens = store_.GetBranch(info.id)->ReadTokens(0, info.length);
        EXPECT_OK(tokens);
        for (const TokenId token : *tokens) picture += "," + std::to_string(token);
        picture += "\n";
      }
    }
    return picture + std::to_string(store_.Metrics().nodes) + " nodes";
  }

  ModelSpec model_;
  ModelId id_{};
  Branch chat_, other_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, BatchTest, ::testing::Values("memory", "threads", "simulated"),
                         NameOf);

TEST_P(BatchTest, EveryKindOfOpInOneRecord) {
  KvSet kv(model_, Layout::kNhd, 0, 20);
  kv.Write(kSeed, 0, 20);
  KvSet made(model_, Layout::kHnd, 0, 20);
  made.Write(99, 0, 20);
  const std::vector<TokenId> tokens = Tokens(6);
  const SamplerState sampler{.generator = GeneratorKind::kPhilox,
                             .philox_seed = 1,
                             .blob_name = {},
                             .blob = {},
                             .last_logits = {}};
  const AppMetadata metadata{.content_type = "x", .bytes = {}};
  Delta with_states = MakeDelta(std::span(tokens).first(2), kv.View(8, 2));
  with_states.sampler = &sampler;
  with_states.metadata = &metadata;
  WriteBatch batch;
  batch.Append(chat_, with_states, 8);
  const int fork = batch.Fork(chat_, 5, {.name = "fork", .ns = "n"});
  const int fresh = batch.Create(id_, {.name = "fresh"});
  batch.Append(fresh, MakeDelta(tokens, made.View(0, 6)));
  batch.Append(fork, MakeDelta(std::span(tokens).first(1), made.View(5, 1)));
  batch.Rename(chat_, "moved");
  batch.Append(chat_, MakeDelta(std::span(tokens).last(4), kv.View(10, 4)));
  batch.Rewind(chat_, 13);
  const int grandchild = batch.Fork(fresh, 4, {.name = "grandchild"});
  batch.Drop(other_);
  EXPECT_EQ(0, fork);
  EXPECT_EQ(1, fresh);
  EXPECT_EQ(2, grandchild);
  const uint64_t records = store_.Metrics().log_records;
  ASSERT_OK_ASSIGN(Store::WriteResult result, store_.Write(batch));
  ASSERT_OK(result.ticket.Wait());
  EXPECT_EQ(records + 1, store_.Metrics().log_records);
  ASSERT_EQ(3u, result.created.size());
  EXPECT_EQ("fresh", result.created[1].Info()->name);
  for (int round = 0; round < 2; ++round) {
    chat_ = Find("moved");
    EXPECT_EQ(13u, *chat_.length());
    EXPECT_TRUE(HasKv(chat_, model_, 0, 13));
    EXPECT_EQ(sampler, chat_.SamplerAt(13)->sampler);
    EXPECT_EQ(10u, chat_.SamplerAt(13)->position);
    EXPECT_EQ(metadata, chat_.MetadataAt(11)->metadata);
    ASSERT_OK_ASSIGN(const Branch left, store_.FindBranch("fork", "n"));
    EXPECT_TRUE(HasKv(left, model_, 0, 5));
    EXPECT_TRUE(HasKv(left, model_, 5, 6, 99));
    EXPECT_TRUE(HasKv(Find("fresh"), model_, 0, 6, 99));
    EXPECT_TRUE(HasKv(Find("grandchild"), model_, 0, 4, 99));
    EXPECT_FAILS(store_.FindBranch("other"), StatusCode::kNotFound);
    EXPECT_FAILS(store_.FindBranch("chat"), StatusCode::kNotFound);
    const std::string picture = Picture();
    Reopen();
    EXPECT_EQ(picture, Picture());
  }
}

TEST_P(BatchTest, OneBadOpAndNothingHappens) {
  const std::vector<TokenId> tokens = Tokens(3);
  KvSet kv(model_, Layout::kNhd, 0, 20);
  const std::string before = Picture();
  struct Bad {
    StatusCode code;
    const char* words;
    std::function<void(WriteBatch&)> add;
  };
  const std::vector<Bad> bad_ops = {
      {StatusCode::kNotFound, "999", [&](WriteBatch& b) { b.Create(ModelId{999}, {}); }},
      {StatusCode::kAlreadyExists, "chat2",
       [&](WriteBatch& b) { b.Create(id_, {.name = "chat2"}); }},
      {StatusCode::kInvalidArgument, "fork at position 99",
       [&](WriteBatch& b) { b.Fork(chat_, 99, {}); }},
      {StatusCode::kInvalidArgument, "rewind at position 99",
       [&](WriteBatch& b) { b.Rewind(chat_, 99); }},
      {StatusCode::kConflict, "expected_length is 1",
       [&](WriteBatch& b) { b.Append(chat_, MakeDelta(tokens), 1); }},
      {StatusCode::kInvalidArgument, "at least one token",
       [&](WriteBatch& b) { b.Append(chat_, {}); }},
      {StatusCode::kInvalidArgument, "begins at position 0",
       [&](WriteBatch& b) { b.Append(chat_, MakeDelta(tokens, kv.View(0, 3))); }},
      {StatusCode::kNotFound, "branch #4444",
       [&](WriteBatch& b) { b.Drop(Branch(store_.core(), BranchId{4444})); }},
      {StatusCode::kNotFound, "branch #4444",
       [&](WriteBatch& b) { b.Append(Branch(store_.core(), BranchId{4444}), MakeDelta(tokens)); }},
      {StatusCode::kInvalidArgument, "created branch 7", [&](WriteBatch& b) { b.Drop(7); }},
  };
  for (const Bad& bad : bad_ops) {
    for (size_t at = 0; at <= 7; ++at) {
      WriteBatch batch;
      size_t op = 0;
      const auto maybe = [&] {
        if (op++ != at) return;
        if (std::string(bad.words) == "chat2") {
          batch.Create(id_, {.name = "chat2"});
        }
        bad.add(batch);
      };
      maybe();
      batch.Append(chat_, MakeDelta(tokens), 8);
      maybe();
      batch.Rewind(chat_, 5);
      maybe();
      batch.Append(chat_, MakeDelta(tokens));
      maybe();
      batch.Fork(chat_, 3, {.name = "fork"});
      maybe();
      batch.Rename(other_, "renamed");
      maybe();
      batch.Append(other_, MakeDelta(tokens));
      maybe();
      batch.Rewind(other_, 0);
      maybe();
      EXPECT_FAILS(store_.Write(batch), bad.code, bad.words);
      ASSERT_EQ(before, Picture()) << bad.words << " at " << at;
    }
  }
  ASSERT_OK(AppendSome(chat_, model_, 8, 2));
  Reopen();
  chat_ = Find("chat");
  EXPECT_TRUE(HasKv(chat_, model_, 0, 10));
}

// The branches that it names are only in the index, which cannot be read.
TEST(BatchOfAColdBranch, TellsWhatCannotBeRead) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.tree_memory_bytes = 0;
  options.replay_records_max = 50;
  options.world = std::make_shared<io::World>(machine.world());
  // Long, so that the index needs more blocks than opening reads.
  const auto name = [](int i) { return "chat " + std::to_string(i) + std::string(100, '.'); };
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(TokenModel()));
    for (int i = 0; i < 200; ++i) {
      ASSERT_OK(store.CreateBranch(id, {.name = name(i)}));
    }
    machine.scheduler->Sleep(2'000'000'000);  // The tree goes into the index.
  }
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_LT(store.Metrics().replayed_records, 100u);
  const Branch chat(store.core(), BranchId{20});
  WriteBatch batch, takes_a_name;
  const std::vector<TokenId> tokens = Tokens(3);
  batch.Append(chat, MakeDelta(tokens));
  takes_a_name.Create(store.Models().front().id, {.name = name(30)});
  machine.disk->AddFault(TableReadsFail());
  EXPECT_FAILS(store.Write(takes_a_name), StatusCode::kIoError, "/tables/");
  EXPECT_FAILS(store.Write(batch), StatusCode::kIoError, "/tables/");
  machine.disk->ClearFaults();
  EXPECT_FAILS(store.Write(takes_a_name), StatusCode::kAlreadyExists, "chat 30");
  EXPECT_OK(store.Write(batch));
  EXPECT_EQ(3u, *chat.length());
}

TEST_P(BatchTest, EmptyAndTooLarge) {
  EXPECT_FAILS(store_.Write({}), StatusCode::kInvalidArgument, "empty");
  const std::vector<TokenId> tokens = Tokens(1'200'000);  // 4.8 MB of ids.
  WriteBatch batch;
  batch.Append(chat_, MakeDelta(tokens));
  EXPECT_FAILS(store_.Write(batch), StatusCode::kInvalidArgument, "large deltas by themselves");
  EXPECT_EQ(8u, *chat_.length());
  WriteBatch many;
  for (size_t i = 0; i < kMaxBatchOps; ++i) many.Rewind(chat_, 8 - i % 2);
  many.Rewind(chat_, 1);
  EXPECT_FAILS(store_.Write(many), StatusCode::kInvalidArgument, "4097 ops, at most 4096");
  EXPECT_EQ(8u, *chat_.length());
}

TEST_P(BatchTest, ManyBranchesStepTogether) {
  std::vector<Branch> branches;
  for (int i = 0; i < 20; ++i) branches.push_back(Create(id_, "b" + std::to_string(i)));
  for (uint64_t step = 0; step < 10; ++step) {
    WriteBatch batch;
    std::vector<std::unique_ptr<KvSet>> kvs;
    const std::vector<TokenId> tokens = {static_cast<TokenId>(step)};
    for (size_t i = 0; i < branches.size(); ++i) {
      kvs.push_back(std::make_unique<KvSet>(model_, Layout::kSlots32, step, 1));
      kvs.back()->Write(i, step, step + 1);
      batch.Append(branches[i], MakeDelta(tokens, kvs.back()->View(step, 1)), step);
    }
    ASSERT_OK_ASSIGN(Store::WriteResult result,
                     WhileBusy(store_, [&] { return store_.Write(batch); }));
    ASSERT_OK(result.ticket.Wait());
  }
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < branches.size(); ++i) {
      EXPECT_TRUE(HasKv(Find("b" + std::to_string(i)), model_, 0, 10, i));
    }
    Reopen();
  }
}

}  // namespace
}  // namespace cairn::testing
