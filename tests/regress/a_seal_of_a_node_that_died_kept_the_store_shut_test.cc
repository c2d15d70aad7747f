// SPDX-License-Identifier: Apache-2.0
//
// A node of which memory did not know all that needs it lost all of that while it was being sealed.
// Whether it was dead was undecided, and the log's record of the seal named it; a replay, which
// knew all refs, had it dead and refused the record: the store did not open any more, after a kill
// that nothing else was wrong with. What names nodes is decided on when no node is undecided.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/io/sim_world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// More refs than stay in memory when the index has them, and more changes than wait for that.
constexpr int kForks = 200, kOthers = 1'000;

TEST(ASealOfANodeThatDied, IsNotInTheLog) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec model = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch base, store.CreateBranch(id, {.name = "base"}));
  ASSERT_OK(AppendSome(base, model, 0, 32, kSeed, Durability::kPower));
  std::vector<Branch> all = {base};
  for (int i = 0; i < kForks; ++i) {
    ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(32, {.durability = Durability::kMemory}));
    all.push_back(fork);
  }
  for (int i = 0; i < kOthers; ++i) {
    ASSERT_OK(store.CreateBranch(id, {.durability = Durability::kMemory}));
  }
  ASSERT_OK(store.Flush());
  machine.scheduler->Sleep(1'000'000'000);

  bool sealing = false, dropped = false;
  std::vector<std::pair<std::string, std::unique_ptr<io::SimDisk>>> killed;
  machine.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (operation.path.find(".snapshot") != std::string::npos) sealing = true;
    if (dropped && killed.size() < 40) {
      killed.emplace_back(operation.ToString(), machine.disk->KillClone());
    }
  });
  {
    const auto dropper = machine.scheduler->StartThread("dropper", [&] {
      while (!sealing) machine.scheduler->Sleep(1'000);
      for (Branch& one : all) EXPECT_OK(one.Drop(Durability::kMemory));
      dropped = true;
    });
    ASSERT_OK(store.Compact());
    machine.disk->set_on_operation(nullptr);
  }
  EXPECT_GT(killed.size(), 10u);
  options.create_if_missing = false;
  for (auto& [when, disk] : killed) {
    options.world = std::make_shared<io::World>(
        io::World{.files = std::move(disk), .scheduler = std::make_shared<io::SimScheduler>(2)});
    EXPECT_OK(Store::Open("/store", options)) << "killed before " << when;
  }
}

}  // namespace
}  // namespace cairn::testing
