// SPDX-License-Identifier: Apache-2.0
//
// Eviction and expiry, on the space thread. Who goes is read from the index, in order
// (tree/tree_records.h, U and X), after a dump: so it costs no memory, however many branches there
// are. What happened to a branch since is seen when it is loaded.
//
// Eviction changes the tree by log records and nothing else; the space comes back as it always
// does, when tables die or are rewritten and log segments retire.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/store_core.h"

namespace cairn {

using engine::NamespaceUse;
using engine::Op;
using engine::Tree;
using engine::TreeRecords;

Evict StoreCore::EvictOf(const NamespaceUse& use) const {
  return use.policy.evict.value_or(options_.evict);
}

// ---------------------------------------------------------------- how much

// Under the commit lock.
bool StoreCore::SomethingMayGo() const {
  const Tree::Namespaces& all = tree_.namespaces();
  return std::any_of(all.begin(), all.end(),
                     [this](const auto& entry) { return EvictOf(entry.second) != Evict::kNever; });
}

// Something may go, and is wanted to: by who was refused, or because the cap is near.
bool StoreCore::RoomIsShort() {
  if (options_.max_bytes == UINT64_MAX && !room_is_wanted_.load()) return false;
  std::lock_guard lock(mutex_);
  if (!SomethingMayGo()) return false;
  return room_is_wanted_.load() || ledger_.used_bytes() > gauge_.EvictionBegins();
}

// ---------------------------------------------------------------- who

// One branch loses the KV that nobody else needs, or goes. A long path does so in steps, each of
// which fits a record. `freed`: bytes, as namespaces count.
Status StoreCore::EvictBranch(uint64_t branch, bool whole, uint64_t* freed) {
  engine::TreeNeeds needs{.branches = {branch}, .nodes = {}, .names = {}};
  // What was accepted is applied first; when that cannot be done now, the branch is left alone.
  static_cast<void>(TryFlushJoined(BranchId{branch}, /*stays_if_full=*/true));
  while (true) {
    Tree::Missing missing;
    uint64_t bytes = 0, died_before = 0;
    bool more = false;  // Of the path, for the next step.
    std::string ns;
    const auto op = Change(
        needs,
        [&](const Tree& tree) -> Result<Op> {
          const engine::Head* const head = tree.FindHead(branch);
          const bool busy =
              head == nullptr || head->keep.pinned || committer_.HasLargeAppend(BranchId{branch}) ||
              joined_.contains(BranchId{branch}) || asking_.contains(BranchId{branch});
          if (busy) return Status(StatusCode::kNotFound, "dropped, pinned or written to by now");
          died_before = tree.died_bytes();
          ns = head->ns;
          CAIRN_ASSIGN_OR_RETURN(Op evict,
                                 tree.ResolveEvict(branch, engine::kSealedRangesAtOnce, &missing));
          if (missing.any()) return Status(StatusCode::kNotFound, "more must be known");
          more = evict.sealed.size() >= engine::kSealedRangesAtOnce;
          bytes = tree.EvictedBytes(evict);
          if (whole && bytes == 0) return tree.ResolveDrop(branch);
          if (evict.sealed.empty() && head->kv_evicted) {
            return Status(StatusCode::kNotFound, "nothing is left to take");
          }
          return evict;
        },
        Durability::kMemory, wal::Log::Purpose::kRelease, /*waits_for_room=*/false);
    if (missing.any()) {
      needs.branches.insert(needs.branches.end(), missing.branches.begin(), missing.branches.end());
      needs.nodes.insert(needs.nodes.end(), missing.nodes.begin(), missing.nodes.end());
      continue;
    }
    if (!op.ok()) return op.status().code() == StatusCode::kNotFound ? Status::Ok() : op.status();
    space_counters_.evicted_bytes.fetch_add(bytes, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      tree_.NoteEviction(ns);
    }
    if (op->kind == engine::OpKind::kDrop) {
      space_counters_.evicted_branches.fetch_add(1, std::memory_order_relaxed);
      CAIRN_RETURN_IF_ERROR(CutLoose());  // That counts, too.
      std::lock_guard lock(mutex_);
      bytes = 1 + tree_.died_bytes() - died_before;  // Also an empty branch is progress.
    }
    *freed += bytes;
    if (!more) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(flusher_.DumpIfDue());
    CAIRN_RETURN_IF_ERROR(pacer_.GoOn());
  }
}

// What is wrong with one branch, or with what the index has of it, keeps no other from going.
bool StoreCore::IsOfOneBranch(const Status& status) const {
  const StatusCode code = status.code();
  return (code == StatusCode::kCorruption || code == StatusCode::kInvalidArgument ||
          code == StatusCode::kIoError) &&
         log_->poisoned().ok();
}

// Branches of these namespaces go, in order, until so many bytes are free.
Status StoreCore::EvictFrom(const std::vector<std::string>& namespaces, uint64_t goal_bytes,
                            uint64_t* freed) {
  using Evictable = TreeRecords::Evictable;
  // The order of one namespace, read ahead.
  struct Line {
    std::string ns;
    std::vector<Evictable> ahead{};
    size_t next = 0;
    bool ended = false;
  };
  for (const uint8_t stage : {uint8_t{0}, uint8_t{1}}) {
    if (stage == 1)
      CAIRN_RETURN_IF_ERROR(flusher_.Dump());  // Who came there just now is in the order.
    std::vector<Line> lines;
    {
      std::lock_guard lock(mutex_);
      for (const std::string& ns : namespaces) {
        const NamespaceUse* const use = tree_.FindNamespace(ns);
        if (use == nullptr || EvictOf(*use) == Evict::kNever) continue;
        lines.push_back({ns});
      }
    }
    while (*freed < goal_bytes) {
      Line* first = nullptr;
      for (Line& line : lines) {
        if (line.next == line.ahead.size() && !line.ended) {
          Evictable from{.stage = stage};
          if (!line.ahead.empty()) {
            from = line.ahead.back();
            ++from.branch;
          }
          CAIRN_ASSIGN_OR_RETURN(line.ahead, TreeRecords::ReadEvictable(*means_.index, line.ns,
                                                                        from, engine::kEvictAhead));
          line.next = 0;
          line.ended = line.ahead.size() < engine::kEvictAhead;
        }
        if (line.next == line.ahead.size() || line.ahead[line.next].stage != stage) continue;
        if (first == nullptr || line.ahead[line.next] < first->ahead[first->next]) first = &line;
      }
      if (first == nullptr) break;
      const uint64_t branch = first->ahead[first->next++].branch;
      bool whole = false;
      {
        std::lock_guard lock(mutex_);
        const NamespaceUse* const use = tree_.FindNamespace(first->ns);
        whole = stage == 1 && use != nullptr && EvictOf(*use) == Evict::kBranches;
      }
      if (Status status = EvictBranch(branch, whole, freed); !status.ok()) {
        if (!IsOfOneBranch(status)) return status;
        round_.KeepGoing(std::move(status));
      }
      CAIRN_RETURN_IF_ERROR(pacer_.GoOn());
    }
    if (*freed >= goal_bytes) return Status::Ok();
  }
  return Status::Ok();
}

// ---------------------------------------------------------------- when

// What comes back without anything going: what is dead in tables, and in the log but for the
// segment that is written to. Under the commit lock.
uint64_t StoreCore::DeadBytes() const {
  uint64_t dead = 0, live = 0;
  for (const auto& [number, use] : tree_.tables()) {
    dead += use.sealed_bytes - std::min(use.sealed_bytes, use.live_bytes);
    live += use.live_bytes;
  }
  uint64_t held = 0;  // By tables and log.
  for (const auto& [name, use] : tree_.namespaces()) held += use.bytes;
  const uint64_t live_in_log = held - std::min(held, live);
  const uint64_t log_bytes = log_->counters().segment_bytes_live;
  const uint64_t given_back = log_bytes - std::min(log_bytes, options_.segment_bytes);
  return dead + given_back - std::min(given_back, live_in_log);
}

// What is wanted of this pass: by namespaces beyond their cap, and by the store. Whose append came
// through since it asked needs nothing any more. `stuck`: nothing could be given back before it.
// `made`: there is room now for what was refused. `evicted`: something went.
Status StoreCore::EvictAsNeeded(const RoomAsks& asks, bool stuck, bool* evicted, bool* made) {
  std::vector<std::string> all;
  std::map<std::string, uint64_t> wanted;
  uint64_t goal_bytes = 0;
  const bool short_of_room = RoomIsShort();
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, use] : tree_.namespaces()) {
      if (EvictOf(use) == Evict::kNever) continue;
      all.push_back(name);
      const uint64_t cap = use.policy.max_bytes;
      const uint64_t begins = cap - cap / engine::kEvictionBeginsShare;
      const uint64_t ends = cap - cap / engine::kEvictionEndsShare;
      uint64_t goal = use.bytes > begins ? use.bytes - ends : 0;
      if (const auto of = asks.find(name); of != asks.end()) {
        for (const auto& [branch, ask] : of->second) {
          const engine::Head* const head = tree_.FindHead(branch);
          const bool served = head != nullptr && head->lengths[engine::kTokenLane] != ask.length;
          const uint64_t needed = use.bytes + ask.bytes;
          *made |= served || needed <= cap;  // Since it was asked for.
          if (!served && needed > cap) goal = std::max(goal, needed - cap);
        }
      }
      if (goal > 0) wanted[name] = goal;
    }
    if (short_of_room) {
      const uint64_t used = ledger_.used_bytes();
      const bool refused = room_is_wanted_.load();
      goal_bytes =
          options_.max_bytes == UINT64_MAX ? 0 : used - std::min(used, gauge_.EvictionEnds());
      if (refused) goal_bytes = std::max(goal_bytes, used / engine::kEvictionBeginsShare);
      goal_bytes -= std::min(goal_bytes, DeadBytes());
      // What is dead helps nobody as long as it cannot be given back.
      if (refused && stuck) goal_bytes = std::max(goal_bytes, options_.segment_bytes);
    }
  }
  if (all.empty() || (wanted.empty() && goal_bytes == 0)) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(flusher_.Dump());  // The index knows the order then.
  uint64_t freed = 0;
  for (const auto& [name, bytes] : wanted) {
    uint64_t freed_there = 0;
    CAIRN_RETURN_IF_ERROR(EvictFrom({name}, bytes, &freed_there));
    freed += freed_there;
  }
  if (freed < goal_bytes) CAIRN_RETURN_IF_ERROR(EvictFrom(all, goal_bytes, &freed));
  *evicted = freed > 0;
  *made |= *evicted;
  return Status::Ok();
}

// A use that is recorded for a time that is still to come, since the clock was ahead then, counts
// as one at the opening: else the branch would be the last to go, and expire, as much later as the
// clock was wrong. Once an opening, as NowNs does not jump.
Status StoreCore::CountFutureAsNow() {
  std::vector<std::string> namespaces;
  bool in_memory = false;
  {
    std::lock_guard lock(mutex_);
    const bool matters = SomethingMayGo() || tree_.expires_from_ns() != 0;
    if (future_counts_as_now_ || !matters || !CAIRN_KEPT(kFutureIsNow)) return Status::Ok();
    in_memory = tree_.AnyUsedAfter(NowNs());
    for (const auto& [ns, use] : tree_.namespaces()) namespaces.push_back(ns);
  }
  if (in_memory) CAIRN_RETURN_IF_ERROR(flusher_.Dump());  // Then the index tells of all.
  for (const std::string& ns : namespaces) {
    TreeRecords::Evictable from;
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(
          const std::vector<TreeRecords::Evictable> future,
          TreeRecords::ReadUsedAfter(*means_.index, ns, NowNs(), from, engine::kEvictAhead));
      if (future.empty()) break;
      // On from here, whatever became of these: in a damaged index a branch may stand elsewhere.
      from = future.back();
      ++from.branch;
      for (const auto& [stage, priority, used_at_ns, branch] : future) {
        Lock lock(mutex_);
        const Status loaded = access_.LoadToChange(BranchId{branch}, &lock).status();
        if (loaded.ok()) {
          tree_.NoteUsedBefore(branch, opened_wall_ns_);
        } else if (IsOfOneBranch(loaded)) {
          round_.KeepGoing(loaded);
        } else if (loaded.code() != StatusCode::kNotFound) {  // Dropped by now.
          return loaded;
        }
      }
      CAIRN_RETURN_IF_ERROR(flusher_.Dump());
    }
  }
  future_counts_as_now_ = true;
  return Status::Ok();
}

Status StoreCore::DropExpired() {
  const uint64_t now_ns = NowNs();
  {
    std::lock_guard lock(mutex_);
    const uint64_t from_ns = tree_.expires_from_ns();
    if (from_ns == 0 || now_ns < from_ns) return Status::Ok();
    tree_.SetExpiresFrom(0);  // What comes from here on tells of itself.
  }
  uint64_t next_ns = now_ns;  // If anything fails.
  const auto run = [&]() -> Status {
    size_t dropped = 1;
    while (dropped > 0) {
      dropped = 0;
      CAIRN_RETURN_IF_ERROR(flusher_.Dump());
      CAIRN_ASSIGN_OR_RETURN(
          const std::vector<uint64_t> expired,
          TreeRecords::ReadExpired(*means_.index, now_ns, engine::kEvictAhead, &next_ns));
      for (const uint64_t branch : expired) {
        // It is used, then.
        static_cast<void>(TryFlushJoined(BranchId{branch}, /*stays_if_full=*/true));
        const auto op = Change(
            {.branches = {branch}, .nodes = {}, .names = {}},
            [&](const Tree& tree) -> Result<Op> {
              const engine::Head* const head = tree.FindHead(branch);
              const uint64_t at_ns = head == nullptr ? 0 : head->expires_at_ns();
              if (at_ns == 0 || at_ns > now_ns || committer_.HasLargeAppend(BranchId{branch}) ||
                  joined_.contains(BranchId{branch})) {
                return Status(StatusCode::kNotFound, "dropped, or used by now");
              }
              return tree.ResolveDrop(branch);
            },
            Durability::kMemory, wal::Log::Purpose::kRelease, /*waits_for_room=*/false);
        if (op.ok()) {
          ++dropped;
        } else if (IsOfOneBranch(op.status())) {
          round_.KeepGoing(op.status());
        } else if (op.status().code() != StatusCode::kNotFound) {
          return op.status();
        }
      }
      space_counters_.expired_branches.fetch_add(dropped, std::memory_order_relaxed);
      if (expired.size() < engine::kEvictAhead) break;
    }
    return Status::Ok();
  };
  const Status status = run();
  std::lock_guard lock(mutex_);
  const uint64_t known_ns = tree_.expires_from_ns();
  // Whoever could not go now is looked at again soon.
  if (next_ns != 0 && (known_ns == 0 || next_ns < known_ns)) tree_.SetExpiresFrom(next_ns);
  return status;
}

// When the space thread is to look again though nobody kicks it; on the monotonic clock.
uint64_t StoreCore::NextExpiry() {
  uint64_t at_ns = 0;
  {
    std::lock_guard lock(mutex_);
    at_ns = tree_.expires_from_ns();
    expiry_seen_ns_ = at_ns;
  }
  if (at_ns == 0) return io::kNoDeadline;
  const uint64_t now_ns = NowNs();
  const uint64_t wait_ns = std::max(at_ns - std::min(at_ns, now_ns), engine::kExpiryStepNs);
  const uint64_t from_ns = world_.scheduler->MonotonicNs();
  return wait_ns > io::kNoDeadline - from_ns ? io::kNoDeadline : from_ns + wait_ns;
}

// ---------------------------------------------------------------- who waits for it

// An append of `bytes`, or a change, was refused. Ok: room was made, or may have been; try again.
// `id`: whom it is about, if that is there already.
Status StoreCore::MakeRoom(std::optional<BranchId> id, uint64_t bytes, const Status& refusal,
                           uint64_t deadline_ns) {
  // Whoever waits here does not pay with what it is about to continue.
  struct Asking {
    StoreCore* core;
    std::optional<BranchId> id;
    Asking(StoreCore* core_in, std::optional<BranchId> id_in) : core(core_in), id(id_in) {
      if (!id.has_value()) return;
      std::lock_guard lock(core->mutex_);
      core->asking_.insert(*id);
    }
    ~Asking() {
      if (!id.has_value()) return;
      std::lock_guard lock(core->mutex_);
      core->asking_.erase(core->asking_.find(*id));
    }
  } asking{this, id};
  CAIRN_ASSIGN_OR_RETURN(const AskedRoom asked, AskForRoom(id, bytes, refusal, /*waits=*/true));
  while (true) {
    const uint32_t seen = signals_.rounds();
    CAIRN_ASSIGN_OR_RETURN(const Asked outcome, OutcomeOf(id, asked));
    if (outcome == Asked::kInVain) return refusal;
    if (outcome == Asked::kMade) break;
    CAIRN_RETURN_IF_ERROR(CheckWritable());
    CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
    if (!signals_.AwaitRound(seen, deadline_ns)) {
      return Status(StatusCode::kDeadlineExceeded,
                    "room was not made in time: " + std::string(refusal.message()));
    }
  }
  log_->SpaceWasFreed();
  return Status::Ok();
}

// For whoever does not wait: kBusy when a refusal for want of room may be another one soon.
Status StoreCore::WhileRoomIsMade(BranchId id, uint64_t bytes, const Status& refusal) {
  if (refusal.code() != StatusCode::kNoSpace) return refusal;
  // When as much was asked for before, and in vain, that is told; the next call asks anew.
  Asked outcome = Asked::kMade;
  std::optional<AskedRoom> before;
  {
    std::lock_guard lock(space_mutex_);
    const auto found = busy_asks_.find(id);
    if (found != busy_asks_.end() && found->second.call_bytes <= bytes) before = found->second;
  }
  if (before.has_value()) {
    const Result<Asked> known = OutcomeOf(id, *before);
    if (known.status().code() == StatusCode::kNotFound) return refusal;
    CAIRN_RETURN_IF_ERROR(known.status());
    outcome = *known;
  }
  if (outcome == Asked::kMade) {
    const Result<AskedRoom> asked = AskForRoom(id, bytes, refusal, /*waits=*/false);
    // The call itself would have made it.
    if (asked.status().code() == StatusCode::kNotFound) return refusal;
    CAIRN_RETURN_IF_ERROR(asked.status());
    std::lock_guard lock(space_mutex_);
    if (busy_asks_.size() >= engine::kBusyAsksMax) busy_asks_.clear();
    busy_asks_[id] = *asked;
  } else if (outcome == Asked::kInVain) {
    std::lock_guard lock(space_mutex_);
    busy_asks_.erase(id);
    return refusal;
  }
  return Status(StatusCode::kBusy, "room is being made: " + std::string(refusal.message()));
}

// A release needs nobody's leave: it waits when even the ballast is used up, while the space thread
// gives back what others released, and is refused when that leaves no room.
Status StoreCore::AwaitReclaim(const Status& refusal, std::optional<uint32_t>* first_round) {
  const uint32_t now = signals_.rounds();
  if (!first_round->has_value()) *first_round = now;
  CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
  // The one that is under way may have missed something, the next will not have.
  if (now - **first_round >= 2 || pacer_.stopped()) return refusal;
  KickSpace();
  signals_.AwaitRound(now, world_.scheduler->MonotonicNs() + engine::kRoomLookAgainNs);
  return Status::Ok();
}

// Nobody makes room then, and whoever waited for it might be the one to resume.
Status StoreCore::RefusedWhilePaused(const Status& refusal) const {
  return pacer_.paused() ? refusal.WithContext("the background is paused") : Status::Ok();
}

// What came of it.
Result<StoreCore::Asked> StoreCore::OutcomeOf(std::optional<BranchId> id, const AskedRoom& asked) {
  bool made = false;
  {
    std::lock_guard lock(space_mutex_);
    if (room_passes_done_ < asked.pass) return Asked::kPending;
    // What came and went by itself, such as a table of the index, is no room.
    const uint64_t needed =
        IsIngested(asked.call_bytes) ? asked.call_bytes : options_.segment_bytes;
    made = room_made_for_ >= asked.pass ||
           (ledger_.used_bytes() < asked.used_bytes && ledger_.room(wal::Purpose::kData) >= needed);
  }
  if (id.has_value()) {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadBranch(*id, &lock));
    const NamespaceUse& use = *head->use;
    // A quota has no more room for what the store gives back.
    if (asked.by_quota) {
      made =
          use.evictions != asked.evictions || use.bytes + asked.ask.bytes <= use.policy.max_bytes;
    }
    made |= head->lengths[engine::kTokenLane] != asked.ask.length;
  }
  return made ? Asked::kMade : Asked::kInVain;
}

// Tells the space thread what is wanted; the refusal when nothing may go. Does not wait.
Result<StoreCore::AskedRoom> StoreCore::AskForRoom(std::optional<BranchId> id, uint64_t bytes,
                                                   const Status& refusal, bool waits) {
  std::string ns;
  AskedRoom asked{.call_bytes = bytes, .used_bytes = ledger_.used_bytes()};
  {
    Lock lock(mutex_);
    bool allowed = SomethingMayGo();
    if (id.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadBranch(*id, &lock));
      const NamespaceUse& use = *head->use;
      asked.by_quota = refusal.reason() == StatusReason::kNamespaceQuota;
      if (asked.by_quota) {
        // A table may hold more than the bytes given, what waits to be joined takes room as well,
        // and of a batch something may be for other namespaces.
        const uint64_t more = use.refused_bytes - std::min(use.refused_bytes, use.bytes);
        allowed = EvictOf(use) != Evict::kNever && std::min(bytes, more) <= use.policy.max_bytes;
        bytes = more;
      }
      ns = head->ns;
      asked.ask = {.bytes = bytes, .length = head->lengths[engine::kTokenLane]};
      asked.evictions = use.evictions;
    }
    // What the log could never hold is not evicted for.
    if (!asked.by_quota && !IsIngested(bytes)) allowed &= bytes <= gauge_.LogBytesAtMost();
    if (!allowed) return refusal;
  }
  if (waits) CAIRN_RETURN_IF_ERROR(RefusedWhilePaused(refusal));
  {
    std::lock_guard lock(space_mutex_);
    if (asked.by_quota) {
      RoomAsk& ask = room_in_[ns][static_cast<uint64_t>(*id)];
      const uint64_t before = ask.length == asked.ask.length ? ask.bytes : 0;
      ask = {.bytes = std::max(before, asked.ask.bytes), .length = asked.ask.length};
    } else {
      room_is_wanted_.store(true);
    }
    asked.pass = ++room_passes_wanted_;
  }
  KickSpace();
  return asked;
}

}  // namespace cairn
