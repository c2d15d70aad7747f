// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/ops/tree_changes.h"

#include <algorithm>

#include "base/core/check.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/memory/reserve_more.h"

namespace cairn::engine {

namespace {

// Keeps the memory for the next transaction, unless it is that of a large batch.
template <typename T>
void Empty(std::vector<T>* entries) {
  constexpr size_t kKept = 1024;
  entries->clear();
  if (entries->capacity() > kKept) std::vector<T>().swap(*entries);
}

}  // namespace

Status TreeChanges::Apply(const Op& op, std::span<const Part> parts) {
  // Two undo steps more than one op pushes, besides those for lanes, so that push_back cannot throw
  // between a change and its undo step.
  transaction_->ReserveUndo(64 + parts.size() * 2 + op.lanes.size());
  ReserveMore(&touched_, 1 + op.lanes.size());
  ReserveMore(&filled_, op.lanes.size());
  ReserveMore(&unsealed_, 1 + op.lanes.size());
  tree_->seal_queue().Reserve(unsealed_.capacity());
  tree_->segment_usages().Reserve(1 + parts.size());
  tree_->logged().Reserve(touched_.size() + 1 + parts.size() + op.lanes.size());
  ReserveMore(&left_, 2);
  // Each of them may end in a node that cannot be decided yet, or in an untrimmed one.
  tree_->leftovers().Reserve(left_.capacity());
  Status status;
  switch (op.kind) {
    case OpKind::kModel: status = ApplyModel(op); break;
    case OpKind::kCreate: status = ApplyCreate(op); break;
    case OpKind::kFork: status = ApplyFork(op); break;
    case OpKind::kAppend: status = ApplyAppend(op, parts); break;
    case OpKind::kRewind: status = ApplyRewind(op); break;
    case OpKind::kRename: status = ApplyRename(op); break;
    case OpKind::kDrop: status = ApplyDrop(op); break;
    case OpKind::kSeal: status = ApplySeal(op); break;
    case OpKind::kEvict: status = ApplyEvict(op); break;
    case OpKind::kFill: status = ApplyFill(op); break;
    case OpKind::kKeep: status = ApplyKeep(op); break;
    case OpKind::kNamespace: status = ApplyNamespace(op); break;
    case OpKind::kJoin: status = ApplyJoin(op); break;
    case OpKind::kTrim: status = ApplyTrim(op); break;
    case OpKind::kDerive: status = ApplyDerive(op); break;
    case OpKind::kPart:
    case OpKind::kBatch: status = DoesNotApply(op, "not a change of its own"); break;
  }
  ++op_index_;
  return status;
}

void TreeChanges::OnCommit(const wal::Location& location, uint32_t token_prefix_bytes) {
  CAIRN_CHECK(location.segment != 0);  // Else a place would not be known afterwards.
  CAIRN_CHECK(token_prefix_bytes <= location.bytes);
  const auto settle_marks = [&](std::vector<Mark>& marks) {
    for (auto it = marks.rbegin(); it != marks.rend() && !it->place.known(); ++it) {
      it->place.log = location;
      tree_->CountMark(it->place, 1);
    }
  };
  for (const uint64_t id : touched_) {
    Node* const found = tree_->residency().MutableNode(id);
    if (found == nullptr) continue;
    Node& node = *found;
    for (size_t i = 0; i < node.lanes.size(); ++i) {
      Lane& lane = node.lanes[i];
      for (auto it = lane.extents.rbegin(); it != lane.extents.rend() && !it->place.known(); ++it) {
        it->place.log = location;
        it->prefix_bytes = i == kTokenLane ? token_prefix_bytes : location.bytes;
        tree_->CountExtent(&node, i, *it, 1);
      }
    }
    settle_marks(node.samplers);
    settle_marks(node.metadata);
    tree_->residency().Charge(&node);
    RecordLogged(location.segment, id);
  }
  for (const Filled& filled : filled_) {
    Node* const node = tree_->residency().MutableNode(filled.node);
    CAIRN_CHECK(node != nullptr);  // Those that died are collected below.
    CAIRN_CHECK(filled.lane < node->lanes.size());
    std::vector<Extent>& extents = node->lanes[filled.lane].extents;
    const auto at = std::partition_point(extents.begin(), extents.end(),
                                         [&](const Extent& e) { return e.begin < filled.begin; });
    // A later op of the batch may have trimmed it off.
    if (at == extents.end() || at->place.known()) continue;
    at->place.log = location;
    at->prefix_bytes = location.bytes;
    tree_->CountExtent(node, filled.lane, *at, 1);
  }
  for (const auto& [id, tokens] : unsealed_) {
    Node* const node = tree_->residency().MutableNode(id);
    if (node != nullptr) tree_->seal_queue().Add(node, tokens, tree_->ModelOf(*node));
  }
  for (const uint64_t node : left_) CollectDead(tree_, node);
  Clear();
}

void TreeChanges::Clear() {
  op_index_ = 0;
  for (auto* const ids : {&touched_, &left_}) Empty(ids);
  Empty(&unsealed_);
  Empty(&filled_);
}

// Apply reserved the room. Notes the node even if it is the last entry: that entry may be about to
// be forgotten, because its content was sealed (LoggedNodes::Forget).
void TreeChanges::RecordLogged(uint64_t segment, uint64_t node) {
  tree_->logged().Add(segment, node);
}

}  // namespace cairn::engine
