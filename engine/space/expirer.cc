// SPDX-License-Identifier: Apache-2.0
#include "engine/space/expirer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/constants.h"
#include "engine/space/evictor.h"
#include "engine/tree/decisions.h"
#include "engine/tree/liveness.h"
#include "engine/tree/tree_records.h"

namespace cairn::engine {

using Lock = Committer::Lock;

// A use that is recorded for a future time, because the clock was ahead then, counts as one at the
// opening. Otherwise the branch would be the last to be evicted, and would expire as much later as
// the clock was wrong. Once an opening, as NowNs does not jump.
Status Expirer::CountFutureAsNow() {
  std::vector<std::string> namespaces;
  bool in_memory = false;
  {
    std::lock_guard lock(mutex_);
    const bool matters = requests_->SomethingMayGo() || tree_.sums().expires_from_ns() != 0;
    if (counted_ || !matters || !CAIRN_KEPT(kFutureIsNow)) return Status::Ok();
    in_memory = tree_.residency().AnyUsedAfter(means_.host->NowNs());
    for (const auto& [ns, use] : tree_.namespaces()) namespaces.push_back(ns);
  }
  if (in_memory) CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());  // The index then has all of them.
  for (const std::string& ns : namespaces) {
    TreeRecords::Evictable from;
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(
          const std::vector<TreeRecords::Evictable> future,
          TreeRecords::ReadUsedAfter(*means_.index, ns, means_.host->NowNs(), from, kEvictAhead));
      if (future.empty()) break;
      // Continue from here whatever happened to these: in a damaged index a branch may stand
      // elsewhere.
      from = future.back();
      ++from.branch;
      for (const auto& [stage, priority, used_at_ns, branch] : future) {
        Lock lock(mutex_);
        const Status loaded = means_.access->LoadToChange(BranchId{branch}, &lock).status();
        if (loaded.ok()) {
          tree_.MarkUsedBefore(branch, means_.host->opened_wall_ns());
        } else if (IsOfOneBranch(*means_.log, loaded)) {
          means_.round->KeepGoing(loaded);
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

Status Expirer::DropExpired() {
  const uint64_t now_ns = means_.host->NowNs();
  {
    std::lock_guard lock(mutex_);
    const uint64_t from_ns = tree_.sums().expires_from_ns();
    if (from_ns == 0 || now_ns < from_ns) return Status::Ok();
    tree_.sums().SetExpiresFrom(0);  // Later ones set it themselves.
  }
  uint64_t next_ns = now_ns;  // If anything fails.
  bool leased = false;
  const auto run = [&]() -> Status {
    TreeRecords::Expiring from;  // Continue behind it: leased or damaged ones stay.
    while (true) {
      size_t dropped = 0;
      CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());
      CAIRN_ASSIGN_OR_RETURN(
          const std::vector<TreeRecords::Expiring> expired,
          TreeRecords::ReadExpired(*means_.index, now_ns, from, kEvictAhead, &next_ns));
      for (const auto& [due_ns, branch] : expired) {
        from = {due_ns, branch + 1};
        // It is in use, then.
        static_cast<void>(means_.host->ApplyCoalesced(BranchId{branch}));
        const auto op = means_.host->Change(
            {.branches = {branch}, .nodes = {}, .names = {}},
            [&](const Tree& tree) -> Result<Op> {
              const Head* const head = tree.FindHead(branch);
              const uint64_t at_ns = head == nullptr ? 0 : head->expires_at_ns();
              if (at_ns == 0 || at_ns > now_ns ||
                  means_.committer->HasLargeAppend(BranchId{branch}) ||
                  means_.host->HasCoalesced(BranchId{branch})) {
                return Status(StatusCode::kNotFound, "dropped, or used by now");
              }
              if (IsLeasedAlone(tree, *head)) {
                leased = true;
                return Status(StatusCode::kNotFound, "what it holds is on lease");
              }
              return ResolveDrop(tree, branch);
            },
            wal::Log::Purpose::kRelease);
        if (op.ok()) {
          ++dropped;
        } else if (IsOfOneBranch(*means_.log, op.status())) {
          means_.round->KeepGoing(op.status());
        } else if (op.status().code() != StatusCode::kNotFound) {
          return op.status();
        }
      }
      means_.counters->expired_branches.fetch_add(dropped, std::memory_order_relaxed);
      if (expired.size() < kEvictAhead) break;
    }
    return Status::Ok();
  };
  const Status status = run();
  // Leases end by themselves, without a signal.
  const uint64_t again_ns = now_ns + kExpiryStepNs;
  if (leased) next_ns = next_ns == 0 ? again_ns : std::min(next_ns, again_ns);
  std::lock_guard lock(mutex_);
  const uint64_t known_ns = tree_.sums().expires_from_ns();
  // Branches that could not be dropped now are tried again soon.
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
  const uint64_t now_ns = means_.host->NowNs();
  const uint64_t wait_ns = std::max(at_ns - std::min(at_ns, now_ns), kExpiryStepNs);
  const uint64_t from_ns = means_.world.scheduler->MonotonicNs();
  return wait_ns > io::kNoDeadline - from_ns ? io::kNoDeadline : from_ns + wait_ns;
}

bool Expirer::BecomesDue() {
  const uint64_t expires_ns = tree_.sums().expires_from_ns();
  if (expires_ns == 0 || (seen_ns_ != 0 && expires_ns >= seen_ns_)) return false;
  seen_ns_ = expires_ns;
  return true;
}

}  // namespace cairn::engine
