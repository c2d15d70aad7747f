// SPDX-License-Identifier: Apache-2.0
//
// WriteBatch: several ops in one record, so that the log keeps or loses them together.
#include "base/core/check.h"
#include "engine/store_core.h"

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

namespace {

// Turns the batch's ops into resolved ones, applying each before the next is decided.
class BatchBuilder {
 public:
  BatchBuilder(const StoreCore* store, const engine::Tree* tree, const AppendOptions& options,
               uint64_t now_ns)
      : store_(store), tree_(tree), options_(options), now_ns_(now_ns) {}

  Status Add(const WriteBatch::Op& op, engine::Transaction* transaction) {
    const engine::Head* const head = tree_->FindHead(static_cast<uint64_t>(op.target.branch));
    before_.push_back(head == nullptr ? 0 : head->lengths[engine::kTokenLane]);
    CAIRN_ASSIGN_OR_RETURN(engine::Op resolved, ResolveOne(op));
    resolved.time_ns = now_ns_;
    CAIRN_RETURN_IF_ERROR(transaction->Apply(resolved));
    if (op.kind == WriteBatch::Op::Kind::kCreate || op.kind == WriteBatch::Op::Kind::kFork) {
      created_.push_back(resolved.branch);
    }
    FieldWriter table;
    EncodeOp(resolved, &table);
    fields_.Table(engine::kOpTableField, table);
    return Status::Ok();
  }

  // `branch`: the one that was refused, or the last.
  Status CheckQuotas(BranchId* branch) const {
    for (const uint64_t appended : appended_) {
      const engine::Head* const head = tree_->FindHead(appended);
      *branch = BranchId{appended};
      if (head != nullptr) CAIRN_RETURN_IF_ERROR(StoreCore::CheckQuota(*head));
    }
    return Status::Ok();
  }

  // The record. Room for what Publish needs is taken here.
  wal::RecordSpec Record() {
    hashes_.reserve(strips_.size());
    all_hashes_.reserve(strips_.size());
    return {.kind = static_cast<uint16_t>(engine::OpKind::kBatch),
            .more = false,
            .unit = 0,
            .fields = fields_.bytes(),
            .strips = strips_};
  }

  // Copies the payload to where the record was placed. Needs no lock, and no memory.
  void Publish(wal::Log* log, wal::Log::Slot& slot) {
    size_t first_strip = 0;
    for (const auto& payload : payloads_) {
      payload->Fill(slot.payload,
                    std::span(slot.strip_offsets).subspan(first_strip, payload->strips().size()),
                    &hashes_, [](uint64_t) { return true; });
      all_hashes_.insert(all_hashes_.end(), hashes_.begin(), hashes_.end());
      first_strip += payload->strips().size();
    }
    log->Publish(slot, all_hashes_);
  }

  const std::vector<uint64_t>& created() const { return created_; }
  // Of each op's branch, how long it was before; 0: it did not exist before the batch.
  const std::vector<uint64_t>& before() const { return before_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t kv_bytes() const {
    uint64_t bytes = 0;
    for (const auto& payload : payloads_) bytes += payload->kv_bytes();
    return bytes;
  }

 private:
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
    return created_[static_cast<size_t>(target.created)];
  }

  Result<engine::Op> ResolveOne(const WriteBatch::Op& op) {
    using Kind = WriteBatch::Op::Kind;
    if (op.kind == Kind::kCreate) {
      return tree_->ResolveCreate(static_cast<uint64_t>(op.model), op.options.name, op.options.ns,
                                  op.options.keep);
    }
    CAIRN_ASSIGN_OR_RETURN(const uint64_t branch, Target(op));
    switch (op.kind) {
      case Kind::kFork:
        return tree_->ResolveFork(branch, op.position, op.options.name, op.options.ns,
                                  op.options.keep);
      case Kind::kRewind: return tree_->ResolveRewind(branch, op.position);
      case Kind::kRename: return tree_->ResolveRename(branch, op.options.name);
      case Kind::kDrop: return tree_->ResolveDrop(branch);
      case Kind::kCreate:
      case Kind::kFill:
      case Kind::kAppend: break;
    }
    return ResolveAppend(branch, op);
  }

  Result<engine::Op> ResolveAppend(uint64_t branch, const WriteBatch::Op& op) {
    const engine::Head* head = tree_->FindHead(branch);
    if (head == nullptr) return engine::NoBranch(branch);
    const uint64_t length = head->lengths[engine::kTokenLane];
    if (op.expected_length.has_value() && *op.expected_length != length) {
      return Status(StatusCode::kConflict,
                    "expected_length is " + std::to_string(*op.expected_length) +
                        ", the branch has " + std::to_string(length) + " tokens");
    }
    const auto model = tree_->FindModel(head->model);
    CAIRN_RETURN_IF_ERROR(StoreCore::CheckShape(*model, op.delta, false));
    Delta& delta = deltas_.emplace_back(op.delta);
    if (!StoreCore::KeepsKv(*head, options_)) delta.kv = nullptr;
    if (delta.kv != nullptr) {
      for (const GroupView& view : delta.kv->groups) {
        bytes_ += engine::KvLayoutBytes(model->groups[view.group], view.count);
      }
    }
    bytes_ += op.delta.tokens.size() * sizeof(TokenId);
    if (bytes_ > engine::kBatchBytesMax) {
      return Status(StatusCode::kInvalidArgument, "the batch holds more than " +
                                                      std::to_string(engine::kBatchBytesMax) +
                                                      " bytes; append large deltas by themselves");
    }
    auto payload = std::make_unique<engine::DeltaPayload>(
        *model, delta, engine::DeltaWindow::Whole(delta), engine::StatesOf(delta));
    appended_.push_back(branch);
    payload->SetLength(length);
    std::vector<engine::LaneRange> lanes = payload->lanes();
    for (engine::LaneRange& lane : lanes) lane.strip += static_cast<uint32_t>(strips_.size());
    strips_.insert(strips_.end(), payload->strips().begin(), payload->strips().end());
    payloads_.push_back(std::move(payload));
    models_.push_back(model);
    return tree_->ResolveAppend(
        branch, std::move(lanes),
        std::vector<ContentSpan>(op.delta.spans.begin(), op.delta.spans.end()));
  }

  const StoreCore* const store_;
  const engine::Tree* const tree_;
  const AppendOptions& options_;
  const uint64_t now_ns_;
  std::deque<Delta> deltas_;  // Which payloads refer to.
  FieldWriter fields_;
  std::vector<wal::Strip> strips_;
  std::vector<std::unique_ptr<engine::DeltaPayload>> payloads_;
  std::vector<std::shared_ptr<const ModelSpec>> models_;  // Kept while payloads refer to them.
  std::vector<uint64_t> hashes_, all_hashes_;
  std::vector<uint64_t> before_, created_, appended_;
  uint64_t bytes_ = 0;
};

}  // namespace

void StoreCore::CountBatch(const WriteBatch& batch) {
  using Kind = WriteBatch::Op::Kind;
  for (const WriteBatch::Op& op : batch.ops()) {
    counters_.appends += op.kind == Kind::kAppend || op.kind == Kind::kFill ? 1 : 0;
    counters_.tokens += op.delta.tokens.size();
    counters_.forks += op.kind == Kind::kFork ? 1 : 0;
    counters_.rewinds += op.kind == Kind::kRewind ? 1 : 0;
    counters_.drops += op.kind == Kind::kDrop ? 1 : 0;
  }
}

// What exists already of what its ops name, with what was accepted for it before.
Status StoreCore::LoadBatch(const WriteBatch& batch, Lock* lock) {
  engine::TreeNeeds needs;
  for (const WriteBatch::Op& op : batch.ops()) {
    if (op.target.created < 0 && op.target.store == this) {
      needs.branches.push_back(static_cast<uint64_t>(op.target.branch));
    }
  }
  // A rename stays in its branch's namespace.
  CAIRN_RETURN_IF_ERROR(LoadToChange(needs, lock));
  std::vector<std::string> namespaces(batch.ops().size());
  for (size_t i = 0; i < batch.ops().size(); ++i) {
    const WriteBatch::Op& op = batch.ops()[i];
    const engine::Head* head = tree_.FindHead(static_cast<uint64_t>(op.target.branch));
    const bool renames = op.kind == WriteBatch::Op::Kind::kRename && head != nullptr;
    namespaces[i] = renames ? head->ns : op.options.ns;
    needs.names.emplace_back(namespaces[i], op.options.name);
  }
  do {
    CAIRN_RETURN_IF_ERROR(LoadToChange(needs, lock));
  } while (FlushJoinedTo(needs.branches, lock));
  return Status::Ok();
}

void StoreCore::NoteBatch(const WriteBatch& batch, std::span<const uint64_t> before,
                          std::span<const uint64_t> created, uint64_t sequence) {
  for (size_t i = 0; i < batch.ops().size(); ++i) {
    const BranchId id = batch.ops()[i].target.branch;
    const engine::Head* head = tree_.FindHead(static_cast<uint64_t>(id));
    if (head != nullptr) {
      NoteLength(id, before[i], head->lengths[engine::kTokenLane], sequence);
    } else {
      lengths_.Forget(id);
    }
  }
  for (const uint64_t id : created) {
    const engine::Head* head = tree_.FindHead(id);
    if (head != nullptr) NoteLength(BranchId{id}, 0, head->lengths[engine::kTokenLane], sequence);
  }
}

Result<Store::WriteResult> StoreCore::Write(const WriteBatch& batch, const AppendOptions& options) {
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  CAIRN_RETURN_IF_ERROR(CheckWritable(options.durability));
  if (batch.ops().empty()) return Status(StatusCode::kInvalidArgument, "the batch is empty");
  if (batch.ops().size() > WriteBatch::kOpsMax) {
    return Status(StatusCode::kInvalidArgument,
                  "the batch has " + std::to_string(batch.ops().size()) + " ops, at most " +
                      std::to_string(WriteBatch::kOpsMax));
  }
  Store::WriteResult result;
  NewTicket ticket = MakeTicket(options, started_ns);
  Applied applied;
  wal::Log::Slot slot;
  BatchBuilder builder(this, &tree_, options, world_.scheduler->WallNs());
  {
    Lock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(LoadBatch(batch, &lock));
    engine::Transaction transaction(&tree_);
    for (size_t i = 0; i < batch.ops().size(); ++i) {
      if (gathering_.contains(batch.ops()[i].target.branch)) {
        return Status(StatusCode::kBusy, "a large append of a branch is being gathered");
      }
      Status status = builder.Add(batch.ops()[i], &transaction);
      if (!status.ok()) return status.WithContext("op " + std::to_string(i) + " of the batch");
    }
    // Room may be made, as for an append that does not wait.
    const auto no_room = [&](BranchId branch, const Status& refusal) {
      transaction.Rollback();
      lock.unlock();
      return WhileRoomIsMade(branch, builder.bytes(), refusal);
    };
    BranchId appended{};
    if (const Status full = builder.CheckQuotas(&appended); !full.ok()) {
      return no_room(appended, full);
    }
    // From the reservation to publishing nothing may be allocated.
    for (const uint64_t id : builder.created()) {
      result.created.emplace_back(shared_from_this(), BranchId{id});
    }
    auto reserved = log_->Reserve(builder.Record(), wal::Log::Purpose::kData);
    if (!reserved.ok()) {
      NoteRefused(reserved.status());
      return no_room(appended, reserved.status());
    }
    slot = std::move(*reserved);
    NoteLogged(slot);
    transaction.Commit(slot.location, slot.location.bytes);
    applied.sequence = slot.sequence;
    NoteBatch(batch, builder.before(), builder.created(), applied.sequence);
  }
  builder.Publish(log_.get(), slot);
  CountBatch(batch);
  counters_.kv_bytes += builder.kv_bytes();
  result.ticket = GiveToLog(std::move(ticket), applied, options.durability);
  return result;
}

}  // namespace cairn
