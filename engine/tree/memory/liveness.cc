// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/liveness.h"

#include <algorithm>

namespace cairn::engine {

namespace {

// When the farthest branch is dropped, or ends elsewhere, the content at the node's end that only
// it needed is dead. Memory need not know which ref is the farthest then, and a node should be
// trimmed once and not for each branch: so the node is only noted, and trimmed later (trim.cc).
void MarkUntrimmed(Tree* tree, Node* node) {
  const Lane& tokens = node->lanes[kTokenLane];
  const uint64_t farthest = node->refs.rbegin()->position;
  if (node->untrimmed || farthest >= tokens.end) return;
  tree->dirty().Touch(node);
  const ModelSpec& model = tree->ModelOf(*node);
  const uint64_t positions = tokens.end - std::max(farthest, tokens.start);
  uint64_t bytes = 0;
  for (size_t lane = 0; lane < node->lanes.size(); ++lane) {
    bytes += positions * PositionBytes(model, lane);
  }
  tree->leftovers().MarkUntrimmed(node->id, bytes);
  node->untrimmed = true;
}

// Nothing needs its content any more.
void Bury(Tree* tree, Node* node) {
  tree->dirty().Touch(node);
  TreeSums& sums = tree->sums();
  const uint64_t held = node->use->bytes;
  sums.CountLanes(*node, tree->ModelOf(*node), -1);
  sums.CountNode(node->use, -1);
  for (size_t i = 0; i < node->lanes.size(); ++i) {
    for (const Extent& extent : node->lanes[i].extents) tree->CountExtent(node, i, extent, -1);
    node->lanes[i].extents = {};
  }
  for (std::vector<Mark>* marks : {&node->samplers, &node->metadata, &node->derived}) {
    for (const Mark& mark : *marks) tree->CountMark(mark.place, -1);
    *marks = {};
  }
  node->spans = {};
  tree->leases().OnNodeDied(node->id);
  sums.CountDied(held - node->use->bytes);
  node->gone = true;
  tree->residency().Charge(node);
}

}  // namespace

// In a replay a dead node may still exist, undecided, as memory does not know all refs. But then no
// branch is below it, and nothing that memory does not have: everything that died since the index
// was written was loaded for that.
bool IsNeeded(const Tree& tree, const Node& node, uint64_t from, uint64_t but) {
  std::vector<const Node*> below = {&node};
  while (!below.empty()) {
    const Node& next = *below.back();
    below.pop_back();
    const Ref first{.position = &next == &node ? from : 0};
    for (auto ref = next.refs.lower_bound(first); ref != next.refs.end(); ++ref) {
      if (ref->id == but) continue;
      const Node* const child = ref->kind == Ref::kEdge ? tree.FindNode(ref->id) : nullptr;
      // Each child is visited once, by its own edge.
      if (child == nullptr || child->parent != next.id ||
          child->lanes[kTokenLane].start != ref->position) {
        return true;
      }
      below.push_back(child);
    }
  }
  return false;
}

uint64_t OnlyChild(const Tree& tree, uint64_t id) {
  const Node* const node = tree.FindNode(id);
  if (node == nullptr || !node->knows_all_refs() || node->refs.size() != 1) return 0;
  const Ref& only = *node->refs.begin();
  return only.kind == Ref::kEdge ? only.id : 0;
}

// Cannot fail: room was reserved when the last ref went.
void CollectDead(Tree* tree, uint64_t id) {
  while (Node* const node = tree->residency().MutableNode(id)) {
    if (!node->unneeded()) {
      if (OnlyChild(*tree, id) != 0) tree->leftovers().AddJoinable(id);
      return MarkUntrimmed(tree, node);
    }
    if (!node->knows_all_refs()) {
      const std::vector<uint64_t>& undecided = tree->leftovers().undecided();
      if (std::find(undecided.begin(), undecided.end(), id) != undecided.end()) return;
      tree->leftovers().AddUndecided(id);
      ++node->users;
      return;
    }
    Bury(tree, node);
    id = node->parent;
    if (Node* const parent = tree->residency().MutableNode(id); parent != nullptr) {
      parent->refs.erase({node->lanes[kTokenLane].start, Ref::kEdge, node->id});
      --parent->users;
    }
  }
}

bool IsLeasedAlone(const Tree& tree, const Head& head) {
  for (const Node* node = tree.FindNode(head.node); node != nullptr;
       node = tree.OnPath(node->parent)) {
    if (tree.leases().LeasedTo(node->id) != 0) return true;
    if (node->refs.size() > 1 || !node->knows_all_refs()) return false;
  }
  return false;
}

void DecideFirst(Tree* tree) {
  Leftovers& leftovers = tree->leftovers();
  leftovers.Reserve(1);  // Its parent may then be undecided, or untrimmed.
  const uint64_t id = leftovers.undecided().front();
  leftovers.EraseUndecided(id);
  --tree->residency().MutableNode(id)->users;
  CollectDead(tree, id);
}

uint64_t AnyUntrimmed(const Tree& tree) {
  const std::span<const uint64_t> untrimmed = tree.leftovers().untrimmed();
  for (auto id = untrimmed.rbegin(); id != untrimmed.rend(); ++id) {
    const uint64_t leased = tree.leases().LeasedTo(*id);
    const Node* const node = leased == 0 ? nullptr : tree.FindNode(*id);
    if (leased == 0 || (node != nullptr && leased < node->lanes[kTokenLane].end)) return *id;
  }
  return 0;
}

bool SettleUntrimmed(Tree* tree, uint64_t id) {
  if (Node* const node = tree->residency().MutableNode(id); node != nullptr) {
    const Ref* const farthest = node->farthest();
    if (farthest == nullptr || farthest->position < node->lanes[kTokenLane].end) return false;
    tree->dirty().Touch(node);
    node->untrimmed = false;
  }
  tree->leftovers().EraseUntrimmed(id);
  return true;
}

}  // namespace cairn::engine
