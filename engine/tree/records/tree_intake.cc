// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/records/tree_intake.h"

#include <algorithm>
#include <set>

#include "base/core/check.h"

namespace cairn::engine {

namespace {

Status BadNode(uint64_t node, const std::string& what) {
  return Status(StatusCode::kCorruption, "the index: node " + std::to_string(node) + ": " + what);
}

Status BadBranch(uint64_t branch, const std::string& what) {
  return Status(StatusCode::kCorruption,
                "the index: branch #" + std::to_string(branch) + ": " + what);
}

// The lanes of a node begin on its parent, within the parent's lanes.
bool BeginsOn(const Node& parent, const Node& node) {
  if (parent.model != node.model) return false;
  for (size_t lane = 0; lane < node.lanes.size(); ++lane) {
    const uint64_t start = node.lanes[lane].start;
    if (start < parent.lanes[lane].start || start > parent.lanes[lane].end) return false;
  }
  return true;
}

bool EndsOn(const Node& node, const Head& head) {
  if (node.model != head.model) return false;
  for (size_t lane = 0; lane < node.lanes.size(); ++lane) {
    const uint64_t length = head.lengths[lane];
    if (length < node.lanes[lane].start || length > node.lanes[lane].end) return false;
  }
  return true;
}

// Memory alone says where a branch stands that it has, or knows to be dropped.
bool IsStale(Residency* memory, uint64_t node, const Ref& ref) {
  if (ref.kind == Ref::kEdge) {
    const Node* const child = memory->NodeOrGone(ref.id);
    return child != nullptr && child->gone;
  }
  const Head* const head = memory->HeadOrGone(ref.id);
  return head != nullptr &&
         (head->gone || head->node != node || head->lengths[kTokenLane] != ref.position);
}

Status CheckFits(const Tree& tree, const Node& node) {
  const auto model = tree.models().find(node.model);
  if (model == tree.models().end() || node.lanes.size() != 1 + model->second->groups.size()) {
    return BadNode(node.id, "its model is missing or has other groups");
  }
  const auto has_place = [&](const Place& place) {
    return !place.in_table() || tree.tables().contains(place.table);
  };
  for (const Lane& lane : node.lanes) {
    for (const Extent& extent : lane.extents) {
      if (!has_place(extent.place)) return BadNode(node.id, "its table is missing");
    }
  }
  for (const std::vector<Mark>* marks : {&node.samplers, &node.metadata, &node.derived}) {
    for (const Mark& mark : *marks) {
      if (!has_place(mark.place)) return BadNode(node.id, "a state's table is missing");
    }
  }
  return Status::Ok();
}

}  // namespace

Status InsertNode(Tree* tree, std::unique_ptr<Node> node) {
  if (tree->KnowsNode(node->id)) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(CheckFits(*tree, *node));
  Residency& memory = tree->residency();
  Node* const parent = memory.MutableNode(node->parent);
  if (node->parent != 0 && parent == nullptr) return BadNode(node->id, "its parent is missing");
  if (parent != nullptr && !BeginsOn(*parent, *node)) {
    return BadNode(node->id, "it does not begin on its parent");
  }
  if (tree->FindNamespace(node->ns) == nullptr)
    return BadNode(node->id, "its namespace is missing");
  node->use = tree->sums().NamespaceOf(node->ns);
  for (Lane& lane : node->lanes) {
    for (const Extent& extent : lane.extents) {
      if (extent.place.absent()) lane.absent += extent.count;
      if (extent.place.evicted()) lane.evicted += extent.count;
    }
  }
  std::erase_if(node->refs, [&](const Ref& ref) { return IsStale(&memory, node->id, ref); });
  tree->dirty().ReserveNodes(memory.node_count() + 1);
  memory.RememberNode(node->id);
  Node* const inserted = memory.AddNode(std::move(node));
  if (parent != nullptr) ++parent->users;
  memory.Charge(inserted);
  memory.CountLoad();
  return Status::Ok();
}

Status InsertHead(Tree* tree, Head head) {
  if (tree->KnowsHead(head.id)) return Status::Ok();
  Residency& memory = tree->residency();
  Node* const node = memory.MutableNode(head.node);
  const auto model = tree->models().find(head.model);
  if (model == tree->models().end() || head.lengths.size() != 1 + model->second->groups.size() ||
      (head.node != 0 && node == nullptr)) {
    return BadBranch(head.id, "its model or its node is missing, or it has other groups");
  }
  if (node != nullptr && !EndsOn(*node, head)) {
    return BadBranch(head.id, "it does not end on its node");
  }
  head.use = tree->FindNamespace(head.ns);
  if (head.use == nullptr) return BadBranch(head.id, "its namespace is missing");
  memory.RememberHead(head.id);
  // Allocates everything before the first of three places knows the branch.
  Residency::Names name = {{head.ns, head.name, head.id}};
  std::set<Ref> ref = {{head.lengths[kTokenLane], Ref::kHead, head.id}};
  Head* const inserted = memory.AddHead(std::move(head));
  memory.InsertName(name.extract(name.begin()));
  inserted->used = true;
  if (node != nullptr) {
    node->refs.insert(ref.extract(ref.begin()));
    ++node->users;
  }
  memory.Charge(inserted);
  memory.CountLoad();
  return Status::Ok();
}

void InsertRefs(Tree* tree, uint64_t id, std::span<const Ref> refs, const Ref& from) {
  Residency& memory = tree->residency();
  Node* const node = memory.MutableNode(id);
  if (node == nullptr) return;
  for (const Ref& ref : refs) {
    if (!IsStale(&memory, id, ref)) node->refs.insert(ref);
  }
  node->refs_from = std::min(node->refs_from, from);
  memory.Charge(node);
}

}  // namespace cairn::engine
