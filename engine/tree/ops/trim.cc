// SPDX-License-Identifier: Apache-2.0
//
// Trims the end of a node: in place by a rewind, and of an untrimmed node (liveness.h) by a log
// record of its own. The trim determines which extents a later seal names, so replay must not
// decide it again.
#include <algorithm>
#include <functional>
#include <memory>

#include "base/core/mutation.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"

namespace cairn::engine {

namespace {

// A trim of a node. Only the parts that go are copied, all of them before the first change, so
// that neither the trim nor its undo can fail.
class NodeTrim {
 public:
  NodeTrim(const Node& node, const std::vector<uint64_t>& lengths) : length_(lengths[kTokenLane]) {
    lanes_.resize(node.lanes.size());
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = node.lanes[i];
      const auto first = std::partition_point(
          lane.extents.begin(), lane.extents.end(),
          [&](const Extent& extent) { return extent.begin + extent.count <= lengths[i]; });
      lanes_[i] = {lane.end, lengths[i], {first, lane.extents.end()}};
    }
    samplers_ = MarksBeyond(node.samplers);
    metadata_ = MarksBeyond(node.metadata);
    if (CAIRN_KEPT(kDerivedOfCut)) derived_ = MarksBeyond(node.derived);
    const auto first_span =
        std::partition_point(node.spans.begin(), node.spans.end(),
                             [&](const ContentSpan& span) { return span.end <= length_; });
    spans_.assign(first_span, node.spans.end());
    splits_span_ = !spans_.empty() && spans_.front().begin < length_;
  }

  void Apply(Tree* tree, Node* node) const {
    const Recount recount(tree, *node);
    UseMarks(tree, -1);
    node->samplers.resize(node->samplers.size() - samplers_.size());
    node->metadata.resize(node->metadata.size() - metadata_.size());
    node->derived.resize(node->derived.size() - derived_.size());
    node->spans.resize(node->spans.size() - spans_.size() + (splits_span_ ? 1 : 0));
    if (splits_span_) node->spans.back().end = length_;
    node->flushed.samplers.Changed(node->samplers.size());
    node->flushed.metadata.Changed(node->metadata.size());
    node->flushed.derived.Changed(node->derived.size());
    node->flushed.spans.Changed(node->spans.size() - (splits_span_ ? 1 : 0));
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = node->lanes[i];
      const LaneTrim& was = lanes_[i];
      lane.extents.resize(lane.extents.size() - was.extents.size());
      node->flushed.LaneChanged(i, lane.extents.size());
      lane.end = std::max(lane.start, std::min(lane.end, was.length));
      for (const Extent& extent : was.extents) tree->CountExtent(node, i, extent, -1);
      if (was.splits()) {
        Extent head_part = was.extents.front();
        head_part.count = static_cast<uint32_t>(was.length - head_part.begin);
        lane.extents.push_back(head_part);
        tree->CountExtent(node, i, head_part, 1);
      }
    }
  }

  void Undo(Tree* tree, Node* node) const {
    const Recount undone(tree, *node);
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = node->lanes[i];
      const LaneTrim& was = lanes_[i];
      if (was.splits()) {
        tree->CountExtent(node, i, lane.extents.back(), -1);
        lane.extents.pop_back();
      }
      for (const Extent& extent : was.extents) tree->CountExtent(node, i, extent, 1);
      lane.extents.insert(lane.extents.end(), was.extents.begin(), was.extents.end());
      lane.end = was.end;
    }
    UseMarks(tree, 1);
    node->samplers.insert(node->samplers.end(), samplers_.begin(), samplers_.end());
    node->metadata.insert(node->metadata.end(), metadata_.begin(), metadata_.end());
    node->derived.insert(node->derived.end(), derived_.begin(), derived_.end());
    if (splits_span_) node->spans.pop_back();
    node->spans.insert(node->spans.end(), spans_.begin(), spans_.end());
  }

 private:
  struct LaneTrim {
    uint64_t end = 0, length = 0;
    std::vector<Extent> extents;  // Those changed or removed, in order.
    bool splits() const { return !extents.empty() && extents.front().begin < length; }
  };

  void UseMarks(Tree* tree, int sign) const {
    for (const std::vector<Mark>* marks : {&samplers_, &metadata_, &derived_}) {
      for (const Mark& mark : *marks) tree->CountMark(mark.place, sign);
    }
  }

  std::vector<Mark> MarksBeyond(const std::vector<Mark>& marks) const {
    const auto first = std::partition_point(
        marks.begin(), marks.end(), [&](const Mark& mark) { return mark.position <= length_; });
    return {first, marks.end()};
  }

  const uint64_t length_;
  std::vector<LaneTrim> lanes_;
  std::vector<Mark> samplers_, metadata_, derived_;
  std::vector<ContentSpan> spans_;  // Those changed or removed.
  bool splits_span_ = false;
};

}  // namespace

Result<Op> ResolveTrim(const Tree& tree, uint64_t id) {
  const Node* const node = tree.FindNode(id);
  const Ref* const farthest = node == nullptr ? nullptr : node->farthest();
  const uint64_t end =
      farthest == nullptr ? 0 : std::max(farthest->position, tree.leases().LeasedTo(id));
  if (farthest == nullptr || end >= node->lanes[kTokenLane].end) {
    return Status(StatusCode::kNotFound, "node " + std::to_string(id) + " has nothing to cut off");
  }
  Op op;
  op.kind = OpKind::kTrim;
  op.node = id;
  op.position = end;
  return op;
}

Status TreeChanges::ApplyTrim(const Op& op) {
  Node* const node = tree_->residency().MutableNode(op.node);
  if (node == nullptr) return DoesNotApply(op, "no node " + std::to_string(op.node));
  const Lane& tokens = node->lanes[kTokenLane];
  if (op.position < tokens.start || op.position >= tokens.end)
    return DoesNotApply(op, "not within it");
  if (IsNeeded(*tree_, *node, op.position + 1, 0))
    return DoesNotApply(op, "others need what it cuts off");
  const uint64_t held = node->use->bytes;
  TrimNode(node, std::vector<uint64_t>(node->lanes.size(), op.position));
  const uint64_t died = held - node->use->bytes;
  transaction_->PushUndo([tree = tree_, died] { tree->sums().UndoDied(died); });
  tree_->sums().CountDied(died);
  return Status::Ok();
}

// One length for each lane; states and spans are trimmed with the tokens. A span that the trim goes
// through ends there: later appends are not its content.
void TreeChanges::TrimNode(Node* node, const std::vector<uint64_t>& lengths) {
  const auto trim = std::make_shared<const NodeTrim>(*node, lengths);
  std::function<void()> undo = [tree = tree_, node, trim] { trim->Undo(tree, node); };
  transaction_->ReserveUndo(1);
  tree_->dirty().Touch(node);
  trim->Apply(tree_, node);
  transaction_->PushUndo(std::move(undo));
}

}  // namespace cairn::engine
