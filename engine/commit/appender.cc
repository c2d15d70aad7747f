// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/appender.h"

#include <utility>
#include <vector>

#include "engine/commit/quota.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

Result<std::shared_ptr<const ModelSpec>> Appender::CheckDelta(BranchId id, const Delta& delta,
                                                              const AppendOptions& options,
                                                              bool fill, bool* keeps_kv) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckWritable(options));
  std::shared_ptr<const ModelSpec> model;
  {
    Committer::Lock lock(deps_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadToChange(id, &lock));
    model = deps_.tree().FindModel(head->model);
    if (keeps_kv != nullptr) *keeps_kv = delta.kv == nullptr || KeepsKv(*head, options);
  }
  CAIRN_RETURN_IF_ERROR(CheckShape(*model, delta, fill));
  if (options.gpu_ready != 0 && delta.kv != nullptr && delta.kv->memory == MemoryKind::kHost) {
    return Status(StatusCode::kInvalidArgument, "gpu_ready: the view is of host memory");
  }
  if (!fill) CAIRN_RETURN_IF_ERROR(deps_.limits->CheckFits(*model, delta));
  return model;
}

Result<Applied> Appender::AppendRecord(BranchId id, const Delta& delta, const Expected& expected,
                                       const ModelSpec& model, RetryPolicy policy) {
  DeltaPayload payload(model, delta, DeltaWindow::Whole(delta), StatesOf(delta));
  if (policy.busy != RetryPolicy::Busy::kReturn) {
    payload.Pack(PackingOf(deps_));  // A call that waits has the time.
    policy.log_bytes = payload.bytes();
    deps_.callbacks->SlowDown(payload.bytes(), policy.deadline_ns);
  }
  AppendResolver append(deps_, coalesced_, id, delta, expected, &payload, nullptr);
  const Attempt ended = deps_.committer->Commit(&append, policy);
  if (!ended.done()) return ended.status;
  return append.applied();
}

Result<uint64_t> Appender::AppendSync(BranchId id, const Delta& delta,
                                      const AppendOptions& options) {
  const uint64_t started_ns = deps_.world.scheduler->MonotonicNs();
  const uint64_t deadline_ns = deps_.lifecycle->Deadline(options.timeout_ns);
  bool keeps_kv = true;
  CAIRN_ASSIGN_OR_RETURN(const auto model, CheckDelta(id, delta, options, false, &keeps_kv));
  CAIRN_RETURN_IF_ERROR(coalesced_->FlushWithRoom(id, deadline_ns));
  Delta kept = delta;
  if (!keeps_kv) kept.kv = nullptr;
  const Result<Applied> applied =
      AppendWithRoom(id, kept, {options.expected_length, {}}, *model, options, deadline_ns);
  if (!applied.ok()) return applied.status();
  CAIRN_RETURN_IF_ERROR(deps_.tickets->WaitFor(applied->sequence, options.durability, deadline_ns));
  deps_.tickets->RecordSave(started_ns);
  return applied->length;
}

Result<Ticket> Appender::Append(BranchId id, const Delta& delta, const AppendOptions& options,
                                Drafted drafted) {
  const uint64_t started_ns = deps_.world.scheduler->MonotonicNs();
  const Expected expected{options.expected_length, drafted.version};
  bool keeps_kv = true;
  CAIRN_ASSIGN_OR_RETURN(auto model, CheckDelta(id, delta, options, false, &keeps_kv));
  Delta kept = delta;
  if (!keeps_kv) kept.kv = nullptr;
  if (deps_.options->delta_batch_tokens > 1 && !drafted.version.has_value() && !IsOnGpu(kept)) {
    if (auto ticket = coalesced_->Append(id, kept, options, model, !keeps_kv))
      return std::move(*ticket);
  }
  if (const Status flushed = coalesced_->TryFlush(id); !flushed.ok()) {
    return deps_.callbacks->WhileRoomIsMade(id, 0, flushed);
  }
  if (IsOnGpu(kept)) return PostFromGpu(id, kept, options, expected, model, !keeps_kv);
  const uint64_t bytes = PayloadBytes(*model, kept);
  if (bytes > deps_.options->submit_copy_max_bytes || !deps_.limits->FitsRecord(*model, kept) ||
      drafted.arrival.arrived != nullptr) {
    return large_.Post({.branch = id,
                        .delta = kept,
                        .expected = expected,
                        .model = std::move(model),
                        .owner = std::move(drafted.owner),
                        .kv_shed = !keeps_kv,
                        .source = {.arrival = std::move(drafted.arrival)}},
                       options);
  }
  NewTicket ticket = MakeTicket(deps_, options, started_ns);
  auto applied = AppendRecord(id, kept, expected, *model, {});
  if (applied.ok()) {
    applied->kv_shed = !keeps_kv;
    return deps_.tickets->GiveToLog(std::move(ticket), *applied, options.durability);
  }
  if (options.overload == Overload::kShedKv) {
    return AppendShedding(id, kept, options, expected, applied.status());
  }
  return deps_.callbacks->WhileRoomIsMade(id, bytes, applied.status());
}

Result<Applied> Appender::AppendWithRoom(BranchId id, const Delta& delta, const Expected& expected,
                                         const ModelSpec& model, const AppendOptions& options,
                                         uint64_t deadline_ns) {
  CAIRN_ASSIGN_OR_RETURN(const LargeAppends::Source source, OpenSource(model, delta, options));
  RetryPolicy policy{.no_space = RetryPolicy::NoSpace::kEvict,
                     .branch = id,
                     .room_bytes = PayloadBytes(model, delta),
                     .deadline_ns = deadline_ns};
  if (source.gpu == nullptr && deps_.limits->FitsRecord(model, delta)) {
    policy.busy = RetryPolicy::Busy::kAwaitLog;
    return AppendRecord(id, delta, expected, model, policy);
  }
  Applied applied;
  CAIRN_RETURN_IF_ERROR(deps_.committer->Retrying(policy, [&]() -> Attempt {
    const auto appended = large_.Append({.branch = id,
                                         .delta = delta,
                                         .expected = expected,
                                         .model = model,
                                         .deadline_ns = deadline_ns,
                                         .source = source.gpu == nullptr ? nullptr : &source});
    if (!appended.ok()) return Attempt::Refused(appended.status());
    applied = *appended;
    return {};
  }));
  return applied;
}

// Whether KV does not connect to the branch's: the KV before it was shed.
Result<bool> Appender::HasGap(BranchId id, const Delta& delta) {
  bool gap = false;
  if (delta.kv == nullptr) return gap;
  Committer::Lock lock(deps_.mutex());
  CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadToChange(id, &lock));
  const std::vector<LayerGroup>& groups = deps_.tree().FindModel(head->model)->groups;
  std::vector<uint64_t> ends = head->lengths;
  for (const GroupView& view : delta.kv->groups) {
    uint64_t& end = ends[1 + view.group];
    gap |= view.position > end && !MayHaveGaps(groups[view.group]);
    if (view.count != 0) end = view.position + view.count;
  }
  return gap;
}

// Tokens are small enough to be appended when KV is not. Once KV was shed, later KV does not
// connect and is shed as well, until Fill closes the gap, unless the group may have gaps.
Result<Ticket> Appender::AppendShedding(BranchId id, const Delta& delta,
                                        const AppendOptions& options, const Expected& expected,
                                        const Status& cause) {
  CAIRN_ASSIGN_OR_RETURN(const bool gap, HasGap(id, delta));
  const bool full = cause.code() == StatusCode::kBusy || cause.code() == StatusCode::kNoSpace;
  if (delta.kv == nullptr || (!full && !gap)) return cause;
  Delta tokens_only = delta;
  tokens_only.kv = nullptr;
  const uint64_t started_ns = deps_.world.scheduler->MonotonicNs();
  std::shared_ptr<const ModelSpec> model;
  CAIRN_ASSIGN_OR_RETURN(model, CheckDelta(id, tokens_only, options, false, nullptr));
  NewTicket ticket = MakeTicket(deps_, options, started_ns);
  CAIRN_ASSIGN_OR_RETURN(Applied applied, AppendRecord(id, tokens_only, expected, *model, {}));
  deps_.counters->kv_shed.fetch_add(1, std::memory_order_relaxed);
  applied.kv_shed = true;
  return deps_.tickets->GiveToLog(std::move(ticket), applied, options.durability);
}

}  // namespace cairn::engine
