// SPDX-License-Identifier: Apache-2.0
//
// Property: a call that returns kOutOfMemory left no trace, what was applied is reported by its
// ticket, and every ticket ends, once, whichever allocation fails.
// Method: as in parts_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/disk.h"
#include "tests/engine/engine_test.h"
#include "tests/memory/failing_at.h"
#include "tests/memory/whole_world.h"
#include "tests/support/status.h"

namespace cairn::memory {
namespace {

constexpr uint64_t kHour = 3'600'000'000'000;
const std::vector<TokenId> kTokens = testing::Tokens(4);

struct TicketStore {
  explicit TicketStore(Options with = testing::TinyOptions()) : options(std::move(with)) {
    SetFailPlan({});  // Ends the plan of the run before.
    options.world = std::make_shared<io::World>(MakeWholeWorld(disk, 1, &escaped));
    store = *Store::Open("/store", options);
    id = *store.RegisterModel(testing::TokenModel());
    branch = *store.CreateBranch(id, {.name = "b"});
    queue = *store.NewCompletionQueue();
    EXPECT_OK(store.Flush());
  }
  void FailWrites() {
    disk->AddFault({.when =
                        [](const io::SimOperation& one) {
                          return (one.op == io::SimOp::kWrite || one.op == io::SimOp::kSync) &&
                                 one.path.starts_with("/store/log/0");
                        },
                    .error = EIO,
                    .persistent = true});
  }

  const std::shared_ptr<io::SimDisk> disk = std::make_shared<io::SimDisk>();
  std::string escaped;
  Options options;
  Store store;
  ModelId id{};
  Branch branch;
  CompletionQueue queue;
};

// The outcome of `call`, which appends kTokens, with a ticket or without one.
void IsWhollyDoneOrNotAtAll(
    const std::function<Result<Ticket>(TicketStore&, const AppendOptions&)>& call,
    const Options& with = testing::TinyOptions()) {
  for (const Durability durability :
       {Durability::kMemory, Durability::kProcess, Durability::kPower}) {
    for (const uint64_t timeout_ns : {UINT64_MAX, kHour}) {
      for (const bool queued : {false, true}) {
        for (const bool persistent : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << "durability " << static_cast<int>(durability) << ", timeout "
                       << timeout_ns << ", queued " << queued << ", persistent " << persistent);
          AtEveryAllocation([&](uint64_t n) {
            TicketStore on(with);
            AppendOptions options{.durability = durability, .timeout_ns = timeout_ns};
            if (queued) options.queue = &on.queue;
            Result<Ticket> ticket = Ticket();
            {
              const FailingAt failing(n, persistent);
              ticket = call(on, options);
            }
            Status told = ticket.status();
            if (ticket.ok() && ticket->valid()) told = ticket->Wait();
            if (!told.ok()) {
              EXPECT_FAILS(told, StatusCode::kOutOfMemory);
            }
            EXPECT_EQ(*on.branch.length(), told.ok() ? kTokens.size() : 0);
            EXPECT_OK(on.store.Flush());
            const bool completes = queued && ticket.ok() && ticket->valid();
            EXPECT_EQ(on.queue.Drain().size(), completes ? 1u : 0u);
            EXPECT_EQ(on.escaped, "");
          });
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Tickets, AnAppendIsAppliedOrLeavesNoTrace) {
  IsWhollyDoneOrNotAtAll([](TicketStore& on, const AppendOptions& options) {
    return on.branch.Append(testing::MakeDelta(kTokens), options);
  });
}

TEST(Tickets, AnAppendThatIsWaitedForIsAppliedOrLeavesNoTrace) {
  IsWhollyDoneOrNotAtAll([](TicketStore& on, const AppendOptions& options) -> Result<Ticket> {
    const auto length = on.branch.AppendSync(testing::MakeDelta(kTokens), options);
    if (!length.ok()) return length.status();
    return Ticket();
  });
}

TEST(Tickets, AppendsOnBorrowedMemoryAreAppliedOrLeaveNoTrace) {
  Options with = testing::TinyOptions();
  with.submit_copy_max_bytes = 0;
  IsWhollyDoneOrNotAtAll(
      [](TicketStore& on, const AppendOptions& options) {
        auto ticket = on.branch.Append(testing::MakeDelta(kTokens), options);
        if (ticket.ok()) on.options.world->scheduler->Sleep(1'000'000'000);
        return ticket;
      },
      with);
}

TEST(Tickets, ABatchIsAppliedOrLeavesNoTrace) {
  IsWhollyDoneOrNotAtAll([](TicketStore& on, const AppendOptions& options) -> Result<Ticket> {
    WriteBatch batch;
    {
      const bool failing = SetFailing(false);  // Making one is none of the store's calls.
      batch.Append(on.branch, testing::MakeDelta(kTokens));
      batch.Create(on.id, {.name = "made"});
      SetFailing(failing);
    }
    auto written = on.store.Write(batch, options);
    const bool failing = SetFailing(false);
    EXPECT_EQ(on.store.FindBranch("made").ok(), written.ok());
    SetFailing(failing);
    if (!written.ok()) return written.status();
    return written->ticket;
  });
}

// Coalesced ones are flushed by the timer; others end on the log thread.
TEST(Tickets, CompletionsNeedNoMemory) {
  constexpr uint64_t kCount = 40;
  for (const uint32_t coalesced : {1u, 64u}) {
    for (const Durability durability : {Durability::kMemory, Durability::kPower}) {
      AtEveryAllocation([&](uint64_t n) {
        Options options = testing::TinyOptions();
        options.delta_batch_tokens = coalesced;
        options.delta_batch_wait_ns = 1'000'000;
        TicketStore on(options);
        std::vector<Ticket> tickets;
        for (uint64_t i = 0; i < kCount; ++i) {
          ASSERT_OK_ASSIGN(
              tickets.emplace_back(),
              on.branch.Append(testing::MakeDelta(std::span(kTokens).first(1)),
                               {.durability = durability, .queue = &on.queue, .user_data = i}));
        }
        {
          const FailingAt failing(n);
          on.options.world->scheduler->Sleep(1'000'000'000);
        }
        EXPECT_EQ(on.escaped, "");
        for (const Ticket& ticket : tickets) EXPECT_OK(ticket.status());
        const std::vector<Completion> completions = on.queue.Drain();
        ASSERT_EQ(completions.size(), kCount);
        for (uint64_t i = 0; i < kCount; ++i) {
          EXPECT_EQ(completions[i].user_data, i);
          EXPECT_OK(completions[i].status);
        }
      });
    }
  }
}

TEST(Tickets, WhatWasCutByTheLogIsNotToldAsWithoutATrace) {
  for (const uint64_t timeout_ns : {UINT64_MAX, kHour}) {
    for (const bool persistent : {false, true}) {
      AtEveryAllocation([&](uint64_t n) {
        TicketStore on;
        on.FailWrites();
        Status status;
        {
          const FailingAt failing(n, persistent);
          status = on.branch
                       .AppendSync(testing::MakeDelta(kTokens),
                                   {.durability = Durability::kPower, .timeout_ns = timeout_ns})
                       .status();
        }
        if (on.store.poisoned().ok()) {
          EXPECT_FAILS(status, StatusCode::kOutOfMemory);
        } else {
          EXPECT_FAILS(status, StatusCode::kUnknownOutcome);
        }
        EXPECT_EQ(on.escaped, "");
      });
    }
  }
}

// One that waits for the log, and a job that did not begin.
TEST(Tickets, AreAskedAndCancelledWithoutMemory) {
  for (const bool job : {false, true}) {
    Options options = testing::TinyOptions();
    if (job) options.submit_copy_max_bytes = 0;
    TicketStore on(options);
    ASSERT_OK_ASSIGN(Ticket ticket, on.branch.Append(testing::MakeDelta(kTokens),
                                                     {.durability = Durability::kPower}));
    Status asked, waited, cancelled, empty;
    {
      const FailingAt failing(1, /*persistent=*/true);
      asked = ticket.status();
      waited = ticket.Wait(0);
      cancelled = ticket.Cancel();
      empty = Ticket().Cancel();
    }
    EXPECT_FAILS(asked, StatusCode::kOutOfMemory);
    EXPECT_FAILS(waited, StatusCode::kOutOfMemory);
    EXPECT_FAILS(cancelled, job ? StatusCode::kCancelled : StatusCode::kUnknownOutcome);
    EXPECT_FAILS(empty, StatusCode::kOutOfMemory);
    EXPECT_FAILS(ticket.status(), cancelled.code());
  }
}

// By the log thread, whose end would be the end of the process.
TEST(Tickets, APoisonThatFindsNoMemoryIsToldToAll) {
  const uint64_t runs = AtEveryAllocation([](uint64_t n) {
    TicketStore one;
    one.FailWrites();
    std::vector<Ticket> tickets;
    for (const Durability durability : {Durability::kProcess, Durability::kPower}) {
      ASSERT_OK_ASSIGN(Ticket ticket, one.branch.Append(testing::MakeDelta(testing::Tokens(1)),
                                                        {.durability = durability}));
      tickets.push_back(std::move(ticket));
    }
    {
      const FailingAt failing(n);
      one.options.world->scheduler->Sleep(1'000'000'000);
    }
    ASSERT_EQ(one.escaped, "");
    for (Ticket& ticket : tickets) {
      EXPECT_FAILS(ticket.Wait(1'000'000'000), StatusCode::kUnknownOutcome);
    }
    EXPECT_FAILS(one.store.poisoned(), StatusCode::kPoisoned);
  });
  EXPECT_GT(runs, 20u);
}

}  // namespace
}  // namespace cairn::memory
