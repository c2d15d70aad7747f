// SPDX-License-Identifier: Apache-2.0
//
// Property: hints that are damaged, or could not be written, are whole again by themselves, and a
// manifest names them, though nothing else is to be flushed; and a reader that is shown ever more
// gets through with it.
#include <cerrno>

#include "engine/manifest/manifest.h"
#include "sim/world.h"
#include "sstable/table_files.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindHealTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(machine_); }
  void Open(const io::SimWorld& machine) {
    ASSERT_OK(store_.Close());
    disk_ = machine.disk;
    options_.world = std::make_shared<io::World>(machine.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(TokenModel()));
  }
  void Make(std::span<const TokenId> ids) {
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_));
    ASSERT_OK(branch.AppendSync(MakeDelta(ids)));
  }
  PrefixHit Ask(std::span<const TokenId> ids) const { return AskOf(store_, model_, ids); }
  // Waits for what the background does.
  template <typename Done>
  bool Becomes(const Done& done) {
    for (int i = 0; i < 1000; ++i) {
      if (done()) return true;
      options_.world->scheduler->Sleep(1'000'000);
    }
    return false;
  }
  std::vector<sstable::LiveTable> NamedTables() const {
    const auto manifest = engine::ReadManifest(*disk_, "/store");
    EXPECT_OK(manifest);
    return manifest->named.empty() ? std::vector<sstable::LiveTable>()
                                   : manifest->named.front().tables;
  }
  // All tables of hints, named or not.
  void DamageHints() {
    const auto manifest = engine::ReadManifest(*disk_, "/store");
    ASSERT_OK(manifest);
    for (const std::string& file : disk_->Files()) {
      if (!file.ends_with(".index")) continue;
      const bool of_tree =
          std::ranges::any_of(manifest->index, [&](const sstable::LiveTable& table) {
            return "/" + file == sstable::IndexTablePath("/store/tables", table.number);
          });
      if (of_tree) continue;
      ASSERT_OK_ASSIGN(const auto info, disk_->Info("/" + file));
      for (uint64_t at = 40; at < info.bytes; at += 256) {
        ASSERT_OK(disk_->FlipBit("/" + file, at, 3));
      }
    }
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  std::shared_ptr<io::SimDisk> disk_;
  Options options_ = FindingOptions();
  Store store_;
  ModelId model_{};
};

TEST_F(FindHealTest, DamagedOnesAreMadeAnewWithoutAnAppend) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make(ids);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
  const auto tables = NamedTables();
  ASSERT_EQ(1u, tables.size());
  ASSERT_OK(disk_->FlipBit(sstable::IndexTablePath("/store/tables", tables[0].number), 40, 3));
  Open(machine_);
  EXPECT_FALSE(Ask(ids).complete);
  EXPECT_TRUE(Becomes([&] { return Ask(ids).complete; }));
  EXPECT_EQ(300u, Ask(ids).matched);
  EXPECT_TRUE(Becomes([&] { return !NamedTables().empty() && NamedTables() != tables; }));
  Open({.scheduler = std::make_shared<io::SimScheduler>(1), .disk = disk_->KillClone()});
  EXPECT_TRUE(Ask(ids).complete);
  EXPECT_EQ(300u, Ask(ids).matched);
}

TEST_F(FindHealTest, WhatCouldNotBeWrittenIsWrittenAtTheClose) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make(ids);
  disk_->AddFault({.when =
                       [n = 0](const io::SimOperation& operation) mutable {
                         return operation.op == io::SimOp::kWrite &&
                                operation.path.find(".index") != std::string::npos && n++ == 0;
                       },
                   .error = ENOSPC});
  ASSERT_OK(store_.Compact());
  ASSERT_TRUE(NamedTables().empty());
  ASSERT_OK(store_.Close());
  EXPECT_FALSE(NamedTables().empty());
}

TEST_F(FindHealTest, AReaderGetsThroughWithWhatItIsShown) {
  constexpr uint64_t kNodes = 1000;  // Behind the manifest; a search indexes 256.
  for (uint64_t i = 0; i < kNodes; ++i) Make(Tokens(70, 100 + i));
  ASSERT_OK(store_.Flush());
  Options reading = options_;
  reading.read_only = true;
  reading.create_if_missing = false;
  ASSERT_OK_ASSIGN(Store reader, Store::Open("/store", reading));
  bool complete = false;
  for (uint64_t i = 0; i < 8; ++i) {
    const std::vector<TokenId> ids = Tokens(70, 5000 + i);
    Make(ids);
    ASSERT_OK(store_.Flush());
    ASSERT_OK(reader.Refresh());
    const PrefixHit hit = AskOf(reader, model_, ids);
    EXPECT_EQ(70u, hit.matched) << "the newest comes first";
    complete = hit.complete;
  }
  EXPECT_TRUE(complete);
  for (uint64_t i = 0; i < kNodes; ++i) {
    ASSERT_EQ(70u, AskOf(reader, model_, Tokens(70, 100 + i)).matched) << i;
  }
}

// A manifest that fails behind a merge of the hints, and then hints that are given up: what the
// merge had for nothing are no tables of theirs. In that round two manifests come before: of the
// tree flush, and of the merge of the tree's index.
TEST_F(FindHealTest, GivenUpBehindAMergeThatNoManifestTellsOf) {
  for (uint64_t i = 0; i < 40 && disk_->faults_struck() == 0; ++i) {
    Make(Tokens(300, 100 + i));
    disk_->AddFault({.when =
                         [n = 0](const io::SimOperation& operation) mutable {
                           return operation.op == io::SimOp::kWrite &&
                                  operation.path.find("MANIFEST") != std::string::npos && n++ == 2;
                         },
                     .error = ENOSPC});
    static_cast<void>(store_.Compact());
    disk_->ClearFaults();
  }
  ASSERT_EQ(1u, disk_->faults_struck());
  DamageHints();
  EXPECT_FALSE(Ask(Tokens(300, 100)).complete);
  for (uint64_t i = 0; i < 10; ++i) {
    Make(Tokens(300, 200 + i));
    ASSERT_OK(store_.Compact());
  }
  EXPECT_TRUE(Becomes([&] { return Ask(Tokens(300, 100)).complete; }));
  EXPECT_EQ(300u, Ask(Tokens(300, 100)).matched);
}

}  // namespace
}  // namespace cairn::testing
