// SPDX-License-Identifier: Apache-2.0
//
// A node with more branches than memory knows of lost all of them, and the table with its content
// was deleted. After a crash the replay left undecided whether the node was dead, so its table was
// missed: an intact store was called damaged, and a checkpoint failed; by one that is read only,
// for ever. A replay ends with nothing undecided.
#include <cerrno>

#include "tests/regress/popular_node.h"

namespace cairn::testing {
namespace {

using ATableThatDied = PopularNodeTest;

TEST_F(ATableThatDied, IsNotMissedAfterACrash) {
  ASSERT_NO_FATAL_FAILURE(Make(WideModel(), /*forks=*/70));
  ASSERT_OK(store_.Compact());
  ASSERT_EQ(1u, store_.Metrics().tables);
  for (Branch& one : branches_) ASSERT_OK(one.Drop(Durability::kPower));
  machine_.scheduler->Sleep(2'000'000'000);
  ASSERT_EQ(0u, store_.Metrics().tables);

  for (const bool read_only : {true, false}) {
    Options options = FoundOn(machine_.disk->KillClone());
    options.read_only = read_only;
    ASSERT_OK_ASSIGN(Store found, Store::Open("/store", options));
    EXPECT_EQ(0u, found.Metrics().nodes);
    if (!read_only) {
      EXPECT_OK(found.Checkpoint("/copy"));
    }
    ASSERT_OK_ASSIGN(const VerifyReport report, found.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].where;
  }
}

// Nor is anything taken for dead because the index could not be asked.
TEST_F(ATableThatDied, IsNotTakenForDeadWhereTheIndexCannotBeRead) {
  ASSERT_NO_FATAL_FAILURE(Make(TinyModel(), /*forks=*/0));
  // Enough, and different enough, that memory has only the last of them and the index two blocks.
  constexpr uint64_t kForks = 1500;
  ASSERT_OK(AppendSome(branches_[0], TinyModel(), 32, kForks, kSeed, Durability::kPower));
  for (uint64_t i = 1; i <= kForks; ++i) {
    ASSERT_OK_ASSIGN(Branch fork, branches_[0].ForkAt(i, {.durability = Durability::kMemory}));
    branches_.push_back(fork);
  }
  ASSERT_OK(store_.Compact());
  for (Branch& one : branches_) ASSERT_OK(one.Drop(Durability::kPower));
  Status last;
  for (uint64_t at = 0, struck = 1; struck != 0; ++at) {
    const std::shared_ptr<io::SimDisk> disk = machine_.disk->KillClone();
    disk->AddFault({.when =
                        [at, n = uint64_t{0}](const io::SimOperation& operation) mutable {
                          return operation.op == io::SimOp::kRead &&
                                 operation.path.ends_with(".index") && n++ == at;
                        },
                    .error = EIO});
    const auto found = Store::Open("/store", FoundOn(disk));
    struck = disk->faults_struck();
    if (struck == 0) {
      EXPECT_OK(found);
    } else {
      EXPECT_FAILS(found, StatusCode::kIoError, ".index");
      last = found.status();
    }
  }
  EXPECT_TRUE(last.message().starts_with("read ")) << "behind the replay: " << last.ToString();
}

}  // namespace
}  // namespace cairn::testing
