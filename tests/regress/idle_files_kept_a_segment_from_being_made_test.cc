// SPDX-License-Identifier: Apache-2.0
//
// The bug: where a process had no descriptor left, the store went on holding the files of dozens of
// tables that nobody read, and could not open the log's next segment.
// Method: a process restores from many tables, which stay open; then it gets no descriptor more,
// and appends until the log wants several segments.
#include <unistd.h>

#include "tests/engine/engine_test.h"
#include "tests/support/few_descriptors.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTables = 24, kEach = 4;  // Positions of an append.

// Has all descriptors that the process may still have.
class Takeover {
 public:
  Takeover() {
    for (int taken = dup(0); taken >= 0; taken = dup(0)) taken_.push_back(taken);
  }
  ~Takeover() {
    for (const int taken : taken_) close(taken);
  }

 private:
  std::vector<int> taken_;
};

class IdleFilesKeptASegmentFromBeingMade : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Worlds, IdleFilesKeptASegmentFromBeingMade,
                         ::testing::Values("io_uring", "threads"), NameOf);

TEST_P(IdleFilesKeptASegmentFromBeingMade, TheyAreLetGo) {
  const auto world = TestWorld::Make(GetParam());
  if (world == nullptr) GTEST_SKIP() << GetParam() << " is not granted on this machine";
  const ModelSpec model = WideModel();
  Options options = world->options();
  options.spare_segments_min = options.spare_segments_max = 2;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "long"}));
  for (uint64_t at = 0; at < kTables * kEach; at += kEach) {
    ASSERT_OK(AppendSome(branch, model, at, kEach));
    ASSERT_OK(store.Compact());
  }
  ASSERT_EQ(kTables, store.Metrics().tables);
  ASSERT_OK(store.PauseBackground());
  EXPECT_TRUE(HasKv(branch, model, 0, kTables * kEach));  // Its tables are open from here on.
  const FewDescriptors few(8);
  const Takeover rest;
  for (uint64_t at = kTables * kEach; at < kTables * kEach + 512; ++at) {
    const auto appended = branch.AppendSync({.tokens = std::vector<TokenId>(4096, 7)},
                                            {.timeout_ns = 20'000'000'000});
    ASSERT_OK(appended) << "after " << at;
  }
  EXPECT_TRUE(HasKv(branch, model, 0, kTables * kEach));
}

}  // namespace
}  // namespace cairn::testing
