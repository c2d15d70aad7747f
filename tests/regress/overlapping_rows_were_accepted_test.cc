// SPDX-License-Identifier: Apache-2.0
//
// The bug: a view whose tokens and heads lay over each other passed, because each stride was held
// against one row only; so did tables that named a slot twice; the smallest int64 had no magnitude.
// Method: such views, checked.
#include <limits>

#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

struct View {
  View() {
    std::byte* at = memory.data();
    for (size_t plane = 0; plane < 2; ++plane) {
      for (size_t layer = 0; layer < 2; ++layer)
        bases[plane][layer] = at + 1024 * (2 * plane + layer);
      planes[plane] = {.layer_bases = bases[plane], .token_stride = 16, .head_stride = 8};
    }
    group.count = 4;
    group.planes = planes;
  }
  Status Check() const {
    return ValidateKvView(TinyModel(), {.groups = {&group, 1}}, KvUse::kRestore);
  }
  std::vector<std::byte> memory = std::vector<std::byte>(8192);
  std::byte* bases[2][2];
  PlaneView planes[2];
  GroupView group;
};

TEST(OverlappingRowsWereAccepted, TokensOverHeads) {
  View view;
  EXPECT_OK(view.Check());
  view.planes[0].token_stride = 8;
  EXPECT_FAILS(view.Check(), StatusCode::kInvalidArgument, "overlap");
  view.planes[0].token_stride = 12;
  EXPECT_FAILS(view.Check(), StatusCode::kInvalidArgument, "overlap");
  view.planes[0].token_stride = 8;
  view.planes[0].head_stride = 32;  // A head's four tokens together.
  EXPECT_OK(view.Check());
  view.planes[0].head_stride = -32;
  EXPECT_OK(view.Check());
  view.planes[0].token_stride = std::numeric_limits<int64_t>::min();
  EXPECT_FAILS(view.Check(), StatusCode::kInvalidArgument, "address space");
}

TEST(OverlappingRowsWereAccepted, OnePlaceForTwoPositions) {
  View view;
  const int32_t slots[] = {0, 5, 2, 5};
  view.group.table = {.kind = TableKind::kSlots, .entries = slots, .count = 4};
  EXPECT_FAILS(view.Check(), StatusCode::kInvalidArgument, "entry 5 twice");
  view.group.count = 3;
  EXPECT_OK(view.Check());
  view.bases[1][1] = view.bases[1][0];
  EXPECT_FAILS(view.Check(), StatusCode::kInvalidArgument, "one base");
}

}  // namespace
}  // namespace cairn::testing
