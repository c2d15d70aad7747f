// SPDX-License-Identifier: Apache-2.0
//
// The bug: when the last step of making a store failed, or its process ended before it, the next
// opening took the store for made, and the names of its directory and its manifest were never
// synced: power loss took the store with all that was acknowledged in it. Method: each operation of
// the making fails in turn, the store is opened again, a branch is made durable, and power is lost.
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(AStoreWhoseMakingFailedWasLost, WhatIsAcknowledgedLaterIsThere) {
  for (uint64_t at = 0;; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    const io::SimWorld sim = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    sim.disk->AddFault({.when = {}, .at_index = at, .error = EIO});
    auto store = Store::Open("/store", options);
    if (sim.disk->faults_struck() == 0) break;
    sim.disk->ClearFaults();
    if (!store.ok()) store = Store::Open("/store", options);
    ASSERT_OK(store);
    auto model = store->RegisterModel(TinyModel());
    if (!model.ok()) continue;  // Opened all the same, and poisoned later.
    ASSERT_OK(store->CreateBranch(*model, {.name = "chat", .durability = Durability::kPower}));
    const io::SimWorld found = io::CrashWorld(*sim.disk, io::CrashChoice::LoseAll());
    options.world = std::make_shared<io::World>(found.world());
    ASSERT_OK_ASSIGN(Store again, Store::Open("/store", options));
    EXPECT_OK(again.FindBranch("chat"));
  }
}

}  // namespace
}  // namespace cairn::testing
