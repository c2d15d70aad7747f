// SPDX-License-Identifier: Apache-2.0
//
// Appends: what is checked before the commit lock is taken, which way a delta goes, and what its
// caller gets.
#include <algorithm>

#include "base/core/mutation.h"
#include "base/core/text.h"
#include "engine/commit/append_resolver.h"
#include "engine/tree/retention.h"

namespace cairn {

Result<std::shared_ptr<const ModelSpec>> StoreCore::CheckDelta(BranchId id, const Delta& delta,
                                                               const AppendOptions& options,
                                                               bool fill, bool* keeps_kv) {
  CAIRN_RETURN_IF_ERROR(CheckWritable(options));
  std::shared_ptr<const ModelSpec> model;
  {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadToChange(id, &lock));
    model = tree_.FindModel(head->model);
    if (keeps_kv != nullptr) *keeps_kv = delta.kv == nullptr || engine::KeepsKv(*head, options);
  }
  CAIRN_RETURN_IF_ERROR(engine::CheckShape(*model, delta, fill));
  if (!fill) CAIRN_RETURN_IF_ERROR(limits_.CheckFits(*model, delta));
  return model;
}

Status StoreCore::CheckExpected(const engine::Head& head, const Expected& expected) const {
  const uint64_t length = head.lengths[engine::kTokenLane];
  if (CAIRN_KEPT(kLengthExpected) && expected.length.has_value() && *expected.length != length) {
    return Status(StatusCode::kConflict, "expected_length is " + std::to_string(*expected.length) +
                                             ", the branch has " + std::to_string(length) +
                                             " tokens");
  }
  if (expected.version.has_value() && *expected.version != head.version) {
    return Status(StatusCode::kConflict,
                  "the branch changed after BeginAppend; what was Put may belong to other tokens");
  }
  return Status::Ok();
}

Result<StoreCore::Applied> StoreCore::AppendRecord(BranchId id, const Delta& delta,
                                                   const Expected& expected, const ModelSpec& model,
                                                   engine::RetryPolicy policy) {
  engine::DeltaPayload payload(model, delta, engine::DeltaWindow::Whole(delta),
                               engine::StatesOf(delta));
  AppendResolver append(this, id, delta, expected, &payload, nullptr);
  if (policy.busy != engine::RetryPolicy::Busy::kReturn) {
    policy.log_bytes = payload.bytes();
    space_.throttle().SlowDown(payload.bytes(), policy.deadline_ns);
  }
  const engine::Attempt ended = committer_.Commit(&append, policy);
  if (!ended.done()) return ended.status;
  return append.applied();
}

Result<uint64_t> StoreCore::AppendSync(BranchId id, const Delta& delta,
                                       const AppendOptions& options) {
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  const uint64_t deadline_ns = Deadline(options.timeout_ns);
  bool keeps_kv = true;
  CAIRN_ASSIGN_OR_RETURN(const auto model, CheckDelta(id, delta, options, false, &keeps_kv));
  CAIRN_RETURN_IF_ERROR(FlushJoinedWithRoom(id, deadline_ns));
  Delta kept = delta;
  if (!keeps_kv) kept.kv = nullptr;
  const Result<Applied> applied =
      AppendWithRoom(id, kept, {options.expected_length, {}}, *model, deadline_ns);
  if (!applied.ok()) return applied.status();
  CAIRN_RETURN_IF_ERROR(tickets_.WaitFor(applied->sequence, options.durability, deadline_ns));
  tickets_.RecordSave(started_ns);
  return applied->length;
}

Result<Ticket> StoreCore::Append(BranchId id, const Delta& delta, const AppendOptions& options,
                                 std::shared_ptr<void> keep, std::optional<uint64_t> version) {
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  const Expected expected{options.expected_length, version};
  bool keeps_kv = true;
  CAIRN_ASSIGN_OR_RETURN(auto model, CheckDelta(id, delta, options, false, &keeps_kv));
  Delta kept = delta;
  if (!keeps_kv) kept.kv = nullptr;
  if (options_.delta_batch_tokens > 1 && !version.has_value()) {
    if (auto ticket = AppendJoined(id, kept, options, model, !keeps_kv)) return std::move(*ticket);
  }
  if (const Status flushed = TryFlushJoined(id); !flushed.ok()) {
    return space_.asks().WhileRoomIsMade(id, 0, flushed);
  }
  const uint64_t bytes = engine::PayloadBytes(*model, kept);
  if (bytes > options_.submit_copy_max_bytes || !limits_.FitsRecord(*model, kept)) {
    return AppendBorrowed(id, kept, options, expected, std::move(model), std::move(keep),
                          !keeps_kv);
  }
  engine::NewTicket ticket = MakeTicket(options, started_ns);
  auto applied = AppendRecord(id, kept, expected, *model, {});
  if (applied.ok()) {
    applied->kv_shed = !keeps_kv;
    return tickets_.GiveToLog(std::move(ticket), *applied, options.durability);
  }
  if (options.overload == Overload::kShedKv) {
    return AppendShedding(id, kept, options, expected, applied.status());
  }
  return space_.asks().WhileRoomIsMade(id, bytes, applied.status());
}

Result<StoreCore::Applied> StoreCore::AppendWithRoom(BranchId id, const Delta& delta,
                                                     const Expected& expected,
                                                     const ModelSpec& model, uint64_t deadline_ns) {
  engine::RetryPolicy policy{.no_space = engine::RetryPolicy::NoSpace::kEvict,
                             .branch = id,
                             .room_bytes = engine::PayloadBytes(model, delta),
                             .deadline_ns = deadline_ns};
  if (limits_.FitsRecord(model, delta)) {
    policy.busy = engine::RetryPolicy::Busy::kAwaitLog;
    return AppendRecord(id, delta, expected, model, policy);
  }
  Applied applied;
  CAIRN_RETURN_IF_ERROR(committer_.Retrying(policy, [&]() -> engine::Attempt {
    const auto appended = AppendLarge(id, delta, expected, model, deadline_ns);
    if (!appended.ok()) return engine::Attempt::Refused(appended.status());
    applied = *appended;
    return {};
  }));
  return applied;
}

// Tokens are small enough to go where KV does not; and once KV was shed, later KV does not connect
// and is shed as well, until Fill closes the gap, where the group may have none.
Result<Ticket> StoreCore::AppendShedding(BranchId id, const Delta& delta,
                                         const AppendOptions& options, const Expected& expected,
                                         const Status& cause) {
  bool gap = false;
  if (delta.kv != nullptr) {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadToChange(id, &lock));
    const std::vector<LayerGroup>& groups = tree_.FindModel(head->model)->groups;
    for (const GroupView& view : delta.kv->groups) {
      gap |=
          view.position > head->lengths[1 + view.group] && !engine::MayHaveGaps(groups[view.group]);
    }
  }
  const bool full = cause.code() == StatusCode::kBusy || cause.code() == StatusCode::kNoSpace;
  if (delta.kv == nullptr || (!full && !gap)) return cause;
  Delta tokens_only = delta;
  tokens_only.kv = nullptr;
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  std::shared_ptr<const ModelSpec> model;
  CAIRN_ASSIGN_OR_RETURN(model, CheckDelta(id, tokens_only, options, false, nullptr));
  engine::NewTicket ticket = MakeTicket(options, started_ns);
  CAIRN_ASSIGN_OR_RETURN(Applied applied, AppendRecord(id, tokens_only, expected, *model, {}));
  counters_.kv_shed.fetch_add(1, std::memory_order_relaxed);
  applied.kv_shed = true;
  return tickets_.GiveToLog(std::move(ticket), applied, options.durability);
}

engine::NewTicket StoreCore::MakeTicket(const AppendOptions& options, uint64_t started_ns) {
  return tickets_.Make(options, started_ns, Deadline(options.timeout_ns),
                       std::shared_ptr<wal::Log>(shared_from_this(), log_.get()));
}

}  // namespace cairn
