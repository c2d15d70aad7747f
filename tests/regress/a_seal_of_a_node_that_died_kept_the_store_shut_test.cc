// SPDX-License-Identifier: Apache-2.0
//
// A node of which memory did not know all refs lost all of them while it was being sealed. Whether
// it was dead was undecided, and the log's record of the seal named it. A replay, which knew all
// refs, had it dead and refused the record: the store did not open any more, after a kill with no
// other fault. Now operations that name nodes are decided when no node is undecided.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/regress/popular_node.h"

namespace cairn::testing {
namespace {

// More refs than stay in memory when the index has them, and more changes than wait for that.
constexpr int kForks = 200, kOthers = 1'000;

using ASealOfANodeThatDied = PopularNodeTest;

TEST_F(ASealOfANodeThatDied, IsNotInTheLog) {
  ASSERT_NO_FATAL_FAILURE(Make(TinyModel(), kForks));
  for (int i = 0; i < kOthers; ++i) {
    ASSERT_OK(store_.CreateBranch(id_, {.durability = Durability::kMemory}));
  }
  ASSERT_OK(store_.Flush());
  machine_.scheduler->Sleep(1'000'000'000);

  bool sealing = false, dropped = false;
  std::vector<std::pair<std::string, std::unique_ptr<io::SimDisk>>> killed;
  machine_.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (operation.path.find(".snapshot") != std::string::npos) sealing = true;
    if (dropped && killed.size() < 40) {
      killed.emplace_back(operation.ToString(), machine_.disk->KillClone());
    }
  });
  {
    const auto dropper = machine_.scheduler->StartThread("dropper", [&] {
      while (!sealing) machine_.scheduler->Sleep(1'000);
      for (Branch& one : branches_) EXPECT_OK(one.Drop(Durability::kMemory));
      dropped = true;
    });
    ASSERT_OK(store_.Compact());
    machine_.disk->set_on_operation(nullptr);
  }
  EXPECT_GT(killed.size(), 10u);
  for (auto& [when, disk] : killed) {
    EXPECT_OK(Store::Open("/store", FoundOn(std::move(disk)))) << "killed before " << when;
  }
}

}  // namespace
}  // namespace cairn::testing
