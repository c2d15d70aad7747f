// SPDX-License-Identifier: Apache-2.0
#include "engine/background/evictor.h"

#include <algorithm>
#include <map>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/background/trim.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

namespace {

// Touched objects that one pass skips. With more the pass would walk over all of them before
// anything is evicted.
constexpr uint64_t kSparedMax = 8 * kEvictAhead;

Status OnLease() { return Status(StatusCode::kNotFound, "what it holds is on lease"); }

}  // namespace

// Evicts the KV that only this branch needs, or drops the branch. A long path is evicted in steps
// that each fit a record. An object, which is nothing without its bytes, is dropped at once.
// `freed`: bytes, as namespaces count.
Status Evictor::EvictBranch(uint64_t branch, bool whole, uint64_t* freed) {
  TreeNeeds needs{.branches = {branch}, .nodes = {}, .names = {}};
  // Accepted appends are applied first; if that is impossible now, the branch is left alone.
  static_cast<void>(deps_.callbacks->ApplyCoalesced(BranchId{branch}));
  while (true) {
    EvictNeeds missing;
    uint64_t bytes = 0, died_before = 0;
    bool more = false;  // The path has more, for the next step.
    bool spared = false;
    std::string ns;
    const auto op = deps_.callbacks->Change(
        needs,
        [&](const Tree& tree) -> Result<Op> {
          const Head* const head = tree.FindHead(branch);
          const bool busy = head == nullptr || head->keep.pinned ||
                            deps_.committer->HasLargeAppend(BranchId{branch}) ||
                            deps_.callbacks->HasCoalesced(BranchId{branch}) ||
                            requests_->IsRequesting(BranchId{branch});
          if (busy) return Status(StatusCode::kNotFound, "dropped, pinned or written to by now");
          died_before = tree.sums().died_bytes();
          ns = head->ns;
          if (IsReserved(ns) && CAIRN_KEPT(kObjectWhole)) {
            if (IsLeasedAlone(tree, *head) && CAIRN_KEPT(kObjectLeased)) return OnLease();
            spared = spared_ < kSparedMax && deps_.callbacks->TakeTouched(*head) &&
                     CAIRN_KEPT(kObjectTouched);
            if (!spared) return ResolveDrop(tree, branch);
            tree_.MarkUsed(branch, deps_.callbacks->NowNs());  // To the end of the order.
            ++spared_;
            // No log record has that use, and until it is flushed the branch stays in memory.
            static_cast<void>(flusher_->BecomesDue(deps_.log->last_reserved_sequence()));
            return Status(StatusCode::kNotFound, "an object that was touched");
          }
          CAIRN_ASSIGN_OR_RETURN(Op evict,
                                 ResolveEvict(tree, branch, kSealedRangesAtOnce, &missing));
          if (missing.any()) return Status(StatusCode::kNotFound, "more must be known");
          more = evict.sealed.size() >= kSealedRangesAtOnce;
          bytes = EvictedBytes(tree, evict);
          if (whole && bytes == 0) {
            if (IsLeasedAlone(tree, *head)) return OnLease();
            return ResolveDrop(tree, branch);
          }
          if (evict.sealed.empty() && head->kv_evicted) {
            return Status(StatusCode::kNotFound, "nothing is left to take");
          }
          return evict;
        },
        wal::Log::Purpose::kRelease);
    if (missing.any()) {
      needs.branches.insert(needs.branches.end(), missing.branches.begin(), missing.branches.end());
      needs.nodes.insert(needs.nodes.end(), missing.nodes.begin(), missing.nodes.end());
      continue;
    }
    if (spared) return flusher_->FlushTreeIfDue();
    if (!op.ok()) return op.status().code() == StatusCode::kNotFound ? Status::Ok() : op.status();
    uint64_t kv_bytes = bytes;
    {
      std::lock_guard lock(mutex_);
      tree_.sums().CountEviction(ns);
    }
    if (op->kind == OpKind::kDrop) {
      deps_.counters->evicted_branches.fetch_add(1, std::memory_order_relaxed);
      CAIRN_RETURN_IF_ERROR(TrimNodes(deps_, flusher_));  // Trimming frees bytes, too.
      std::lock_guard lock(mutex_);
      const uint64_t died = tree_.sums().died_bytes() - died_before;
      if (IsReserved(ns)) kv_bytes = died;  // Nearly all that an object is.
      bytes = 1 + died;                     // Also an empty branch is progress.
    }
    deps_.counters->evicted_bytes.fetch_add(kv_bytes, std::memory_order_relaxed);
    *freed += bytes;
    if (!more) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(flusher_->FlushTreeIfDue());
    CAIRN_RETURN_IF_ERROR(deps_.rate_limiter->GoOn());
  }
}

bool IsOfOneBranch(const wal::Log& log, const Status& status) {
  const StatusCode code = status.code();
  return (code == StatusCode::kCorruption || code == StatusCode::kInvalidArgument ||
          code == StatusCode::kIoError) &&
         log.poisoned().ok();
}

// Evicts branches of these namespaces, in order, until this many bytes are free.
Status Evictor::EvictFrom(const std::vector<std::string>& namespaces, uint64_t goal_bytes,
                          uint64_t* freed) {
  using Evictable = TreeRecords::Evictable;
  // The order of eviction in one namespace, read ahead.
  struct Line {
    std::string ns;
    std::vector<Evictable> ahead{};
    size_t next = 0;
    bool ended = false;
  };
  // Objects that were skipped because they were touched get no third chance.
  spared_ = 0;
  for (const uint8_t round : {0, 1, 2}) {
    const uint8_t stage = round == 2 ? 1 : 0;
    if (round == 1 && spared_ == 0) continue;
    if (round != 0)
      CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());  // New candidates are in the order then.
    std::vector<Line> lines;
    {
      std::lock_guard lock(mutex_);
      for (const std::string& ns : namespaces) {
        if (requests_->EvictOf(ns) != Evict::kNever) lines.push_back({ns});
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
          CAIRN_ASSIGN_OR_RETURN(
              line.ahead, TreeRecords::ReadEvictable(*deps_.index, line.ns, from, kEvictAhead));
          line.next = 0;
          line.ended = line.ahead.size() < kEvictAhead;
        }
        if (line.next == line.ahead.size() || line.ahead[line.next].stage != stage) continue;
        if (first == nullptr || line.ahead[line.next] < first->ahead[first->next]) first = &line;
      }
      if (first == nullptr) break;
      const uint64_t branch = first->ahead[first->next++].branch;
      bool whole = false;
      {
        std::lock_guard lock(mutex_);
        whole = stage == 1 && requests_->EvictOf(first->ns) == Evict::kBranches;
      }
      if (Status status = EvictBranch(branch, whole, freed); !status.ok()) {
        if (!IsOfOneBranch(*deps_.log, status)) return status;
        deps_.round->KeepGoing(std::move(status));
      }
      CAIRN_RETURN_IF_ERROR(deps_.rate_limiter->GoOn());
    }
    if (*freed >= goal_bytes) return Status::Ok();
  }
  return Status::Ok();
}

// Bytes that come back without any eviction: dead bytes in tables, in segments that rest, and in
// the log except its current segment. Under the commit lock.
uint64_t Evictor::DeadBytes() const {
  uint64_t dead = 0, live = 0;
  for (const auto& [number, use] : tree_.tables()) {
    dead += use.sealed_bytes - std::min(use.sealed_bytes, use.live_bytes);
    live += use.live_bytes;
  }
  const uint64_t held = tree_.sums().held_bytes();  // By tables and log.
  const uint64_t live_in_log = held - std::min(held, live);
  const wal::Log::Counters log = deps_.log->counters();
  const uint64_t log_bytes = log.segment_bytes_live + log.segment_bytes_resting;
  const uint64_t given_back = log_bytes - std::min(log_bytes, deps_.options->segment_bytes);
  return dead + given_back - std::min(given_back, live_in_log);
}

Status Evictor::EvictAsNeeded(const SpaceRequests::QuotaRequests& requests, bool stuck,
                              bool* evicted, bool* made) {
  std::vector<std::string> all;
  std::map<std::string, uint64_t> wanted;
  uint64_t goal_bytes = 0;
  bool not_in_memory = false;  // Some have no policy, and are evicted from by the store's.
  const bool short_of_room = requests_->RoomIsShort();
  {
    std::lock_guard lock(mutex_);
    not_in_memory = deps_.options->evict != Evict::kNever && tree_.sums().unloaded() > 0;
    for (const auto& [name, use] : tree_.namespaces()) {
      if (requests_->EvictOf(use) == Evict::kNever) continue;
      all.push_back(name);
      const uint64_t cap = use.policy.max_bytes;
      const uint64_t begins = cap - cap / kEvictionBeginsShare;
      const uint64_t ends = cap - cap / kEvictionEndsShare;
      uint64_t goal = use.bytes > begins ? use.bytes - ends : 0;
      if (const auto of = requests.find(name); of != requests.end()) {
        for (const auto& [branch, request] : of->second) {
          const Head* const head = tree_.FindHead(branch);
          const bool served = head != nullptr && head->lengths[kTokenLane] != request.length;
          const uint64_t needed = use.bytes + request.bytes;
          *made |= served || needed <= cap;  // Since it was asked for.
          if (!served && needed > cap) goal = std::max(goal, needed - cap);
        }
      }
      if (goal > 0) wanted[name] = goal;
    }
    if (short_of_room) {
      const uint64_t used = deps_.ledger->used_bytes();
      const bool refused = requests_->AnyRefused();
      goal_bytes = deps_.options->max_bytes == UINT64_MAX
                       ? 0
                       : used - std::min(used, deps_.gauge->EvictionEnds());
      if (refused) goal_bytes = std::max(goal_bytes, used / kEvictionBeginsShare);
      goal_bytes -= std::min(goal_bytes, DeadBytes());
      // Dead bytes are of no help as long as they cannot be given back.
      if (refused && stuck) goal_bytes = std::max(goal_bytes, deps_.options->segment_bytes);
    }
  }
  if ((all.empty() && !not_in_memory) || (wanted.empty() && goal_bytes == 0)) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());  // The index then has the order.
  uint64_t freed = 0;
  for (const auto& [name, bytes] : wanted) {
    uint64_t freed_there = 0;
    CAIRN_RETURN_IF_ERROR(EvictFrom({name}, bytes, &freed_there));
    freed += freed_there;
  }
  if (freed < goal_bytes && not_in_memory) {
    CAIRN_ASSIGN_OR_RETURN(const auto in_index, TreeRecords::ReadNamespaces(*deps_.index));
    all.clear();
    for (const auto& [name, use] : in_index) all.push_back(name);
  }
  if (freed < goal_bytes) CAIRN_RETURN_IF_ERROR(EvictFrom(all, goal_bytes, &freed));
  *evicted = freed > 0;
  *made |= *evicted;
  return Status::Ok();
}

}  // namespace cairn::engine
