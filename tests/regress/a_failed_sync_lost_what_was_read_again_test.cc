// SPDX-License-Identifier: Apache-2.0
//
// The bug: a sync of the log failed, and the system still showed pages that it had not written. The
// store was closed and opened again; it replayed those pages, and its sync succeeded without
// writing them. Later appends were built on them: after a power loss opening was refused ("no group
// of this epoch"). Method: the nth sync of the log fails so, for every n; the store is opened
// again, appended to, and the power is cut.
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

// Written at once, synced later.
Status AppendToken(const io::SimWorld& sim, Store& store, Branch& branch, TokenId token) {
  Delta delta;
  delta.tokens = std::span(&token, 1);
  while (true) {
    const Status appended = branch.Append(delta, {.durability = Durability::kMemory}).status();
    if (appended.ok()) return store.Flush();
    if (appended.code() != StatusCode::kBusy) return appended;
    sim.scheduler->Sleep(1'000'000);
  }
}

TEST(AFailedSyncLostWhatWasReadAgain, WhatWasAcknowledgedSinceIsThereAfterAPowerLoss) {
  uint64_t reopened = 0;
  for (uint64_t at = 0;; ++at) {
    SCOPED_TRACE("sync " + std::to_string(at));
    const io::SimWorld sim = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    uint64_t length = 0;
    {
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
      ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
      uint64_t seen = 0;
      sim.disk->AddFault({.when =
                              [&seen, at](const io::SimOperation& operation) {
                                return operation.op == io::SimOp::kSync &&
                                       operation.path.starts_with("/store/log/") && seen++ == at;
                              },
                          .error = EIO,
                          .loses_unsynced = true});
      ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
      for (TokenId token = 0; token < 4; ++token)
        static_cast<void>(AppendToken(sim, store, chat, token));
      static_cast<void>(store.Close());
    }
    if (sim.disk->faults_struck() == 0) break;
    sim.disk->ClearFaults();
    {
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
      auto chat = store.FindBranch("chat");
      if (!chat.ok()) continue;
      ASSERT_OK(AppendToken(sim, store, *chat, 77));
      ASSERT_OK_ASSIGN(length, chat->length());
      ++reopened;
      const io::SimWorld after = io::CrashWorld(*sim.disk, io::CrashChoice::LoseAll(), true);
      Options there = options;
      there.world = std::make_shared<io::World>(after.world());
      ASSERT_OK_ASSIGN(Store again, Store::Open("/store", there));
      ASSERT_OK_ASSIGN(Branch found, again.FindBranch("chat"));
      EXPECT_EQ(length, *found.length());
      EXPECT_EQ(77, found.ReadTokens(length - 1, length)->at(0));
      EXPECT_OK(again.Close());
      EXPECT_OK(store.Close());
    }
  }
  EXPECT_GT(reopened, 2U);
}

}  // namespace
}  // namespace cairn::testing
