// SPDX-License-Identifier: Apache-2.0
#include "engine/store/lookup.h"

#include <algorithm>
#include <map>

#include "base/core/text.h"
#include "engine/restore/plan/plan.h"
#include "engine/restore/plan/restorable.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/memory/retention.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

namespace {

// A cursor is the key behind which the next page begins: name, NUL, id. Names hold no NUL, and an
// invented cursor is simply a place in the order.
std::string MakeCursor(const std::string& name, uint64_t id) {
  return name + '\0' + std::to_string(id);
}

Tree::NameKey ParseCursor(std::string_view ns, const std::string& cursor) {
  const size_t nul = cursor.find('\0');
  uint64_t id = 0;
  if (nul != std::string::npos) {
    for (size_t i = nul + 1; i < cursor.size() && cursor[i] >= '0' && cursor[i] <= '9'; ++i) {
      id = id * 10 + static_cast<uint64_t>(cursor[i] - '0');
    }
  }
  return {std::string(ns), cursor.substr(0, nul), id + 1};
}

BranchInfo ToInfo(const Head& head) {
  BranchInfo info;
  info.id = BranchId{head.id};
  info.name = head.name;
  info.ns = head.ns;
  info.model = ModelId{head.model};
  info.node = NodeId{head.node};
  info.length = head.lengths[kTokenLane];
  info.kv_lengths.assign(head.lengths.begin() + 1, head.lengths.end());
  info.created_at_ns = head.created_at_ns;
  info.updated_at_ns = head.updated_at_ns;
  info.used_at_ns = head.used_at_ns;
  info.keep = head.keep;
  return info;
}

Lookup::Stretch::Where WhereIs(const Place& place) {
  using Where = Lookup::Stretch::Where;
  if (place.evicted()) return Where::kEvicted;
  if (place.gap()) return Where::kGap;
  return place.in_table() ? Where::kTable : Where::kLog;
}

std::vector<Lookup::Stretch> StretchesOf(const Lane& lane, uint64_t position_bytes) {
  std::vector<Lookup::Stretch> found;
  for (const Extent& extent : lane.extents) {
    const Place& place = extent.place;
    const auto where = WhereIs(place);
    if (found.empty() || found.back().where != where || found.back().exact != extent.exact) {
      found.push_back({extent.begin, extent.begin, where, extent.exact, 0});
    }
    found.back().end = extent.begin + extent.count;
    if (place.absent()) continue;
    found.back().bytes +=
        place.in_table() ? place.Share(extent.count) : extent.count * position_bytes;
  }
  return found;
}

using StatesByPosition = std::map<uint64_t, Lookup::StatePosition>;

std::vector<Lookup::StatePosition> InOrder(StatesByPosition found) {
  std::vector<Lookup::StatePosition> states;
  for (auto& [position, state] : found) {
    state.position = position;
    states.push_back(state);
  }
  return states;
}

}  // namespace

Result<ModelInfo> Lookup::GetModel(ModelId id) const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  std::lock_guard lock(deps_.mutex());
  const auto spec = deps_.tree().FindModel(static_cast<uint64_t>(id));
  if (spec == nullptr) {
    return Status(StatusCode::kNotFound,
                  "model " + std::to_string(static_cast<uint64_t>(id)) + " is not registered");
  }
  return ModelInfo{id, *spec};
}

std::vector<ModelInfo> Lookup::Models() const {
  std::lock_guard lock(deps_.mutex());
  std::vector<ModelInfo> models;
  for (const auto& [id, spec] : deps_.tree().models()) models.push_back({ModelId{id}, *spec});
  return models;
}

Result<BranchId> Lookup::FindBranch(std::string_view name, std::string_view ns) const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(ns));
  Committer::Lock lock(deps_.mutex());
  CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadNamed(ns, name, &lock));
  if (head == nullptr) {
    return Status(StatusCode::kNotFound,
                  "no branch " + Quoted(name) + (ns.empty() ? "" : " in namespace " + Quoted(ns)));
  }
  return BranchId{head->id};
}

Result<BranchPage> Lookup::ListBranches(std::string_view ns, std::string_view prefix, size_t limit,
                                        const std::string& cursor) const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(ns));
  if (limit == 0) return Status(StatusCode::kInvalidArgument, "a page of no branches");
  coalesced_->FlushAll();
  Tree::NameKey from{std::string(ns), std::string(prefix), 0};
  if (!cursor.empty()) from = std::max(from, ParseCursor(ns, cursor));
  const size_t one_more = limit == SIZE_MAX ? limit : limit + 1;  // To know whether there are more.
  CAIRN_ASSIGN_OR_RETURN(std::vector<Head> heads,
                         deps_.access->ReadInOrder(std::move(from), one_more));
  BranchPage page;
  for (const Head& head : heads) {
    if (head.ns != ns || !head.name.starts_with(prefix)) break;
    if (page.branches.size() == limit) {
      const BranchInfo& last = page.branches.back();
      page.cursor = MakeCursor(last.name, static_cast<uint64_t>(last.id));
      break;
    }
    page.branches.push_back(ToInfo(head));
  }
  return page;
}

Result<std::vector<NamespaceInfo>> Lookup::Namespaces() const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  TreeSums::Namespaces all;  // As the index has them, then as memory does.
  Committer::Lock lock(deps_.mutex());
  const Tree& tree = deps_.tree();
  for (bool again = tree.sums().unloaded() > 0; again;) {
    const std::shared_ptr<sstable::LsmIndex> index = tree.index();
    const uint64_t generation = tree.generation();
    lock.unlock();
    CAIRN_ASSIGN_OR_RETURN(all, TreeRecords::ReadNamespaces(*index));
    lock.lock();
    again = generation != tree.generation();
  }
  for (const auto& [name, use] : tree.namespaces()) all.insert_or_assign(name, use);
  lock.unlock();
  std::vector<NamespaceInfo> found;
  for (const auto& [name, use] : all) {
    if (IsReserved(name) || (use.branches == 0 && use.policy == NamespacePolicy())) continue;
    found.push_back({name, use.policy, use.branches, use.bytes});
  }
  return found;
}

Result<std::vector<KvHole>> Lookup::EvictedKv(BranchId id, uint64_t begin, uint64_t end) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  const auto model = deps_.tree().FindModel(head->model);
  CAIRN_ASSIGN_OR_RETURN(const Range range,
                         RangeOf(begin, end, head->lengths[kTokenLane], "evicted KV"));
  begin = range.begin;
  end = range.end;
  const uint64_t common = CommonLength(*model, head->lengths, end);
  std::vector<KvHole> found;
  const auto add = [&](uint32_t lane, uint64_t from, uint64_t to) {
    for (const Hole& hole :
         FindHoles(deps_.tree(), *head, lane, std::max(from, begin), std::min(to, end))) {
      if (!found.empty() && found.back().group == lane - 1 && found.back().end == hole.begin) {
        found.back().end = hole.end;
      } else {
        found.push_back({lane - 1, hole.begin, hole.end});
      }
    }
  };
  for (uint32_t lane = 1; lane < head->lengths.size(); ++lane) {
    const LayerGroup& group = model->groups[lane - 1];
    if (!MayHaveGaps(group)) {
      add(lane, begin, end);
      continue;
    }
    const NeededPositions needed =
        Needed(group, group.optional ? LengthWithin(group, head->lengths[lane], common) : common);
    add(lane, 0, needed.sinks_end);
    add(lane, needed.begin, needed.end);
  }
  return found;
}

Result<uint64_t> Lookup::RestorableLength(BranchId id, uint64_t at_most) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  return engine::RestorableLength(deps_.tree(), *head,
                                  std::min(at_most, head->lengths[kTokenLane]));
}

Result<Head> Lookup::CopyHead(BranchId id) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  return *head;
}

Status Lookup::CheckExists(BranchId id) const {
  CAIRN_ASSIGN_OR_RETURN(const Head head, CopyHead(id));
  return CheckNotReserved(head.ns);
}

Result<BranchInfo> Lookup::Info(BranchId id) const {
  CAIRN_ASSIGN_OR_RETURN(const Head head, CopyHead(id));
  return ToInfo(head);
}

Result<uint64_t> Lookup::Length(BranchId id) const {
  CAIRN_ASSIGN_OR_RETURN(const Head head, CopyHead(id));
  return head.lengths[kTokenLane];
}

// A length is durable with the sequence that brought it. A rewind makes longer ones before it
// obsolete, so the newest durable one counts.
Result<uint64_t> Lookup::DurableLength(BranchId id) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  const uint64_t length = head->lengths[kTokenLane];
  return deps_.committer->lengths().Of(id, deps_.log->durable_sequence()).value_or(length);
}

Result<std::vector<PathStep>> Lookup::Path(BranchId id) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  return CollectPath(deps_.tree(), *head);
}

Result<std::vector<ContentSpan>> Lookup::Spans(BranchId id, uint64_t begin, uint64_t end) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  CAIRN_ASSIGN_OR_RETURN(const Range range,
                         RangeOf(begin, end, head->lengths[kTokenLane], "spans"));
  return CollectSpans(deps_.tree(), *head, range.begin, range.end);
}

Result<std::vector<std::vector<Lookup::KvRun>>> Lookup::KvRuns(BranchId id, uint64_t begin,
                                                               uint64_t end) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  std::vector<std::vector<KvRun>> groups(head->lengths.size() - 1);
  for (uint32_t lane = 1; lane < head->lengths.size(); ++lane) {
    std::vector<KvRun>& runs = groups[lane - 1];
    for (const LanePiece& piece : CollectLane(deps_.tree(), *head, lane, begin, end)) {
      if (piece.extent.place.absent()) continue;
      const bool goes_on = !runs.empty() && runs.back().end == piece.begin &&
                           runs.back().exact == piece.extent.exact;
      if (!goes_on) runs.push_back({piece.begin, piece.begin, piece.extent.exact});
      runs.back().end = piece.end;
    }
  }
  return groups;
}

// A node's own state at its beginning replaces that of the node above.
Result<std::vector<Lookup::StatePosition>> Lookup::StatesIn(BranchId id, uint64_t begin,
                                                            uint64_t end) const {
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* head, coalesced_->LookAt(id, &lock));
  StatesByPosition found;
  uint64_t limit = std::min(end, head->lengths[kTokenLane]);
  for (const Node* node = deps_.tree().OnPath(head->node); node != nullptr;
       node = deps_.tree().OnPath(node->parent)) {
    const auto add = [&](const std::vector<Mark>& marks, bool StatePosition::* kind) {
      for (const Mark& mark : marks) {
        if (mark.position < begin || mark.position > limit) continue;
        found[mark.position].*kind = true;
      }
    };
    add(node->samplers, &StatePosition::sampler);
    add(node->metadata, &StatePosition::metadata);
    limit = std::min(limit, node->lanes[kTokenLane].start);
  }
  return InOrder(std::move(found));
}

Result<Lookup::NodeContent> Lookup::ContentOf(NodeId id) const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  coalesced_->FlushAll();
  const uint64_t number[] = {static_cast<uint64_t>(id)};
  Committer::Lock lock(deps_.mutex());
  CAIRN_RETURN_IF_ERROR(deps_.access->LoadNodes(number, /*memory_only=*/false, &lock));
  const Node* const node = deps_.tree().FindNode(number[0]);
  if (node == nullptr) {
    return Status(StatusCode::kNotFound, "no node " + std::to_string(number[0]));
  }
  NodeContent content{.ns = node->ns, .lanes = {}, .states = {}, .spans = node->spans};
  const ModelSpec& model = deps_.tree().ModelOf(*node);
  for (size_t lane = 0; lane < node->lanes.size(); ++lane) {
    content.lanes.push_back(StretchesOf(node->lanes[lane], PositionBytes(model, lane)));
  }
  StatesByPosition states;
  for (const Mark& mark : node->samplers) states[mark.position].sampler = true;
  for (const Mark& mark : node->metadata) states[mark.position].metadata = true;
  content.states = InOrder(std::move(states));
  return content;
}

}  // namespace cairn::engine
