// SPDX-License-Identifier: Apache-2.0
//
// Changes to the tree that carry no payload of their own, and batches.
#include "base/core/check.h"
#include "engine/store_core.h"

namespace cairn {

using engine::Op;
using engine::Tree;

// A change is small, so a full group buffer is waited out instead of reported. Without room in the
// log it waits for what is evicted, if that is allowed. A release needs nobody's leave: it waits
// when even the ballast is used up, while the space thread gives back what others released, and is
// refused when that leaves no room. The space thread itself must not wait.
Result<Op> StoreCore::Change(const engine::TreeNeeds& needs, const Resolve& resolve,
                             Durability durability, wal::Log::Purpose purpose,
                             bool waits_for_room) {
  CAIRN_RETURN_IF_ERROR(CheckWritable(durability));
  // Held by the log's limit. The space thread, which nobody waits for room with, is not.
  const bool is_data = waits_for_room && purpose == wal::Log::Purpose::kData;
  FieldWriter fields;
  std::optional<uint32_t> rounds;  // Of the space thread, when there was no room first.
  while (true) {
    uint64_t sequence = 0;
    Op op;
    uint64_t before = 0;  // Length of the branch; what is made has none.
    uint64_t died = 0;    // Bytes of tables, by a rewind.
    Status no_room;
    {
      const uint64_t now_ns = world_.scheduler->WallNs();
      Lock lock(mutex_);
      do {  // What was accepted before comes first.
        CAIRN_RETURN_IF_ERROR(LoadToChange(needs, &lock));
      } while (waits_for_room && FlushJoinedTo(needs.branches, &lock));
      CAIRN_ASSIGN_OR_RETURN(op, resolve(tree_));
      op.time_ns = now_ns;
      if (const engine::Head* head = tree_.FindHead(op.branch); head != nullptr) {
        before = head->lengths[engine::kTokenLane];
      }
      died = tree_.table_bytes_died();
      engine::Transaction transaction(&tree_);
      CAIRN_RETURN_IF_ERROR(transaction.Apply(op));
      fields.Clear();
      EncodeOp(op, &fields);
      const wal::RecordSpec spec{.kind = static_cast<uint16_t>(op.kind),
                                 .more = false,
                                 .unit = 0,
                                 .fields = fields.bytes(),
                                 .strips = {}};
      auto slot = is_data ? ReserveData(spec) : log_->Reserve(spec, purpose);
      if (slot.ok()) {
        NoteLogged(*slot);
        transaction.Commit(slot->location, slot->location.bytes);
        log_->Publish(*slot, {});
        sequence = slot->sequence;
        died = op.kind == engine::OpKind::kRewind ? tree_.table_bytes_died() - died : 0;
        if (op.kind == engine::OpKind::kRewind || op.kind == engine::OpKind::kFork) {
          NoteLength(BranchId{op.branch}, before, op.position, sequence);
        }
        if (op.kind == engine::OpKind::kDrop) {
          lengths_.Forget(BranchId{op.branch});
        }
        if (op.kind == engine::OpKind::kModel) models_sequence_ = sequence;
      } else if (slot.status().code() == StatusCode::kNoSpace && waits_for_room &&
                 purpose != wal::Log::Purpose::kReclaim) {
        no_room = slot.status();
        if (is_data) NoteRefused(no_room);
      } else if (slot.status().code() != StatusCode::kBusy) {
        NoteRefused(slot.status());
        return slot.status();
      }
    }
    if (sequence != 0) {
      if (died != 0) KickSpace();
      CAIRN_RETURN_IF_ERROR(WaitFor(sequence, durability, io::kNoDeadline));
      return op;
    }
    if (no_room.ok()) {
      CAIRN_RETURN_IF_ERROR(is_data ? WaitForLog(0, io::kNoDeadline)
                                    : log_->WaitForRoom(io::kNoDeadline));
      continue;
    }
    if (is_data) {
      std::optional<BranchId> of;  // What it is about is not taken for it.
      if (!needs.branches.empty()) of = BranchId{needs.branches.front()};
      CAIRN_RETURN_IF_ERROR(MakeRoom(of, 0, no_room, io::kNoDeadline));
      continue;
    }
    const uint32_t now = compactions_word_.load();
    if (!rounds.has_value()) rounds = now;
    if (pacer_.paused()) return no_room.WithContext("the background is paused");
    // The one that is under way may have missed something, the next will not have.
    if (now - *rounds >= 2 || pacer_.stopped()) return no_room;
    KickSpace();
    world_.scheduler->Wait(compactions_word_, now,
                           world_.scheduler->MonotonicNs() + engine::kRoomLookAgainNs);
  }
}

Result<Branch> StoreCore::FinishBranch(Result<Op> op) {
  if (!op.ok()) return op.status();
  return Branch(shared_from_this(), BranchId{op->branch});
}

Result<ModelId> StoreCore::RegisterModel(const ModelSpec& spec, Durability durability) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_RETURN_IF_ERROR(spec.Validate());
  const auto find = [&](const Tree& tree) -> Result<uint64_t> {
    for (const auto& [id, known] : tree.models()) {
      if (known->identity != spec.identity || known->variant != spec.variant ||
          known->shard != spec.shard) {
        continue;
      }
      const std::string difference = known->FirstDifference(spec);
      if (difference.empty()) return id;
      return Status(
          StatusCode::kModelMismatch,
          "model \"" + spec.identity.name + "\" is registered with another shape: " + difference);
    }
    return uint64_t{0};
  };
  // Who registered it may not have waited.
  const auto found = [&](uint64_t id, uint64_t sequence) -> Result<ModelId> {
    if (sequence != 0) CAIRN_RETURN_IF_ERROR(WaitFor(sequence, durability, io::kNoDeadline));
    return ModelId{id};
  };
  uint64_t id = 0, sequence = 0;
  {
    std::lock_guard lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(id, find(tree_));
    sequence = models_sequence_;
  }
  if (id != 0) return found(id, sequence);
  uint64_t raced = 0;
  auto op = Change(
      {},
      [&](const Tree& tree) -> Result<Op> {
        CAIRN_ASSIGN_OR_RETURN(raced, find(tree));
        sequence = models_sequence_;
        if (raced != 0) return Status(StatusCode::kAlreadyExists, "registered just now");
        return tree.ResolveModel(spec);
      },
      durability, wal::Log::Purpose::kData);
  if (raced != 0) return found(raced, sequence);
  if (!op.ok()) return op.status();
  return ModelId{op->other};
}

Result<Branch> StoreCore::CreateBranch(ModelId model, const BranchOptions& options) {
  return FinishBranch(Change(
      {.branches = {}, .nodes = {}, .names = {{options.ns, options.name}}},
      [&](const Tree& tree) {
        return tree.ResolveCreate(static_cast<uint64_t>(model), options.name, options.ns,
                                  options.keep);
      },
      options.durability, wal::Log::Purpose::kData));
}

Result<Branch> StoreCore::ForkAt(BranchId id, uint64_t position, const BranchOptions& options) {
  auto op = Change(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {{options.ns, options.name}}},
      [&](const Tree& tree) {
        return tree.ResolveFork(static_cast<uint64_t>(id), position, options.name, options.ns,
                                options.keep);
      },
      options.durability, wal::Log::Purpose::kData);
  if (op.ok()) counters_.forks.fetch_add(1, std::memory_order_relaxed);
  return FinishBranch(std::move(op));
}

Status StoreCore::Rewind(BranchId id, uint64_t length, Durability durability) {
  const auto op = Change(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<Op> {
        if (gathering_.contains(id)) {
          return Status(StatusCode::kBusy, "a large append of this branch is being gathered");
        }
        return tree.ResolveRewind(static_cast<uint64_t>(id), length);
      },
      durability, wal::Log::Purpose::kRelease);
  if (op.ok()) {
    counters_.rewinds.fetch_add(1, std::memory_order_relaxed);
    KickSpaceIfShort();  // What died in the log makes it smaller when it is sealed.
  }
  return op.status();
}

Status StoreCore::Rename(BranchId id, const std::string& name, Durability durability) {
  std::string ns;  // Never changes.
  {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
    ns = head->ns;
  }
  return Change(
             {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {{ns, name}}},
             [&](const Tree& tree) { return tree.ResolveRename(static_cast<uint64_t>(id), name); },
             durability, wal::Log::Purpose::kData)
      .status();
}

Status StoreCore::Drop(BranchId id, Durability durability) {
  const auto op = Change(
      {.branches = {static_cast<uint64_t>(id)}, .nodes = {}, .names = {}},
      [&](const Tree& tree) -> Result<Op> {
        if (gathering_.contains(id)) {
          return Status(StatusCode::kBusy, "a large append of this branch is being gathered");
        }
        return tree.ResolveDrop(static_cast<uint64_t>(id));
      },
      durability, wal::Log::Purpose::kRelease);
  if (op.ok()) {
    counters_.drops.fetch_add(1, std::memory_order_relaxed);
    KickSpace();
  }
  return op.status();
}

}  // namespace cairn
