// SPDX-License-Identifier: Apache-2.0
//
// A node of which only the content that one child continues is needed becomes part of that child.
// Content stays where it is: in records, which know no nodes, or in fragments, whose places say
// under which node's number they stand. The child takes in the parent and not the other way round,
// so that branches, which end on nodes, stay where they are; no branch ends on the parent.
#include <algorithm>

#include "base/core/check.h"
#include "engine/tree/memory/liveness.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"

namespace cairn::engine {

namespace {

// The reason why they cannot be joined; empty: they can.
std::string Difference(const Node& parent, const Node& node) {
  if (parent.ns != node.ns) return "another namespace pays for its parent";
  for (size_t lane = 0; lane < node.lanes.size(); ++lane) {
    if (node.lanes[lane].end - parent.lanes[lane].start > UINT32_MAX) {
      return "too long for ranges of what is evicted";
    }
  }
  return "";
}

Place Inherit(Place place, uint64_t from) {
  if (place.in_table()) place.fragment_node = place.FragmentNode(from);
  return place;
}

// The content of a node.
struct Content {
  std::vector<Lane> lanes;
  std::vector<Mark> samplers, metadata, derived;
  std::vector<ContentSpan> spans;

  void Swap(Node* node) {
    lanes.swap(node->lanes);
    samplers.swap(node->samplers);
    metadata.swap(node->metadata);
    derived.swap(node->derived);
    spans.swap(node->spans);
  }
};

Lane JoinLanes(const Lane& first, const Lane& second, uint64_t from) {
  CAIRN_CHECK(first.end == second.start);
  Lane lane{.start = first.start,
            .end = second.end,
            .extents = {},
            .absent = first.absent + second.absent,
            .evicted = first.evicted + second.evicted};
  lane.extents.reserve(first.extents.size() + second.extents.size());
  for (const Extent& extent : first.extents) {
    lane.extents.push_back(extent);
    lane.extents.back().place = Inherit(extent.place, from);
  }
  auto next = second.extents.begin();
  // Adjacent absent extents become one.
  if (!lane.extents.empty() && next != second.extents.end() && next->place.absent() &&
      lane.extents.back().place.table == next->place.table) {
    lane.extents.back().count += next->count;
    ++next;
  }
  lane.extents.insert(lane.extents.end(), next, second.extents.end());
  return lane;
}

// If both have a state at a position, the child's is newer; `replaced` gets the parent's states
// that are dropped.
std::vector<Mark> JoinMarks(const std::vector<Mark>& first, const std::vector<Mark>& second,
                            uint64_t from, Place* replaced) {
  std::vector<Mark> marks;
  marks.reserve(first.size() + second.size());
  for (const Mark& mark : first) {
    marks.push_back(mark);
    marks.back().place = Inherit(mark.place, from);
  }
  if (!marks.empty() && !second.empty() && marks.back().position == second.front().position) {
    *replaced = marks.back().place;
    marks.pop_back();
  }
  marks.insert(marks.end(), second.begin(), second.end());
  return marks;
}

// Every place of a node; some twice.
template <typename Visit>
void VisitPlaces(const Node& node, const Visit& visit) {
  for (const Lane& lane : node.lanes) {
    for (const Extent& extent : lane.extents) visit(extent.place);
  }
  for (const Mark& mark : node.samplers) visit(mark.place);
  for (const Mark& mark : node.metadata) visit(mark.place);
}

}  // namespace

Result<Op> ResolveJoin(const Tree& tree, uint64_t id) {
  const auto no = [id](const std::string& why) {
    return Status(StatusCode::kNotFound, "node " + std::to_string(id) + ": " + why);
  };
  const Node* const node = tree.FindNode(id);
  if (node == nullptr || node->parent == 0) return no("it has no parent");
  const Node& parent = *tree.FindNode(node->parent);
  // `users`: only the node, and no thread that has looked at the parent and will come back.
  if (OnlyChild(tree, parent.id) != id || parent.users != 1) return no("others need its parent");
  if (tree.leases().LeasedTo(parent.id) != 0) return no("its parent is leased");
  const std::string difference = Difference(parent, *node);
  if (!difference.empty()) return no(difference);
  Op op;
  op.kind = OpKind::kJoin;
  op.node = id;
  op.other = parent.id;
  return op;
}

Status TreeChanges::ApplyJoin(const Op& op) {
  Node* const node = tree_->residency().MutableNode(op.node);
  Node* const parent = tree_->residency().MutableNode(op.other);
  if (node == nullptr || parent == nullptr || node->parent != op.other) {
    return DoesNotApply(op, "no such node, or not its parent");
  }
  if (IsNeeded(*tree_, *parent, 0, node->id)) return DoesNotApply(op, "others need its parent");
  for (size_t lane = 0; lane < node->lanes.size(); ++lane) {
    const uint64_t start = node->lanes[lane].start;
    if (start < parent->lanes[lane].start || start > parent->lanes[lane].end) {
      return DoesNotApply(op, "a lane does not begin on its parent");
    }
  }
  const std::string difference = Difference(*parent, *node);
  if (!difference.empty()) return DoesNotApply(op, difference);

  // Nothing needs the parent's content beyond the place where the child leaves it.
  std::vector<uint64_t> ends;
  for (const Lane& lane : node->lanes) ends.push_back(lane.start);
  TrimNode(parent, ends);

  RecordMoved(*parent, node->id);
  RelinkAbove(*parent, node->id);
  TakeIn(node, parent, ends);
  return Status::Ok();
}

// The content of the parent lies on another node from now on.
void TreeChanges::RecordMoved(const Node& parent, uint64_t to) {
  std::vector<std::pair<uint64_t, uint64_t>> segments, tables;
  VisitPlaces(parent, [&](const Place& place) {
    if (place.log.segment != 0) segments.emplace_back(place.log.segment, to);
    if (place.in_table()) tables.emplace_back(place.table, to);
  });
  for (auto* const seen : {&segments, &tables}) {
    std::sort(seen->begin(), seen->end());
    seen->erase(std::unique(seen->begin(), seen->end()), seen->end());
  }
  tree_->logged().Add(segments);
  tree_->table_usages().AddJoined(tables);
}

// The edge from above the parent now leads to its child.
void TreeChanges::RelinkAbove(const Node& parent, uint64_t to) {
  Node* const above = tree_->residency().MutableNode(parent.parent);
  if (above == nullptr) return;
  const Ref was{parent.lanes[kTokenLane].start, Ref::kEdge, parent.id};
  const Ref is{was.position, Ref::kEdge, to};
  const auto relink = [above](const Ref& from, const Ref& into) {
    if (auto ref = above->refs.extract(from); !ref.empty()) {
      ref.value() = into;
      above->refs.insert(std::move(ref));
    } else {
      above->refs.insert(into);  // It was not in memory.
    }
  };
  transaction_->PushUndo([relink, was, is] { relink(is, was); });
  relink(was, is);
}

// The node takes over the parent's content up to `ends`; the rest of it is gone.
void TreeChanges::TakeIn(Node* node, Node* parent, const std::vector<uint64_t>& ends) {
  struct Sides {
    Content parent, node;  // Content that they do not hold right now.
    Place sampler, metadatum;
    uint64_t deltas = 0, tokens = 0;
    // Live, the parent is decided; in a replay, which knows fewer refs, it may not be.
    bool was_undecided = false;
  };
  const auto sides = std::make_shared<Sides>();
  for (size_t lane = 0; lane < ends.size(); ++lane) {
    sides->node.lanes.push_back(JoinLanes(parent->lanes[lane], node->lanes[lane], parent->id));
    sides->parent.lanes.push_back({parent->lanes[lane].start, parent->lanes[lane].end, {}});
  }
  sides->node.samplers = JoinMarks(parent->samplers, node->samplers, parent->id, &sides->sampler);
  sides->node.metadata = JoinMarks(parent->metadata, node->metadata, parent->id, &sides->metadatum);
  // The child's own derived marks lie beyond where it begins.
  sides->node.derived = parent->derived;
  sides->node.derived.insert(sides->node.derived.end(), node->derived.begin(), node->derived.end());
  sides->node.spans = parent->spans;
  sides->node.spans.insert(sides->node.spans.end(), node->spans.begin(), node->spans.end());
  sides->deltas = parent->unsealed_deltas;
  sides->tokens = parent->unsealed_tokens;

  transaction_->PushUndo([tree = tree_, sides, node, parent] {
    if (sides->was_undecided) tree->leftovers().AddUndecided(parent->id);
    TreeSums& sums = tree->sums();
    const ModelSpec& model = tree->ModelOf(*node);
    sums.CountLanes(*node, model, -1);
    parent->gone = false;
    node->parent = parent->id;
    ++parent->users;
    sides->node.Swap(node);
    sides->parent.Swap(parent);
    sums.CountLanes(*node, model, 1);
    sums.CountLanes(*parent, model, 1);
    sums.CountNode(parent->use, 1);
    tree->CountMark(sides->sampler, 1);
    tree->CountMark(sides->metadatum, 1);
    node->unsealed_deltas -= sides->deltas;
    node->unsealed_tokens -= sides->tokens;
    tree->residency().Charge(node);
    tree->residency().Charge(parent);
  });
  sides->was_undecided = tree_->leftovers().EraseUndecided(parent->id);
  TreeSums& sums = tree_->sums();
  const ModelSpec& model = tree_->ModelOf(*node);
  sums.CountLanes(*node, model, -1);
  sums.CountLanes(*parent, model, -1);
  sums.CountNode(parent->use, -1);
  sides->node.Swap(node);
  sides->parent.Swap(parent);
  tree_->CountMark(sides->sampler, -1);
  tree_->CountMark(sides->metadatum, -1);
  node->unsealed_deltas += sides->deltas;
  node->unsealed_tokens += sides->tokens;
  node->parent = parent->parent;
  --parent->users;  // The node above has the child instead.
  parent->gone = true;
  sums.CountLanes(*node, model, 1);
  tree_->dirty().Touch(parent);
  tree_->dirty().Touch(node);
  for (Node::FlushedList& lane : node->flushed.lanes) lane.Changed(0);
  node->flushed.samplers.Changed(0);
  node->flushed.metadata.Changed(0);
  node->flushed.derived.Changed(0);
  node->flushed.spans.Changed(0);
  tree_->residency().Charge(node);
  tree_->residency().Charge(parent);
}

}  // namespace cairn::engine
