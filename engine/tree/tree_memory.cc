// SPDX-License-Identifier: Apache-2.0
//
// Which part of the tree is in memory: what comes in from the index, what dies, and what makes
// room.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/tree/tree.h"

namespace cairn::engine {

namespace {

// What a map or set keeps for an entry beside it.
constexpr size_t kLinkBytes = 48;

Status Unfit(uint64_t node, const std::string& what) {
  return Status(StatusCode::kCorruption, "the index: node " + std::to_string(node) + ": " + what);
}

// The lanes of a node begin on its parent, as far as that has them.
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

}  // namespace

bool Node::Dumped::SameChunks(const Dumped& other) const {
  const auto same = [](const DumpedList& a, const DumpedList& b) { return a.chunks == b.chunks; };
  return std::equal(lanes.begin(), lanes.end(), other.lanes.begin(), other.lanes.end(), same) &&
         same(samplers, other.samplers) && same(metadata, other.metadata) &&
         same(spans, other.spans);
}

Node* Tree::MutableNode(uint64_t id) {
  const auto it = nodes_.find(id);
  return it == nodes_.end() || it->second->gone ? nullptr : it->second.get();
}

Head* Tree::MutableHead(uint64_t id) {
  const auto it = heads_.find(id);
  return it == heads_.end() || it->second.gone ? nullptr : &it->second;
}

void Tree::Charge(Node* node) {
  size_t bytes = sizeof(Node) + 2 * kLinkBytes + node->lanes.capacity() * sizeof(Lane) +
                 (node->samplers.capacity() + node->metadata.capacity()) * sizeof(Mark) +
                 node->spans.capacity() * sizeof(ContentSpan) +
                 node->refs.size() * (sizeof(Ref) + kLinkBytes);
  for (const Lane& lane : node->lanes) bytes += lane.extents.capacity() * sizeof(Extent);
  memory_bytes_ += bytes - node->charge;
  node->charge = bytes;
}

void Tree::Charge(Head* head) {
  const size_t bytes = sizeof(Head) + 2 * kLinkBytes + sizeof(NameKey) +
                       2 * (head->name.size() + head->ns.size()) +
                       head->lengths.capacity() * sizeof(uint64_t);
  memory_bytes_ += bytes - head->charge;
  head->charge = bytes;
}

void Tree::Remember(bool head, uint64_t id) { clock_.emplace_back(head, id); }

void Tree::RememberDirty() {
  for (const uint64_t id : dirty_.heads) {
    Head* const head = MutableHead(id);
    if (head == nullptr || !head->off_clock) continue;
    Remember(/*head=*/true, id);
    head->off_clock = false;
  }
  for (const uint64_t id : dirty_.nodes) {
    Node* const node = MutableNode(id);
    if (node == nullptr || !node->off_clock) continue;
    Remember(/*head=*/false, id);
    node->off_clock = false;
  }
}

// ---------------------------------------------------------------- coming in

// Memory is newer than the index: a branch that it has, or knows to be dropped, stands where memory
// says and nowhere else.
bool Tree::IsStale(uint64_t node, const Ref& ref) const {
  if (ref.kind == Ref::kEdge) {
    const auto child = nodes_.find(ref.id);
    return child != nodes_.end() && child->second->gone;
  }
  const auto head = heads_.find(ref.id);
  return head != heads_.end() && (head->second.gone || head->second.node != node ||
                                  head->second.lengths[kTokenLane] != ref.position);
}

Status Tree::CheckFits(const Node& node) const {
  const auto model = models_.find(node.model);
  if (model == models_.end() || node.lanes.size() != 1 + model->second->groups.size()) {
    return Unfit(node.id, "its model is missing or has other groups");
  }
  const auto has_place = [&](const Place& place) {
    return !place.in_table() || tables_.contains(place.table);
  };
  for (const Lane& lane : node.lanes) {
    for (const Extent& extent : lane.extents) {
      if (!has_place(extent.place)) return Unfit(node.id, "its table is missing");
    }
  }
  for (const std::vector<Mark>* marks : {&node.samplers, &node.metadata}) {
    for (const Mark& mark : *marks) {
      if (!has_place(mark.place)) return Unfit(node.id, "a state's table is missing");
    }
  }
  return Status::Ok();
}

Status Tree::Insert(std::unique_ptr<Node> node) {
  if (KnowsNode(node->id)) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(CheckFits(*node));
  Node* const parent = MutableNode(node->parent);
  if (node->parent != 0 && parent == nullptr) return Unfit(node->id, "its parent is missing");
  if (parent != nullptr && !BeginsOn(*parent, *node)) {
    return Unfit(node->id, "it does not begin on its parent");
  }
  const auto use = namespaces_.find(node->ns);
  if (use == namespaces_.end()) return Unfit(node->id, "its namespace is missing");
  node->use = &use->second;
  for (Lane& lane : node->lanes) {
    for (const Extent& extent : lane.extents) {
      if (extent.place.absent()) lane.absent += extent.count;
      if (extent.place.evicted()) lane.evicted += extent.count;
    }
  }
  std::erase_if(node->refs, [&](const Ref& ref) { return IsStale(node->id, ref); });
  const size_t dying = dirty_.nodes.size() + nodes_.size() + 1;
  if (dirty_.nodes.capacity() < dying) dirty_.nodes.reserve(2 * dying);
  Remember(/*head=*/false, node->id);
  Node* const inserted = nodes_.emplace(node->id, std::move(node)).first->second.get();
  if (parent != nullptr) ++parent->users;
  Charge(inserted);
  ++loads_;
  return Status::Ok();
}

Status Tree::Insert(Head head) {
  if (KnowsHead(head.id)) return Status::Ok();
  Node* const node = MutableNode(head.node);
  const auto model = models_.find(head.model);
  if (model == models_.end() || head.lengths.size() != 1 + model->second->groups.size() ||
      (head.node != 0 && node == nullptr)) {
    return Status(StatusCode::kCorruption,
                  "the index: branch #" + std::to_string(head.id) +
                      ": its model or its node is missing, or it has other groups");
  }
  if (node != nullptr && !EndsOn(*node, head)) {
    return Status(StatusCode::kCorruption, "the index: branch #" + std::to_string(head.id) +
                                               ": it does not end on its node");
  }
  head.use = FindNamespace(head.ns);
  if (head.use == nullptr) {
    return Status(StatusCode::kCorruption,
                  "the index: branch #" + std::to_string(head.id) + ": its namespace is missing");
  }
  Remember(/*head=*/true, head.id);
  // All memory that this takes, before the first of three places knows the branch.
  std::set<NameKey> name = {{head.ns, head.name, head.id}};
  std::set<Ref> ref = {{head.lengths[kTokenLane], Ref::kHead, head.id}};
  Head& inserted = heads_.emplace(head.id, std::move(head)).first->second;
  names_.insert(name.extract(name.begin()));
  inserted.used = true;
  if (node != nullptr) {
    node->refs.insert(ref.extract(ref.begin()));
    ++node->users;
  }
  Charge(&inserted);
  ++loads_;
  return Status::Ok();
}

void Tree::InsertRefs(uint64_t id, std::span<const Ref> refs, const Ref& from) {
  Node* const node = MutableNode(id);
  if (node == nullptr) return;
  for (const Ref& ref : refs) {
    if (!IsStale(id, ref)) node->refs.insert(ref);
  }
  node->refs_from = std::min(node->refs_from, from);
  Charge(node);
}

// ---------------------------------------------------------------- dying

// `count` positions that lie at `place` are needed (1) or not any more (-1).
void Tree::UseTable(const Place& place, uint64_t count, int sign) {
  if (!place.in_table()) return;
  if (!CAIRN_KEPT(kLiveBytes) && sign < 0) return;
  const auto found = tables_.find(place.table);
  if (found == tables_.end()) return;  // Forgotten, as the index said that nothing needs it.
  TableUse& use = found->second;
  const uint64_t bytes = place.Share(count);
  if (sign < 0 && use.live_bytes < bytes) {  // Nor can this be known when the index is read.
    use.lied = true;
    use.live_bytes = std::min<uint64_t>(use.live_bytes, 1);  // A dead one remains dead.
  } else {
    use.live_bytes += sign > 0 ? bytes : -bytes;
  }
  if (sign < 0) table_bytes_died_ += bytes;
  use.dirty = true;
}

void Tree::UseExtent(Node* node, size_t lane, const Extent& extent, int sign) {
  const auto factor = static_cast<uint64_t>(int64_t{sign});  // Modulo 2^64.
  if (extent.place.absent()) node->lanes[lane].absent += factor * extent.count;
  if (extent.place.evicted()) node->lanes[lane].evicted += factor * extent.count;
  if (!extent.place.in_table()) return;
  UseTable(extent.place, extent.count, sign);
  // Count takes it for raw.
  node->use->bytes +=
      factor * (extent.place.Share(extent.count) - extent.count * PositionBytes(*node, lane));
}

// In a replay what died may hang on still, undecided, as memory does not know all refs. But then no
// branch is below it, and nothing that memory does not have: whatever died since the index was
// written was loaded for that.
bool Tree::IsNeeded(const Node& node, uint64_t from, uint64_t but) const {
  std::vector<const Node*> below = {&node};
  while (!below.empty()) {
    const Node& next = *below.back();
    below.pop_back();
    const Ref first{.position = &next == &node ? from : 0};
    for (auto ref = next.refs.lower_bound(first); ref != next.refs.end(); ++ref) {
      if (ref->id == but) continue;
      const Node* const child = ref->kind == Ref::kEdge ? FindNode(ref->id) : nullptr;
      // Each child is come to once, by the one edge that is its own.
      if (child == nullptr || child->parent != next.id ||
          child->lanes[kTokenLane].start != ref->position) {
        return true;
      }
      below.push_back(child);
    }
  }
  return false;
}

// Idempotent: a node still needed is left alone. Fails never: whoever made it needless kept room.
void Tree::CollectDead(uint64_t id) {
  while (Node* const node = MutableNode(id)) {
    if (!node->unneeded()) {
      NoteJoinable(*node);
      return NoteLoose(node);
    }
    if (!node->knows_all_refs()) {
      if (std::find(undecided_.begin(), undecided_.end(), id) != undecided_.end()) return;
      undecided_.push_back(id);
      ++node->users;
      return;
    }
    Touch(node);
    const uint64_t held = node->use->bytes;
    Count(*node, -1);
    --counts_.nodes;
    --node->use->nodes;
    for (size_t i = 0; i < node->lanes.size(); ++i) {
      for (const Extent& extent : node->lanes[i].extents) UseExtent(node, i, extent, -1);
      node->lanes[i].extents = {};
    }
    for (std::vector<Mark>* marks : {&node->samplers, &node->metadata}) {
      for (const Mark& mark : *marks) UseTable(mark.place, 1, -1);
      *marks = {};
    }
    node->spans = {};
    died_bytes_ += held - node->use->bytes;
    node->gone = true;
    Charge(node);
    id = node->parent;
    if (Node* const parent = MutableNode(id); parent != nullptr) {
      parent->refs.erase({node->lanes[kTokenLane].start, Ref::kEdge, node->id});
      --parent->users;
    }
  }
}

void Tree::DecideFirst() {
  if (loose_.capacity() == loose_.size()) loose_.reserve(2 * (loose_.size() + 1));
  const uint64_t id = undecided_.front();
  undecided_.erase(undecided_.begin());
  --MutableNode(id)->users;
  CollectDead(id);  // Its parent may take the place that it left.
}

// ---------------------------------------------------------------- making room

void Tree::Unuse(uint64_t id) {
  Node* const node = MutableNode(id);
  if (node == nullptr) return;
  CAIRN_CHECK(node->users > 0);
  --node->users;
}

void Tree::TrimRefs(uint64_t id) {
  Node* const node = MutableNode(id);
  if (node == nullptr || node->refs.size() <= 2 * kRefsKept) return;
  const auto kept = std::prev(node->refs.end(), kRefsKept);
  node->refs_from = std::max(node->refs_from, *kept);
  node->refs.erase(node->refs.begin(), kept);
}

// A clock: what was used since the hand passed last gets another round. A node goes after the last
// that uses it. What changed leaves the clock until it was dumped, so that the hand does not pass
// over it again and again while most has changed.
void Tree::Trim(size_t max_bytes, size_t steps) {
  steps = std::min(steps, 2 * clock_.size());
  // Entries of what is gone are dropped on the way; without pressure, when they are the most.
  const bool sweep = clock_.size() > 2 * (heads_.size() + nodes_.size()) + 1024;
  while (!clock_.empty() && steps-- > 0 && (sweep || memory_bytes_ > max_bytes)) {
    const auto entry = clock_.front();
    clock_.pop_front();
    const auto [is_head, id] = entry;
    if (is_head) {
      const auto found = heads_.find(id);
      if (found == heads_.end()) continue;
      Head& head = found->second;
      if (head.dirty) {
        head.off_clock = true;
        continue;
      }
      if (std::exchange(head.used, false) || memory_bytes_ <= max_bytes) {
        clock_.push_back(entry);
        continue;
      }
      names_.erase({head.ns, head.name, id});
      Unuse(head.node);
      memory_bytes_ -= head.charge;
      heads_.erase(found);
    } else {
      const auto found = nodes_.find(id);
      if (found == nodes_.end()) continue;
      Node& node = *found->second;
      if (node.dirty) {
        node.off_clock = true;
        continue;
      }
      if (node.users > 0 || memory_bytes_ <= max_bytes) {
        clock_.push_back(entry);
        continue;
      }
      Unuse(node.parent);
      memory_bytes_ -= node.charge;
      nodes_.erase(found);
    }
  }
}

}  // namespace cairn::engine
