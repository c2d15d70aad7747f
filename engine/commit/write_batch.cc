// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/write_batch.h"

#include <memory>
#include <utility>

#include "engine/commit/batch_payloads.h"
#include "engine/commit/quota.h"
#include "engine/config/constants.h"
#include "engine/tree/ops/decisions.h"

namespace cairn {

int WriteBatch::Create(ModelId model, BranchOptions options) {
  Op op;
  op.kind = Op::Kind::kCreate;
  op.model = model;
  op.options = std::move(options);
  ops_.push_back(std::move(op));
  return created_++;
}

int WriteBatch::Fork(Target from, uint64_t position, BranchOptions options) {
  const int index = Create(ModelId{}, std::move(options));
  Op& op = ops_.back();
  op.kind = Op::Kind::kFork;
  op.target = from;
  op.position = position;
  return index;
}

void WriteBatch::Append(Target to, const Delta& delta, std::optional<uint64_t> expected_length) {
  Op op;
  op.kind = Op::Kind::kAppend;
  op.target = to;
  op.delta = delta;
  op.expected_length = expected_length;
  ops_.push_back(std::move(op));
}

void WriteBatch::Rewind(Target branch, uint64_t length) {
  Op op;
  op.kind = Op::Kind::kRewind;
  op.target = branch;
  op.position = length;
  ops_.push_back(std::move(op));
}

void WriteBatch::Rename(Target branch, std::string name) {
  Op op;
  op.kind = Op::Kind::kRename;
  op.target = branch;
  op.options.name = std::move(name);
  ops_.push_back(std::move(op));
}

void WriteBatch::Drop(Target branch) {
  Op op;
  op.kind = Op::Kind::kDrop;
  op.target = branch;
  ops_.push_back(std::move(op));
}

namespace engine {

namespace {

// Resolves the batch's ops, and applies each before the next is decided.
class BatchResolver final : public Resolver {
 public:
  BatchResolver(const WriteDeps& deps, CoalescedAppends* coalesced, const StoreCore* store,
                const WriteBatch& batch, const AppendOptions& options)
      : deps_(deps), coalesced_(coalesced), store_(store), batch_(batch), options_(options) {
    record_.batch = true;
  }

  Attempt Prepare(Lock* lock) override { return Load(lock); }
  Status Resolve(CommitOps* ops) override {
    tree_ = &ops->tree();
    ops->Reserve(batch_.ops().size());
    for (size_t i = 0; i < batch_.ops().size(); ++i) {
      const WriteBatch::Op& op = batch_.ops()[i];
      if (deps_.committer->HasLargeAppend(op.target.branch)) {
        return Status(StatusCode::kBusy, "a large append of a branch is being gathered");
      }
      Status status = Add(op, ops);
      if (!status.ok()) return status.WithContext("op " + std::to_string(i) + " of the batch");
    }
    payloads_.Seal();
    record_.strips = payloads_.strips();
    return Status::Ok();
  }
  Status CheckQuotas() const override {
    for (const uint64_t appended : appended_) {
      const Head* const head = tree_->FindHead(appended);
      refused_branch_ = BranchId{appended};
      if (head != nullptr) CAIRN_RETURN_IF_ERROR(CheckQuota(*head));
    }
    return Status::Ok();
  }
  void Publish(wal::Log* log) override { payloads_.Publish(&slot_, log); }

  std::vector<BranchId> TakeCreated() { return std::move(created_); }
  // The branch whose quota refused it; else the last branch that it appends to.
  BranchId refused_branch() const { return refused_branch_; }
  uint64_t bytes() const { return bytes_; }

 private:
  // Loads the existing branches and nodes that its ops name, and applies appends accepted before.
  Status Load(Lock* lock) {
    TreeNeeds needs;
    for (const WriteBatch::Op& op : batch_.ops()) {
      if (op.target.created < 0 && op.target.store == store_) {
        needs.branches.push_back(static_cast<uint64_t>(op.target.branch));
      }
    }
    // A rename stays in its branch's namespace.
    CAIRN_RETURN_IF_ERROR(deps_.access->LoadToChange(needs, lock));
    std::vector<std::string> namespaces(batch_.ops().size());
    for (size_t i = 0; i < batch_.ops().size(); ++i) {
      const WriteBatch::Op& op = batch_.ops()[i];
      const Head* head = deps_.tree().FindHead(static_cast<uint64_t>(op.target.branch));
      const bool renames = op.kind == WriteBatch::Op::Kind::kRename && head != nullptr;
      namespaces[i] = renames ? head->ns : op.options.ns;
      needs.names.emplace_back(namespaces[i], op.options.name);
    }
    do {
      CAIRN_RETURN_IF_ERROR(deps_.access->LoadToChange(needs, lock));
    } while (coalesced_->FlushTo(needs.branches, lock));
    return Status::Ok();
  }

  Status Add(const WriteBatch::Op& op, CommitOps* ops) {
    CommittedOp& add = ops->Next();
    CAIRN_ASSIGN_OR_RETURN(add.op, ResolveOne(op));
    if (op.kind == WriteBatch::Op::Kind::kAppend) {
      add.ids = op.delta.tokens;
      add.kv_bytes = payloads_.last_kv_bytes();
    }
    if (op.kind == WriteBatch::Op::Kind::kCreate || op.kind == WriteBatch::Op::Kind::kFork) {
      created_.push_back(BranchId{add.op.branch});
    }
    return ops->Add();
  }

  Result<uint64_t> Target(const WriteBatch::Op& op) const {
    const WriteBatch::Target& target = op.target;
    if (target.created < 0 && target.store == nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    "branch index " + std::to_string(target.created) + " was never returned");
    }
    if (target.created < 0 && target.store != store_) {
      return Status(StatusCode::kInvalidArgument,
                    "branch #" + std::to_string(static_cast<uint64_t>(target.branch)) +
                        " belongs to another store");
    }
    if (target.created < 0) return static_cast<uint64_t>(target.branch);
    if (static_cast<size_t>(target.created) >= created_.size()) {
      return Status(StatusCode::kInvalidArgument,
                    "created branch " + std::to_string(target.created) + " is not made yet");
    }
    return static_cast<uint64_t>(created_[static_cast<size_t>(target.created)]);
  }

  Result<Op> ResolveOne(const WriteBatch::Op& op) {
    using Kind = WriteBatch::Op::Kind;
    if (op.kind == Kind::kCreate) {
      return ResolveCreate(*tree_, static_cast<uint64_t>(op.model), op.options.name, op.options.ns,
                           op.options.keep);
    }
    CAIRN_ASSIGN_OR_RETURN(const uint64_t branch, Target(op));
    switch (op.kind) {
      case Kind::kFork:
        return ResolveFork(*tree_, branch, op.position, op.options.name, op.options.ns,
                           op.options.keep);
      case Kind::kRewind: return ResolveRewind(*tree_, branch, op.position);
      case Kind::kRename: return ResolveRename(*tree_, branch, op.options.name);
      case Kind::kDrop: return ResolveDrop(*tree_, branch);
      case Kind::kCreate:
      case Kind::kFill:
      case Kind::kAppend: break;
    }
    return ResolveAppend(branch, op);
  }

  Result<Op> ResolveAppend(uint64_t branch, const WriteBatch::Op& op) {
    const Head* head = tree_->FindHead(branch);
    if (head == nullptr) return NoBranch(branch);
    const uint64_t length = head->lengths[kTokenLane];
    CAIRN_RETURN_IF_ERROR(CheckLength(length, op.expected_length));
    const auto model = tree_->FindModel(head->model);
    CAIRN_RETURN_IF_ERROR(CheckShape(*model, op.delta, false));
    if (IsOnGpu(op.delta)) {
      return Status(StatusCode::kInvalidArgument,
                    "kv view: memory is cuda; a batch takes host "
                    "memory");
    }
    Delta delta = op.delta;
    if (!KeepsKv(*head, options_)) delta.kv = nullptr;
    if (delta.kv != nullptr) {
      for (const GroupView& view : delta.kv->groups) {
        bytes_ += KvLayoutBytes(model->groups[view.group], view.count);
      }
    }
    bytes_ += op.delta.tokens.size() * sizeof(TokenId);
    if (bytes_ > kBatchBytesMax) {
      return Status(StatusCode::kInvalidArgument, "the batch holds more than " +
                                                      std::to_string(kBatchBytesMax) +
                                                      " bytes; append large deltas by themselves");
    }
    appended_.push_back(branch);
    CAIRN_ASSIGN_OR_RETURN(
        Op resolved, engine::ResolveAppend(
                         *tree_, branch, payloads_.Add(model, delta, length),
                         std::vector<ContentSpan>(op.delta.spans.begin(), op.delta.spans.end())));
    resolved.exact = delta.kv == nullptr || delta.exact;
    return resolved;
  }

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
  const StoreCore* const store_;
  const WriteBatch& batch_;
  const AppendOptions& options_;
  const Tree* tree_ = nullptr;
  BatchPayloads payloads_;
  std::vector<uint64_t> appended_;
  std::vector<BranchId> created_;
  mutable BranchId refused_branch_{};
  uint64_t bytes_ = 0;
};

}  // namespace

Result<WrittenBatch> CommitBatch(const WriteDeps& deps, CoalescedAppends* coalesced,
                                 const StoreCore* store, const WriteBatch& batch,
                                 const AppendOptions& options) {
  const uint64_t started_ns = deps.world.scheduler->MonotonicNs();
  CAIRN_RETURN_IF_ERROR(deps.lifecycle->CheckWritable(options));
  if (batch.ops().empty()) return Status(StatusCode::kInvalidArgument, "the batch is empty");
  if (batch.ops().size() > kMaxBatchOps) {
    return Status(StatusCode::kInvalidArgument,
                  "the batch has " + std::to_string(batch.ops().size()) + " ops, at most " +
                      std::to_string(kMaxBatchOps));
  }
  NewTicket ticket = MakeTicket(deps, options, started_ns);
  BatchResolver resolver(deps, coalesced, store, batch, options);
  const Attempt ended = deps.committer->Commit(&resolver, {});
  if (ended.kind == Attempt::Kind::kRefused) {
    // Room may be made, as for an append that does not wait.
    const bool by_quota = ended.status.reason() == StatusReason::kNamespaceQuota;
    return deps.callbacks->WhileRoomIsMade(
        resolver.refused_branch(), resolver.bytes(),
        by_quota ? ended.status : ended.status.WithContext("the batch"));
  }
  if (!ended.done()) return ended.status;
  WrittenBatch result;
  result.created = resolver.TakeCreated();
  result.ticket = deps.tickets->GiveToLog(std::move(ticket), {.sequence = resolver.sequence()},
                                          options.durability);
  return result;
}

}  // namespace engine

}  // namespace cairn
