// SPDX-License-Identifier: Apache-2.0
//
// Property: with a log that keeps the order of lsm_index.h, no crash at any moment costs a record,
// and orphans are all that a crash can leave behind.
// Method: generated runs against a std::map, with flushes, merges, deletions of files and reopens
// on a simulated disk. The "log" is a list in memory: every record applied, and the live files as
// the edits make them. Before each operation on the disk the power is cut in several ways; the
// index is opened from what the log says, the records behind the last flush are applied again, and
// all must be as in the map. A caller that releases files before it logs shows that the check can
// fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sim/world.h"
#include "tests/sstable/lsm_fixture.h"
#include "tests/support/test_seed.h"

namespace cairn::sstable {
namespace {

struct LogState {
  std::vector<LiveTable> live;
  uint64_t flushed = 0;  // How many of the records are in tables.
};

struct Plan {
  uint64_t seed = 1;
  bool cut_power = true;
  bool releases_too_early = false;
};

class Scenario {
 public:
  explicit Scenario(const Plan& plan) : plan_(plan), random_(plan.seed) {
    if (plan.cut_power) {
      disk_->set_on_operation([this](const io::SimOperation& operation) { CutPower(operation); });
    }
    Reopen();
  }
  ~Scenario() { disk_->set_on_operation(nullptr); }

  // False once something was found.
  bool Step() {
    switch (random_() % 12) {
      case 0:
      case 1:
      case 2: Freeze(); break;
      case 3:
      case 4:
      case 5: Flush(); break;
      case 6:
      case 7: Compact(); break;
      case 8: Reopen(); break;
      default: Write(); break;
    }
    if (++steps_ % 4 == 0) Compare(*index_, "in the run");
    return violations.empty();
  }

  std::vector<std::string> violations;
  uint64_t crashes = 0;
  uint64_t orphans = 0;
  uint64_t merges = 0;
  uint64_t deepest = 0;

 private:
  void Write() {
    for (uint64_t n = random_() % 150; n > 0; --n) {
      // Mostly keys of a narrow range, so that merges of one run overwrite and delete a lot.
      const std::string key = KeyOf(random_() % (random_() % 3 == 0 ? 5000 : 300));
      std::optional<std::string> value;
      if (random_() % 3 != 0) value = ValueOf(random_(), random_() % 200);
      records_.emplace_back(key, value);
      model_[key] = value;
      ApplyRecord(*index_, records_.back());
    }
  }

  static void ApplyRecord(LsmIndex& index, const RecordList::value_type& record) {
    record.second ? Put(index, record.first, *record.second) : Delete(index, record.first);
  }

  void Freeze() { ASSERT_OK(index_->Freeze(records_.size())); }

  void Flush() {
    ASSERT_OK_ASSIGN(const auto flushed, index_->Flush());
    if (!flushed) return;
    Log(flushed->edit);
    log_.flushed = flushed->mark;
  }

  void Compact() {
    ASSERT_OK_ASSIGN(const auto edit, index_->CompactOnce());
    if (!edit) return;
    ++merges;
    for (const LiveTable& table : edit->added) deepest = std::max<uint64_t>(deepest, table.level);
    if (!plan_.releases_too_early) Log(*edit);
    index_->Release(edit->removed);
    ASSERT_OK(index_->DeleteReleased());
    if (plan_.releases_too_early) Log(*edit);
  }

  void Log(const IndexEdit& edit) {
    std::erase_if(log_.live, [&](const LiveTable& table) {
      return std::find(edit.removed.begin(), edit.removed.end(), table.number) !=
             edit.removed.end();
    });
    log_.live.insert(log_.live.end(), edit.added.begin(), edit.added.end());
  }

  void Reopen() {
    index_ = nullptr;
    index_ = Recover(tables_);
    ASSERT_NE(index_, nullptr);
  }

  // As the store above does it.
  std::unique_ptr<LsmIndex> Recover(TestTables& tables) {
    // Small enough for three levels.
    const MergeShape shape{.table_bytes = 16 << 10, .level1_bytes = 40 << 10, .level0_tables = 3};
    auto index = LsmIndex::Open({.tables = tables.context, .shape = shape}, log_.live);
    if (!index.ok()) {
      violations.push_back("open: " + index.status().ToString());
      return nullptr;
    }
    for (uint64_t i = log_.flushed; i < records_.size(); ++i) ApplyRecord(**index, records_[i]);
    return *std::move(index);
  }

  void Compare(LsmIndex& index, const std::string& where) {
    const auto scan = index.NewScan();
    if (Walk(*scan) != LiveOf(model_) || !scan->status().ok()) {
      violations.push_back("a scan " + where + " differs: " + scan->status().ToString());
    }
    for (int i = 0; i < 20; ++i) {
      const std::string key = KeyOf(random_() % 400);
      const auto found = index.Get(key);
      const auto expected = model_.find(key);
      if (!found.ok()) {
        violations.push_back("get " + where + ": " + found.status().ToString());
      } else if (*found != (expected == model_.end() ? std::nullopt : expected->second)) {
        violations.push_back("a get " + where + " of " + key + " differs");
      }
    }
  }

  void CutPower(const io::SimOperation& operation) {
    const uint64_t seed = plan_.seed * 7919 + operation.index;
    for (const io::CrashChoice& choice :
         {io::CrashChoice::LoseAll(), io::CrashChoice::KeepAll(), io::CrashChoice::Seeded(seed),
          io::CrashChoice::Seeded(seed + 1'000'000)}) {
      if (!violations.empty()) return;
      ++crashes;
      TestTables tables = TestTables::OnDisk(disk_->CrashClone(choice));
      tables.callbacks->next_number =
          tables_.callbacks->next_number;  // Logged when they were drawn.
      const auto index = Recover(tables);
      if (index == nullptr) break;
      std::vector<uint64_t> live;
      for (const LiveTable& table : log_.live) live.push_back(table.number);
      const size_t before = tables.files->List("t")->size();
      Status cleaned = RemoveTableOrphans(*tables.files, "t", live);
      const size_t after = tables.files->List("t")->size();
      orphans += before - after;
      if (!cleaned.ok() || after != live.size()) violations.push_back("orphans are left");
      Compare(*index, "after a crash before " + operation.ToString());
      if (Status verified = index->Verify(); !verified.ok()) {
        violations.push_back(verified.ToString());
      }
    }
  }

  const Plan plan_;
  uint64_t steps_ = 0;
  std::mt19937_64 random_;
  std::shared_ptr<io::SimDisk> disk_ = std::make_shared<io::SimDisk>();
  TestTables tables_ = TestTables::OnDisk(disk_, 256 << 10);
  std::unique_ptr<LsmIndex> index_;
  RecordList records_;  // In the order they were applied.
  Records model_;
  LogState log_;
};

TEST(LsmCrash, PowerCutBeforeEveryOperationOfGeneratedRuns) {
  uint64_t crashes = 0, orphans = 0, merges = 0, deepest = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Scenario run({.seed = seed});
    for (int step = 0; step < 120 && run.Step(); ++step) continue;
    for (const std::string& violation : run.violations) ADD_FAILURE() << seed << ": " << violation;
    if (HasFailure()) return;
    crashes += run.crashes;
    orphans += run.orphans;
    merges += run.merges;
    deepest = std::max(deepest, run.deepest);
  }
  RecordProperty("crashes", static_cast<int>(crashes));
  EXPECT_GE(crashes, 2000u);
  EXPECT_GE(orphans, 200u);
  EXPECT_GE(merges, 20u);
  EXPECT_GE(deepest, 2u);
}

TEST(LsmCrash, PowerCutsInRunsThatFollowFromTheCommit) {
  const uint64_t first = testing::QuickTestSeed();
  for (uint64_t seed = first; seed < first + 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario run({.seed = seed});
    for (int step = 0; step < 120 && run.Step(); ++step) continue;
    for (const std::string& violation : run.violations) ADD_FAILURE() << violation;
    EXPECT_GT(run.crashes, 100u);
  }
}

TEST(LsmCrash, LongRunsAgainstAMap) {
  uint64_t merges = 0;
  for (uint64_t seed = 100; seed < 110; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario run({.seed = seed, .cut_power = false});
    for (int step = 0; step < 400 && run.Step(); ++step) continue;
    for (const std::string& violation : run.violations) ADD_FAILURE() << violation;
    merges += run.merges;
  }
  EXPECT_GE(merges, 100u);
}

TEST(LsmCrash, ACallerThatReleasesTooEarlyIsNoticed) {
  Scenario run({.seed = 1, .cut_power = true, .releases_too_early = true});
  for (int step = 0; step < 120 && run.Step(); ++step) continue;
  ASSERT_FALSE(run.violations.empty());
  EXPECT_TRUE(run.violations[0].starts_with("open: NotFound")) << run.violations[0];
}

}  // namespace
}  // namespace cairn::sstable
