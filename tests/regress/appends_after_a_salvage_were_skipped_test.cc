// SPDX-License-Identifier: Apache-2.0
//
// A salvage cut the log below records that the index had already. Later acknowledged appends got
// the sequences of lost records, and the next opening took them for those in the index: the appends
// were gone, or their branch, or the store did not open. Now the manifest after a salvage says
// that the index has no more than the log.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "tests/support/strike.h"

namespace cairn::testing {
namespace {

struct Case {
  uint64_t replay_records_max;
  int damaged_segment;
  uint64_t appends;
  bool paused;
};

// A store of one branch, "base", that was killed; a segment of its log has lost its header.
class ADamagedStore : public ::testing::Test {
 protected:
  void Make(uint64_t replay_records_max, int damaged_segment) {
    const io::SimWorld machine = io::MakeSimWorld(1);
    options_.replay_records_max = replay_records_max;
    options_.world = std::make_shared<io::World>(machine.world());
    {
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
      ASSERT_OK_ASSIGN(id_, store.RegisterModel(model_));
      ASSERT_OK_ASSIGN(Branch base, store.CreateBranch(id_, {.name = "base"}));
      for (uint64_t i = 0; i < 90; ++i) {
        ASSERT_OK(AppendSome(base, model_, i, 1, kSeed, Durability::kPower));
      }
      machine.scheduler->Sleep(2'000'000'000);
      disk_ = machine.disk->KillClone();
    }
    const std::string segment =
        "store/log/000000000000000" + std::to_string(damaged_segment) + ".log";
    ASSERT_OK(disk_->WriteRaw(segment, 0, std::vector(4096, std::byte{0x5a})));
    options_.create_if_missing = false;
  }
  // The next opening is of this disk.
  void Use(std::shared_ptr<io::SimDisk> disk) {
    options_.world = std::make_shared<io::World>(
        io::World{.files = std::move(disk), .scheduler = std::make_shared<io::SimScheduler>(5)});
  }

  Options options_ = TinyOptions();
  const ModelSpec model_ = WideModel();
  ModelId id_{};
  std::shared_ptr<io::SimDisk> disk_;
};

class AppendsAfterASalvage : public ADamagedStore, public ::testing::WithParamInterface<Case> {};

TEST_P(AppendsAfterASalvage, AreThere) {
  Make(GetParam().replay_records_max, GetParam().damaged_segment);
  Use(disk_);
  EXPECT_FAILS(Store::Open("/store", options_), StatusCode::kCorruption);
  options_.recovery = Recovery::kSetAside;
  std::shared_ptr<io::SimDisk> left;
  uint64_t base_length = 0;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(const Branch base, store.FindBranch("base"));
    ASSERT_OK_ASSIGN(base_length, base.length());
    ASSERT_OK_ASSIGN(Branch made,
                     store.CreateBranch(id_, {.name = "new", .durability = Durability::kPower}));
    if (GetParam().paused) {
      ASSERT_OK(store.PauseBackground());
    }
    for (uint64_t i = 0; i < GetParam().appends; ++i) {
      ASSERT_OK(AppendSome(made, model_, i, 1, kSeed, Durability::kPower));
    }
    left = disk_->KillClone();
    if (GetParam().paused) {
      ASSERT_OK(store.ResumeBackground());
    }
  }
  options_.recovery = Recovery::kRefuse;
  Use(left);
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
  ASSERT_OK_ASSIGN(const Branch made, store.FindBranch("new"));
  ASSERT_OK_ASSIGN(const uint64_t length, made.length());
  EXPECT_EQ(GetParam().appends, length);
  ASSERT_OK_ASSIGN(const Branch base, store.FindBranch("base"));
  ASSERT_OK_ASSIGN(const uint64_t base_length_now, base.length());
  EXPECT_EQ(base_length, base_length_now);
}

INSTANTIATE_TEST_SUITE_P(Every, AppendsAfterASalvage,
                         ::testing::Values(Case{16, 2, 10, false}, Case{16, 5, 10, false},
                                           Case{16, 2, 70, true}));

// Whatever the disk does while it is salvaged: what is left can be salvaged afterwards.
TEST_F(ADamagedStore, IsSalvagedOnADiskThatFailsOnce) {
  Make(16, 2);
  options_.recovery = Recovery::kSetAside;
  // The length of the branch, found at the second attempt if the first met what failed.
  bool met = false;
  const auto salvage = [&](uint64_t failed) -> Result<uint64_t> {
    const std::shared_ptr<io::SimDisk> disk = disk_->KillClone();
    Use(disk);
    Result<Store> store = Store();
    {
      const Strike strike(*disk, failed);
      store = Store::Open("/store", options_);
      met = strike.met();
    }
    if (!store.ok()) {
      EXPECT_TRUE(met) << store.status().ToString();
      store = Store::Open("/store", options_);
    }
    if (!store.ok()) return store.status();
    const auto base = store->FindBranch("base");
    return base.ok() ? base->length() : base.status();
  };
  ASSERT_OK_ASSIGN(const uint64_t length, salvage(UINT64_MAX));
  ASSERT_GT(length, 0u);
  uint64_t operations = 0;
  do {
    ASSERT_OK_ASSIGN(const uint64_t again, salvage(operations));
    EXPECT_EQ(length, again) << "operation " << operations;
    ++operations;
  } while (met && !HasFailure());
  EXPECT_GT(operations, 50u);
}

}  // namespace
}  // namespace cairn::testing
