// SPDX-License-Identifier: Apache-2.0
//
// Property: a store on a disk that copies on write is never poisoned because the disk is full. It
// refuses data, gives space back, opens again, and takes data once there is room. Method: others
// fill the simulated disk to its last block at moments that a seed draws, and give it back.
#include <random>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class CopyingDisk : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    options_.world = std::make_shared<io::World>(machine_.world());
    ASSERT_NO_FATAL_FAILURE(Open());
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
  }
  void Open() { ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_)); }
  void TakeAll() {
    const auto file = machine_.disk->Open("/others", {.write = true, .create = true});
    ASSERT_OK(file.status());
    const std::vector<std::byte> block(io::kBlockBytes);
    ASSERT_OK_ASSIGN(uint64_t at, (*file)->Size());
    Status status;
    for (; status.ok(); at += block.size()) status = (*file)->Write(at, block, true);
    ASSERT_EQ(StatusCode::kNoSpace, status.code()) << status.ToString();
  }
  void GiveBack() {
    ASSERT_OK(machine_.disk->Remove("/others"));
    ASSERT_OK(machine_.disk->SyncDirectory("/"));
    machine_.scheduler->Sleep(2'000'000'000);
  }
  // Each of `lengths_` is what that branch holds; a refused append adds nothing.
  void Append() {
    const std::string name = "b" + std::to_string(random_() % 4);
    auto branch = store_.FindBranch(name);
    if (!branch.ok()) branch = store_.CreateBranch(id_, {.name = name});
    Status status = branch.status();
    if (status.ok()) status = AppendSome(*branch, model_, lengths_[name], 8).status();
    if (status.ok()) lengths_[name] += 8;
    if (!status.ok()) {
      ++refused_;
      ASSERT_EQ(StatusCode::kNoSpace, status.code()) << status.ToString();
    }
  }
  void DropOne() {
    if (lengths_.empty()) return;
    const auto at =
        std::next(lengths_.begin(), static_cast<std::ptrdiff_t>(random_() % lengths_.size()));
    const auto branch = store_.FindBranch(at->first);
    if (branch.ok()) {
      ASSERT_OK(Branch(*branch).Drop());
    }
    lengths_.erase(at);
  }
  void CheckAll() {
    for (const auto& [name, length] : lengths_) {
      if (length == 0) continue;
      ASSERT_OK_ASSIGN(Branch branch, store_.FindBranch(name));
      EXPECT_TRUE(HasKv(branch, model_, 0, length)) << name;
    }
  }

  std::mt19937_64 random_{GetParam()};
  const ModelSpec model_ = WideModel();
  const io::SimWorld machine_ =
      io::MakeSimWorld(GetParam(), {.capacity_bytes = 20 << 20, .copies_on_write = true});
  Options options_ = TinyOptions();
  Store store_;
  ModelId id_{};
  std::map<std::string, uint64_t> lengths_;
  uint64_t refused_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Seeds, CopyingDisk, ::testing::Range<uint64_t>(1, 13));

TEST_P(CopyingDisk, ThatIsFullAtAnyMomentPoisonsNothing) {
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    for (uint64_t before = random_() % 12; before > 0; --before) {
      ASSERT_NO_FATAL_FAILURE(Append());
    }
    ASSERT_NO_FATAL_FAILURE(TakeAll());
    for (int i = 0; i < 30; ++i) {
      ASSERT_NO_FATAL_FAILURE(Append());
      // What is given back goes to the others, before the store has it.
      if (random_() % 4 != 0) {
        ASSERT_NO_FATAL_FAILURE(TakeAll());
      }
      machine_.scheduler->Sleep(random_() % 20'000'000);
    }
    ASSERT_NO_FATAL_FAILURE(DropOne());
    if (random_() % 2 == 0) {
      ASSERT_OK(store_.Close());
      ASSERT_NO_FATAL_FAILURE(Open());
    }
    ASSERT_NO_FATAL_FAILURE(CheckAll());
    ASSERT_NO_FATAL_FAILURE(GiveBack());
    const uint64_t refused = refused_;
    for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(Append());
    EXPECT_EQ(refused, refused_) << "there is room again";
  }
  EXPECT_GT(refused_, 0u);
  ASSERT_OK(store_.Close());
  ASSERT_NO_FATAL_FAILURE(Open());
  ASSERT_NO_FATAL_FAILURE(CheckAll());
}

}  // namespace
}  // namespace cairn::testing
