// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/tree.h"

#include <algorithm>

#include "base/codec/model_check.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/text.h"
#include "engine/tree/fragment_layout.h"
#include "engine/tree/retention.h"

namespace cairn::engine {

namespace {

Status Bad(std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); }

bool HasState(std::span<const LaneRange> lanes) {
  return std::any_of(lanes.begin(), lanes.end(), [](const LaneRange& range) {
    return range.lane == kSamplerLane || range.lane == kMetadataLane;
  });
}

// Whether something but this branch reaches the position or goes beyond. Where memory does not
// know, it does.
bool IsSharedAt(const Node& node, uint64_t position, uint64_t branch) {
  if (!CAIRN_KEPT(kLiveStateShared)) return false;
  if (!node.knows_all_refs() && node.refs_from.position >= position) return true;
  return std::any_of(
      node.refs.lower_bound({.position = position}), node.refs.end(),
      [branch](const Ref& ref) { return ref.kind != Ref::kHead || ref.id != branch; });
}

std::string Describe(const Head& head) {
  return head.name.empty() ? "branch #" + std::to_string(head.id) : "branch " + Quoted(head.name);
}

}  // namespace

Status NoBranch(uint64_t branch) {
  return Status(StatusCode::kNotFound, "branch #" + std::to_string(branch) + " does not exist");
}

Status CheckNameBytes(const std::string& name, const char* what) {
  if (name.size() > kMaxNameBytes) {
    return Bad(std::string(what) + " has " + std::to_string(name.size()) + " bytes, at most " +
               std::to_string(kMaxNameBytes));
  }
  // Cursors of listings end a name with NUL.
  if (name.find('\0') != std::string::npos) return Bad(std::string(what) + " holds a NUL");
  return Status::Ok();
}

const Head* Tree::FindHead(uint64_t branch) const {
  const auto it = heads_.find(branch);
  if (it == heads_.end() || it->second.gone) return nullptr;
  it->second.used = true;
  return &it->second;
}

const Head* Tree::FindHead(std::string_view ns, std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto it = names_.lower_bound({std::string(ns), std::string(name), 0});
  if (it == names_.end() || std::get<0>(*it) != ns || std::get<1>(*it) != name) return nullptr;
  return FindHead(std::get<2>(*it));
}

const Node* Tree::FindNode(uint64_t node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() || it->second->gone ? nullptr : it->second.get();
}

const Node* Tree::OnPath(uint64_t node) const {
  const Node* const found = FindNode(node);
  CAIRN_CHECK(node == 0 || found != nullptr);  // A restore would leave out what lies on it.
  return found;
}

std::shared_ptr<const ModelSpec> Tree::FindModel(uint64_t model) const {
  const auto it = models_.find(model);
  return it == models_.end() ? nullptr : it->second;
}

void Tree::VisitNames(const NameKey& from, const std::function<bool(const NameKey&)>& visit) const {
  for (auto it = names_.lower_bound(from); it != names_.end(); ++it) {
    if (!visit(*it)) return;
  }
}

std::vector<LanePiece> Tree::CollectLane(const Head& head, uint32_t lane, uint64_t begin,
                                         uint64_t end) const {
  std::vector<LanePiece> pieces;  // Last first.
  uint64_t limit = std::min(end, head.lengths[lane]);
  for (const Node* node = OnPath(head.node); node != nullptr && begin < limit;
       node = OnPath(node->parent)) {
    const Lane& on_node = node->lanes[lane];
    auto it = std::upper_bound(on_node.extents.begin(), on_node.extents.end(), limit,
                               [](uint64_t p, const Extent& e) { return p <= e.begin; });
    while (it != on_node.extents.begin()) {
      const Extent& extent = *--it;
      const uint64_t piece_end = std::min(limit, extent.begin + extent.count);
      const uint64_t piece_begin = std::max(begin, extent.begin);
      if (piece_end <= begin) break;
      if (piece_begin < piece_end) pieces.push_back({node->id, piece_begin, piece_end, extent});
    }
    limit = std::min(limit, on_node.start);
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<PathStep> Tree::Path(const Head& head) const {
  std::vector<PathStep> steps;
  uint64_t limit = head.lengths[kTokenLane];
  for (const Node* node = OnPath(head.node); node != nullptr; node = OnPath(node->parent)) {
    steps.push_back({.node = NodeId{node->id},
                     .parent = NodeId{node->parent},
                     .begin = node->lanes[kTokenLane].start,
                     .end = limit,
                     .owner = BranchId{node->owner}});
    limit = node->lanes[kTokenLane].start;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

const Mark* Tree::FindMark(const Head& head, bool sampler, uint64_t position,
                           uint64_t* on_node) const {
  uint64_t limit = std::min(position, head.lengths[kTokenLane]);
  for (const Node* node = OnPath(head.node); node != nullptr; node = OnPath(node->parent)) {
    const std::vector<Mark>& marks = sampler ? node->samplers : node->metadata;
    auto it = std::upper_bound(marks.begin(), marks.end(), limit,
                               [](uint64_t p, const Mark& m) { return p < m.position; });
    if (it != marks.begin()) {
      if (on_node != nullptr) *on_node = node->id;
      return &*std::prev(it);
    }
    limit = std::min(limit, node->lanes[kTokenLane].start);
  }
  return nullptr;
}

std::vector<ContentSpan> Tree::Spans(const Head& head, uint64_t begin, uint64_t end) const {
  std::vector<ContentSpan> found;
  uint64_t node_end = head.lengths[kTokenLane];  // As far as the branch goes on each.
  for (const Node* node = OnPath(head.node); node != nullptr && begin < node_end;
       node = OnPath(node->parent)) {
    for (auto it = node->spans.rbegin(); it != node->spans.rend(); ++it) {
      ContentSpan span = *it;
      span.end = std::min(span.end, node_end);
      if (span.begin < span.end && span.begin < end && span.end > begin) found.push_back(span);
    }
    node_end = std::min(node_end, node->lanes[kTokenLane].start);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

void Tree::Count(const Node& node, int sign) {
  const auto factor = static_cast<uint64_t>(int64_t{sign});  // Modulo 2^64.
  uint64_t raw_bytes = 0;
  for (size_t i = 0; i < node.lanes.size(); ++i) {
    const Lane& lane = node.lanes[i];
    const uint64_t position_bytes = PositionBytes(node, i);
    raw_bytes += (lane.end - lane.start - lane.absent) * position_bytes;
    if (i == kTokenLane) {
      counts_.tokens += factor * (lane.end - lane.start);
      continue;
    }
    counts_.kv_lanes += factor * (lane.extents.empty() ? 0 : 1);
    counts_.kv_extents += factor * lane.extents.size();
    counts_.evicted_bytes += factor * lane.evicted * position_bytes;
  }
  counts_.raw_bytes += factor * raw_bytes;
  node.use->bytes += factor * raw_bytes;
  node.use->dirty = true;
}

uint64_t Tree::PositionBytes(const Node& node, size_t lane) const {
  return lane == kTokenLane ? sizeof(TokenId)
                            : models_.at(node.model)->groups[lane - 1].token_bytes();
}

// A node that begins at the position is only gone to for a state that it has there: one that was
// set without a token.
const Node* Tree::NodeAt(const Node* node, uint64_t position,
                         std::vector<uint64_t>* lengths) const {
  for (uint64_t& length : *lengths) length = std::min(length, position);
  const auto has_state = [position](const std::vector<Mark>& marks) {
    return !marks.empty() && marks.front().position == position;
  };
  while (node != nullptr && position <= node->lanes[kTokenLane].start) {
    if (CAIRN_KEPT(kLiveState) && (has_state(node->samplers) || has_state(node->metadata))) break;
    for (size_t lane = 0; lane < lengths->size(); ++lane) {
      (*lengths)[lane] = std::min((*lengths)[lane], node->lanes[lane].start);
    }
    node = OnPath(node->parent);
  }
  return node;
}

Status Tree::CheckName(const std::string& name, const std::string& ns) const {
  CAIRN_RETURN_IF_ERROR(CheckNameBytes(name, "name"));
  CAIRN_RETURN_IF_ERROR(CheckNameBytes(ns, "namespace"));
  if (FindHead(ns, name) != nullptr) {
    return Status(
        StatusCode::kAlreadyExists,
        "branch " + Quoted(name) + " exists" + (ns.empty() ? "" : " in namespace " + Quoted(ns)));
  }
  return Status::Ok();
}

Status Tree::CheckCut(const Head& head, uint64_t position, const char* what) const {
  if (position > head.lengths[kTokenLane]) {
    return Bad(std::string(what) + " at position " + std::to_string(position) + " of " +
               Describe(head) + ", which has " + std::to_string(head.lengths[kTokenLane]) +
               " tokens");
  }
  for (const ContentSpan& span : Spans(head, position, position + 1)) {
    if (span.atomic && span.begin < position) {
      return Bad(std::string(what) + " at position " + std::to_string(position) +
                 " inside the atomic content span [" + std::to_string(span.begin) + ", " +
                 std::to_string(span.end) + ")");
    }
  }
  return Status::Ok();
}

Result<Op> Tree::ResolveModel(const ModelSpec& spec) const {
  Op op;
  op.kind = OpKind::kModel;
  op.other = next_id_;
  op.spec = EncodeModel(spec);
  return op;
}

Result<Op> Tree::ResolveKnownModel(uint64_t model, const ModelSpec& spec) const {
  CAIRN_RETURN_IF_ERROR(CheckStoredModel(spec));
  ModelSpec known = *FindModel(model);
  known.TakeUnset(spec);
  if (const Status fits = CheckStoredModel(known); !fits.ok()) {
    return Status(StatusCode::kModelMismatch,
                  "with what the registered model says: " + std::string(fits.message()));
  }
  Op op;
  op.kind = OpKind::kModel;
  op.flags = kOpKnown;
  op.other = model;
  op.spec = EncodeModel(known);
  return op;
}

void Tree::SetKeep(Keep keep, Op* op) const {
  const NamespaceUse* const use = FindNamespace(op->ns);
  if (keep.ttl_ns == 0 && use != nullptr) keep.ttl_ns = use->policy.ttl_ns;
  if (keep != Keep()) op->policy = OpPolicy::Of(keep);
}

Result<Op> Tree::ResolveCreate(uint64_t model, const std::string& name, const std::string& ns,
                               Keep keep) const {
  if (FindModel(model) == nullptr) {
    return Status(StatusCode::kNotFound, "model " + std::to_string(model) + " is not registered");
  }
  CAIRN_RETURN_IF_ERROR(CheckName(name, ns));
  Op op;
  op.kind = OpKind::kCreate;
  op.branch = next_id_;
  op.other = model;
  op.name = name;
  op.ns = ns;
  SetKeep(keep, &op);
  return op;
}

Result<Op> Tree::ResolveFork(uint64_t branch, uint64_t position, const std::string& name,
                             const std::string& ns, Keep keep) const {
  const Head* head = FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  CAIRN_RETURN_IF_ERROR(CheckName(name, ns));
  CAIRN_RETURN_IF_ERROR(CheckCut(*head, position, "fork"));
  Op op;
  op.kind = OpKind::kFork;
  op.branch = next_id_;
  op.other = branch;
  op.position = position;
  std::vector<uint64_t> lengths = head->lengths;
  const Node* node = NodeAt(OnPath(head->node), position, &lengths);
  op.node = node == nullptr ? 0 : node->id;
  op.name = name;
  op.ns = ns;
  SetKeep(keep, &op);
  return op;
}

Result<Op> Tree::ResolveForkOfNode(uint64_t source, uint64_t position, const std::string& name,
                                   const std::string& ns, Keep keep) const {
  const Node* const from = FindNode(source);
  if (from == nullptr) {
    return Status(StatusCode::kNotFound, "node " + std::to_string(source) + " does not exist");
  }
  CAIRN_RETURN_IF_ERROR(CheckName(name, ns));
  const Lane& tokens = from->lanes[kTokenLane];
  if (position < tokens.start || position > tokens.end) {
    return Bad("fork at position " + std::to_string(position) + " of node " +
               std::to_string(source) + ", which has [" + std::to_string(tokens.start) + ", " +
               std::to_string(tokens.end) + ")");
  }
  std::vector<uint64_t> lengths = EndsOf(*from);
  Head whole;  // As a branch that ends with all of the node.
  whole.node = source;
  whole.lengths = lengths;
  CAIRN_RETURN_IF_ERROR(CheckCut(whole, position, "fork"));
  Op op;
  op.kind = OpKind::kFork;
  op.branch = next_id_;
  op.source_node = source;
  op.position = position;
  const Node* node = NodeAt(from, position, &lengths);
  op.node = node == nullptr ? 0 : node->id;
  op.name = name;
  op.ns = ns;
  SetKeep(keep, &op);
  return op;
}

std::vector<uint64_t> Tree::EndsOf(const Node& node) {
  std::vector<uint64_t> ends;
  for (const Lane& lane : node.lanes) ends.push_back(lane.end);
  return ends;
}

Result<Op> Tree::ResolveAppend(uint64_t branch, std::vector<LaneRange> lanes,
                               std::vector<ContentSpan> spans) const {
  const Head* head = FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  uint64_t length_after = head->lengths[kTokenLane];
  for (const LaneRange& range : lanes) {
    if (range.lane == kTokenLane) length_after += range.count;
  }
  for (const LaneRange& range : lanes) {
    if (range.lane == kSamplerLane || range.lane == kMetadataLane) continue;
    CAIRN_CHECK(range.lane < head->lengths.size());
    if (range.lane == kTokenLane) continue;
    const std::string group = "kv of group " + std::to_string(range.lane - 1);
    const LayerGroup& kept = FindModel(head->model)->groups[range.lane - 1];
    if (range.begin < head->lengths[range.lane] ||
        (range.begin > head->lengths[range.lane] && !MayHaveGaps(kept))) {
      return Bad(group + " begins at position " + std::to_string(range.begin) + "; " +
                 Describe(*head) + " has KV up to " + std::to_string(head->lengths[range.lane]));
    }
    if (range.begin - head->lengths[range.lane] > UINT32_MAX) {
      return Bad(group + " begins at position " + std::to_string(range.begin) +
                 "; what is left out, from " + std::to_string(head->lengths[range.lane]) +
                 " on, is more than a gap may be");
    }
    if (range.begin + range.count > length_after) {
      return Bad(group + " reaches to position " + std::to_string(range.begin + range.count) +
                 ", beyond the " + std::to_string(length_after) + " tokens");
    }
  }
  uint64_t span_begin = head->lengths[kTokenLane];
  for (const ContentSpan& span : spans) {
    if (span.begin < span_begin || span.begin >= span.end || span.end > length_after) {
      return Bad("content span [" + std::to_string(span.begin) + ", " + std::to_string(span.end) +
                 ") must lie in order within the new tokens [" +
                 std::to_string(head->lengths[kTokenLane]) + ", " + std::to_string(length_after) +
                 ")");
    }
    span_begin = span.end;
  }
  Op op;
  op.kind = OpKind::kAppend;
  op.branch = branch;
  op.position = head->lengths[kTokenLane];
  op.lanes = std::move(lanes);
  op.spans = std::move(spans);
  const Node* node = OnPath(head->node);
  bool extend = node != nullptr && node->owner == branch;
  // A state without a token stands where others may end or leave: they keep what they have there.
  extend = extend && (length_after != op.position || !HasState(op.lanes) ||
                      !IsSharedAt(*node, op.position, branch));
  for (size_t lane = 0; extend && lane < head->lengths.size(); ++lane) {
    extend = head->lengths[lane] == node->lanes[lane].end;
  }
  if (extend) {
    op.node = node->id;
  } else {
    op.node = next_id_;
    op.other = head->node;
    op.flags = kOpNewNode;
  }
  return op;
}

Result<Op> Tree::ResolveRewind(uint64_t branch, uint64_t length) const {
  const Head* head = FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  CAIRN_RETURN_IF_ERROR(CheckCut(*head, length, "rewind"));
  Op op;
  op.kind = OpKind::kRewind;
  op.branch = branch;
  op.position = length;
  const Node* node = OnPath(head->node);
  if (node != nullptr && node->owner == branch && length >= node->lanes[kTokenLane].start &&
      head->lengths[kTokenLane] == node->lanes[kTokenLane].end) {
    // Where memory does not know it is taken for granted that something reaches beyond.
    bool beyond = node->refs_from.position > length || leases_.LeasedTo(node->id) > length;
    for (auto ref = node->refs.rbegin();
         !beyond && ref != node->refs.rend() && ref->position > length; ++ref) {
      beyond = ref->kind != Ref::kHead || ref->id != branch;
    }
    if (!beyond) {
      op.node = node->id;
      op.flags = kOpInPlace;
      return op;
    }
  }
  std::vector<uint64_t> lengths = head->lengths;
  node = NodeAt(node, length, &lengths);
  op.node = node == nullptr ? 0 : node->id;
  return op;
}

Result<Op> Tree::ResolveRename(uint64_t branch, const std::string& name) const {
  const Head* head = FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  if (name != head->name) CAIRN_RETURN_IF_ERROR(CheckName(name, head->ns));
  Op op;
  op.kind = OpKind::kRename;
  op.branch = branch;
  op.name = name;
  return op;
}

Result<Op> Tree::ResolveDrop(uint64_t branch) const {
  if (FindHead(branch) == nullptr) return NoBranch(branch);
  Op op;
  op.kind = OpKind::kDrop;
  op.branch = branch;
  return op;
}

void Tree::KeepLogged() {
  keep_logged_ = true;
  logged_kept_ = logged_.size();
}

void Tree::ForgetLogged(uint64_t segment) {
  size_t left = 0;
  for (size_t i = 0; i < logged_.size(); ++i) {
    const bool deleted = logged_[i].first <= segment;  // If the index has it.
    if (i < logged_kept_ && deleted) continue;
    if (i < logged_dumped_ && !deleted) continue;
    logged_[left++] = logged_[i];
  }
  logged_.resize(left);
  logged_dumped_ = 0;
  ReleaseLogged();
}

void Tree::ReleaseLogged() {
  logged_.erase(logged_.begin(), logged_.begin() + static_cast<ptrdiff_t>(logged_dumped_));
  keep_logged_ = false;
  logged_kept_ = logged_dumped_ = 0;
}

void Tree::NoteUnsealed(uint64_t id, uint64_t tokens) {
  Node* const node = MutableNode(id);
  if (node == nullptr) return;
  ++node->unsealed_deltas;
  node->unsealed_tokens += tokens;
  const bool due = (seal_deltas_ != 0 && node->unsealed_deltas >= seal_deltas_) ||
                   (seal_tokens_ != 0 && node->unsealed_tokens >= seal_tokens_);
  if (!due && !node->seal_due) return;
  const ModelSpec& model = *models_.at(node->model);
  uint64_t token_bytes = PositionKvBytes(model);            // Not of states, which are few,
  if (token_bytes == 0) token_bytes = model.token_bytes();  // unless they are all there is.
  if (!node->seal_due) {
    seal_due_.push_back(node->id);
    node->seal_due = true;
    tokens = node->unsealed_tokens;
  }
  seal_due_bytes_ += tokens * token_bytes;
}

std::vector<uint64_t> Tree::TakeSealDue() {
  for (const uint64_t id : seal_due_) {
    Node* const node = MutableNode(id);
    if (node == nullptr) continue;
    node->seal_due = false;
    node->unsealed_deltas = node->unsealed_tokens = 0;
  }
  seal_due_bytes_ = 0;
  return std::exchange(seal_due_, {});
}

void Tree::ForgetTable(uint64_t table) {
  const auto it = tables_.find(table);
  CAIRN_CHECK(it != tables_.end() && it->second.live_bytes == 0);
  dirty_.gone_tables.push_back(table);
  tables_.erase(it);
}

void Tree::Collect(uint64_t id, const std::function<bool(const Place&)>& wanted, uint64_t bytes,
                   std::vector<SealSource>* sources) const {
  const Node* node = FindNode(id);
  if (node == nullptr) return;
  const std::shared_ptr<const ModelSpec> model = FindModel(node->model);
  for (uint32_t lane = 0; lane < node->lanes.size(); ++lane) {
    const FragmentLayout layout(*model, lane);
    SealSource source;
    const auto flush = [&] {
      if (source.count > 0) sources->push_back(std::move(source));
      source = SealSource{.node = id, .lane = lane, .model = model};
    };
    flush();
    for (const Extent& extent : node->lanes[lane].extents) {
      if (!wanted(extent.place)) {
        flush();
        continue;
      }
      const bool full = (uint64_t{source.count} + extent.count) * layout.position_bytes() > bytes ||
                        source.begin / layout.page_rows() != extent.begin / layout.page_rows();
      // Channels have a scale a page. Joined with others they might get a larger one, and what was
      // quantised once would change: sealed apart stays apart.
      const bool quantised = layout.lossy() && extent.place.table != 0;
      // A fragment is exact or not as a whole.
      const bool other = source.count > 0 && source.extents.front().exact != extent.exact;
      if (full || quantised || other) flush();
      if (source.count == 0) source.begin = extent.begin;
      source.count += extent.count;
      source.extents.push_back(extent);
    }
    flush();
  }
  const auto states = [&](const std::vector<Mark>& marks, uint32_t lane) {
    for (const Mark& mark : marks) {
      if (!wanted(mark.place)) continue;
      sources->push_back({.node = id,
                          .lane = lane,
                          .begin = mark.position,
                          .count = 1,
                          .model = model,
                          .mark = mark});
    }
  };
  states(node->samplers, kSamplerLane);
  states(node->metadata, kMetadataLane);
}

// A lane is looked at extent by extent: the first that is not what was read ends the range. What
// follows an append in place of the cut part is never taken for it, since its place differs.
Op Tree::ResolveSeal(uint64_t table, uint64_t table_bytes,
                     std::span<const SealSource> sources) const {
  Op op;
  op.kind = OpKind::kSeal;
  op.other = table;
  op.position = table_bytes;
  for (const SealSource& source : sources) {
    const Node* node = FindNode(source.node);
    if (node == nullptr) continue;
    uint64_t same = 0;  // Positions.
    if (source.lane == kSamplerLane || source.lane == kMetadataLane) {
      for (const Mark& mark : source.lane == kSamplerLane ? node->samplers : node->metadata) {
        if (mark.position == source.begin && mark.place == source.mark.place) same = 1;
      }
    } else {
      const std::vector<Extent>& extents = node->lanes[source.lane].extents;
      auto extent = std::partition_point(extents.begin(), extents.end(),
                                         [&](const Extent& e) { return e.begin < source.begin; });
      for (const Extent& read : source.extents) {
        if (extent == extents.end() || extent->begin != read.begin || extent->place != read.place ||
            extent->count > read.count) {
          break;
        }
        same += extent->count;
        if (extent->count < read.count) break;  // Cut, so nothing of what follows was read.
        ++extent;
      }
    }
    if (same == 0) continue;
    op.sealed.push_back({source.node, source.begin, source.lane, static_cast<uint32_t>(same),
                         source.stored_bytes * same / source.count});
  }
  return op;
}

}  // namespace cairn::engine
