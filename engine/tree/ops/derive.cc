// SPDX-License-Identifier: Apache-2.0
//
// Data computed from KV (landmarks, low-rank keys, ...) lies in tables of its own, which nodes
// name, by the position up to which the path was read. It lives as long as that content: a trim or
// an eviction below the position removes it, a join hands it on, and it dies with the node. Its
// table is then deleted like any other that nothing needs.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"

namespace cairn::engine {

namespace {

Status NotDerived(uint64_t node, const std::string& why) {
  return Status(StatusCode::kNotFound, "node " + std::to_string(node) + ": " + why);
}

Op DeriveOp(uint64_t node, uint64_t position, uint32_t kind, const TableRef& table) {
  Op op;
  op.kind = OpKind::kDerive;
  op.node = node;
  op.other = kind;
  op.position = position;
  op.table = table;
  return op;
}

}  // namespace

Result<Op> ResolveDerive(const Tree& tree, uint64_t id, uint64_t position, uint32_t kind,
                         const TableRef& table) {
  const Node* const node = tree.FindNode(id);
  if (node == nullptr) return NotDerived(id, "there is none");
  const Lane& tokens = node->lanes[kTokenLane];
  if (position <= tokens.start || position > tokens.end) {
    return NotDerived(id, "position " + std::to_string(position) + " is not on it");
  }
  return DeriveOp(id, position, kind, table);
}

Result<Op> ResolveDropDerived(const Tree& tree, uint64_t id, uint64_t position, uint32_t kind,
                              uint64_t table) {
  const Node* const node = tree.FindNode(id);
  if (node == nullptr) return NotDerived(id, "there is none");
  const bool has = std::any_of(node->derived.begin(), node->derived.end(), [&](const Mark& mark) {
    return mark.position == position && mark.strip == kind && mark.place.table == table;
  });
  if (!has) return NotDerived(id, "it does not name table " + std::to_string(table));
  return DeriveOp(id, position, kind, {});
}

Status TreeChanges::ApplyDerive(const Op& op) {
  Node* const node = tree_->residency().MutableNode(op.node);
  if (node == nullptr) return DoesNotApply(op, "no node " + std::to_string(op.node));
  const Lane& tokens = node->lanes[kTokenLane];
  if (op.position <= tokens.start || op.position > tokens.end)
    return DoesNotApply(op, "not on its node");
  if (op.other == 0 || op.other > UINT32_MAX) return DoesNotApply(op, "no such kind");
  const bool goes = op.table.number == 0;
  if (!goes && (!IsNumber(op.table.number) || !IsNumber(op.table.bytes) ||
                tree_->tables().contains(op.table.number))) {
    return DoesNotApply(op, "no table, or one that holds something else");
  }
  const Mark mark{
      .position = op.position,
      .strip = static_cast<uint32_t>(op.other),
      .place = {
          .log = {}, .table = op.table.number, .positions = 1, .stored_bytes = op.table.bytes}};
  const auto at = std::partition_point(node->derived.begin(), node->derived.end(),
                                       [&](const Mark& m) { return IsDerivedBefore(m, mark); });
  const auto first = static_cast<size_t>(at - node->derived.begin());
  const bool has = at != node->derived.end() && !IsDerivedBefore(mark, *at);
  transaction_->ReserveUndo(2);
  if (!goes) NameTable(op.table, 0);
  ReplaceDerived(node, first, first + (has ? 1 : 0),
                 goes ? std::vector<Mark>() : std::vector<Mark>{mark});
  return Status::Ok();
}

// Drops marks beyond that position.
void TreeChanges::DropDerived(Node* node, uint64_t beyond) {
  const auto first = std::partition_point(node->derived.begin(), node->derived.end(),
                                          [&](const Mark& m) { return m.position <= beyond; });
  if (first == node->derived.end()) return;
  transaction_->ReserveUndo(1);
  ReplaceDerived(node, static_cast<size_t>(first - node->derived.begin()), node->derived.size(),
                 {});
}

// Replaces marks [first, last) by others.
void TreeChanges::ReplaceDerived(Node* node, size_t first, size_t last, std::vector<Mark> now) {
  const auto at = [node](size_t index) {
    return node->derived.begin() + static_cast<ptrdiff_t>(index);
  };
  const std::vector<Mark> gone(at(first), at(last));
  // The list that is not in the node: undoing swaps the two and takes no memory.
  const auto other = std::make_shared<std::vector<Mark>>(node->derived.begin(), at(first));
  other->insert(other->end(), now.begin(), now.end());
  other->insert(other->end(), at(last), node->derived.end());
  const auto use = [tree = tree_](const std::vector<Mark>& marks, int sign) {
    for (const Mark& mark : marks) tree->CountMark(mark.place, sign);
  };
  std::function<void()> undo = [use, node, other, now, gone] {
    use(now, -1);
    use(gone, 1);
    node->derived.swap(*other);
  };
  tree_->dirty().Touch(node);
  use(gone, -1);
  use(now, 1);
  node->derived.swap(*other);
  node->flushed.derived.Changed(first);
  tree_->residency().Charge(node);
  transaction_->PushUndo(std::move(undo));
}

}  // namespace cairn::engine
