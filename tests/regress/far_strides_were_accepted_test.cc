// SPDX-License-Identifier: Apache-2.0
//
// The bug: a head stride beyond every address passed validation, since only arithmetic overflow was
// looked for, and the append that used it crashed.
// Method: strides from the limits of the type down to what can be addressed.
#include "cairn/kv_view.h"
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(FarStridesWereAccepted, WhatCannotBeAddressedIsRefused) {
  const ModelSpec spec = TinyModel();
  KvPool pool(spec.groups[0], 0, Layout::kContiguous, 0, 4);
  const auto validate = [&](int64_t head_stride) {
    GroupView view = pool.View(0, 4);
    std::vector<PlaneView> planes(view.planes.begin(), view.planes.end());
    for (PlaneView& plane : planes) plane.head_stride = head_stride;
    view.planes = planes;
    return ValidateKvView(spec, {.groups = std::span(&view, 1)}, KvUse::kAppend);
  };
  for (const int64_t stride : {INT64_MIN, INT64_MAX, int64_t{1} << 60, int64_t{1} << 47}) {
    EXPECT_FAILS(validate(stride), StatusCode::kInvalidArgument, "leaves the address space");
  }
  EXPECT_OK(validate(int64_t{1} << 40));
}

}  // namespace
}  // namespace cairn::testing
