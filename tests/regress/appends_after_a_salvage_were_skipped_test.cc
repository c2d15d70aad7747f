// SPDX-License-Identifier: Apache-2.0
//
// A salvage cut the log below what the index had already. What was appended and acknowledged then
// got the numbers of what was lost, and the next opening took it for what the index has: the
// appends were gone, or their branch, or the store did not open. The checkpoint after a salvage
// says that the index has no more than the log.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/io/sim_world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

struct Case {
  uint64_t replay_records_max;
  int damaged_segment;
  uint64_t appends;
  bool paused;
};

class AppendsAfterASalvage : public ::testing::TestWithParam<Case> {};

TEST_P(AppendsAfterASalvage, AreThere) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.replay_records_max = GetParam().replay_records_max;
  options.direct_ingest_bytes = 0;
  const ModelSpec model = WideModel();
  ModelId id{};
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch base, store.CreateBranch(id, {.name = "base"}));
    for (uint64_t i = 0; i < 90; ++i) {
      ASSERT_OK(AppendSome(base, model, i, 1, kSeed, Durability::kPower));
    }
    machine.scheduler->Sleep(2'000'000'000);
    io::SimWorld killed{std::make_shared<io::SimScheduler>(5), machine.disk->KillClone()};
    const std::string segment =
        "store/log/000000000000000" + std::to_string(GetParam().damaged_segment) + ".log";
    ASSERT_OK(killed.disk->WriteRaw(segment, 0, std::vector(4096, std::byte{0x5a})));
    options.world = std::make_shared<io::World>(killed.world());
  }
  options.create_if_missing = false;
  EXPECT_FAILS(Store::Open("/store", options), StatusCode::kCorruption);
  options.salvage = true;
  std::shared_ptr<io::SimDisk> left;
  uint64_t base_length = 0;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const Branch base, store.FindBranch("base"));
    ASSERT_OK_ASSIGN(base_length, base.length());
    ASSERT_OK_ASSIGN(Branch made,
                     store.CreateBranch(id, {.name = "new", .durability = Durability::kPower}));
    if (GetParam().paused) {
      ASSERT_OK(store.PauseBackground());
    }
    for (uint64_t i = 0; i < GetParam().appends; ++i) {
      ASSERT_OK(AppendSome(made, model, i, 1, kSeed, Durability::kPower));
    }
    const auto* const files = dynamic_cast<io::SimDisk*>(options.world->files.get());
    ASSERT_NE(nullptr, files);
    left = files->KillClone();
    if (GetParam().paused) {
      ASSERT_OK(store.ResumeBackground());
    }
  }
  options.salvage = false;
  options.world = std::make_shared<io::World>(
      io::World{.files = left, .scheduler = std::make_shared<io::SimScheduler>(6)});
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const Branch made, store.FindBranch("new"));
  ASSERT_OK_ASSIGN(const uint64_t length, made.length());
  EXPECT_EQ(GetParam().appends, length);
  ASSERT_OK_ASSIGN(const Branch base, store.FindBranch("base"));
  ASSERT_OK_ASSIGN(const uint64_t base_length_now, base.length());
  EXPECT_EQ(base_length, base_length_now);
}

// Whatever the disk does while it is salvaged: what is left can be salvaged afterwards.
TEST(SalvageOnAFailingDisk, FindsTheSameAfterwards) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.replay_records_max = 16;
  options.direct_ingest_bytes = 0;
  const ModelSpec model = WideModel();
  std::shared_ptr<io::SimDisk> damaged;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch base, store.CreateBranch(id, {.name = "base"}));
    for (uint64_t i = 0; i < 90; ++i) {
      ASSERT_OK(AppendSome(base, model, i, 1, kSeed, Durability::kPower));
    }
    machine.scheduler->Sleep(2'000'000'000);
    damaged = machine.disk->KillClone();
  }
  ASSERT_OK(
      damaged->WriteRaw("store/log/0000000000000002.log", 0, std::vector(4096, std::byte{0x5a})));
  options.create_if_missing = false;
  options.salvage = true;
  // The length of the branch, found on a disk whose operation `at` fails.
  const auto salvage = [&](uint64_t at, bool* met) -> Result<uint64_t> {
    const io::SimWorld one{std::make_shared<io::SimScheduler>(5), damaged->KillClone()};
    options.world = std::make_shared<io::World>(one.world());
    *met = false;
    one.disk->AddFault(
        {.when = [n = uint64_t{0}, at,
                  met](const io::SimOperation&) mutable { return n++ == at && (*met = true); },
         .error = EIO});
    Result<Store> store = Store::Open("/store", options);
    one.disk->ClearFaults();
    if (!store.ok()) {
      EXPECT_FALSE(store.status().message().empty());
      store = Store::Open("/store", options);
    }
    if (!store.ok()) return store.status();
    const auto base = store->FindBranch("base");
    return base.ok() ? base->length() : base.status();
  };
  bool met = false;
  ASSERT_OK_ASSIGN(const uint64_t length, salvage(UINT64_MAX, &met));
  ASSERT_GT(length, 0u);
  uint64_t at = 0;
  do {
    ASSERT_OK_ASSIGN(const uint64_t again, salvage(at, &met));
    EXPECT_EQ(length, again) << "operation " << at;
    ++at;
  } while (met && !::testing::Test::HasFailure());
  EXPECT_GT(at, 50u);
}

INSTANTIATE_TEST_SUITE_P(Every, AppendsAfterASalvage,
                         ::testing::Values(Case{16, 2, 10, false}, Case{16, 5, 10, false},
                                           Case{16, 2, 70, true}));

}  // namespace
}  // namespace cairn::testing
