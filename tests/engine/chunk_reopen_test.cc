// SPDX-License-Identifier: Apache-2.0
//
// Property: what was indexed of chunks is there after a restart, a crash, a change of the policy
// and in a follower; damage of its tables is met and mended; a full disk costs entries and nothing
// else; and entries of what is gone are swept.
#include <cerrno>

#include "engine/manifest/manifest.h"
#include "sim/world.h"
#include "sstable/table_files.h"
#include "tests/engine/chunk_test.h"

namespace cairn::testing {
namespace {

class ChunkReopenTest : public ChunkTest {
 protected:
  Store Follow() {
    Options options = FindingOptions();
    options.read_only = true;
    options.create_if_missing = false;
    auto follower = world_->Open(options);
    EXPECT_OK(follower);
    return follower.ok() ? std::move(*follower) : Store();
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, ChunkReopenTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(ChunkReopenTest, ARestartKeepsThem) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Make("a", Joined({Tokens(40, 4), ids}), "docs");
  SealAndReopen();
  ExpectOne(UntilComplete(ids), 0, 400, 40);
  EXPECT_EQ(0u, store_.Metrics().hint_chunk_entries) << "they were in tables";
  Reopen();
  ExpectOne(UntilComplete(ids), 0, 400, 40);
}

TEST_P(ChunkReopenTest, WhatANamespaceHadIsIndexedWhenItIsToldTo) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Make("a", ids, "late");
  EXPECT_FAILS(FindChunks(store_, QueryOf(ids, "late")), StatusCode::kInvalidState);
  ASSERT_OK(store_.SetNamespace("late", {.index = Index::kChunks}));
  EXPECT_FALSE(Chunks(QueryOf(ids, "late")).complete);
  ASSERT_OK(store_.Compact());  // The next manifest begins it.
  ChunkMatches found;
  for (int i = 0; i < 1000 && !(found = Chunks(QueryOf(ids, "late"))).complete; ++i) {
    world_->world().scheduler->Sleep(1'000'000);
  }
  ExpectOne(found, 0, 400, 0);
  EXPECT_EQ(400u, Ask(QueryOf(ids, "late")).matched) << "prefixes, too";
  ASSERT_OK(store_.SetNamespace("late", {}));
  EXPECT_FAILS(FindChunks(store_, QueryOf(ids, "late")), StatusCode::kInvalidState);
  EXPECT_EQ(400u, Ask(QueryOf(ids, "late")).matched);
}

// The manifest that a follower reads has hints without what the namespace held.
TEST_P(ChunkReopenTest, AFollowerOfANamespaceThatWasJustSetIsNotComplete) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Make("a", ids, "late");
  ASSERT_OK(store_.Compact());
  Store follower = Follow();
  ASSERT_OK(store_.SetNamespace("late", {.index = Index::kChunks}));
  ASSERT_OK(store_.Flush());
  ASSERT_OK(follower.Refresh());
  const auto found = FindChunks(follower, QueryOf(ids, "late"));
  ASSERT_OK(found);
  EXPECT_TRUE(found->matches.empty());
  EXPECT_FALSE(found->complete);
}

// Many times as many entries as there is room for.
TEST_P(ChunkReopenTest, TheLeastMemoryIndexesAllInTheEnd) {
  Options options = FindingOptions();
  options.reuse_memory_bytes = 64 << 10;
  WorldTest::Reopen(options);
  spec_ = ModelSpec::FullAttention("small", 1, 1, 1, Dtype::kBf16);
  model_ = Register(spec_);
  std::vector<std::vector<TokenId>> docs;
  for (uint64_t i = 0; i < 20; ++i) {
    docs.push_back(Tokens(5000, 100 + i));
    Make("doc " + std::to_string(i), docs.back(), "late");
  }
  ASSERT_OK(store_.SetNamespace("late", {.index = Index::kChunks}));
  ASSERT_OK(store_.Compact());
  ChunkMatches found;
  for (int i = 0; i < 1000 && !(found = Chunks(QueryOf(Joined(docs), "late"))).complete; ++i) {
    world_->world().scheduler->Sleep(1'000'000);
  }
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(20u, found.matches.size());
}

TEST_P(ChunkReopenTest, AnEmptyNamespaceCostsNoRebuild) {
  Make("a", Tokens(400, 5));
  ASSERT_OK(store_.SetNamespace("new", {.index = Index::kChunks}));
  EXPECT_TRUE(Chunks(QueryOf(Tokens(400, 5), "new")).complete);
  EXPECT_EQ(0u, store_.Metrics().hints_incomplete);
}

TEST_P(ChunkReopenTest, AFollowerFindsWhatItShows) {
  const std::vector<TokenId> first = Tokens(300, 5), second = Tokens(300, 6), third = Tokens(90, 7);
  Make("first", first, "docs");
  ASSERT_OK(store_.Compact());
  Make("second", second, "docs");
  ASSERT_OK(store_.Flush());
  Store follower = Follow();
  const auto prompt = Joined({third, second, first});
  auto found = FindChunks(follower, QueryOf(prompt));
  ASSERT_OK(found);
  EXPECT_EQ(2u, found->matches.size());
  Make("third", third, "docs");
  ASSERT_OK(store_.Flush());
  ASSERT_OK(follower.Refresh());
  found = FindChunks(follower, QueryOf(prompt));
  ASSERT_OK(found);
  EXPECT_EQ(3u, found->matches.size());
}

// When a quarter is gone a sweep deletes its entries, and all of a namespace that has none now.
TEST_P(ChunkReopenTest, ASweepLeavesWhatLives) {
  spec_ = ModelSpec::FullAttention("small", 1, 1, 1, Dtype::kBf16);
  model_ = Register(spec_);
  const std::vector<TokenId> ids = Tokens(20'000, 5);
  Make("kept", ids, "docs");
  ASSERT_OK(store_.SetNamespace("was", {.index = Index::kChunks}));
  Make("was", ids, "was");
  std::vector<Branch> gone;
  for (uint64_t i = 0; i < 8; ++i) gone.push_back(Make("", Tokens(150'000, 100 + i), "docs"));
  UntilComplete(ids);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.SetNamespace("was", {}));
  for (Branch& branch : gone) ASSERT_OK(branch.Drop());
  ASSERT_OK(store_.Compact());
  for (int i = 0; i < 3000 && store_.Metrics().hint_dead_tokens > 1000; ++i) {
    world_->world().scheduler->Sleep(1'000'000);
    if (i % 100 != 99) continue;
    Make("", Tokens(1, static_cast<uint64_t>(i)));
    ASSERT_OK(store_.Compact());
  }
  EXPECT_LT(store_.Metrics().hint_dead_tokens, 1000u);
  ExpectOne(UntilComplete(ids), 0, 20'000, 0);
  ASSERT_OK(store_.PauseBackground());  // Which would index it again.
  ASSERT_OK(store_.SetNamespace("was", {.index = Index::kChunks}));
  EXPECT_TRUE(Chunks(QueryOf(ids, "was")).matches.empty()) << "they were swept";
  ASSERT_OK(store_.ResumeBackground());
  ASSERT_OK(store_.Compact());  // Begins to index it again.
  ChunkMatches found;
  for (int i = 0; i < 1000 && !(found = Chunks(QueryOf(ids, "was"))).complete; ++i) {
    world_->world().scheduler->Sleep(1'000'000);
  }
  ExpectOne(found, 0, 20'000, 0);
}

// ---------------------------------------------------------------- a machine that fails

class ChunkFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    disk_ = machine_.disk;
    options_.world = std::make_shared<io::World>(machine_.world());
    Open();
    ASSERT_OK(store_.SetNamespace("docs", {.index = Index::kChunks}));
  }
  void Open() {
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(spec_));
  }
  void Make(std::span<const TokenId> ids) {
    ASSERT_OK_ASSIGN(made_, store_.CreateBranch(model_, {.name = {}, .ns = "docs"}));
    KvSet kv(spec_, Layout::kContiguous, 0, ids.size());
    kv.Write(kSeed, 0, ids.size());
    ASSERT_OK(made_.AppendSync(MakeDelta(ids, kv.View(0, ids.size()))));
  }
  Store Follow() const {
    Options options = options_;
    options.read_only = true;
    options.create_if_missing = false;
    auto follower = Store::Open("/store", options);
    EXPECT_OK(follower);
    return follower.ok() ? std::move(*follower) : Store();
  }
  PrefixQuery QueryOf(std::span<const TokenId> ids) const {
    PrefixQuery query;
    query.model = model_;
    query.tokens = ids;
    query.ns = "docs";
    return query;
  }
  Result<ChunkMatches> Find(std::span<const TokenId> ids) {
    return FindChunks(store_, QueryOf(ids));
  }
  ChunkMatches UntilComplete(std::span<const TokenId> ids) {
    ChunkMatches found;
    for (int i = 0; i < 1000 && !found.complete; ++i) {
      const auto now = Find(ids);
      EXPECT_OK(now);
      if (!now.ok()) break;
      found = *now;
      options_.world->scheduler->Sleep(1'000'000);
    }
    EXPECT_TRUE(found.complete);
    return found;
  }
  std::vector<std::string> HintFiles() const {
    const auto manifest = engine::ReadManifest(*disk_, "/store");
    EXPECT_OK(manifest);
    std::vector<std::string> files;
    for (const engine::NamedIndex& index : manifest->named) {
      for (const sstable::LiveTable& table : index.tables) {
        files.push_back(sstable::IndexTablePath("/store/tables", table.number));
      }
    }
    return files;
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  std::shared_ptr<io::SimDisk> disk_;
  Options options_ = FindingOptions();
  ModelSpec spec_ = TinyModel();
  Store store_;
  ModelId model_{};
  Branch made_;  // The last one.
};

// A refresh showed another tree while ids were read: what was found may be another node's by then.
TEST_F(ChunkFaultTest, AnotherTreeDuringASearchIsNotComplete) {
  const std::vector<TokenId> ids = Tokens(3000, 5);
  Make(ids);
  ASSERT_OK(store_.Compact());
  Store follower = Follow();
  ASSERT_OK(made_.Drop());
  ASSERT_OK(store_.Flush());
  disk_->AddFault({.when =
                       [](const io::SimOperation& op) {
                         return op.op == io::SimOp::kRead && op.path.ends_with(".snapshot");
                       },
                   .delay_ns = 10'000'000});
  const auto refresh = machine_.scheduler->StartThread("refresh", [&] {
    machine_.scheduler->Sleep(5'000'000);
    EXPECT_OK(follower.Refresh());
  });
  const auto found = FindChunks(follower, QueryOf(ids));
  disk_->ClearFaults();
  ASSERT_OK(found);
  EXPECT_TRUE(found->matches.empty());
  EXPECT_FALSE(found->complete);
}

// A join gave the parent's content to the child while ids were read. The hints named the parent,
// which was gone: less was found, and the answer was called complete.
TEST_F(ChunkFaultTest, WhatIsJoinedDuringASearchIsFound) {
  const std::vector<TokenId> ids = Tokens(3000, 5);
  Make(ids);
  const BranchId parent = made_.id();
  ASSERT_OK_ASSIGN(Branch child, made_.ForkAt(3000, {.name = {}, .ns = "docs"}));
  ASSERT_OK(child.AppendSync(MakeDelta(Tokens(5, 6), {})));
  Open();  // Its ids are not in memory.
  ASSERT_TRUE(UntilComplete(Tokens(100, 7)).matches.empty());
  disk_->AddFault({.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kRead; },
                   .delay_ns = 10'000'000});
  const auto drop = machine_.scheduler->StartThread("drop", [&] {
    machine_.scheduler->Sleep(5'000'000);
    const auto branch = store_.GetBranch(parent);
    ASSERT_OK(branch);
    EXPECT_OK(Branch(*branch).Drop());
    EXPECT_OK(store_.Compact());
    EXPECT_EQ(1u, store_.Metrics().nodes);  // Joined.
  });
  const auto found = store_.FindPrefix(QueryOf(Part(ids, 0, 2990)));
  disk_->ClearFaults();
  ASSERT_OK(found);
  EXPECT_EQ(2990u, found->matched);
  EXPECT_TRUE(found->complete);
}

// The plan's restore is all or nothing, and never wrong.
TEST_F(ChunkFaultTest, ADamagedSourceIsCorruptionOfAPlansRestore) {
  const std::vector<TokenId> ids = Tokens(400, 5), prompt = Joined({ids, Tokens(9, 6)});
  Make(ids);
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(const auto names, disk_->List("/store/tables"));
  std::string table;
  for (const auto& entry : names) {
    if (entry.ends_with(".snapshot")) table = "/store/tables/" + entry;
  }
  ASSERT_OK_ASSIGN(const auto info, disk_->Info(table));
  KvSet want(spec_, Layout::kContiguous, 0, 400);
  want.Write(kSeed, 0, 400);
  int damaged = 0;
  for (uint64_t at = 4096; at < info.bytes; at += 1009) {
    ASSERT_OK(store_.Close());
    ASSERT_OK(disk_->FlipBit(table, at, 3));
    Open();
    const auto plan = store_.PlanBlend(QueryOf(prompt));
    if (plan.ok() && plan->load_tokens == 400) {
      KvSet got(spec_, Layout::kContiguous, 0, 400);
      RestoreRequest request;
      request.end = 400;
      request.into = got.View(0, 400);
      const auto restored = store_.Restore(*plan, request);
      if (restored.ok()) {
        EXPECT_TRUE(got == want);
      } else {
        EXPECT_FAILS(restored.status(), StatusCode::kCorruption, table.substr(14));
        ++damaged;
      }
    }
    ASSERT_OK(store_.Close());
    ASSERT_OK(disk_->FlipBit(table, at, 3));
    Open();
  }
  EXPECT_GT(damaged, 3);
}

// The follower reads the table that it has, until it shows a newer state.
TEST_F(ChunkFaultTest, AFollowersPlanOfWhatTheWriterDroppedIsNotFound) {
  const std::vector<TokenId> ids = Tokens(400, 5), prompt = Joined({ids, Tokens(9, 6)});
  Make(ids);
  ASSERT_OK(store_.Compact());
  Store follower = Follow();
  ASSERT_OK_ASSIGN(const BlendPlan plan, follower.PlanBlend(QueryOf(prompt)));
  ASSERT_EQ(400u, plan.load_tokens);
  ASSERT_OK(made_.Drop());
  Make(Tokens(300, 7));
  ASSERT_OK(store_.Compact());
  KvSet got(spec_, Layout::kContiguous, 0, 400);
  RestoreRequest request;
  request.end = 400;
  request.into = got.View(0, 400);
  KvSet want(spec_, Layout::kContiguous, 0, 400);
  want.Write(kSeed, 0, 400);
  ASSERT_OK(follower.Restore(plan, request));
  EXPECT_TRUE(got == want);
  ASSERT_OK(follower.Refresh());
  EXPECT_FAILS(follower.Restore(plan, request).status(), StatusCode::kNotFound);
}

// Each byte of the table, one bit of it: found when it is read, or by its checksum at the opening.
TEST_F(ChunkFaultTest, AFlippedBitOfTheirTableIsMetAndMended) {
  const std::vector<TokenId> ids = Tokens(400, 5);
  Make(ids);
  ASSERT_OK(store_.Compact());
  uint64_t at = 0, mended = 0;
  for (bool more = true; more; ++at) {
    ASSERT_OK(store_.Close());
    const std::vector<std::string> files = HintFiles();
    ASSERT_FALSE(files.empty());
    const std::string& file = files.back();
    ASSERT_OK_ASSIGN(const auto info, disk_->Info(file));
    const uint64_t byte = at * 13;
    more = byte + 13 < info.bytes;
    ASSERT_OK(disk_->FlipBit(file, byte, static_cast<int>(at % 8)));
    Open();
    const ChunkMatches found = UntilComplete(ids);
    ASSERT_EQ(1u, found.matches.size()) << "bit of byte " << byte;
    EXPECT_EQ(400u, found.matches[0].end);
    ASSERT_OK(store_.Compact());
    const auto now = HintFiles();
    mended += now != files;
    if (now != files) continue;
    ASSERT_OK(disk_->FlipBit(file, byte, static_cast<int>(at % 8)));
  }
  EXPECT_GT(mended, at / 2) << "of " << at << " flips";
}

TEST_F(ChunkFaultTest, AFullDiskCostsEntriesAndNothingElse) {
  Make(Tokens(400, 5));
  disk_->AddFault({.when =
                       [n = 0](const io::SimOperation& operation) mutable {
                         return operation.op == io::SimOp::kWrite &&
                                operation.path.find(".index") != std::string::npos && n++ == 0;
                       },
                   .error = ENOSPC});
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(1u, disk_->faults_struck());
  for (uint64_t i = 0; i < 20; ++i) Make(Tokens(400, 100 + i));  // Appends go on.
  disk_->ClearFaults();
  ASSERT_OK(store_.Compact());
  const std::vector<TokenId> ids = Tokens(400, 110);
  EXPECT_EQ(1u, UntilComplete(ids).matches.size());
  Open();
  EXPECT_EQ(1u, UntilComplete(ids).matches.size());
}

TEST_F(ChunkFaultTest, ACrashLosesNone) {
  const std::vector<TokenId> first = Tokens(400, 5), second = Tokens(400, 6);
  Make(first);
  ASSERT_OK(store_.Compact());
  Make(second);
  ASSERT_OK(store_.Flush());
  const std::shared_ptr<io::SimDisk> crashed = disk_->KillClone();
  ASSERT_OK(store_.Close());
  options_.world = std::make_shared<io::World>(
      io::World{.files = crashed, .scheduler = std::make_shared<io::SimScheduler>(2)});
  Open();
  for (const auto& ids : {first, second}) {
    const ChunkMatches found = UntilComplete(ids);
    ASSERT_EQ(1u, found.matches.size());
    EXPECT_EQ(400u, found.matches[0].end);
  }
}

}  // namespace
}  // namespace cairn::testing
