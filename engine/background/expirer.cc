// SPDX-License-Identifier: Apache-2.0
#include "engine/background/expirer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/background/evictor.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

using Lock = Committer::Lock;

// A use that is recorded for a future time, because the clock was ahead then, counts as one at the
// opening. Otherwise the branch would be the last to be evicted, and would expire later by the
// error of the clock. Once an opening, as NowNs does not jump.
Status Expirer::CountFutureAsNow() {
  bool in_memory = false;
  {
    std::lock_guard lock(mutex_);
    const bool matters = requests_->SomethingMayGo() || tree_.sums().expires_from_ns() != 0;
    if (counted_ || !matters || !CAIRN_KEPT(kFutureIsNow)) return Status::Ok();
    in_memory = tree_.residency().AnyUsedAfter(deps_.callbacks->NowNs());
  }
  if (in_memory) CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());  // The index then has all of them.
  CAIRN_ASSIGN_OR_RETURN(const auto namespaces, TreeRecords::ReadNamespaces(*deps_.index));
  for (const auto& [ns, use] : namespaces) {
    TreeRecords::Evictable from;
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<TreeRecords::Evictable> future,
                             TreeRecords::ReadUsedAfter(*deps_.index, ns, deps_.callbacks->NowNs(),
                                                        from, kEvictAhead));
      if (future.empty()) break;
      // Continue from here whatever happened to these: in a damaged index a branch may stand
      // elsewhere.
      from = future.back();
      ++from.branch;
      for (const auto& [stage, priority, used_at_ns, branch] : future) {
        Lock lock(mutex_);
        const Status loaded = deps_.access->LoadToChange(BranchId{branch}, &lock).status();
        if (loaded.ok()) {
          tree_.MarkUsedBefore(branch, deps_.callbacks->opened_wall_ns());
        } else if (IsOfOneBranch(*deps_.log, loaded)) {
          deps_.round->KeepGoing(loaded);
        } else if (loaded.code() != StatusCode::kNotFound) {  // Dropped by now.
          return loaded;
        }
      }
      CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());
    }
  }
  counted_ = true;
  return Status::Ok();
}

// Returns whether a branch that is due by its last use is not due yet, as the store was opened
// since.
bool Expirer::Stays(uint64_t branch, uint64_t now_ns) {
  Lock lock(mutex_);
  const auto head = deps_.access->LoadBranch(BranchId{branch}, &lock);
  if (!head.ok()) return false;  // The drop reports the error.
  const uint64_t at_ns = DueAt(**head);
  if (at_ns != 0 && at_ns <= now_ns) return false;
  if (at_ns != 0) LookAgainAt(at_ns);
  return true;
}

uint64_t Expirer::DueAt(const Head& head) const {
  const uint64_t opened_ns = CAIRN_KEPT(kTtlFromOpening) ? deps_.callbacks->opened_wall_ns() : 0;
  return ExpiryOf(head.keep, std::max(head.used_at_ns, opened_ns));
}

void Expirer::LookAgainAt(uint64_t at_ns) {
  stays_until_ns_ = stays_until_ns_ == 0 ? at_ns : std::min(stays_until_ns_, at_ns);
}

// Ok also if it was not dropped, for a reason that is its own.
Status Expirer::DropDue(uint64_t branch, uint64_t now_ns) {
  if (Stays(branch, now_ns)) return Status::Ok();
  // It is in use, then.
  static_cast<void>(deps_.callbacks->ApplyCoalesced(BranchId{branch}));
  bool leased = false;
  const auto op = deps_.callbacks->Change(
      {.branches = {branch}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<Op> {
        const Head* const head = tree.FindHead(branch);
        const uint64_t at_ns = head == nullptr ? 0 : DueAt(*head);
        if (at_ns == 0 || at_ns > now_ns || deps_.committer->HasLargeAppend(BranchId{branch}) ||
            deps_.callbacks->HasCoalesced(BranchId{branch})) {
          return Status(StatusCode::kNotFound, "dropped, or used by now");
        }
        leased = IsLeasedAlone(tree, *head);
        if (leased) return Status(StatusCode::kNotFound, "what it holds is on lease");
        return ResolveDrop(tree, branch);
      },
      wal::Log::Purpose::kRelease);
  // Leases run out without a signal.
  if (leased) LookAgainAt(now_ns + kExpiryStepNs);
  if (op.ok()) {
    deps_.counters->expired_branches.fetch_add(1, std::memory_order_relaxed);
  } else if (IsOfOneBranch(*deps_.log, op.status())) {
    deps_.round->KeepGoing(op.status());
  } else if (op.status().code() != StatusCode::kNotFound) {
    return op.status();
  }
  return Status::Ok();
}

// `next_ns`: when the next one behind these is due.
Status Expirer::DropDueFrom(TreeRecords::Expiring from, uint64_t now_ns, uint64_t* next_ns) {
  while (true) {
    CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());
    CAIRN_ASSIGN_OR_RETURN(
        const std::vector<TreeRecords::Expiring> expired,
        TreeRecords::ReadExpired(*deps_.index, now_ns, from, kEvictAhead, next_ns));
    for (const auto& [due_ns, branch] : expired) {
      from = {due_ns, branch + 1};  // Leased or damaged ones stay.
      CAIRN_RETURN_IF_ERROR(DropDue(branch, now_ns));
    }
    if (expired.size() < kEvictAhead) return Status::Ok();
  }
}

Status Expirer::DropExpired() {
  const uint64_t now_ns = deps_.callbacks->NowNs();
  uint64_t from_ns = 0;
  {
    std::lock_guard lock(mutex_);
    from_ns = tree_.sums().expires_from_ns();
    if (from_ns == 0 || now_ns < from_ns) return Status::Ok();
    tree_.sums().SetExpiresFrom(0);  // Later ones set it themselves.
  }
  TreeRecords::Expiring from;
  if (from_ns > stays_to_ns_ && now_ns < stays_until_ns_) {
    from.at_ns = stays_to_ns_ + 1;
  } else {
    stays_until_ns_ = 0;  // All of it is looked at again.
  }
  uint64_t next_ns = 0;
  const Status status = DropDueFrom(from, now_ns, &next_ns);
  if (status.ok()) {
    stays_to_ns_ = now_ns;
    if (stays_until_ns_ != 0) {
      next_ns = next_ns == 0 ? stays_until_ns_ : std::min(next_ns, stays_until_ns_);
    }
  } else {  // Those that could not be dropped now are tried again soon.
    stays_to_ns_ = stays_until_ns_ = 0;
    next_ns = now_ns;
  }
  std::lock_guard lock(mutex_);
  const uint64_t known_ns = tree_.sums().expires_from_ns();
  if (next_ns != 0 && (known_ns == 0 || next_ns < known_ns)) tree_.sums().SetExpiresFrom(next_ns);
  return status;
}

uint64_t Expirer::NextExpiry() {
  uint64_t at_ns = 0;
  {
    std::lock_guard lock(mutex_);
    at_ns = tree_.sums().expires_from_ns();
    seen_ns_ = at_ns;
  }
  if (at_ns == 0) return io::kNoDeadline;
  const uint64_t now_ns = deps_.callbacks->NowNs();
  const uint64_t wait_ns = std::max(at_ns - std::min(at_ns, now_ns), kExpiryStepNs);
  const uint64_t from_ns = deps_.world.scheduler->MonotonicNs();
  return wait_ns > io::kNoDeadline - from_ns ? io::kNoDeadline : from_ns + wait_ns;
}

bool Expirer::BecomesDue() {
  const uint64_t expires_ns = tree_.sums().expires_from_ns();
  if (expires_ns == 0 || (seen_ns_ != 0 && expires_ns >= seen_ns_)) return false;
  seen_ns_ = expires_ns;
  return true;
}

}  // namespace cairn::engine
