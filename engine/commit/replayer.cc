// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/replayer.h"

#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "engine/tree/records/tree_loader.h"

namespace cairn::engine {

Replayer::Replayer(Tree* tree, Committer* committer, uint64_t index_sequence, bool lossy)
    : tree_(tree),
      committer_(committer),
      index_sequence_(index_sequence),
      observed_(committer->ReplayIsObserved()),
      lossy_(lossy) {
  if (observed_) committer_->BeginReplay(index_sequence);
}

Status Replayer::DecideAll() { return engine::DecideAll(tree_, &lock_); }

Status Replayer::Apply(const wal::RecordView& record) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<Op> ops, DecodeRecord(record));
  // The index has it. But parts may count only with a later record that the index does not have.
  const bool in_index = record.sequence <= index_sequence_;
  if (in_index && (ops.empty() || ops.front().kind != OpKind::kPart)) {
    open_units_.erase(record.unit);
    return Status::Ok();
  }
  const RollbackUnlessCommitted rollback{&transaction_};
  uint32_t token_prefix = record.location.bytes;
  std::vector<CommittedOp> committed;  // If observed.
  std::vector<Part> parts;             // The unit's, which a record of one op ends.
  for (Op& op : ops) {
    uint32_t prefix = record.location.bytes;
    for (const LaneRange& lane : op.lanes) {
      if (lane.strip >= record.strip_count()) {
        return Status(StatusCode::kCorruption,
                      "strip " + std::to_string(lane.strip) + " does not exist");
      }
      if (lane.lane != kTokenLane) continue;
      prefix = record.strip_offset(lane.strip) + record.strip(lane.strip).bytes;
    }
    if (op.kind == OpKind::kPart) {
      Part part{record.location, op.lanes, {}};
      for (const LaneRange& lane : op.lanes) {
        part.prefix_bytes.push_back(lane.lane == kTokenLane ? prefix : record.location.bytes);
      }
      open_units_[record.unit].push_back(std::move(part));
      continue;
    }
    if (ops.size() == 1) token_prefix = prefix;
    std::span<const Part> own_parts;
    if (const auto unit = open_units_.find(record.unit); unit != open_units_.end()) {
      own_parts = parts = std::move(unit->second);
      open_units_.erase(unit);
    }
    CAIRN_RETURN_IF_ERROR(LoadNeeds(tree_, &lock_, NeedsOf(op)));
    if (lossy_ && op.kind == OpKind::kSeal) {
      std::erase_if(op.sealed, [this](const SealedRange& range) {
        return tree_->FindNode(range.node) == nullptr;
      });
      if (op.sealed.empty()) continue;
    }
    const uint64_t node = observed_ ? NodeOf(*tree_, op) : 0;
    CAIRN_RETURN_IF_ERROR(changes_.Apply(op, own_parts));
    if (!observed_) continue;
    committed.push_back({.op = std::move(op), .parts = own_parts});
    committed.back().node = node;
  }
  transaction_.Commit(record.location, token_prefix);
  committer_->ReportReplayed(committed, record.sequence);
  return Status::Ok();
}

}  // namespace cairn::engine
