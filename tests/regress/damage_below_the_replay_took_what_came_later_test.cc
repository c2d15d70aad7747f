// SPDX-License-Identifier: Apache-2.0
//
// A record of the log that the index had already was damaged. The store opened, since its replay
// begins behind that; but once a segment followed, the next opening read the damaged one from its
// beginning: it was refused, and a salvage cut off everything acknowledged since. Now records below
// the beginning of the replay are not read, whatever follows.
#include <gtest/gtest.h>

#include <memory>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// Where the damage is: in the first group of the segment, or behind it.
class DamageBelowTheReplay : public ::testing::TestWithParam<uint64_t> {};

TEST_P(DamageBelowTheReplay, CostsNothingThatCameLater) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.replay_records_max = 16;
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = TinyModel();
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch old, store.CreateBranch(id, {.name = "old"}));
    for (uint64_t i = 0; i < 30; ++i) {
      ASSERT_OK(AppendSome(old, model, i, 1, kSeed, Durability::kPower));
    }
    ASSERT_OK(store.Close());
  }
  constexpr uint64_t kGroupHeaderBytes = 64;
  ASSERT_OK(machine.disk->FlipBit("store/log/0000000000000001.log",
                                  GetParam() + kGroupHeaderBytes + 16, 2));
  std::shared_ptr<io::SimDisk> left;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(Branch made, store.CreateBranch(store.Models().at(0).id, {.name = "new"}));
    for (uint64_t i = 0; i < 5; ++i) {
      ASSERT_OK(AppendSome(made, model, i, 1, kSeed, Durability::kPower));
    }
    left = machine.disk->KillClone();
  }
  options.world = std::make_shared<io::World>(
      io::World{.files = left, .scheduler = std::make_shared<io::SimScheduler>(5)});
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  EXPECT_EQ(store.recovery_note(), "");
  ASSERT_OK_ASSIGN(const Branch made, store.FindBranch("new"));
  EXPECT_TRUE(HasKv(made, model, 0, 5));
  ASSERT_OK_ASSIGN(const Branch old, store.FindBranch("old"));
  ASSERT_OK_ASSIGN(const uint64_t length, old.length());
  EXPECT_EQ(length, 30u);
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  EXPECT_FALSE(report.damages.empty()) << "the damage is told by who reads it";
}

INSTANTIATE_TEST_SUITE_P(Every, DamageBelowTheReplay, ::testing::Values(4096, 40960));

}  // namespace
}  // namespace cairn::testing
