// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/changes.h"

#include "base/core/text.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

namespace {

// Bytes that became needless in files that may be deleted for it.
uint64_t FileBytesDied(const Tree& tree) {
  return tree.table_usages().died_bytes() + tree.segment_usages().died_bytes();
}

class ChangeResolver final : public Resolver {
 public:
  ChangeResolver(const WriteDeps& deps, CoalescedAppends* coalesced, const TreeNeeds& needs,
                 const Changes::Resolve& resolve, wal::Log::Purpose purpose, bool waits_for_room)
      : deps_(deps),
        coalesced_(coalesced),
        needs_(needs),
        resolve_(resolve),
        waits_for_room_(waits_for_room) {
    record_.purpose = purpose;
    record_.held_by_limit = is_data();
    if (!waits_for_room || purpose == wal::Log::Purpose::kReclaim) {
      record_.origin = CommitOrigin::kBackground;
    }
  }

  // Whether the log's limit holds it. The space thread, which does not wait for room, is not held.
  bool is_data() const { return waits_for_room_ && record_.purpose == wal::Log::Purpose::kData; }
  uint64_t file_bytes_died() const { return died_; }

  Attempt Prepare(Lock* lock) override {
    do {  // Appends accepted before come first.
      CAIRN_RETURN_IF_ERROR(deps_.access->LoadToChange(needs_, lock));
    } while (waits_for_room_ && coalesced_->FlushTo(needs_.branches, lock));
    return {};
  }
  Status Resolve(CommitOps* ops) override {
    died_before_ = FileBytesDied(ops->tree());
    CAIRN_ASSIGN_OR_RETURN(ops->Next().op, resolve_(ops->tree()));
    return ops->Add();
  }
  void OnPlaced() override {
    if (committed().front().op.kind != OpKind::kRewind) return;
    died_ = FileBytesDied(deps_.tree()) - died_before_;
  }

 private:
  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
  const TreeNeeds& needs_;
  const Changes::Resolve& resolve_;
  const bool waits_for_room_;
  uint64_t died_before_ = 0, died_ = 0;
};

}  // namespace

// A change is small, so it waits for a full group buffer instead of reporting it. If the log has no
// room, data waits for eviction, if that is allowed, and a release for room that others released
// (CommitCallbacks::AwaitReclaim). The space thread itself must not wait.
Result<Op> Changes::Make(const TreeNeeds& needs, const Resolve& resolve, Durability durability,
                         wal::Log::Purpose purpose, bool waits_for_room) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckWritable(durability));
  ChangeResolver change(deps_, coalesced_, needs, resolve, purpose, waits_for_room);
  RetryPolicy policy{.busy = RetryPolicy::Busy::kAwaitMemory};
  if (change.is_data()) {
    policy.busy = RetryPolicy::Busy::kAwaitLog;
    policy.no_space = RetryPolicy::NoSpace::kEvict;
    // The change's own branch is not evicted for it.
    if (!needs.branches.empty()) policy.branch = BranchId{needs.branches.front()};
  } else if (waits_for_room && purpose == wal::Log::Purpose::kRelease) {
    policy.no_space = RetryPolicy::NoSpace::kReclaim;
  }
  const Attempt ended = deps_.committer->Commit(&change, policy);
  if (!ended.done()) return ended.status;
  if (change.file_bytes_died() != 0) deps_.callbacks->WakeSpaceThread();
  CAIRN_RETURN_IF_ERROR(deps_.tickets->WaitFor(change.sequence(), durability, io::kNoDeadline));
  return change.TakeOp();
}

Result<ModelId> Changes::RegisterModel(const ModelSpec& spec, Durability durability) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(Lifecycle::CheckDurability(durability));
  // A known model; `says_more`: the caller's spec sets something that it leaves unset.
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
  // The call that registered it may not have waited.
  const auto found = [&](uint64_t id, uint64_t sequence) -> Result<ModelId> {
    if (sequence != 0)
      CAIRN_RETURN_IF_ERROR(deps_.tickets->WaitFor(sequence, durability, io::kNoDeadline));
    return ModelId{id};
  };
  // A known model may be from before there was a limit.
  const Status valid = spec.Validate();
  uint64_t sequence = 0;
  Result<Known> known{Known()};
  {
    std::lock_guard lock(deps_.mutex());
    known = find(deps_.tree());
    sequence = deps_.committer->models_sequence();
  }
  // A read-only store records nothing: unset settings still agree with any.
  const bool writes = !deps_.options->read_only;
  if (known.ok() && known->id != 0 && !(known->says_more && writes)) {
    return found(known->id, sequence);
  }
  if (!known.ok()) return valid.ok() ? known.status() : valid;
  if (!valid.ok() && known->id == 0) return valid;
  uint64_t raced = 0;
  auto op = Make(
      {},
      [&](const Tree& tree) -> Result<Op> {
        CAIRN_ASSIGN_OR_RETURN(const Known now, find(tree));
        if (now.says_more) return ResolveKnownModel(tree, now.id, spec);
        raced = now.id;
        sequence = deps_.committer->models_sequence();
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

Result<BranchId> Changes::Create(ModelId model, const BranchOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(options.ns));
  CAIRN_ASSIGN_OR_RETURN(const Op op,
                         Make(
                             {.branches = {}, .nodes = {}, .names = {{options.ns, options.name}}},
                             [&](const Tree& tree) {
                               return ResolveCreate(tree, static_cast<uint64_t>(model),
                                                    options.name, options.ns, options.keep);
                             },
                             options.durability, wal::Log::Purpose::kData));
  return BranchId{op.branch};
}

Result<BranchId> Changes::Fork(BranchId id, uint64_t position, const BranchOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(options.ns));
  CAIRN_ASSIGN_OR_RETURN(const Op op, Make(
                                          {.branches = {static_cast<uint64_t>(id)},
                                           .nodes = {},
                                           .names = {{options.ns, options.name}}},
                                          [&](const Tree& tree) {
                                            return ResolveFork(tree, static_cast<uint64_t>(id),
                                                               position, options.name, options.ns,
                                                               options.keep);
                                          },
                                          options.durability, wal::Log::Purpose::kData));
  return BranchId{op.branch};
}

Result<BranchId> Changes::ForkNode(NodeId node, uint64_t position, const BranchOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(options.ns));
  const auto number = static_cast<uint64_t>(node);
  const auto resolve = [&](const Tree& tree) -> Result<Op> {
    const Node* const found = tree.FindNode(number);
    if (found != nullptr) CAIRN_RETURN_IF_ERROR(CheckNotReserved(found->ns));
    return ResolveForkOfNode(tree,
                             found == nullptr ? number : ForkedNode(tree, *found, position).id,
                             position, options.name, options.ns, options.keep);
  };
  CAIRN_ASSIGN_OR_RETURN(
      const Op op, Make({.branches = {}, .nodes = {number}, .names = {{options.ns, options.name}}},
                        resolve, options.durability, wal::Log::Purpose::kData));
  return BranchId{op.branch};
}

Status Changes::Rewind(BranchId id, uint64_t length, Durability durability) {
  const auto op = Make(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<Op> {
        if (deps_.committer->HasLargeAppend(id)) return Committer::LargeAppendUnderWay();
        return ResolveRewind(tree, static_cast<uint64_t>(id), length);
      },
      durability, wal::Log::Purpose::kRelease);
  if (op.ok()) deps_.callbacks->OnFreed();  // Sealing makes the log smaller now.
  return op.status();
}

Status Changes::Rename(BranchId id, const std::string& name, Durability durability) {
  std::string ns;  // Never changes.
  {
    Committer::Lock lock(deps_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadToChange(id, &lock));
    ns = head->ns;
  }
  return Make(
             {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {{ns, name}}},
             [&](const Tree& tree) { return ResolveRename(tree, static_cast<uint64_t>(id), name); },
             durability, wal::Log::Purpose::kData)
      .status();
}

Status Changes::Drop(BranchId id, Durability durability) {
  const auto op = Make(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<Op> {
        if (deps_.committer->HasLargeAppend(id)) return Committer::LargeAppendUnderWay();
        return ResolveDrop(tree, static_cast<uint64_t>(id));
      },
      durability, wal::Log::Purpose::kRelease);
  if (op.ok()) deps_.callbacks->WakeSpaceThread();
  return op.status();
}

Status Changes::NameDerived(NodeId node, uint64_t position, uint32_t kind, const TableRef& table) {
  const auto id = static_cast<uint64_t>(node);
  return Make(
             {.branches = {}, .nodes = {id}, .names = {}},
             [&](const Tree& tree) { return ResolveDerive(tree, id, position, kind, table); },
             Durability::kMemory, wal::Log::Purpose::kData)
      .status();
}

Status Changes::DropDerived(NodeId node, uint64_t position, uint32_t kind, uint64_t table) {
  const auto id = static_cast<uint64_t>(node);
  return Make(
             {.branches = {}, .nodes = {id}, .names = {}},
             [&](const Tree& tree) { return ResolveDropDerived(tree, id, position, kind, table); },
             Durability::kMemory, wal::Log::Purpose::kRelease)
      .status();
}

Status Changes::SetKeep(BranchId id, const Keep& keep, Durability durability) {
  return Make(
             {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
             [&](const Tree& tree) { return ResolveKeep(tree, static_cast<uint64_t>(id), keep); },
             durability, wal::Log::Purpose::kRelease)
      .status();
}

Status Changes::SetNamespace(const std::string& ns, const NamespacePolicy& policy,
                             Durability durability) {
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(ns));
  return SetPolicy(ns, policy, durability);
}

Status Changes::SetPolicy(const std::string& ns, const NamespacePolicy& policy,
                          Durability durability) {
  return Make(
             {.branches = {}, .nodes = {}, .names = {{ns, ""}}},
             [&](const Tree&) { return ResolveNamespace(ns, policy); }, durability,
             wal::Log::Purpose::kRelease)
      .status();
}

}  // namespace cairn::engine
