// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/tree/retention.h"
#include "engine/tree/tree.h"

namespace cairn::engine {

Status Unfit(const Op& op, const std::string& what) {
  return Status(StatusCode::kCorruption, std::string(OpKindName(static_cast<uint16_t>(op.kind))) +
                                             " of branch #" + std::to_string(op.branch) +
                                             " does not fit the tree: " + what);
}

namespace {

// Ids are counted from 1, and nobody counts so far. 0 says that there is none.
bool IsId(uint64_t id) { return id != 0 && id < uint64_t{1} << 62; }

// Room for so many more, and when there is none for twice as many: what takes it op by op is moved
// a few times in all.
template <typename T>
void ReserveMore(std::vector<T>* entries, size_t more) {
  const size_t needed = entries->size() + more;
  if (entries->capacity() < needed) entries->reserve(2 * needed);
}

}  // namespace

Status Transaction::Apply(const Op& op, std::span<const Part> parts) {
  // Two slots more than one op pushes undo steps for lanes, so that push_back cannot throw between
  // a change and the note of how to undo it.
  ReserveMore(&undo_, 64 + parts.size() * 2 + op.lanes.size());
  ReserveMore(&touched_, 1 + op.lanes.size());
  ReserveMore(&filled_, op.lanes.size());
  ReserveMore(&unsealed_, 1 + op.lanes.size());
  ReserveMore(&tree_->seal_due_, unsealed_.capacity());
  ReserveMore(&tree_->logged_, touched_.size() + 1 + parts.size() + op.lanes.size());
  ReserveMore(&left_, 2);
  // Each of them may end in a node that cannot be decided about, or in one that is loose then.
  ReserveMore(&tree_->undecided_, left_.capacity());
  ReserveMore(&tree_->loose_, left_.capacity());
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
    case OpKind::kCut: status = ApplyCut(op); break;
    case OpKind::kPart:
    case OpKind::kBatch: status = Unfit(op, "not a change of its own"); break;
  }
  ++op_index_;
  return status;
}

void Transaction::Commit(const wal::Location& location, uint32_t token_prefix_bytes) {
  const auto settle_marks = [&](std::vector<Mark>& marks) {
    for (auto it = marks.rbegin(); it != marks.rend() && !it->place.known(); ++it) {
      it->place.log = location;
    }
  };
  for (const uint64_t id : touched_) {
    Node* const found = tree_->MutableNode(id);
    if (found == nullptr) continue;
    Node& node = *found;
    for (size_t i = 0; i < node.lanes.size(); ++i) {
      Lane& lane = node.lanes[i];
      for (auto it = lane.extents.rbegin(); it != lane.extents.rend() && !it->place.known(); ++it) {
        it->place.log = location;
        it->prefix_bytes = i == kTokenLane ? token_prefix_bytes : location.bytes;
      }
    }
    settle_marks(node.samplers);
    settle_marks(node.metadata);
    tree_->Charge(&node);
    NoteLogged(location.segment, id);
  }
  for (const Filled& filled : filled_) {
    std::vector<Extent>& extents = tree_->MutableNode(filled.node)->lanes[filled.lane].extents;
    const auto at = std::partition_point(extents.begin(), extents.end(),
                                         [&](const Extent& e) { return e.begin < filled.begin; });
    // A later op of the batch may have cut it off.
    if (at == extents.end() || at->place.known()) continue;
    at->place.log = location;
    at->prefix_bytes = location.bytes;
  }
  undo_.clear();
  for (const auto& [node, tokens] : unsealed_) tree_->NoteUnsealed(node, tokens);
  for (const uint64_t node : left_) tree_->CollectDead(node);
  unsealed_.clear();
  filled_.clear();
  touched_.clear();
  left_.clear();
}

// Apply reserved the room. Also when the last entry is the same: that one may be about to be
// forgotten, because what it stood for was sealed (Tree::ForgetLogged).
void Transaction::NoteLogged(uint64_t segment, uint64_t node) {
  tree_->logged_.emplace_back(segment, node);
}

void Transaction::Rollback() {
  while (!undo_.empty()) {
    undo_.back()();
    undo_.pop_back();
  }
  unsealed_.clear();
  filled_.clear();
  touched_.clear();
  left_.clear();
}

void Transaction::UseId(uint64_t id) {
  undo_.push_back([tree = tree_, before = tree_->next_id_] { tree->next_id_ = before; });
  tree_->next_id_ = std::max(tree_->next_id_, id + 1);
}

// Nothing is allocated from the first change on, nor when that is undone: what was there is kept.
void Transaction::MoveHead(Head* head, Node* to, std::vector<uint64_t> lengths) {
  struct Before {
    uint64_t node, version;
    std::vector<uint64_t> lengths;
    std::set<Ref>::node_type ref{};
  };
  const auto before = std::make_shared<Before>(Before{head->node, head->version, head->lengths});
  std::set<Ref> made;
  made.insert({lengths[kTokenLane], Ref::kHead, head->id});
  tree_->Touch(head);
  undo_.push_back([tree = tree_, branch = head->id, before] {
    Head& moved = tree->heads_.at(branch);
    if (Node* const now = tree->MutableNode(moved.node); now != nullptr) {
      now->refs.erase({moved.lengths[kTokenLane], Ref::kHead, branch});
      --now->users;
    }
    moved.node = before->node;
    moved.lengths.swap(before->lengths);
    moved.version = before->version;  // Nobody saw the other one.
    if (Node* const old = tree->MutableNode(moved.node); old != nullptr) {
      old->refs.insert(std::move(before->ref));
      ++old->users;
    }
  });
  if (head->node != 0) left_.push_back(head->node);
  if (Node* const old = tree_->MutableNode(head->node); old != nullptr) {
    before->ref = old->refs.extract({head->lengths[kTokenLane], Ref::kHead, head->id});
    --old->users;
  }
  head->node = to == nullptr ? 0 : to->id;
  head->lengths.swap(lengths);
  ++head->version;
  if (to != nullptr) {
    to->refs.insert(made.extract(made.begin()));
    ++to->users;
  }
  if (!head->kv_evicted) NeedKv(to);
}

Status Transaction::ApplyModel(const Op& op) {
  CAIRN_ASSIGN_OR_RETURN(ModelSpec spec, DecodeModel(op.spec));
  if (!IsId(op.other)) return Unfit(op, "an impossible model id");
  if (tree_->models_.contains(op.other)) return Unfit(op, "the model exists");
  tree_->models_.emplace(op.other, std::make_shared<const ModelSpec>(std::move(spec)));
  undo_.push_back([tree = tree_, id = op.other] { tree->models_.erase(id); });
  tree_->dirty_.models.push_back(op.other);
  UseId(op.other);
  return Status::Ok();
}

Status Transaction::ApplyCreate(const Op& op) {
  const auto model = tree_->FindModel(op.other);
  if (model == nullptr) return Unfit(op, "no model " + std::to_string(op.other));
  if (!IsId(op.branch)) return Unfit(op, "an impossible id");
  if (tree_->heads_.contains(op.branch)) return Unfit(op, "the branch exists");
  tree_->Remember(/*head=*/true, op.branch);
  Head head;
  head.id = op.branch;
  head.model = op.other;
  head.name = op.name;
  head.ns = op.ns;
  head.lengths.assign(1 + model->groups.size(), 0);
  head.created_at_ns = head.updated_at_ns = head.used_at_ns = op.time_ns;
  if (op.policy.has_value()) head.keep = op.policy->keep();
  NamespaceUse* const use = &tree_->namespaces_.try_emplace(op.ns).first->second;
  undo_.push_back(
      [tree = tree_, use, id = op.branch, key = Tree::NameKey{op.ns, op.name, op.branch}] {
        tree->names_.erase(key);
        const auto made = tree->heads_.find(id);
        if (made == tree->heads_.end()) return;
        tree->memory_bytes_ -= made->second.charge;
        tree->heads_.erase(made);
        --tree->counts_.branches;
        --use->branches;
      });
  head.use = use;
  Head& made = tree_->heads_.emplace(op.branch, std::move(head)).first->second;
  ++tree_->counts_.branches;
  ++use->branches;
  use->dirty = true;
  tree_->NoteExpiry(made);
  tree_->Charge(&made);
  tree_->Touch(&made);
  tree_->names_.emplace(op.ns, op.name, op.branch);
  UseId(op.branch);
  return Status::Ok();
}

Status Transaction::ApplyFork(const Op& op) {
  Head* const source = tree_->MutableHead(op.other);
  if (source == nullptr) return Unfit(op, "no source branch #" + std::to_string(op.other));
  if (op.position > source->lengths[kTokenLane]) return Unfit(op, "position beyond the source");
  std::vector<uint64_t> lengths = source->lengths;
  const Node* node = tree_->NodeAt(tree_->FindNode(source->node), op.position, &lengths);
  if ((node == nullptr ? 0 : node->id) != op.node) return Unfit(op, "another node is there");
  Op create;
  create.kind = OpKind::kCreate;
  create.branch = op.branch;
  create.other = source->model;
  create.name = op.name;
  create.ns = op.ns;
  create.time_ns = op.time_ns;
  create.policy = op.policy;
  tree_->Touch(source);
  source->reused = true;  // Also when it is undone: somebody wanted to.
  source->used_at_ns = std::max(source->used_at_ns, op.time_ns);
  CAIRN_RETURN_IF_ERROR(ApplyCreate(create));
  ++tree_->replay_reads_;  // Of the source, which does not change.
  Head& head = tree_->heads_.at(op.branch);
  head.reused = true;
  MoveHead(&head, node == nullptr ? nullptr : tree_->nodes_.at(node->id).get(), std::move(lengths));
  return Status::Ok();
}

Node* Transaction::MakeNode(const Op& op, const Head& head) {
  const size_t entries = tree_->dirty_.nodes.size() + tree_->nodes_.size() + 1;
  if (tree_->dirty_.nodes.capacity() < entries) tree_->dirty_.nodes.reserve(2 * entries);
  tree_->Remember(/*head=*/false, op.node);
  auto made = std::make_unique<Node>();
  Node* node = made.get();
  node->id = op.node;
  node->model = head.model;
  node->parent = op.other;
  node->owner = op.branch;
  node->ns = head.ns;
  node->use = &tree_->namespaces_.find(head.ns)->second;
  node->lanes.resize(head.lengths.size());
  for (size_t lane = 0; lane < head.lengths.size(); ++lane) {
    node->lanes[lane].start = node->lanes[lane].end = head.lengths[lane];
  }
  const uint64_t leave = head.lengths[kTokenLane];
  undo_.push_back([tree = tree_, id = op.node, parent = op.other, leave] {
    const auto undone = tree->nodes_.find(id);
    if (undone == tree->nodes_.end()) return;
    if (Node* const left = tree->MutableNode(parent); left != nullptr) {
      left->refs.erase({leave, Ref::kEdge, id});
      --left->users;
    }
    tree->memory_bytes_ -= undone->second->charge;
    --undone->second->use->nodes;
    tree->nodes_.erase(undone);
    --tree->counts_.nodes;
  });
  tree_->nodes_.emplace(op.node, std::move(made));
  ++tree_->counts_.nodes;
  ++node->use->nodes;
  if (Node* const left = tree_->MutableNode(op.other); left != nullptr) {
    ++left->users;
    if (CAIRN_KEPT(kLiveFork)) left->refs.insert({leave, Ref::kEdge, op.node});
    NeedKv(left);
  }
  tree_->Charge(node);
  tree_->Touch(node);
  UseId(op.node);
  return node;
}

Status Transaction::ApplyAppend(const Op& op, std::span<const Part> parts) {
  Head* const head = tree_->MutableHead(op.branch);
  if (head == nullptr) return Unfit(op, "no such branch");
  if (op.position != head->lengths[kTokenLane]) {
    return Unfit(op, "it was " + std::to_string(op.position) + " tokens long, not " +
                         std::to_string(head->lengths[kTokenLane]));
  }
  Node* node = nullptr;
  if ((op.flags & kOpNewNode) != 0) {
    if (op.other != head->node || !IsId(op.node) || tree_->KnowsNode(op.node)) {
      return Unfit(op, "bad new node");
    }
    if (op.other != 0 && tree_->FindNode(op.other) == nullptr) return Unfit(op, "no parent");
    node = MakeNode(op, *head);
  } else {
    node = tree_->MutableNode(op.node);
    if (node == nullptr || head->node != op.node) return Unfit(op, "bad node");
    for (size_t lane = 0; lane < node->lanes.size(); ++lane) {
      if (node->lanes[lane].end != head->lengths[lane]) return Unfit(op, "not at the node's end");
    }
  }
  undo_.push_back(
      [tree = tree_, id = op.branch, before = head->updated_at_ns, evicted = head->kv_evicted] {
        tree->heads_.at(id).updated_at_ns = before;
        tree->heads_.at(id).kv_evicted = evicted;
      });
  head->updated_at_ns = op.time_ns;
  head->used_at_ns = std::max(head->used_at_ns, op.time_ns);
  head->kv_evicted = false;
  tree_->Touch(head);
  touched_.push_back(node->id);
  if (op.table.number != 0 || !op.sealed.empty()) {
    uint64_t stored_bytes = 0;
    for (const SealedRange& range : op.sealed) {
      if (range.node != op.node || range.lane >= node->lanes.size()) {
        return Unfit(op, "its table holds something else");
      }
      stored_bytes += range.stored_bytes;
    }
    if (op.table.number == 0 || stored_bytes == 0) return Unfit(op, "no table, or nothing in it");
    NameTable(op.table, stored_bytes);
  }
  return AddExtents(node, head, op, parts);
}

Status Transaction::AddExtents(Node* node, Head* head, const Op& op, std::span<const Part> parts) {
  const auto held = [](const Lane& lane) { return lane.end - lane.start - lane.absent; };
  std::vector<uint64_t> ends(node->lanes.size()), held_before(ends);
  for (size_t lane = 0; lane < ends.size(); ++lane) {
    ends[lane] = node->lanes[lane].end;
    held_before[lane] = held(node->lanes[lane]);
  }
  // Of the states only the last that was there may have been replaced.
  const auto last = [](const std::vector<Mark>& marks) {
    return marks.empty() ? Mark() : marks.back();
  };
  const auto cut_back = [this](std::vector<Mark>* marks, size_t count, const Mark& before) {
    marks->resize(count);
    if (count == 0 || marks->back().place == before.place) return;
    tree_->UseTable(before.place, 1, 1);
    marks->back() = before;
  };
  const Tree::Recount recount(tree_, *node);
  tree_->Touch(node);
  undo_.push_back([tree = tree_, cut_back, node, ends, samplers = node->samplers.size(),
                   metadata = node->metadata.size(), sampler = last(node->samplers),
                   metadatum = last(node->metadata), spans = node->spans.size()] {
    const Tree::Recount undone(tree, *node);
    for (size_t lane = 0; lane < ends.size(); ++lane) {
      std::vector<Extent>& extents = node->lanes[lane].extents;
      while (!extents.empty() && extents.back().begin >= ends[lane]) {
        tree->UseExtent(node, lane, extents.back(), -1);
        extents.pop_back();
      }
      node->lanes[lane].end = ends[lane];
    }
    cut_back(&node->samplers, samplers, sampler);
    cut_back(&node->metadata, metadata, metadatum);
    node->spans.resize(spans);
  });
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.lanes.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(
          AddRange(node, head, part.lanes[i], {.log = part.location}, part.prefix_bytes[i]));
    }
  }
  for (const SealedRange& range : op.sealed) {
    const Place place{.log = {},
                      .table = op.table.number,
                      .positions = range.count,
                      .stored_bytes = range.stored_bytes};
    CAIRN_RETURN_IF_ERROR(
        AddRange(node, head, {range.lane, 0, range.begin, range.count}, place, 0));
  }
  for (const LaneRange& range : op.lanes) CAIRN_RETURN_IF_ERROR(AddRange(node, head, range, {}, 0));
  node->spans.insert(node->spans.end(), op.spans.begin(), op.spans.end());
  if (op.sealed.empty()) {
    uint64_t added = 0;  // Positions with KV.
    for (size_t lane = 1; lane < ends.size(); ++lane) {
      added = std::max(added, held(node->lanes[lane]) - held_before[lane]);
    }
    if (added > 0) unsealed_.emplace_back(node->id, added);
  }
  std::vector<uint64_t> lengths(node->lanes.size());
  for (size_t lane = 0; lane < lengths.size(); ++lane) {
    lengths[lane] = node->lanes[lane].end;
    if (lengths[lane] > node->lanes[kTokenLane].end) return Unfit(op, "KV beyond the tokens");
  }
  MoveHead(head, node, std::move(lengths));
  return Status::Ok();
}

Status Transaction::AddRange(Node* node, Head* head, const LaneRange& range, const Place& place,
                             uint32_t prefix_bytes) {
  if (range.lane == kSamplerLane || range.lane == kMetadataLane) {
    std::vector<Mark>& marks = range.lane == kSamplerLane ? node->samplers : node->metadata;
    // A state may be set again at a position that got no token since; the newest counts.
    if (!marks.empty() && marks.back().position == range.begin) {
      tree_->UseTable(marks.back().place, 1, -1);
      marks.pop_back();
      Node::Dumped& dumped = node->dumped;
      (range.lane == kSamplerLane ? dumped.samplers : dumped.metadata).Changed(marks.size());
    }
    marks.push_back({range.begin, range.strip, place});
    if (place.log.segment != 0) NoteLogged(place.log.segment, node->id);
    return Status::Ok();
  }
  const bool no_lane = range.lane >= node->lanes.size();
  const bool gaps = !no_lane && range.lane != kTokenLane &&
                    MayHaveGaps(tree_->models_.at(node->model)->groups[range.lane - 1]);
  if (no_lane || range.count == 0 || range.count > UINT32_MAX ||
      range.begin < node->lanes[range.lane].end ||
      range.begin - node->lanes[range.lane].end > (gaps ? UINT32_MAX : 0)) {
    return Status(StatusCode::kCorruption, "append of branch #" + std::to_string(head->id) +
                                               ": lane " + std::to_string(range.lane) +
                                               " does not go on at " + std::to_string(range.begin));
  }
  Lane& lane = node->lanes[range.lane];
  if (range.begin != lane.end) {
    Extent gap{
        .begin = lane.end, .count = static_cast<uint32_t>(range.begin - lane.end), .place = {}};
    gap.place.table = kGapTable;
    lane.extents.push_back(gap);
    tree_->UseExtent(node, range.lane, gap, 1);
  }
  // Commit finds the others from the lane's end.
  if (gaps && !place.known()) filled_.push_back({node->id, range.lane, range.begin});
  lane.extents.push_back({.begin = range.begin,
                          .count = static_cast<uint32_t>(range.count),
                          .op_index = op_index_,
                          .place = place,
                          .prefix_bytes = prefix_bytes});
  tree_->UseExtent(node, range.lane, lane.extents.back(), 1);
  if (place.known()) lane.extents.back().op_index = 0;  // A part is a record of one op.
  if (place.log.segment != 0) NoteLogged(place.log.segment, node->id);
  lane.end = range.begin + range.count;
  return Status::Ok();
}

// To one length a lane; states and spans go with the tokens. A span that the cut goes through ends
// there: what is appended later is not its content.
void Transaction::CutNode(Node* node, const std::vector<uint64_t>& lengths) {
  const uint64_t length = lengths[kTokenLane];
  // Only what is cut is copied; all of it, and the note of how to undo it, before the first change.
  struct LaneCut {
    uint64_t end = 0, length = 0;
    std::vector<Extent> extents;  // Those changed or removed, in order.
    bool splits() const { return !extents.empty() && extents.front().begin < length; }
  };
  struct Cut {
    std::vector<LaneCut> lanes;
    std::vector<Mark> samplers, metadata;
    std::vector<ContentSpan> spans;  // Those changed or removed.
    bool splits_span = false;
  };
  const auto cut = std::make_shared<Cut>();
  cut->lanes.resize(node->lanes.size());
  for (size_t i = 0; i < cut->lanes.size(); ++i) {
    const Lane& lane = node->lanes[i];
    const auto first = std::partition_point(
        lane.extents.begin(), lane.extents.end(),
        [&](const Extent& extent) { return extent.begin + extent.count <= lengths[i]; });
    cut->lanes[i] = {lane.end, lengths[i], {first, lane.extents.end()}};
  }
  const auto cut_marks = [&](const std::vector<Mark>& marks) {
    const auto first = std::partition_point(
        marks.begin(), marks.end(), [&](const Mark& mark) { return mark.position <= length; });
    return std::vector<Mark>(first, marks.end());
  };
  cut->samplers = cut_marks(node->samplers);
  cut->metadata = cut_marks(node->metadata);
  const auto first_span =
      std::partition_point(node->spans.begin(), node->spans.end(),
                           [&](const ContentSpan& span) { return span.end <= length; });
  cut->spans.assign(first_span, node->spans.end());
  cut->splits_span = !cut->spans.empty() && cut->spans.front().begin < length;
  std::function<void()> undo = [tree = tree_, node, cut] {
    const Tree::Recount undone(tree, *node);
    for (size_t i = 0; i < cut->lanes.size(); ++i) {
      Lane& lane = node->lanes[i];
      const LaneCut& was = cut->lanes[i];
      if (was.splits()) {
        tree->UseExtent(node, i, lane.extents.back(), -1);
        lane.extents.pop_back();
      }
      for (const Extent& extent : was.extents) tree->UseExtent(node, i, extent, 1);
      lane.extents.insert(lane.extents.end(), was.extents.begin(), was.extents.end());
      lane.end = was.end;
    }
    for (const Mark& mark : cut->samplers) tree->UseTable(mark.place, 1, 1);
    for (const Mark& mark : cut->metadata) tree->UseTable(mark.place, 1, 1);
    node->samplers.insert(node->samplers.end(), cut->samplers.begin(), cut->samplers.end());
    node->metadata.insert(node->metadata.end(), cut->metadata.begin(), cut->metadata.end());
    if (cut->splits_span) node->spans.pop_back();
    node->spans.insert(node->spans.end(), cut->spans.begin(), cut->spans.end());
  };
  ReserveMore(&undo_, 1);

  tree_->Touch(node);
  const Tree::Recount recount(tree_, *node);
  for (const Mark& mark : cut->samplers) tree_->UseTable(mark.place, 1, -1);
  for (const Mark& mark : cut->metadata) tree_->UseTable(mark.place, 1, -1);
  node->samplers.resize(node->samplers.size() - cut->samplers.size());
  node->metadata.resize(node->metadata.size() - cut->metadata.size());
  node->spans.resize(node->spans.size() - cut->spans.size() + (cut->splits_span ? 1 : 0));
  if (cut->splits_span) node->spans.back().end = length;
  node->dumped.samplers.Changed(node->samplers.size());
  node->dumped.metadata.Changed(node->metadata.size());
  node->dumped.spans.Changed(node->spans.size() - (cut->splits_span ? 1 : 0));
  for (size_t i = 0; i < cut->lanes.size(); ++i) {
    Lane& lane = node->lanes[i];
    const LaneCut& was = cut->lanes[i];
    lane.extents.resize(lane.extents.size() - was.extents.size());
    node->dumped.LaneChanged(i, lane.extents.size());
    lane.end = std::max(lane.start, std::min(lane.end, was.length));
    for (const Extent& extent : was.extents) tree_->UseExtent(node, i, extent, -1);
    if (was.splits()) {
      Extent head_part = was.extents.front();
      head_part.count = static_cast<uint32_t>(was.length - head_part.begin);
      lane.extents.push_back(head_part);
      tree_->UseExtent(node, i, head_part, 1);
    }
  }
  undo_.push_back(std::move(undo));
}

Status Transaction::ApplyRewind(const Op& op) {
  Head* const head = tree_->MutableHead(op.branch);
  if (head == nullptr) return Unfit(op, "no such branch");
  if (op.position > head->lengths[kTokenLane]) return Unfit(op, "position beyond its end");
  undo_.push_back([tree = tree_, id = op.branch, before = head->updated_at_ns] {
    tree->heads_.at(id).updated_at_ns = before;
  });
  head->updated_at_ns = op.time_ns;
  std::vector<uint64_t> lengths = head->lengths;
  if ((op.flags & kOpInPlace) != 0) {
    Node* const node = tree_->MutableNode(op.node);
    if (node == nullptr || head->node != op.node) return Unfit(op, "bad node");
    if (op.position < node->lanes[kTokenLane].start) return Unfit(op, "below its node");
    if (tree_->IsNeeded(*node, op.position + 1, head->id)) {
      return Unfit(op, "others need what it cuts off");
    }
    CutNode(node, std::vector<uint64_t>(lengths.size(), op.position));
    for (uint64_t& length : lengths) length = std::min(length, op.position);
    MoveHead(head, node, std::move(lengths));
    return Status::Ok();
  }
  const Node* node = tree_->NodeAt(tree_->OnPath(head->node), op.position, &lengths);
  if ((node == nullptr ? 0 : node->id) != op.node) return Unfit(op, "another node is there");
  MoveHead(head, node == nullptr ? nullptr : tree_->nodes_.at(node->id).get(), std::move(lengths));
  return Status::Ok();
}

Status Transaction::ApplyRename(const Op& op) {
  Head* const renamed = tree_->MutableHead(op.branch);
  if (renamed == nullptr) return Unfit(op, "no such branch");
  struct Before {
    std::string name;  // Then the new one.
    Tree::NameKey made;
    std::set<Tree::NameKey>::node_type key{};
  };
  const auto before =
      std::make_shared<Before>(Before{op.name, Tree::NameKey{renamed->ns, op.name, op.branch}});
  std::set<Tree::NameKey> made{before->made};
  const Tree::NameKey old{renamed->ns, renamed->name, op.branch};
  tree_->Touch(renamed);
  undo_.push_back([tree = tree_, id = op.branch, before] {
    tree->names_.erase(before->made);
    tree->names_.insert(std::move(before->key));
    tree->heads_.at(id).name.swap(before->name);
  });
  before->key = tree_->names_.extract(old);
  tree_->names_.insert(made.extract(made.begin()));
  renamed->name.swap(before->name);
  return Status::Ok();
}

Status Transaction::ApplyDrop(const Op& op) {
  Head* const head = tree_->MutableHead(op.branch);
  if (head == nullptr) return Unfit(op, "no such branch");
  tree_->Touch(head);
  struct Before {
    std::set<Ref>::node_type ref{};
    std::set<Tree::NameKey>::node_type name{};
  };
  const auto before = std::make_shared<Before>();
  const Tree::NameKey name{head->ns, head->name, op.branch};
  undo_.push_back([tree = tree_, id = op.branch, before] {
    Head& undone = tree->heads_.at(id);
    if (Node* const node = tree->MutableNode(undone.node); node != nullptr) {
      node->refs.insert(std::move(before->ref));
      ++node->users;
    }
    tree->names_.insert(std::move(before->name));
    undone.gone = false;
    ++tree->counts_.branches;
    ++tree->namespaces_.find(undone.ns)->second.branches;
  });
  if (Node* const node = tree_->MutableNode(head->node); node != nullptr) {
    before->ref = node->refs.extract({head->lengths[kTokenLane], Ref::kHead, op.branch});
    --node->users;
    left_.push_back(head->node);
  }
  before->name = tree_->names_.extract(name);
  head->gone = true;
  --tree_->counts_.branches;
  NamespaceUse& use = tree_->namespaces_.find(head->ns)->second;
  --use.branches;
  use.dirty = true;
  return Status::Ok();
}

// The ranges are those of ResolveSeal, so they begin and end with extents.
Status Transaction::ApplySeal(const Op& op) {
  if (op.other == 0 || op.sealed.empty()) return Unfit(op, "no table, or nothing in it");
  ReserveMore(&undo_, 2 * (1 + op.sealed.size()));
  for (const SealedRange& range : op.sealed) {
    Node* const node = tree_->MutableNode(range.node);
    if (node == nullptr) return Unfit(op, "no node " + std::to_string(range.node));
    NameTable({op.other, op.position}, range.stored_bytes);
    const Place place{
        .log = {}, .table = op.other, .positions = range.count, .stored_bytes = range.stored_bytes};
    const bool state = range.lane == kSamplerLane || range.lane == kMetadataLane;
    const Status status = state                             ? SealMark(node, range, place)
                          : range.lane < node->lanes.size() ? SealLane(node, range, place)
                                                            : Unfit(op, "no such lane");
    CAIRN_RETURN_IF_ERROR(status);
  }
  return Status::Ok();
}

// From now on the tree knows the table; `stored_bytes` more of it were put to use.
void Transaction::NameTable(const OpTable& table, uint64_t stored_bytes) {
  const bool is_new = !tree_->tables_.contains(table.number);
  undo_.push_back([tree = tree_, is_new, number = table.number, stored_bytes] {
    const auto named = tree->tables_.find(number);
    if (named == tree->tables_.end()) return;
    named->second.sealed_bytes -= stored_bytes;
    if (is_new) tree->tables_.erase(named);
  });
  const auto use = tree_->tables_.try_emplace(table.number, TableUse{table.bytes, 0, 0}).first;
  use->second.sealed_bytes += stored_bytes;
  use->second.dirty = true;
}

Status Transaction::SealLane(Node* node, const SealedRange& range, const Place& place) {
  std::vector<Extent>& extents = node->lanes[range.lane].extents;
  const auto first = std::partition_point(extents.begin(), extents.end(),
                                          [&](const Extent& e) { return e.begin < range.begin; });
  const auto last = std::partition_point(
      first, extents.end(), [&](const Extent& e) { return e.begin < range.begin + range.count; });
  if (first == last || first->begin != range.begin ||
      std::prev(last)->begin + std::prev(last)->count != range.begin + range.count) {
    return Status(StatusCode::kCorruption,
                  "seal of node " + std::to_string(range.node) + ", lane " +
                      std::to_string(range.lane) + ": [" + std::to_string(range.begin) + ", " +
                      std::to_string(range.begin + range.count) + ") are not whole extents");
  }
  ReplaceExtents(node, range.lane, static_cast<size_t>(first - extents.begin()),
                 static_cast<size_t>(last - extents.begin()),
                 {{.begin = range.begin, .count = range.count, .place = place}});
  return Status::Ok();
}

// Extents [first, last) of a lane give way to others of the same positions.
void Transaction::ReplaceExtents(Node* node, size_t lane, size_t first, size_t last,
                                 std::vector<Extent> now) {
  std::vector<Extent>& extents = node->lanes[lane].extents;
  extents.reserve(extents.size() + now.size());
  std::vector<Extent> before(extents.begin() + static_cast<ptrdiff_t>(first),
                             extents.begin() + static_cast<ptrdiff_t>(last));
  const auto swap = [tree = tree_, node, lane, &extents, first](size_t count,
                                                                const std::vector<Extent>& into) {
    const Tree::Recount recount(tree, *node);
    const auto at = extents.begin() + static_cast<ptrdiff_t>(first);
    const auto end = at + static_cast<ptrdiff_t>(count);
    for (auto extent = at; extent != end; ++extent) tree->UseExtent(node, lane, *extent, -1);
    if (count == into.size()) {
      std::copy(into.begin(), into.end(), at);  // What follows stays where it is.
    } else {
      extents.erase(at, end);
      extents.insert(extents.begin() + static_cast<ptrdiff_t>(first), into.begin(), into.end());
    }
    for (const Extent& extent : into) tree->UseExtent(node, lane, extent, 1);
  };
  tree_->Touch(node);
  node->dumped.LaneChanged(lane, first);
  undo_.push_back([swap, count = now.size(), before = std::move(before)] { swap(count, before); });
  swap(last - first, now);
}

Status Transaction::SealMark(Node* node, const SealedRange& range, const Place& place) {
  std::vector<Mark>& marks = range.lane == kSamplerLane ? node->samplers : node->metadata;
  const auto mark = std::partition_point(marks.begin(), marks.end(),
                                         [&](const Mark& m) { return m.position < range.begin; });
  if (mark == marks.end() || mark->position != range.begin) {
    return Status(StatusCode::kCorruption, "seal of node " + std::to_string(range.node) +
                                               ": no state at " + std::to_string(range.begin));
  }
  tree_->Touch(node);
  Node::Dumped& dumped = node->dumped;
  (range.lane == kSamplerLane ? dumped.samplers : dumped.metadata)
      .Changed(static_cast<size_t>(mark - marks.begin()));
  undo_.push_back([this, mark, before = mark->place] {
    tree_->UseTable(mark->place, 1, -1);
    tree_->UseTable(before, 1, 1);
    mark->place = before;
  });
  tree_->UseTable(mark->place, 1, -1);
  tree_->UseTable(place, 1, 1);
  mark->place = place;
  return Status::Ok();
}

}  // namespace cairn::engine
