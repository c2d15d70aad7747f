// SPDX-License-Identifier: Apache-2.0
//
// The bug: a view no longer than a block, but entered in the middle of one, was accepted with a
// block stride of 0, and its positions lay on top of each other.
// Method: that view, and the same one within a block.
#include "cairn/kv_view.h"
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(ViewWithBlockStrideZero, IsRefusedAcrossBlocks) {
  const ModelSpec spec = TinyModel();
  KvPool pool(spec.groups[0], 0, Layout::kNhd, 0, 16);  // Blocks of 4.
  const auto validate = [&](uint64_t position, uint64_t count) {
    GroupView view = pool.View(position, count);
    std::vector<PlaneView> planes(view.planes.begin(), view.planes.end());
    for (PlaneView& plane : planes) plane.block_stride = 0;
    view.planes = planes;
    return ValidateKvView(spec, {.groups = std::span(&view, 1)}, KvUse::kRestore);
  };
  EXPECT_FAILS(validate(6, 4), StatusCode::kInvalidArgument, "block_stride is 0");
  EXPECT_FAILS(validate(0, 5), StatusCode::kInvalidArgument, "block_stride is 0");
  EXPECT_OK(validate(4, 4));
  EXPECT_OK(validate(7, 1));
}

}  // namespace
}  // namespace cairn::testing
