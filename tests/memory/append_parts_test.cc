// SPDX-License-Identifier: Apache-2.0
//
// Property and method of out_of_memory_test.cc, for appends that are coalesced, and for deadlines
// of appends: what was accepted is not lost when the memory for a later step is missing.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/out_of_memory.h"
#include "sim/disk.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "tests/memory/failing_at.h"
#include "tests/memory/whole_world.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::memory {
namespace {

// One-token appends are coalesced in it, a batch at a time.
struct CoalescingStore {
  explicit CoalescingStore(uint32_t batch_tokens, uint64_t wait_ns = 3'600'000'000'000) {
    options.delta_batch_tokens = batch_tokens;
    options.delta_batch_wait_ns = wait_ns;
    options.replay_records_max = 64;
    options.world = std::make_shared<io::World>(world);
    SetFailPlan({});  // Ends the plan of the run before.
    store = *Store::Open("/store", options);
    id = *store.RegisterModel(model);
    branch = *store.CreateBranch(id, {.name = "b"});
    sampler.generator = GeneratorKind::kPhilox;
    kv.Write(testing::kSeed, 0, kPositions);
    for (uint64_t i = 0; i < kPositions; ++i) views.push_back(kv.View(i, 1));
  }
  // The i-th token, its KV and a sampler state after it.
  Delta One(uint64_t i) const {
    Delta delta = testing::MakeDelta(std::span(tokens).subspan(i, 1), views[i]);
    delta.sampler = &sampler;
    return delta;
  }
  Result<Ticket> Append(uint64_t i) {
    return branch.Append(One(i), {.durability = Durability::kPower});
  }
  // All of what came with the first `count` tokens.
  void HasAllOf(uint64_t count) const {
    EXPECT_EQ(*branch.length(), count);
    EXPECT_TRUE(testing::HasKv(branch, model, 0, count));
    for (uint64_t i = 1; i <= count; ++i) {
      const auto state = branch.SamplerAt(i);
      EXPECT_TRUE(state.ok() && state->sampler.has_value()) << "the state after " << i;
    }
  }

  static constexpr uint64_t kPositions = 20;
  std::string escaped;
  const io::World world = MakeWholeWorld(std::make_shared<io::SimDisk>(), 1, &escaped);
  Options options = testing::TinyOptions();
  const ModelSpec model = testing::TinyModel();
  const std::vector<TokenId> tokens = testing::Tokens(kPositions);
  testing::KvSet kv{model, testing::Layout::kContiguous, 0, kPositions};
  std::vector<const KvView*> views;
  SamplerState sampler;
  Store store;
  ModelId id{};
  Branch branch;
};

// A waiting caller flushes. If there is no memory for that no accepted append is lost.
TEST(AppendParts, CoalescedAppendsKeepTheirStatesOverAFlushThatFindsNoMemory) {
  const uint64_t runs = AtEveryAllocation([](uint64_t n) {
    CoalescingStore coalescing(4);
    ASSERT_OK_ASSIGN(Ticket ticket, coalescing.Append(0));
    Status first;
    {
      const FailingAt failing(n);
      first = ticket.Wait();
    }
    if (!first.ok()) {
      EXPECT_FAILS(first, StatusCode::kOutOfMemory);
    }
    ASSERT_OK(ticket.Wait());
    coalescing.HasAllOf(1);
    EXPECT_EQ(coalescing.escaped, "");
  });
  EXPECT_GT(runs, 20u);
}

// The first of a batch, one in the middle, and the one that fills it.
TEST(AppendParts, AnAppendToBeCoalescedThatFindsNoMemoryLeavesNoTrace) {
  for (const uint64_t before : {0, 2, 3}) {
    AtEveryAllocation([before](uint64_t n) {
      CoalescingStore coalescing(4);
      std::vector<Ticket> tickets;
      for (uint64_t i = 0; i < before; ++i) {
        ASSERT_OK_ASSIGN(tickets.emplace_back(), coalescing.Append(i));
      }
      Result<Ticket> one = Ticket();
      {
        const FailingAt failing(n);
        one = coalescing.Append(before);
      }
      if (one.ok()) {
        tickets.push_back(*one);
      } else {
        EXPECT_FAILS(one, StatusCode::kOutOfMemory);
      }
      ASSERT_OK(coalescing.store.Flush());
      for (Ticket& ticket : tickets) EXPECT_OK(ticket.Wait());
      coalescing.HasAllOf(tickets.size());
      ASSERT_OK_ASSIGN(Ticket next, coalescing.Append(tickets.size()));
      ASSERT_OK(next.Wait());
      coalescing.HasAllOf(tickets.size() + 1);
      EXPECT_EQ(coalescing.escaped, "");
    });
  }
}

// Whatever it says, it says it again; every ticket has its end, and the store can be opened.
TEST(AppendParts, AStoreThatFindsNoMemoryWhileItIsClosedIsClosed) {
  for (const bool persistent : {false, true}) {
    const uint64_t runs = AtEveryAllocation([persistent](uint64_t n) {
      CoalescingStore coalescing(4);
      const std::vector<TokenId> two = testing::Tokens(2);
      ASSERT_OK_ASSIGN(Branch other,
                       coalescing.store.CreateBranch(coalescing.id, {.name = "other"}));
      for (int i = 0; i < 20; ++i) ASSERT_OK(other.AppendSync(testing::MakeDelta(two)));
      ASSERT_OK_ASSIGN(Ticket ticket, coalescing.Append(0));
      Status closed;
      {
        const FailingAt failing(n, persistent);
        closed = coalescing.store.Close();
      }
      if (!closed.ok()) {
        EXPECT_FAILS(closed, StatusCode::kOutOfMemory);
      }
      EXPECT_EQ(coalescing.store.Close().code(), closed.code());
      ASSERT_TRUE(ticket.done());
      const Status appended = ticket.status();
      if (closed.ok()) {
        EXPECT_OK(appended);
      }

      ASSERT_OK_ASSIGN(Store again, Store::Open("/store", coalescing.options));
      ASSERT_OK_ASSIGN(other, again.FindBranch("other"));
      EXPECT_EQ(*other.length(), 40u);
      ASSERT_OK_ASSIGN(coalescing.branch, again.FindBranch("b"));
      if (appended.code() != StatusCode::kUnknownOutcome) coalescing.HasAllOf(appended.ok());
      EXPECT_OK(again.Close());
      EXPECT_EQ(coalescing.escaped, "");
    });
    EXPECT_GT(runs, 100u);
  }
}

TEST(AppendParts, TheTimerFlushesCoalescedAppendsWhenThereIsMemoryAgain) {
  for (const bool persistent : {false, true}) {
    AtEveryAllocation([persistent](uint64_t n) {
      CoalescingStore coalescing(4, 1'000'000);
      ASSERT_OK_ASSIGN(Ticket ticket, coalescing.Append(0));
      {
        const FailingAt failing(n, persistent);
        coalescing.world.scheduler->Sleep(50'000'000);
      }
      EXPECT_EQ(coalescing.escaped, "");
      EXPECT_OK(ticket.Wait(1'000'000'000));  // Which looks on.
      coalescing.HasAllOf(1);
    });
  }
}

TEST(AppendParts, ADeadlinePassesWithoutMemory) {
  CoalescingStore coalescing(4);
  const AppendOptions options{.durability = Durability::kPower, .timeout_ns = 1'000'000};
  ASSERT_OK_ASSIGN(Ticket ticket, coalescing.branch.Append(coalescing.One(0), options));
  {
    const FailingAt failing(1, /*persistent=*/true);
    coalescing.world.scheduler->Sleep(50'000'000);
  }
  EXPECT_EQ(coalescing.escaped, "");
  EXPECT_FAILS(ticket.status(), StatusCode::kUnknownOutcome, "the deadline passed");
}

// The log is not through with it before.
TEST(AppendParts, ADeadlineOfABorrowedAppendPassesWithoutMemory) {
  AtEveryAllocation([](uint64_t n) {
    constexpr uint64_t kMs = 1'000'000;
    std::string escaped;
    const auto disk =
        std::make_shared<io::SimDisk>(io::SimDiskOptions{.durable = {100 * kMs, 100 * kMs}});
    const io::World world = MakeWholeWorld(disk, 1, &escaped);
    Options options = testing::TinyOptions();
    options.allocator = NewAllocator();
    options.submit_copy_max_bytes = 1;
    options.world = std::make_shared<io::World>(world);
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    const ModelSpec model = testing::TinyModel();
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    const std::vector<TokenId> tokens = testing::Tokens(2);
    const AppendOptions append{.durability = Durability::kPower, .timeout_ns = kMs};
    disk->set_on_operation([&](const io::SimOperation& one) {
      if (one.op == io::SimOp::kSync || one.op == io::SimOp::kDurableWrite) {
        world.scheduler->Sleep(100 * kMs);
      }
    });
    {
      const FailingAt failing(n);
      auto ticket =
          CatchBadAlloc([&] { return branch.Append(testing::MakeDelta(tokens), append); });
      if (ticket.ok()) {
        world.scheduler->Sleep(10 * kMs);
        EXPECT_TRUE(ticket->done());
        EXPECT_NE(ticket->status().code(), StatusCode::kOk);
      } else {
        EXPECT_FAILS(ticket, StatusCode::kOutOfMemory);
      }
    }
    EXPECT_EQ(escaped, "");
    EXPECT_OK(store.Close());
    disk->set_on_operation(nullptr);
  });
}

}  // namespace
}  // namespace cairn::memory
