// SPDX-License-Identifier: Apache-2.0
//
// Changes to the tree that carry no payload of their own, and batches.
#include "base/core/text.h"
#include "engine/store_core.h"
#include "engine/tree/decisions.h"

namespace cairn {

using engine::Op;
using engine::Tree;

class StoreCore::ChangeResolver final : public engine::Resolver {
 public:
  ChangeResolver(StoreCore* core, const engine::TreeNeeds& needs, const StoreCore::Resolve& resolve,
                 wal::Log::Purpose purpose, bool waits_for_room)
      : core_(core), needs_(needs), resolve_(resolve), waits_for_room_(waits_for_room) {
    record_.purpose = purpose;
    record_.held_by_limit = is_data();
    if (!waits_for_room || purpose == wal::Log::Purpose::kReclaim) {
      record_.origin = engine::CommitOrigin::kBackground;
    }
  }

  // Held by the log's limit. The space thread, which nobody waits for room with, is not.
  bool is_data() const { return waits_for_room_ && record_.purpose == wal::Log::Purpose::kData; }
  uint64_t table_bytes_died() const { return died_; }

  engine::Attempt Prepare(Lock* lock) override {
    do {  // What was accepted before comes first.
      CAIRN_RETURN_IF_ERROR(core_->access_.LoadToChange(needs_, lock));
    } while (waits_for_room_ && core_->FlushJoinedTo(needs_.branches, lock));
    return {};
  }
  Status Resolve(engine::CommitOps* ops) override {
    died_before_ = ops->tree().table_uses().died_bytes();
    CAIRN_ASSIGN_OR_RETURN(ops->Next().op, resolve_(ops->tree()));
    return ops->Add();
  }
  void OnPlaced() override {
    if (committed().front().op.kind != engine::OpKind::kRewind) return;
    died_ = core_->tree_.table_uses().died_bytes() - died_before_;
  }

 private:
  StoreCore* const core_;
  const engine::TreeNeeds& needs_;
  const StoreCore::Resolve& resolve_;
  const bool waits_for_room_;
  uint64_t died_before_ = 0, died_ = 0;
};

// A change is small, so a full group buffer is waited out instead of reported. Without room in the
// log data waits for what is evicted, if that is allowed, and a release for what others released
// (CommitHost::AwaitReclaim). The space thread itself must not wait.
Result<Op> StoreCore::Change(const engine::TreeNeeds& needs, const Resolve& resolve,
                             Durability durability, wal::Log::Purpose purpose,
                             bool waits_for_room) {
  using engine::RetryPolicy;
  CAIRN_RETURN_IF_ERROR(CheckWritable(durability));
  ChangeResolver change(this, needs, resolve, purpose, waits_for_room);
  RetryPolicy policy{.busy = RetryPolicy::Busy::kAwaitMemory};
  if (change.is_data()) {
    policy.busy = RetryPolicy::Busy::kAwaitLog;
    policy.no_space = RetryPolicy::NoSpace::kEvict;
    // What it is about is not taken for it.
    if (!needs.branches.empty()) policy.branch = BranchId{needs.branches.front()};
  } else if (waits_for_room && purpose == wal::Log::Purpose::kRelease) {
    policy.no_space = RetryPolicy::NoSpace::kReclaim;
  }
  const engine::Attempt ended = committer_.Commit(&change, policy);
  if (!ended.done()) return ended.status;
  if (change.table_bytes_died() != 0) space_.Kick();
  CAIRN_RETURN_IF_ERROR(tickets_.WaitFor(change.sequence(), durability, io::kNoDeadline));
  return change.TakeOp();
}

Result<Branch> StoreCore::FinishBranch(Result<Op> op) {
  if (!op.ok()) return op.status();
  return Branch(shared_from_this(), BranchId{op->branch});
}

Result<ModelId> StoreCore::RegisterModel(const ModelSpec& spec, Durability durability) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckDurability(durability));
  // What is known of it; `says_more`: the caller says what it leaves unset.
  struct Known {
    uint64_t id = 0;
    bool says_more = false;
  };
  const auto find = [&](const Tree& tree) -> Result<Known> {
    for (const auto& [id, known] : tree.models()) {
      if (known->identity != spec.identity || known->variant != spec.variant ||
          known->shard != spec.shard) {
        continue;
      }
      const std::string difference = known->FirstDifference(spec);
      if (difference.empty()) return Known{id, ModelSpec(*known).TakeUnset(spec)};
      return Status(StatusCode::kModelMismatch,
                    "model " + Quoted(spec.identity.name) +
                        " is registered with another shape: " + difference);
    }
    return Known();
  };
  // Who registered it may not have waited.
  const auto found = [&](uint64_t id, uint64_t sequence) -> Result<ModelId> {
    if (sequence != 0)
      CAIRN_RETURN_IF_ERROR(tickets_.WaitFor(sequence, durability, io::kNoDeadline));
    return ModelId{id};
  };
  // One that is known may be from before there was a limit.
  const Status valid = spec.Validate();
  uint64_t sequence = 0;
  Result<Known> known{Known()};
  {
    std::lock_guard lock(mutex_);
    known = find(tree_);
    sequence = committer_.models_sequence();
  }
  // A store that is read only takes in nothing: what is unset there goes on agreeing.
  const bool writes = !options_.read_only;
  if (known.ok() && known->id != 0 && !(known->says_more && writes)) {
    return found(known->id, sequence);
  }
  if (!known.ok()) return valid.ok() ? known.status() : valid;
  if (!valid.ok() && known->id == 0) return valid;
  uint64_t raced = 0;
  auto op = Change(
      {},
      [&](const Tree& tree) -> Result<Op> {
        CAIRN_ASSIGN_OR_RETURN(const Known now, find(tree));
        if (now.says_more) return ResolveKnownModel(tree, now.id, spec);
        raced = now.id;
        sequence = committer_.models_sequence();
        if (raced != 0) return Status(StatusCode::kAlreadyExists, "registered just now");
        return ResolveModel(tree, spec);
      },
      durability, wal::Log::Purpose::kData);
  if (raced != 0) return found(raced, sequence);
  if (op.status().code() == StatusCode::kInvalidArgument) {
    return op.status().WithContext("the description of the model");
  }
  if (!op.ok()) return op.status();
  return ModelId{op->other};
}

Result<Branch> StoreCore::CreateBranch(ModelId model, const BranchOptions& options) {
  return FinishBranch(Change(
      {.branches = {}, .nodes = {}, .names = {{options.ns, options.name}}},
      [&](const Tree& tree) {
        return ResolveCreate(tree, static_cast<uint64_t>(model), options.name, options.ns,
                             options.keep);
      },
      options.durability, wal::Log::Purpose::kData));
}

Result<Branch> StoreCore::ForkAt(BranchId id, uint64_t position, const BranchOptions& options) {
  auto op = Change(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {{options.ns, options.name}}},
      [&](const Tree& tree) {
        return ResolveFork(tree, static_cast<uint64_t>(id), position, options.name, options.ns,
                           options.keep);
      },
      options.durability, wal::Log::Purpose::kData);
  return FinishBranch(std::move(op));
}

Status StoreCore::Rewind(BranchId id, uint64_t length, Durability durability) {
  const auto op = Change(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<Op> {
        if (committer_.HasLargeAppend(id)) return engine::Committer::LargeAppendUnderWay();
        return ResolveRewind(tree, static_cast<uint64_t>(id), length);
      },
      durability, wal::Log::Purpose::kRelease);
  if (op.ok()) space_.OnFreed();  // What died in the log makes it smaller when it is sealed.
  return op.status();
}

Status StoreCore::Rename(BranchId id, const std::string& name, Durability durability) {
  std::string ns;  // Never changes.
  {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadToChange(id, &lock));
    ns = head->ns;
  }
  return Change(
             {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {{ns, name}}},
             [&](const Tree& tree) { return ResolveRename(tree, static_cast<uint64_t>(id), name); },
             durability, wal::Log::Purpose::kData)
      .status();
}

Status StoreCore::Drop(BranchId id, Durability durability) {
  const auto op = Change(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<Op> {
        if (committer_.HasLargeAppend(id)) return engine::Committer::LargeAppendUnderWay();
        return ResolveDrop(tree, static_cast<uint64_t>(id));
      },
      durability, wal::Log::Purpose::kRelease);
  if (op.ok()) space_.Kick();
  return op.status();
}

}  // namespace cairn
