// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_change.h"

#include <utility>

namespace cairn::engine {

Attempt ObjectChange::Prepare(Lock* lock) {
  CAIRN_RETURN_IF_ERROR(deps_.access->LoadToChange(needs_, lock));
  CAIRN_ASSIGN_OR_RETURN(decided_, decide_(deps_.tree()));
  return decided_.empty() ? Attempt::Nothing() : Attempt();
}

Status ObjectChange::Resolve(CommitOps* ops) {
  ops->Reserve(decided_.size());
  for (Op& op : decided_) {
    ops->Next().op = std::move(op);
    CAIRN_RETURN_IF_ERROR(ops->Add());
  }
  return Status::Ok();
}

Result<uint64_t> ObjectChange::Run(uint64_t deadline_ns) {
  const bool data = record_.purpose == wal::Log::Purpose::kData;
  const RetryPolicy policy{
      .busy = data ? RetryPolicy::Busy::kAwaitLog : RetryPolicy::Busy::kAwaitMemory,
      .no_space = data ? RetryPolicy::NoSpace::kEvict : RetryPolicy::NoSpace::kReclaim,
      .deadline_ns = deadline_ns};
  const Attempt ended = deps_.committer->Commit(this, policy);
  if (ended.kind == Attempt::Kind::kNothing) return deps_.log->last_reserved_sequence();
  if (!ended.done()) return ended.status;
  if (!data) deps_.callbacks->WakeSpaceThread();
  return sequence();
}

}  // namespace cairn::engine
