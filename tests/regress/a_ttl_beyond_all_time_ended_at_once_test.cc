// SPDX-License-Identifier: Apache-2.0
//
// A time to live of UINT64_MAX, which somebody may take for "for ever", wrapped round when the time
// of the last use was added, and the branch was dropped within a second.
#include <gtest/gtest.h>

#include <memory>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(ATtlBeyondAllTime, NeverEnds) {
  for (const uint64_t ttl_ns : {UINT64_MAX, UINT64_MAX - 1'000'000'000}) {
    const io::SimWorld machine = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine.world());
    for (const bool again : {false, true}) {
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
      if (!again) {
        ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(TinyModel()));
        ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "kept"}));
        ASSERT_OK(branch.SetKeep({.ttl_ns = ttl_ns}));
        ASSERT_OK(store.Compact());
      }
      machine.scheduler->Sleep(5'000'000'000);
      EXPECT_OK(store.FindBranch("kept"));
      ASSERT_OK(store.Close());
    }
  }
}

}  // namespace
}  // namespace cairn::testing
