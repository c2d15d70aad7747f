// SPDX-License-Identifier: Apache-2.0
//
// A node with more branches than memory knows of lost all of them, and the table with its content
// was deleted. After a crash the replay left undecided whether the node was dead, so its table was
// missed: an intact store was called damaged, and a checkpoint failed; by one that is read only,
// for ever. A replay ends with nothing undecided.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/io/sim_world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(ATableThatDied, IsNotMissedAfterACrash) {
  constexpr int kForks = 70;
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch base, store.CreateBranch(id, {.name = "base"}));
  ASSERT_OK(AppendSome(base, model, 0, 32));
  std::vector<Branch> all = {base};
  for (int i = 0; i < kForks; ++i) {
    ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(32, {}));
    all.push_back(fork);
  }
  ASSERT_OK(store.Compact());
  ASSERT_EQ(1u, store.Metrics().tables);
  for (Branch& one : all) ASSERT_OK(one.Drop(Durability::kPower));
  machine.scheduler->Sleep(2'000'000'000);
  ASSERT_EQ(0u, store.Metrics().tables);

  for (const bool read_only : {true, false}) {
    Options again = options;
    again.create_if_missing = false;
    again.read_only = read_only;
    const std::shared_ptr<io::SimDisk> disk = machine.disk->KillClone();
    again.world = std::make_shared<io::World>(
        io::World{.files = disk, .scheduler = std::make_shared<io::SimScheduler>(5)});
    ASSERT_OK_ASSIGN(Store found, Store::Open("/store", again));
    EXPECT_EQ(0u, found.Metrics().nodes);
    if (!read_only) {
      EXPECT_OK(found.Checkpoint("/copy"));
    }
    ASSERT_OK_ASSIGN(const VerifyReport report, found.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].where;
  }
}

}  // namespace
}  // namespace cairn::testing
