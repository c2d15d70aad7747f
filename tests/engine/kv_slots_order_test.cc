// SPDX-License-Identifier: Apache-2.0
//
// Property: in every order of messages no slot is read before all ranks wrote it, none is given
// twice, none is lost, and no append lacks a rank. Method: all orders are explored over the
// product's machine of slots: two ranks, two requests with a slot each or one for both, aborts, a
// preemption, copies and restores that fail, reports that come twice, and a rank that crashes
// anywhere. Each rule of the machine is taken out once, and the exploration must notice.
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/slots/slot_machine.h"

namespace cairn::engine {
namespace {

std::optional<SlotRule> removed;  // The rule that is left out.

struct TestedRules {
  static bool Keeps(SlotRule rule) { return removed != rule; }
};

constexpr uint32_t kRanks = 2, kRequests = 2;

struct Order {
  SlotUse use;
  bool save = false;
};
struct OneReport {
  SlotUse use;
  uint32_t rank = 0;
  bool copied = false;
};

// What may happen besides, and how often.
struct Budget {
  int aborts = 0, preemptions = 0, failed_copies = 0, failed_restores = 0, twice = 0, crashes = 0;
};

struct World {
  World(uint32_t slots, const std::vector<bool>& saves, const Budget& of)
      : machine(slots, kRanks), memory(slots), budget(of) {
    for (uint32_t i = 0; i < kRequests; ++i) requests[i].save = saves[i];
  }

  struct Rank {
    std::deque<Order> inbox;
    std::deque<OneReport> outbox;
    bool copying = false;  // The first of its inbox.
    bool alive = true, noticed = true;
  };
  struct Request {
    bool save = false, begun = false, over = false, told = false;
    SlotUse use;
  };
  // A slot's memory: the use whose rows each rank's part holds; 0: torn, or nothing.
  struct Memory {
    uint64_t parts[kRanks] = {};
    uint64_t restoring = 0, appending = 0;  // The use that writes to, or reads, all of it.
  };

  SlotMachine<TestedRules> machine;
  std::vector<Memory> memory;
  Rank ranks[kRanks];
  Request requests[kRequests];
  std::vector<OneReport> late;
  Budget budget;
  std::string violation;

  void Violates(const std::string& what) {
    if (violation.empty()) violation = what;
  }

  std::string Key() const {
    std::string key;
    const auto see = [&](uint64_t value) { key += static_cast<char>(value); };
    machine.Visit(see);
    for (const Memory& slot : memory) {
      for (const uint64_t part : slot.parts) see(part);
      see(slot.restoring);
      see(slot.appending);
    }
    for (const Rank& rank : ranks) {
      see(rank.inbox.size());
      for (const Order& order : rank.inbox) {
        see(order.use.slot);
        see(order.use.number * 2 + order.save);
      }
      see(rank.outbox.size());
      for (const OneReport& report : rank.outbox) {
        see(report.use.slot);
        see(report.use.number * 2 + report.copied);
      }
      see(rank.copying + 2 * rank.alive + 4 * rank.noticed);
    }
    for (const Request& request : requests) {
      see(request.begun + 2 * request.over + 4 * request.told);
      see(request.use.number);
    }
    see(late.size());
    for (const OneReport& report : late) {
      see(report.use.slot * 2 + report.rank);
      see(report.use.number * 2 + report.copied);
    }
    for (const int left : {budget.aborts, budget.preemptions, budget.failed_copies,
                           budget.failed_restores, budget.twice, budget.crashes}) {
      see(static_cast<uint64_t>(left));
    }
    return key;
  }

  // ---- the owner

  void Tell(Request* request) {
    request->told = true;
    for (Rank& rank : ranks) {
      if (rank.alive) rank.inbox.push_back({request->use, request->save});
    }
  }
  // Whether somebody may still touch the slot.
  bool IsTouched(uint32_t slot) const {
    if (memory[slot].restoring != 0 || memory[slot].appending != 0) return true;
    for (const Rank& rank : ranks) {
      for (const Order& order : rank.inbox) {
        if (order.use.slot == slot) return true;
      }
    }
    return false;
  }
  bool Begin(Request* request) {
    const auto use = machine.Begin(request->save ? SlotState::kFilling : SlotState::kRestoring);
    if (!use.ok()) return false;
    if (IsTouched(use->slot)) Violates("a slot is given while somebody may touch it");
    request->begun = true;
    request->told = false;
    request->use = *use;
    if (request->save) {
      Tell(request);
    } else {
      memory[use->slot].restoring = use->number;
      for (uint64_t& part : memory[use->slot].parts) part = 0;
    }
    return true;
  }
  void EndRestore(Request* request, bool restored) {
    Memory& slot = memory[request->use.slot];
    for (uint64_t& part : slot.parts) part = restored ? slot.restoring : 0;
    slot.restoring = 0;
    const auto tells = machine.EndRestore(request->use, restored);
    if (tells.ok() && *tells && !request->told) Tell(request);
  }
  void BeginAppend(Request* request) {
    if (!machine.BeginAppend(request->use).ok()) return Violates("a filled slot is refused");
    memory[request->use.slot].appending = request->use.number;
    CheckParts(request->use, "an append lacks a rank");
  }
  void EndAppend(uint32_t slot) {
    SlotUse use{slot, memory[slot].appending};
    CheckParts(use, "a slot changes while an append reads it");
    memory[slot].appending = 0;
    static_cast<void>(machine.EndAppend(use));
  }
  void CheckParts(const SlotUse& use, const char* what) {
    for (const uint64_t part : memory[use.slot].parts) {
      if (part != use.number) Violates(what);
    }
  }
  void Receive(const OneReport& report) {
    static_cast<void>(machine.Report(report.use, report.rank, report.copied));
  }
  // What follows at once from the machine's state.
  void Settle() {
    for (Request& request : requests) {
      if (!request.begun || request.over) continue;
      const auto state = machine.StateOf(request.use);
      if (!state.ok()) {
        request.over = true;
      } else if (*state == SlotState::kEmptying && !request.told) {
        Tell(&request);
      }
    }
  }

  // ---- a rank

  void BeginCopy(Rank* rank, uint32_t index) {
    rank->copying = true;
    const Order& order = rank->inbox.front();
    if (order.save) {
      memory[order.use.slot].parts[index] = 0;
    } else if (memory[order.use.slot].parts[index] != order.use.number) {
      // Harmless where the request is over: its blocks are dropped.
      const auto state = machine.StateOf(order.use);
      if (state.ok() && *state == SlotState::kEmptying) {
        Violates("a slot is read before it was written");
      }
    }
  }
  void EndCopy(Rank* rank, uint32_t index, bool copied) {
    const Order order = rank->inbox.front();
    rank->inbox.pop_front();
    rank->copying = false;
    if (order.save && copied) memory[order.use.slot].parts[index] = order.use.number;
    rank->outbox.push_back({order.use, index, copied});
  }
  void Crash(Rank* rank) {
    rank->inbox.clear();
    rank->copying = rank->alive = rank->noticed = false;
  }
};

// Explores all worlds that follow. The first violation, or none.
class Explorer {
 public:
  explicit Explorer(const World& first) { Push(first); }

  std::string Run() {
    while (!open_.empty() && violation_.empty()) {
      const World world = std::move(open_.back());
      open_.pop_back();
      ++seen_count_;
      Must(world);
      May(world);
    }
    return violation_;
  }
  size_t seen() const { return seen_count_; }

 private:
  void Push(World world) {
    world.Settle();
    if (!world.violation.empty()) violation_ = world.violation;
    if (seen_.insert(world.Key()).second) open_.push_back(std::move(world));
  }
  template <typename Change>
  void Try(const World& world, const Change& change) {
    World next = world;
    change(next);
    Push(std::move(next));
  }

  // What happens some time, whatever else does. A world in which nothing does is an end.
  void Must(const World& world) {
    bool ends = true;
    const auto go = [&](const auto& change) {
      ends = false;
      Try(world, change);
    };
    for (uint32_t i = 0; i < kRequests; ++i) {
      const World::Request& request = world.requests[i];
      if (!request.begun) {
        World next = world;
        if (next.Begin(&next.requests[i])) {
          ends = false;
          Push(std::move(next));
        }
        continue;
      }
      if (world.memory[request.use.slot].restoring == request.use.number && !request.save) {
        go([i](World& next) { next.EndRestore(&next.requests[i], true); });
      }
      const auto state = world.machine.StateOf(request.use);
      if (state.ok() && *state == SlotState::kFilled) {
        go([i](World& next) { next.BeginAppend(&next.requests[i]); });
      }
    }
    for (uint32_t slot = 0; slot < world.memory.size(); ++slot) {
      if (world.memory[slot].appending != 0) go([slot](World& next) { next.EndAppend(slot); });
    }
    for (uint32_t r = 0; r < kRanks; ++r) {
      const World::Rank& rank = world.ranks[r];
      if (!rank.inbox.empty()) {
        go([r](World& next) {
          World::Rank& of = next.ranks[r];
          of.copying ? next.EndCopy(&of, r, true) : next.BeginCopy(&of, r);
        });
      }
      if (!rank.outbox.empty()) {
        go([r](World& next) {
          const OneReport report = next.ranks[r].outbox.front();
          next.ranks[r].outbox.pop_front();
          next.Receive(report);
        });
      }
      if (!rank.alive && !rank.noticed) {
        go([r](World& next) {
          next.ranks[r].noticed = true;
          static_cast<void>(next.machine.RankGone(r));
        });
      }
      if (!rank.alive && rank.noticed) {
        go([r](World& next) {
          next.ranks[r] = {};
          static_cast<void>(next.machine.RankCame(r));
        });
      }
    }
    for (size_t i = 0; i < world.late.size(); ++i) {
      go([i](World& next) {
        const OneReport report = next.late[i];
        next.late.erase(next.late.begin() + static_cast<ptrdiff_t>(i));
        next.Receive(report);
      });
    }
    if (!ends) return;
    const SlotCounts counts = world.machine.Counts();
    if (counts.free != counts.slots) violation_ = "a slot is lost";
    for (const World::Request& request : world.requests) {
      if (!request.over) violation_ = "a request is never over";
    }
  }

  void May(const World& world) {
    for (uint32_t i = 0; i < kRequests; ++i) {
      const World::Request& request = world.requests[i];
      if (!request.begun || request.over) continue;
      if (world.budget.aborts > 0) {
        Try(world, [i](World& next) {
          --next.budget.aborts;
          static_cast<void>(next.machine.Leave(next.requests[i].use));
          next.requests[i].over = true;
        });
      }
      if (world.budget.preemptions > 0) {
        Try(world, [i](World& next) {
          --next.budget.preemptions;
          static_cast<void>(next.machine.Leave(next.requests[i].use));
          World::Memory& slot = next.memory[next.requests[i].use.slot];
          const bool restoring = slot.restoring == next.requests[i].use.number;
          // A restore ends in its own time; here at once, or never.
          if (restoring) next.EndRestore(&next.requests[i], true);
          next.requests[i].begun = next.requests[i].told = false;
        });
      }
      if (world.budget.failed_restores > 0 && !request.save &&
          world.memory[request.use.slot].restoring == request.use.number) {
        Try(world, [i](World& next) {
          --next.budget.failed_restores;
          next.EndRestore(&next.requests[i], false);
        });
      }
    }
    for (uint32_t r = 0; r < kRanks; ++r) {
      const World::Rank& rank = world.ranks[r];
      if (world.budget.failed_copies > 0 && rank.copying) {
        Try(world, [r](World& next) {
          --next.budget.failed_copies;
          next.EndCopy(&next.ranks[r], r, false);
        });
      }
      if (world.budget.twice > 0 && !rank.outbox.empty()) {
        Try(world, [r](World& next) {
          --next.budget.twice;
          next.late.push_back(next.ranks[r].outbox.front());
        });
      }
      if (world.budget.crashes > 0 && rank.alive) {
        Try(world, [r](World& next) {
          --next.budget.crashes;
          next.Crash(&next.ranks[r]);
        });
      }
    }
  }

  std::vector<World> open_;
  std::unordered_set<std::string> seen_;
  size_t seen_count_ = 0;
  std::string violation_;
};

struct Explored {
  std::string violation;
  size_t worlds = 0;
};

// Both kinds of requests, one slot and two; each budget alone with aborts, and some together.
Explored ExploreAll() {
  const Budget budgets[] = {{.aborts = 2, .preemptions = 1},
                            {.aborts = 1, .failed_copies = 1, .failed_restores = 1},
                            {.aborts = 1, .twice = 1},
                            {.aborts = 1, .crashes = 1},
                            {.preemptions = 1, .twice = 1, .crashes = 1}};
  Explored all;
  for (const uint32_t slots : {1U, 2U}) {
    for (const auto& saves : {std::vector{true, true}, {true, false}, {false, false}}) {
      for (const Budget& budget : budgets) {
        Explorer explorer(World(slots, saves, budget));
        all.violation = explorer.Run();
        all.worlds += explorer.seen();
        if (!all.violation.empty()) return all;
      }
    }
  }
  return all;
}

TEST(KvSlotsOrderTest, NoOrderBreaksAPromise) {
  removed = std::nullopt;
  const Explored all = ExploreAll();
  EXPECT_EQ(all.violation, "");
  EXPECT_GT(all.worlds, 50'000U);
  RecordProperty("worlds", std::to_string(all.worlds));
}

TEST(KvSlotsOrderTest, EachRuleThatIsLeftOutIsNoticed) {
  for (int i = 0; i <= static_cast<int>(SlotRule::kNoneWithoutRank); ++i) {
    removed = static_cast<SlotRule>(i);
    const Explored all = ExploreAll();
    EXPECT_NE(all.violation, "") << "rule " << i;
  }
  removed = std::nullopt;
}

}  // namespace
}  // namespace cairn::engine
