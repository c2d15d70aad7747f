// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/derived_tables.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

// Keeps the node's content up to the position unchanged.
class DerivedTables::Lease {
 public:
  explicit Lease(const WriteDeps& deps) : deps_(deps) {}
  ~Lease() {
    if (number == 0) return;
    const std::lock_guard lock(deps_.mutex());
    deps_.tree().leases().Release(number);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  uint64_t number = 0;

 private:
  const WriteDeps& deps_;
};

Result<DerivedTables::Owner> DerivedTables::OwnerOf(BranchId branch, uint64_t position,
                                                    uint32_t kind, uint64_t* lease) {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* const head, coalesced_->LookAt(branch, &lock));
  const uint64_t length = head->lengths[kTokenLane];
  if (position == 0 || position > length || kind == 0) {
    return Status(StatusCode::kInvalidArgument,
                  kind == 0 ? "kind is 0"
                            : "position is " + std::to_string(position) + ", the branch has " +
                                  std::to_string(length) + " tokens");
  }
  const Node* node = deps_.tree().OnPath(head->node);
  while (node->lanes[kTokenLane].start >= position) node = deps_.tree().OnPath(node->parent);
  if (CAIRN_KEPT(kLeaseOfDerived)) {
    *lease = deps_.tree().leases().Grant({node->id, position}, /*deadline_ns=*/UINT64_MAX);
  }
  return Owner{.node = NodeId{node->id}, .position = position, .kind = kind};
}

Result<DerivedTables::Owner> DerivedTables::Make(BranchId branch, uint64_t position, uint32_t kind,
                                                 const Write& write) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckWritable());
  Lease lease(deps_);
  CAIRN_ASSIGN_OR_RETURN(Owner owner, OwnerOf(branch, position, kind, &lease.number));
  const sstable::TableContext tables = deps_.callbacks->DataTables();
  CAIRN_ASSIGN_OR_RETURN(const uint64_t number, tables.callbacks->NewTableNumber());
  CAIRN_ASSIGN_OR_RETURN(const auto writer,
                         sstable::SnapshotWriter::Create(tables, sstable::SnapshotKind::kDerived,
                                                         number, sstable::kQuietWriteBytes));
  CAIRN_RETURN_IF_ERROR(CatchBadAlloc([&] { return write(owner, writer.get()); }));
  CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer->Finish());
  const TableRef table{number, info.bytes};
  const Status named =
      CatchBadAlloc([&] { return changes_->NameDerived(owner.node, position, kind, table); });
  if (!named.ok()) {
    deps_.callbacks->DeleteTable(table);
    return named;
  }
  owner.table = number;
  return owner;
}

Result<DerivedTables::Found> DerivedTables::Find(BranchId branch, uint64_t at_most, uint32_t kind) {
  const Lifecycle::Call call(deps_.lifecycle);
  Found found;
  {
    Committer::Lock lock;
    CAIRN_ASSIGN_OR_RETURN(const Head* const head, coalesced_->LookAt(branch, &lock));
    CAIRN_RETURN_IF_ERROR(FindFrom(*head, at_most, kind, &found));
  }
  return OpenFound(std::move(found));
}

Result<DerivedTables::Found> DerivedTables::FindFor(BranchId branch, const Owner& owner) {
  const Lifecycle::Call call(deps_.lifecycle);
  Found found;
  {
    Committer::Lock lock;
    CAIRN_ASSIGN_OR_RETURN(const Head* const head, coalesced_->LookAt(branch, &lock));
    Head end;
    end.node = static_cast<uint64_t>(owner.node);
    end.lengths = {owner.position};
    uint64_t reaches = head->lengths[kTokenLane];
    const Node* node = deps_.tree().OnPath(head->node);
    for (; node != nullptr && node->id != end.node; node = deps_.tree().OnPath(node->parent)) {
      reaches = std::min(reaches, node->lanes[kTokenLane].start);
    }
    if (node == nullptr || reaches < owner.position) {
      return Status(StatusCode::kNotFound, "the branch has other content by now");
    }
    CAIRN_RETURN_IF_ERROR(FindFrom(end, owner.position, owner.kind, &found));
  }
  return OpenFound(std::move(found));
}

// REQUIRES: the commit lock.
Status DerivedTables::FindFrom(const Head& head, uint64_t at_most, uint32_t kind, Found* found) {
  uint64_t node = 0;
  const Mark* const mark = FindDerived(deps_.tree(), head, kind, at_most, &node);
  if (mark == nullptr) return Status(StatusCode::kNotFound, "nothing of this kind is derived");
  const uint64_t number = mark->place.table;
  found->owner = {.node = NodeId{node}, .position = mark->position, .kind = kind, .table = number};
  found->pin = reader_.pins().Take({Pins::Of::kNode, node}, {}, {number});
  return Status::Ok();
}

Result<DerivedTables::Found> DerivedTables::OpenFound(Found found) {
  auto table = reader_.tables().Open(found.owner.table);
  const StatusCode code = table.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kCorruption) {
    // The caller makes it again; until then others need not try this one. A reader leaves it.
    if (!deps_.options->read_only) static_cast<void>(Drop(found.owner));
    return Status(StatusCode::kNotFound, "what was derived is lost: " + table.status().ToString());
  }
  if (!table.ok()) return table.status();
  found.table = std::move(*table);
  return found;
}

Status DerivedTables::Drop(const Owner& owner) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckWritable());
  CAIRN_RETURN_IF_ERROR(changes_->DropDerived(owner.node, owner.position, owner.kind, owner.table));
  deps_.callbacks->WakeSpaceThread();
  return Status::Ok();
}

}  // namespace cairn::engine
