// SPDX-License-Identifier: Apache-2.0
//
// When the branch that reached farthest goes, or ends elsewhere, what it alone had at the end of a
// node is dead. Who is the farthest then, memory need not know, and a node that lost much loses it
// once: so the node is only noted as loose, and cut later, by a log record of its own. What is cut
// decides which extents a later seal names, so a replay must not decide it anew.
#include <algorithm>

#include "engine/tree/tree_changes.h"

namespace cairn::engine {

// It lost a ref and has others.
void Tree::NoteLoose(Node* node) {
  if (node->loose || node->refs.rbegin()->position >= node->lanes[kTokenLane].end) return;
  Touch(node);
  loose_.push_back(node->id);
  node->loose = true;
  const uint64_t positions = node->lanes[kTokenLane].end -
                             std::max(node->refs.rbegin()->position, node->lanes[kTokenLane].start);
  for (size_t lane = 0; lane < node->lanes.size(); ++lane) {
    loose_bytes_noted_ += positions * PositionBytes(*node, lane);
  }
}

uint64_t Tree::AnyLoose() const {
  for (auto id = loose_.rbegin(); id != loose_.rend(); ++id) {
    const uint64_t leased = leases_.LeasedTo(*id);
    const Node* const node = leased == 0 ? nullptr : FindNode(*id);
    if (leased == 0 || (node != nullptr && leased < node->lanes[kTokenLane].end)) return *id;
  }
  return 0;
}

bool Tree::SettleLoose(uint64_t id) {
  if (Node* const node = MutableNode(id); node != nullptr) {
    const Ref* const farthest = node->farthest();
    if (farthest == nullptr || farthest->position < node->lanes[kTokenLane].end) return false;
    Touch(node);
    node->loose = false;
  }
  const auto found = std::find(loose_.rbegin(), loose_.rend(), id);  // Near the end.
  if (found != loose_.rend()) loose_.erase(std::prev(found.base()));
  return true;
}

Result<Op> Tree::ResolveCut(uint64_t id) const {
  const Node* const node = FindNode(id);
  const Ref* const farthest = node == nullptr ? nullptr : node->farthest();
  const uint64_t end = farthest == nullptr ? 0 : std::max(farthest->position, leases_.LeasedTo(id));
  if (farthest == nullptr || end >= node->lanes[kTokenLane].end) {
    return Status(StatusCode::kNotFound, "node " + std::to_string(id) + " has nothing to cut off");
  }
  Op op;
  op.kind = OpKind::kCut;
  op.node = id;
  op.position = end;
  return op;
}

Status TreeChanges::ApplyCut(const Op& op) {
  Node* const node = tree_->MutableNode(op.node);
  if (node == nullptr) return Unfit(op, "no node " + std::to_string(op.node));
  const Lane& tokens = node->lanes[kTokenLane];
  if (op.position < tokens.start || op.position >= tokens.end) return Unfit(op, "not within it");
  if (tree_->IsNeeded(*node, op.position + 1, 0)) return Unfit(op, "others need what it cuts off");
  const uint64_t held = node->use->bytes;
  CutNode(node, std::vector<uint64_t>(node->lanes.size(), op.position));
  const uint64_t died = held - node->use->bytes;
  transaction_->PushUndo([tree = tree_, died] { tree->died_bytes_ -= died; });
  tree_->died_bytes_ += died;
  return Status::Ok();
}

}  // namespace cairn::engine
