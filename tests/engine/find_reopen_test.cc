// SPDX-License-Identifier: Apache-2.0
//
// Property: after a restart of any kind the same prefixes are found: the hints that a manifest
// names know all that the manifest's tree knows, and the rest is caught up from the log. Hints
// that are damaged, lost, of another version or of another store are rebuilt, and cost an answer
// that says so, never a wrong one. A store that cannot write hints still appends.
// Method: a simulated machine, whose disk is copied as a kill or a power loss leaves it.
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/io/file_util.h"
#include "engine/manifest/manifest.h"
#include "engine/store/store_core.h"
#include "sim/world.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindReopenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.world = std::make_shared<io::World>(machine_.world());
    options_.listener = std::make_shared<EventListener>();
    options_.listener->on_event = [this](const std::string& line) {
      if (line.find("prefix") != std::string::npos) told_.push_back(line);
    };
    Open(options_);
  }
  void Open(const Options& options) {
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    world_ = options.world;
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(spec_));
  }
  Options On(std::shared_ptr<io::SimDisk> disk) const {
    Options options = options_;
    options.world = std::make_shared<io::World>(
        io::World{.files = std::move(disk), .scheduler = std::make_shared<io::SimScheduler>(2)});
    return options;
  }
  Branch Make(const std::string& name, std::span<const TokenId> ids) {
    auto branch = store_.CreateBranch(model_, {.name = name});
    EXPECT_OK(branch);
    EXPECT_OK(branch->AppendSync(MakeDelta(ids), {.durability = Durability::kPower}));
    return *branch;
  }
  PrefixHit Ask(std::span<const TokenId> ids) { return AskOf(store_, model_, ids); }
  PrefixHit UntilComplete(std::span<const TokenId> ids) {
    return AskUntilComplete(store_, model_, ids, *world_->scheduler);
  }
  std::vector<sstable::LiveTable> NamedTables(io::FileSystem& files) {
    const auto manifest = engine::ReadManifest(files, "/store");
    EXPECT_OK(manifest);
    return manifest->named.empty() ? std::vector<sstable::LiveTable>()
                                   : manifest->named.front().tables;
  }

  io::SimWorld machine_ = io::MakeSimWorld(1);
  std::vector<std::string> told_;
  Options options_ = FindingOptions();
  const ModelSpec spec_ = TokenModel();
  std::shared_ptr<const io::World> world_;  // That the store lives in.
  Store store_;
  ModelId model_{};
};

// Flushed content is not in the log any more: it must be in the hints.
TEST_F(FindReopenTest, AfterAKillBehindAManifest) {
  const std::vector<TokenId> first = Tokens(300, 5), second = Tokens(300, 6);
  Make("first", first);
  ASSERT_OK(store_.Compact());
  ASSERT_EQ(1u, NamedTables(*machine_.disk).size());
  Make("second", second);
  Open(On(machine_.disk->KillClone()));
  const PrefixHit hit = Ask(first);
  EXPECT_TRUE(hit.complete) << "nothing is made anew";
  EXPECT_EQ(300u, hit.matched);
  EXPECT_EQ(300u, Ask(second).matched);
  EXPECT_TRUE(told_.empty()) << told_.front();
}

// A thread catches up, so that the first search need not.
TEST_F(FindReopenTest, AfterAKillNobodyNeedsToAsk) {
  for (uint64_t i = 0; i < 600; ++i) Make("chat " + std::to_string(i), Tokens(70, i));
  Open(On(machine_.disk->KillClone()));
  for (int i = 0; i < 1000 && store_.Metrics().hint_nodes_behind != 0; ++i) {
    world_->scheduler->Sleep(1'000'000);
  }
  EXPECT_EQ(0u, store_.Metrics().hint_nodes_behind);
  const PrefixHit hit = Ask(Tokens(70, 7));
  EXPECT_TRUE(hit.complete);
  EXPECT_EQ(70u, hit.matched);
}

TEST_F(FindReopenTest, ATreeFlushWithNothingToIndexWritesNoHints) {
  Make("first", Tokens(300, 5));
  ASSERT_OK(store_.Compact());
  const auto before = NamedTables(*machine_.disk);
  ASSERT_EQ(1u, before.size());
  for (int i = 0; i < 4; ++i) {
    Make("short-" + std::to_string(i), Tokens(3, 6));
    ASSERT_OK(store_.Compact());
  }
  const auto after = NamedTables(*machine_.disk);
  ASSERT_EQ(1u, after.size());
  EXPECT_EQ(before[0].number, after[0].number);
  Make("second", Tokens(300, 7));
  ASSERT_OK(store_.Compact());
  EXPECT_NE(before.back().number, NamedTables(*machine_.disk).back().number);
}

TEST_F(FindReopenTest, AfterAPowerLossAtEveryWrite) {
  const std::vector<TokenId> first = Tokens(300, 5), second = Tokens(300, 6);
  Make("first", first);
  uint64_t opened = 0;
  std::vector<std::shared_ptr<io::SimDisk>> disks;
  machine_.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (operation.op == io::SimOp::kRead) return;
    io::CrashChoice choice;
    choice.seed = disks.size();
    disks.push_back(machine_.disk->CrashClone(choice));
  });
  ASSERT_OK(store_.Compact());
  Make("second", second);
  ASSERT_OK(store_.Compact());
  machine_.disk->set_on_operation({});
  ASSERT_GT(disks.size(), 20u);
  for (const auto& disk : disks) {
    SCOPED_TRACE(opened++);
    Open(On(disk));
    EXPECT_EQ(300u, UntilComplete(first).matched);
    const auto found = store_.FindBranch("second");
    const uint64_t there = found.ok() ? *found->length() : 0;
    EXPECT_EQ(there, Ask(second).matched);
  }
}

TEST_F(FindReopenTest, WithoutThemTheyAreMadeAnew) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Options none = options_;
  none.index = Index::kNone;
  Open(none);
  Make("first", ids);
  ASSERT_OK(store_.Compact());
  Open(options_);
  EXPECT_EQ(300u, UntilComplete(ids).matched);
  // And written when the store is closed, though nothing else was.
  ASSERT_OK(store_.Close());
  EXPECT_EQ(1u, NamedTables(*machine_.disk).size());
  Open(options_);
  EXPECT_TRUE(Ask(ids).complete);
  // A store without the index does not name hints.
  Open(none);
  Make("second", Tokens(300, 6));
  ASSERT_OK(store_.Close());
  EXPECT_TRUE(NamedTables(*machine_.disk).empty());
  Open(options_);
  EXPECT_EQ(300u, UntilComplete(Tokens(300, 6)).matched);
  EXPECT_TRUE(told_.empty()) << told_.front();
}

TEST_F(FindReopenTest, DamagedInEveryByte) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  Make("first", ids);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
  const auto tables = NamedTables(*machine_.disk);
  ASSERT_EQ(1u, tables.size());
  const std::string path = sstable::IndexTablePath("/store/tables", tables[0].number);
  for (uint64_t at = 0; at < tables[0].bytes; at += 1 + at / 16) {
    SCOPED_TRACE(at);
    const std::shared_ptr<io::SimDisk> disk = machine_.disk->KillClone();
    ASSERT_OK(disk->FlipBit(path, at, static_cast<unsigned>(at % 8)));
    Open(On(disk));
    PrefixHit hit = Ask(ids);
    EXPECT_TRUE(hit.matched == 200 || (!hit.found() && !hit.complete));
    ASSERT_OK(store_.Compact());
    Make("second", Tokens(100, at));
    ASSERT_OK(store_.Compact());
    EXPECT_EQ(200u, UntilComplete(ids).matched);
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].where;
  }
  EXPECT_FALSE(told_.empty());
}

// Told as what it is, and gone with the next writer, whether that indexes or not.
TEST_F(FindReopenTest, DamageIsVerifiedAndRepaired) {
  Make("first", Tokens(200, 5));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
  const auto tables = NamedTables(*machine_.disk);
  ASSERT_EQ(1u, tables.size());
  const std::string path = sstable::IndexTablePath("/store/tables", tables[0].number);
  for (const bool indexes : {true, false}) {
    const std::shared_ptr<io::SimDisk> disk = machine_.disk->KillClone();
    ASSERT_OK(disk->FlipBit(path, 100, 3));
    Options reading = On(disk);
    reading.read_only = true;
    reading.create_if_missing = false;
    ASSERT_OK_ASSIGN(Store reader, Store::Open("/store", reading));
    ASSERT_OK_ASSIGN(VerifyReport report, reader.Verify(VerifyLevel::kAll));
    ASSERT_EQ(1u, report.damages.size());
    EXPECT_NE(std::string::npos, report.damages[0].what.find("hints")) << report.damages[0].what;
    ASSERT_OK(reader.Close());
    Options writing = On(disk);
    if (!indexes) writing.index = Index::kNone;
    Open(writing);
    EXPECT_TRUE(!indexes || UntilComplete(Tokens(200, 5)).matched == 200);
    Make("second", Tokens(100, 6));
    ASSERT_OK(store_.Compact());
    ASSERT_OK_ASSIGN(report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
  }
}

TEST_F(FindReopenTest, ACopyFindsTheSame) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make("first", ids);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Checkpoint("/copy"));
  ASSERT_OK(store_.Close());
  ASSERT_OK_ASSIGN(store_, Store::Open("/copy", options_));
  EXPECT_EQ(300u, UntilComplete(ids).matched);
}

// More than may be in memory, with little room for them.
TEST_F(FindReopenTest, MoreThanMemoryMayHold) {
  std::vector<std::vector<TokenId>> prompts;
  for (uint64_t i = 0; i < 40; ++i) {
    prompts.push_back(Tokens(20'000, 100 + i));
    Make("chat-" + std::to_string(i), prompts.back());
    EXPECT_EQ(20'000u, UntilComplete(prompts.back()).matched);
    EXPECT_LE(store_.Metrics().hint_bytes, options_.reuse_memory_bytes * 2);
  }
  ASSERT_OK(store_.Compact());
  Open(options_);
  for (const auto& ids : prompts) EXPECT_EQ(20'000u, UntilComplete(ids).matched);
}

TEST_F(FindReopenTest, AFullDiskCostsHintsAndNothingElse) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make("first", ids);
  ASSERT_OK(store_.Compact());
  Make("second", Tokens(300, 6));
  // Hints are what is flushed first of a tree flush.
  machine_.disk->AddFault({.when =
                               [n = 0](const io::SimOperation& operation) mutable {
                                 return operation.op == io::SimOp::kWrite &&
                                        operation.path.find(".index") != std::string::npos &&
                                        n++ == 0;
                               },
                           .error = ENOSPC});
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(1u, machine_.disk->faults_struck());
  EXPECT_TRUE(NamedTables(*machine_.disk).empty()) << "they lack what the tree has";
  EXPECT_EQ(300u, Ask(Tokens(300, 6)).matched);
  Make("third", Tokens(300, 7));
  Open(On(machine_.disk->KillClone()));
  for (const uint64_t seed : {5, 6, 7}) {
    EXPECT_EQ(300u, UntilComplete(Tokens(300, seed)).matched);
  }
}

}  // namespace
}  // namespace cairn::testing
