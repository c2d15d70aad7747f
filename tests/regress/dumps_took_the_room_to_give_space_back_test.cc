// SPDX-License-Identifier: Apache-2.0
//
// The bug: at the cap, tree flushes that were due between the steps took what is kept for the
// tree flush that gives a segment of the log back: then no step fitted any more, and every drop was
// refused for ever.
// Method: stores with small caps that are full, and flush the tree after every few changes.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class DumpsTookTheRoom : public ::testing::TestWithParam<uint64_t> {
 protected:
  void Start() {
    Options options = TinyOptions();
    options.max_bytes = (4 << 20) + GetParam() * 150'000;
    options.replay_records_max = 16;
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
  }
  // Until appends are refused for good. Branches of all sizes.
  void FillUp() {
    SeededRandom random(GetParam());
    for (int refused = 0; refused < 30;) {
      auto branch = store_.CreateBranch(id_, {.name = NextName()});
      Status status = branch.status();
      for (uint64_t length = 0; status.ok() && length < 10;) {
        const uint64_t count = 1 + random.Below(5);
        status = AppendSome(*branch, model_, length, count).status();
        if (status.ok()) length += count;
      }
      if (branch.ok()) branches_.push_back(*branch);
      refused = status.ok() ? 0 : refused + 1;
      machine_.scheduler->Sleep(1'000'000);
    }
  }
  uint64_t IndexBytes() const {
    uint64_t bytes = 0;
    for (const std::string& file : machine_.disk->Files()) {
      if (file.ends_with(".index")) bytes += machine_.disk->ReadRaw(file)->size();
    }
    return bytes;
  }
  std::string NextName() {
    return "branch " + std::to_string(next_name_++) + std::string(200, '.');
  }

  const io::SimWorld machine_ = io::MakeSimWorld(GetParam());
  const ModelSpec model_ = WideModel();
  Store store_;
  ModelId id_{};
  std::vector<Branch> branches_;
  int next_name_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Caps, DumpsTookTheRoom, ::testing::Range<uint64_t>(0, 24));

TEST_P(DumpsTookTheRoom, DropsTakeNone) {
  ASSERT_NO_FATAL_FAILURE(Start());
  std::vector<Branch> small;
  for (int i = 0; i < 60; ++i) {
    ASSERT_OK_ASSIGN(const Branch one, store_.CreateBranch(id_, {.name = NextName()}));
    small.push_back(one);
  }
  FillUp();
  machine_.scheduler->Sleep(1'000'000'000);
  for (Branch& branch : small) {
    const uint64_t before = IndexBytes(), retired = store_.Metrics().retired_segments;
    ASSERT_OK(branch.Drop());
    machine_.scheduler->Sleep(20'000'000);
    // The tree flush that gives a segment back may.
    if (store_.Metrics().retired_segments == retired) {
      EXPECT_LE(IndexBytes(), before);
    }
  }
  for (Branch& branch : branches_) ASSERT_OK(branch.Drop());
  EXPECT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(Branch next, store_.CreateBranch(id_));
  EXPECT_OK(AppendSome(next, model_, 0, 100));
}

}  // namespace
}  // namespace cairn::testing
