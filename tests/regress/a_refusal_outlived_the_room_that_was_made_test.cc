// SPDX-License-Identifier: Apache-2.0
//
// The bug: after nearly everything was dropped and Compact had given it back, the next append that
// needed another log segment was kNoSpace, with a fifth of max_bytes in use. The log had been
// refused a segment when the store was full, and repeated that before it tried again.
// Method: a full store that is emptied, and one append that is larger than a segment.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class ARefusalOutlivedTheRoom : public ::testing::TestWithParam<uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, ARefusalOutlivedTheRoom, ::testing::Range<uint64_t>(1, 7));

TEST_P(ARefusalOutlivedTheRoom, ThatWasMade) {
  const io::SimWorld machine = io::MakeSimWorld(GetParam());
  const ModelSpec model = WideModel();
  Options options = TinyOptions();
  options.max_bytes = 4 << 20;
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> full;
  for (int refused = 0; refused < 20;) {
    auto made = store.CreateBranch(id);
    const Status added = made.ok() ? AppendSome(*made, model, 0, 8).status() : made.status();
    if (made.ok()) full.push_back(*made);
    if (added.ok()) continue;
    ASSERT_EQ(StatusCode::kNoSpace, added.code());
    ++refused;
    machine.scheduler->Sleep(10'000'000);
  }
  for (Branch& one : full) ASSERT_OK(one.Drop());
  ASSERT_OK(store.Compact());
  EXPECT_LT(store.Metrics().physical_bytes, options.max_bytes / 4);
  ASSERT_OK_ASSIGN(Branch next, store.CreateBranch(id));
  EXPECT_OK(AppendSome(next, model, 0, 64));
}

}  // namespace
}  // namespace cairn::testing
