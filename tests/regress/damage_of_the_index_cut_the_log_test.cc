// SPDX-License-Identifier: Apache-2.0
//
// A block of the index was damaged and the log was whole. Salvage met it where a record of the log
// needed that block, and took it for the end of the log: what followed was lost, of all branches;
// and since some of that group had been replayed already, the tree showed what the log had not any
// more, so that what was appended then did not fit at the next opening. A record that the index
// cannot place is left out, and no other.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/io/sim_world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// Appends behind the index: in one group, or in segments that are replayed by their footers.
class DamageOfTheIndex : public ::testing::TestWithParam<int> {};

TEST_P(DamageOfTheIndex, CostsOnlyWhatNeedsIt) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  std::shared_ptr<io::SimDisk> disk = machine.disk;
  const ModelSpec model = TinyModel();
  Options options = TinyOptions();
  options.spare_segments_max = 16;
  options.replay_records_max = 500;
  uint64_t lives = 0;
  const auto open = [&](bool salvage) {
    options.salvage = salvage;
    options.world = std::make_shared<io::World>(
        io::World{.files = disk, .scheduler = std::make_shared<io::SimScheduler>(++lives)});
    return Store::Open("/store", options);
  };
  const auto name = [](int i) { return "b" + std::to_string(10'000 + i); };
  constexpr int kBranches = 3000;
  {
    ASSERT_OK_ASSIGN(Store store, open(false));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    for (int i = 0; i < kBranches; ++i) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = name(i)}));
      ASSERT_OK(AppendSome(branch, model, 0, 1));
    }
    ASSERT_OK(store.Close());
  }
  options.replay_records_max = 100'000;  // The index stays as it is.
  const auto touched = [](int k) { return k * 71 % kBranches; };
  {
    ASSERT_OK_ASSIGN(Store store, open(false));
    for (int k = 0; k < GetParam(); ++k) {
      ASSERT_OK_ASSIGN(Branch branch, store.FindBranch(name(touched(k))));
      ASSERT_OK(AppendSome(branch, model, 1, 1));
    }
    ASSERT_OK(store.Flush());
    std::shared_ptr<io::SimDisk> left = disk->KillClone();
    static_cast<void>(store.Close());
    disk = std::move(left);
  }
  std::string index;
  uint64_t bytes = 0;
  for (const std::string& file : disk->Files()) {
    if (!file.ends_with(".index")) continue;
    ASSERT_OK_ASSIGN(const std::vector<std::byte> content, disk->ReadRaw(file));
    if (content.size() <= bytes) continue;
    bytes = content.size();
    index = file;
  }
  ASSERT_OK(disk->FlipBit(index, bytes / 2, 2));
  EXPECT_FAILS(open(false), StatusCode::kCorruption, ".index");

  int shown = 0, damaged = 0;
  std::string last;
  {
    ASSERT_OK_ASSIGN(Store store, open(true));
    EXPECT_NE(store.recovery_note().find("left out"), std::string::npos) << store.recovery_note();
    for (int k = 0; k < GetParam(); ++k) {
      const auto branch = store.FindBranch(name(touched(k)));
      const auto length = branch.ok() ? branch->length() : branch.status();
      if (!length.ok()) {
        EXPECT_FAILS(length, StatusCode::kCorruption, ".index");
        ++damaged;
        continue;
      }
      EXPECT_EQ(*length, 2u) << name(touched(k));
      last = name(touched(k));
      ++shown;
    }
    EXPECT_GT(damaged, 0);
    EXPECT_GT(shown, GetParam() * 3 / 4);
    ASSERT_OK_ASSIGN(Branch branch, store.FindBranch(last));
    ASSERT_OK(AppendSome(branch, model, 2, 1, kSeed, Durability::kPower));
    ASSERT_OK(store.Close());
  }
  ASSERT_OK_ASSIGN(const Store store, open(false));
  ASSERT_OK_ASSIGN(const Branch branch, store.FindBranch(last));
  EXPECT_TRUE(HasKv(branch, model, 0, 3));
}

INSTANTIATE_TEST_SUITE_P(Appends, DamageOfTheIndex, ::testing::Values(40, 1500));

}  // namespace
}  // namespace cairn::testing
