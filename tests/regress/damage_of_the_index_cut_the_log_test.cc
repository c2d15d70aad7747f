// SPDX-License-Identifier: Apache-2.0
//
// A block of the index was damaged and the log was whole. Salvage met it where a record of the log
// needed that block, and took it for the end of the log: what followed was lost, of all branches;
// and since some of that group had been replayed already, the tree showed what the log had not any
// more, so that what was appended then did not fit at the next opening. A record that the index
// cannot place is left out, and no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "wal/segment_files.h"

namespace cairn::testing {
namespace {

constexpr int kBranches = 3000;

std::string NameOf(int i) { return "b" + std::to_string(10'000 + i); }
int Touched(int k) { return k * 71 % kBranches; }

// The parameter: appends behind the index, in one group, or in segments that are replayed by their
// footers.
class DamageOfTheIndex : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    options_.spare_segments_max = 16;
    options_.replay_records_max = 500;
    {
      ASSERT_OK_ASSIGN(Store store, Open(false));
      ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model_));
      for (int i = 0; i < kBranches; ++i) {
        ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = NameOf(i)}));
        ASSERT_OK(AppendSome(branch, model_, 0, 1));
      }
      ASSERT_OK(store.Close());
    }
    options_.replay_records_max = 1'000'000;  // The index stays as it is.
    ASSERT_OK_ASSIGN(store_, Open(false));
    for (int k = 0; k < GetParam(); ++k) {
      ASSERT_OK_ASSIGN(Branch branch, store_.FindBranch(NameOf(Touched(k))));
      ASSERT_OK(AppendSome(branch, model_, 1, 1));
    }
    ASSERT_OK(store_.Flush());
  }

  Result<Store> Open(bool salvage) {
    options_.recovery = salvage ? Recovery::kSetAside : Recovery::kRefuse;
    options_.world = std::make_shared<io::World>(
        io::World{.files = disk_, .scheduler = std::make_shared<io::SimScheduler>(++lives_)});
    return Store::Open("/store", options_);
  }

  // Damages the largest file with this ending.
  void FlipInTheMiddle(const std::string& ending) {
    std::string largest;
    uint64_t bytes = 0;
    for (const std::string& file : disk_->Files()) {
      if (!file.ends_with(ending)) continue;
      ASSERT_OK_ASSIGN(const std::vector<std::byte> content, disk_->ReadRaw(file));
      if (content.size() <= bytes) continue;
      bytes = content.size();
      largest = file;
    }
    ASSERT_OK(disk_->FlipBit(largest, bytes / 2, 2));
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  std::shared_ptr<io::SimDisk> disk_ = machine_.disk;
  const ModelSpec model_ = TinyModel();
  Options options_ = TinyOptions();
  uint64_t lives_ = 0;
  Store store_;  // Behind the appends.
};

TEST_P(DamageOfTheIndex, CostsOnlyWhatNeedsIt) {
  std::shared_ptr<io::SimDisk> left = disk_->KillClone();
  static_cast<void>(store_.Close());
  disk_ = std::move(left);
  FlipInTheMiddle(".index");
  EXPECT_FAILS(Open(false), StatusCode::kCorruption, ".index");

  int shown = 0, damaged = 0;
  std::string last;
  {
    ASSERT_OK_ASSIGN(Store store, Open(true));
    EXPECT_NE(store.recovery_note().find("left out"), std::string::npos) << store.recovery_note();
    for (int k = 0; k < GetParam(); ++k) {
      const auto branch = store.FindBranch(NameOf(Touched(k)));
      const auto length = branch.ok() ? branch->length() : branch.status();
      if (!length.ok()) {
        EXPECT_FAILS(length, StatusCode::kCorruption, ".index");
        ++damaged;
        continue;
      }
      EXPECT_EQ(*length, 2u) << NameOf(Touched(k));
      last = NameOf(Touched(k));
      ++shown;
    }
    EXPECT_GT(damaged, 0);
    EXPECT_GT(shown, GetParam() * 3 / 4);
    ASSERT_OK_ASSIGN(Branch branch, store.FindBranch(last));
    ASSERT_OK(AppendSome(branch, model_, 2, 1, kSeed, Durability::kPower));
    ASSERT_OK(store.Close());
  }
  ASSERT_OK_ASSIGN(const Store store, Open(false));
  ASSERT_OK_ASSIGN(const Branch branch, store.FindBranch(last));
  EXPECT_TRUE(HasKv(branch, model_, 0, 3));
}

// Also by the tree flush of a Close that is due.
TEST_P(DamageOfTheIndex, CostsNothingBeforeSomethingIsWritten) {
  disk_ = disk_->KillClone();
  FlipInTheMiddle(".index");
  options_.replay_records_max = 160;
  {
    ASSERT_OK_ASSIGN(Store store, Open(true));
    EXPECT_NE(store.recovery_note().find("left out"), std::string::npos) << store.recovery_note();
    ASSERT_OK(store.Close());
  }
  FlipInTheMiddle(".index");  // As it was.
  ASSERT_OK_ASSIGN(const Store store, Open(false));
  for (int k = 0; k < GetParam(); ++k) {
    ASSERT_OK_ASSIGN(const Branch branch, store.FindBranch(NameOf(Touched(k))));
    EXPECT_EQ(*branch.length(), 2u) << NameOf(Touched(k));
  }
}

// When the log fails the tree is replayed. Another one is not taken for it that lacks what the
// opening did not leave out.
TEST_P(DamageOfTheIndex, CostsNothingMoreWhenTheLogFails) {
  disk_ = disk_->KillClone();
  options_.max_memory_bytes = 16 << 20;
  options_.hot_tail_bytes = 8 << 20;  // Little is left for blocks of the index.
  ASSERT_OK_ASSIGN(Store store, Open(true));
  EXPECT_EQ(store.recovery_note(), "");
  for (int i = 0; i < kBranches; ++i) ASSERT_OK(store.FindBranch(NameOf(i)));
  ASSERT_OK_ASSIGN(Branch branch, store.FindBranch(NameOf(Touched(0))));
  FlipInTheMiddle(".index");
  disk_->AddFault({.when =
                       [](const io::SimOperation& op) {
                         return op.op == io::SimOp::kWrite && op.path.starts_with("/store/log/0");
                       },
                   .error = EIO,
                   .persistent = true});
  EXPECT_FAILS(AppendSome(branch, model_, 2, 1, kSeed, Durability::kPower),
               StatusCode::kUnknownOutcome);
  for (int k = 1; k < GetParam(); ++k) {
    ASSERT_OK_ASSIGN(const Branch one, store.FindBranch(NameOf(Touched(k))));
    EXPECT_EQ(*one.length(), 2u) << NameOf(Touched(k));
  }
}

// A salvage reports both.
TEST_P(DamageOfTheIndex, DoesNotHideThatTheLogEndsShort) {
  ASSERT_OK(store_.Close());  // From here on MANIFEST knows of all appends.
  FlipInTheMiddle(".index");
  std::string newest;
  for (const std::string& file : disk_->Files()) {
    if (!file.ends_with(".log")) continue;
    ASSERT_OK_ASSIGN(const bool used, wal::HoldsRecords(*disk_, file));
    if (used) newest = std::max(newest, file);
  }
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, disk_->ReadRaw(newest));
  const uint64_t half = bytes.size() / 2;  // Cuts off the rest, its footer included.
  ASSERT_OK(disk_->WriteRaw(newest, half, std::vector<std::byte>(bytes.size() - half)));
  ASSERT_OK_ASSIGN(const Store store, Open(true));
  const std::string note = store.recovery_note();
  EXPECT_NE(note.find("the log ends with sequence"), std::string::npos) << note;
  EXPECT_NE(note.find("left out"), std::string::npos) << note;
}

INSTANTIATE_TEST_SUITE_P(Appends, DamageOfTheIndex, ::testing::Values(40, 1500));

}  // namespace
}  // namespace cairn::testing
