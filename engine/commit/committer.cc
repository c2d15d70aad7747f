// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/committer.h"

#include <utility>

#include "base/core/check.h"

namespace cairn::engine {

// ---------------------------------------------------------------- the one path

Attempt Committer::Commit(Resolver* resolver, const RetryPolicy& policy) {
  Retry retry(this, policy);
  while (true) {
    Attempt ended = Try(resolver);
    if (!Retry::MayFollow(ended)) return ended;
    resolver->OnRefused(ended.status);
    if (Status status = retry.Await(ended); !status.ok()) {
      ended.status = std::move(status);
      return ended;
    }
  }
}

Attempt Committer::Try(Resolver* resolver) {
  resolver->now_ns_ = callbacks_->NowNs();
  {
    Lock lock(mutex_);
    Attempt prepared = resolver->Prepare(&lock);
    if (!prepared.done()) return prepared;
    Attempt committed = CommitLocked(resolver);
    if (!committed.done()) return committed;
  }
  Publish(resolver);
  return Attempt();
}

Attempt Committer::CommitLocked(Resolver* resolver) {
  CAIRN_CHECK(log_ != nullptr);
  FieldWriter batch_fields;  // May be large, and is not kept.
  if (resolver->now_ns_ == 0) resolver->now_ns_ = callbacks_->NowNs();
  if (!large_appends_.empty()) {
    const std::optional<BranchId> branch = resolver->free_branch();
    if (branch.has_value() && HasLargeAppend(*branch)) return Attempt::Held(LargeAppendUnderWay());
  }
  std::vector<CommittedOp>& ops = resolver->committed_;
  ops.clear();
  FieldWriter* const fields = resolver->record_.batch ? &batch_fields : &record_fields_;
  fields->Clear();
  const RollbackUnlessCommitted rollback{&transaction_};
  tree_.leases().Expire(resolver->now_ns_);
  CommitOps pending(&tree_, &tree_changes_, fields, &op_fields_, resolver);
  CAIRN_RETURN_IF_ERROR(resolver->Resolve(&pending));
  CAIRN_CHECK(!ops.empty());
  if (Status full = resolver->CheckQuotas(); !full.ok()) return Attempt::Refused(std::move(full));
  const OpKind kind = resolver->record_.batch ? OpKind::kBatch : ops.front().op.kind;
  auto reserved = Reserve(*resolver, kind, *fields);
  if (!reserved.ok()) {
    callbacks_->OnRefused(reserved.status());
    return Attempt::Refused(reserved.status());
  }
  // Nothing is allocated, and nothing fails, from here on.
  wal::Log::Slot& slot = resolver->slot_;
  slot = std::move(*reserved);
  CAIRN_CHECK(slot.group != nullptr);
  CAIRN_CHECK(slot.sequence == log_->last_reserved_sequence());  // The lock orders all of them.
  callbacks_->OnLogged(slot, resolver->record_.origin);
  const uint64_t token_bytes = resolver->record_.token_strip_bytes;
  const auto header_bytes = static_cast<uint32_t>(slot.payload - slot.record);
  CAIRN_CHECK(header_bytes <= slot.location.bytes);
  CAIRN_CHECK(token_bytes <= slot.location.bytes - header_bytes);
  transaction_.Commit(slot.location, token_bytes == 0
                                         ? slot.location.bytes
                                         : header_bytes + static_cast<uint32_t>(token_bytes));
  for (CommittedOp& op : ops) {
    op.sequence = slot.sequence;
    OnCommittedOp(op);
  }
  resolver->OnPlaced();
  return Attempt();
}

void Committer::Publish(Resolver* resolver) {
  resolver->Publish(log_);
  CAIRN_CHECK(resolver->slot_.group == nullptr);  // Else the log would wait for it for ever.
  for (CommitObserver* const observer : in_any_order_) {
    for (const CommittedOp& op : resolver->committed_) {
      if (op.op.kind != OpKind::kPart) observer->OnCommitted(op);
    }
  }
}

CommittedOp& CommitOps::Next() {
  CAIRN_CHECK(resolver_->record_.batch || resolver_->committed_.empty());
  CommittedOp& op = resolver_->committed_.emplace_back();
  op.origin = resolver_->record_.origin;
  return op;
}

Status CommitOps::Add() {
  CAIRN_CHECK(!resolver_->committed_.empty());
  CommittedOp& added = resolver_->committed_.back();
  Op& op = added.op;
  if (op.kind != OpKind::kPart) {
    op.time_ns = resolver_->now_ns_;
    added.node = NodeOf(*tree_, op);
    if (op.kind == OpKind::kRewind) {
      added.length_before = tree_->FindHead(op.branch)->lengths[kTokenLane];
    }
    CAIRN_RETURN_IF_ERROR(changes_->Apply(op, added.parts));
    if (op.kind == OpKind::kRewind || op.kind == OpKind::kFork) added.length = op.position;
    if (op.kind == OpKind::kAppend) {
      added.length_before = op.position;
      added.length = tree_->FindHead(op.branch)->lengths[kTokenLane];
      CAIRN_CHECK(added.length >= added.length_before);
    }
    CAIRN_CHECK(op.kind != OpKind::kRewind || added.length <= added.length_before);
  }
  if (!resolver_->record_.batch) {
    EncodeOp(op, fields_);
    return Status::Ok();
  }
  one_->Clear();
  EncodeOp(op, one_);
  fields_->Table(kOpFieldsField, *one_);
  return Status::Ok();
}

Result<wal::Log::Slot> Committer::Reserve(const Resolver& resolver, OpKind kind,
                                          const FieldWriter& fields) {
  const Resolver::Record& record = resolver.record_;
  if (record.held_by_limit) {
    uint64_t bytes = 0;
    for (const wal::Strip& strip : record.strips) bytes += strip.bytes;
    if (callbacks_->LogIsHeld(bytes)) {
      return Status(StatusCode::kBusy, "the log is as long as log_bytes_max allows");
    }
  }
  return log_->Reserve({.kind = static_cast<uint16_t>(kind),
                        .more = kind == OpKind::kPart,
                        .unit = record.unit,
                        .fields = fields.bytes(),
                        .strips = record.strips},
                       record.purpose);
}

// Under the lock.
void Committer::OnCommittedOp(const CommittedOp& op) {
  CAIRN_CHECK(op.sequence > models_sequence_);
  const BranchId branch{op.op.branch};
  switch (op.op.kind) {
    case OpKind::kAppend:
    case OpKind::kRewind:
    case OpKind::kFork:
      lengths_.Record(branch, op.length_before, op.length, op.sequence, log_->durable_sequence());
      break;
    case OpKind::kDrop: lengths_.Forget(branch); break;
    case OpKind::kModel: models_sequence_ = op.sequence; break;
    case OpKind::kPart: return;
    default: break;
  }
  for (CommitObserver* const observer : in_sequence_) observer->OnCommitted(op);
}

// ---------------------------------------------------------------- trying again

Status Committer::Retry::Await(const Attempt& refused) {
  CAIRN_CHECK(MayFollow(refused));
  const Status& status = refused.status;
  CAIRN_CHECK(!status.ok());
  if (status.code() == StatusCode::kNoSpace) {
    // Once: the refusal may be about something else than one more segment.
    const bool of_store = status.reason() != StatusReason::kNamespaceQuota;
    if (of_store && !std::exchange(looked_again_, true) && committer_->callbacks_->HasRoomAgain()) {
      return Status::Ok();
    }
    switch (policy_.no_space) {
      case RetryPolicy::NoSpace::kReturn: return status;
      case RetryPolicy::NoSpace::kEvict:
        return committer_->callbacks_->MakeRoom(policy_.branch, policy_.room_bytes, status,
                                                policy_.deadline_ns, &first_round_);
      case RetryPolicy::NoSpace::kReclaim:
        return committer_->callbacks_->AwaitReclaim(status, policy_.deadline_ns, &first_round_);
    }
  }
  if (status.code() != StatusCode::kBusy) return status;
  switch (policy_.busy) {
    case RetryPolicy::Busy::kReturn: return status;
    case RetryPolicy::Busy::kAwaitMemory: return committer_->log_->WaitForRoom(policy_.deadline_ns);
    case RetryPolicy::Busy::kAwaitLog: break;
  }
  if (refused.kind == Attempt::Kind::kHeld) {
    CAIRN_CHECK(policy_.branch.has_value());
    return committer_->AwaitLargeAppend(*policy_.branch, policy_.deadline_ns);
  }
  return committer_->callbacks_->WaitForLog(policy_.log_bytes, policy_.deadline_ns);
}

Status Committer::LargeAppendUnderWay() {
  return Status(StatusCode::kBusy, "a large append of this branch is being gathered");
}

Status Committer::AwaitLargeAppend(BranchId branch, uint64_t deadline_ns) {
  const uint32_t seen = large_appends_ended_.load(std::memory_order_acquire);
  {
    std::lock_guard lock(mutex_);
    if (!HasLargeAppend(branch)) return Status::Ok();
  }
  if (scheduler_.Wait(large_appends_ended_, seen, deadline_ns)) return Status::Ok();
  return Status(StatusCode::kDeadlineExceeded, "a large append of this branch took too long");
}

void Committer::EndLargeAppend(BranchId branch) {
  {
    std::lock_guard lock(mutex_);
    large_appends_.erase(branch);
    large_appends_ended_.fetch_add(1, std::memory_order_release);
  }
  scheduler_.WakeAll(large_appends_ended_);
}

// ---------------------------------------------------------------- the rest

void Committer::AddObserver(CommitObserver* observer, ObserverOrder order) {
  CAIRN_CHECK(observer != nullptr);
  (order == ObserverOrder::kSequence ? in_sequence_ : in_any_order_).push_back(observer);
}

bool Committer::ReplayIsObserved() const {
  bool observed = false;
  ForReplayObservers([&](CommitObserver*) { observed = true; });
  return observed;
}

void Committer::BeginReplay(uint64_t after_sequence) {
  ForReplayObservers([&](CommitObserver* observer) { observer->OnReplay(after_sequence); });
}

void Committer::ReportReplayed(std::span<CommittedOp> ops, uint64_t sequence) {
  CAIRN_CHECK(sequence != 0);
  for (CommittedOp& op : ops) {
    op.origin = CommitOrigin::kReplay;
    op.sequence = sequence;
    ForReplayObservers([&](CommitObserver* observer) { observer->OnCommitted(op); });
  }
}

void Committer::RollBack(Tree tree) {
  tree.SetGeneration(tree_.generation() + 1);
  tree_.leases().EndAll();  // They may be for content that was taken back.
  tree.leases() = std::move(tree_.leases());
  tree_ = std::move(tree);
  rolled_back_ = true;
}

}  // namespace cairn::engine
