// SPDX-License-Identifier: Apache-2.0
#include "engine/device/kv_overlap.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/core/text.h"

namespace cairn::engine {

namespace {

Status Differs(const std::string& what) {
  return Status(StatusCode::kModelMismatch, "copy of KV: " + what);
}

// What a process holds of a logical group. Without ModelSpec::logical it is all of it, and the
// heads are as many as its planes say.
struct Held {
  bool is_said = false;
  uint32_t layers = 0, layer_begin = 0, layer_end = 0;
  uint32_t heads = 0, head_begin = 0, head_end = 0;
  uint32_t held_heads() const { return head_end - head_begin; }
};

Held HeldOf(const ModelSpec& spec, const LayerGroup& group) {
  for (const LogicalGroup& logical : spec.logical) {
    if (logical.name != group.name) continue;
    return {true,          logical.layers,     logical.layer_begin, logical.layer_end,
            logical.heads, logical.head_begin, logical.head_end};
  }
  return {.layers = group.layers, .layer_begin = 0, .layer_end = group.layers};
}

const LayerGroup* GroupOf(const ModelSpec& spec, const std::string& name) {
  const auto found = std::find_if(spec.groups.begin(), spec.groups.end(),
                                  [&](const LayerGroup& group) { return group.name == name; });
  return found == spec.groups.end() ? nullptr : &*found;
}

bool Knows(const ModelSpec& spec, const std::string& name) {
  return GroupOf(spec, name) != nullptr ||
         std::any_of(spec.logical.begin(), spec.logical.end(),
                     [&](const LogicalGroup& logical) { return logical.name == name; });
}

// A plane whose heads, or parts, can be counted in those of the logical group.
struct ByHead {
  bool is = false;
  bool of_parts = false;
  uint32_t heads = 0;  // That are held.
  uint32_t begin = 0;  // The logical number of the first,
  uint32_t all = 0;    // of these.
};

ByHead ByHeadOf(const Plane& plane, const Held& held) {
  ByHead by;
  if (plane.role == PlaneRole::kLatent) return by;
  by.of_parts = plane.state_parts != 0 && plane.heads == 1;
  by.heads = by.of_parts ? plane.state_parts : plane.heads;
  by.is = !held.is_said || by.heads == held.held_heads();
  by.begin = held.is_said ? held.head_begin : 0;
  by.all = held.is_said ? held.heads : by.heads;
  return by;
}

// The heads that both hold; none: `shape.heads` is 0.
Result<PlanePair> PairPlanes(const Plane& from, const Held& from_held, const Plane& to,
                             const Held& to_held, const std::string& where) {
  PlanePair pair;
  pair.shape = from;
  const ByHead a = ByHeadOf(from, from_held), b = ByHeadOf(to, to_held);
  const uint32_t a_row = from.row_bytes / (a.of_parts ? a.heads : 1);
  const uint32_t b_row = to.row_bytes / (b.of_parts ? b.heads : 1);
  if (a.is && b.is && a.all == b.all && a.of_parts == b.of_parts && a_row == b_row) {
    const uint32_t begin = std::max(a.begin, b.begin);
    const uint32_t end = std::min(a.begin + a.heads, b.begin + b.heads);
    pair.shape.heads = end > begin ? end - begin : 0;
    pair.shape.row_bytes = a_row;
    pair.shape.state_parts = 0;
    pair.from_head = begin - std::min(begin, a.begin);
    pair.to_head = begin - std::min(begin, b.begin);
    pair.of_parts = a.of_parts;
    return pair;
  }
  if (from.heads != to.heads || from.row_bytes != to.row_bytes) {
    return Differs(where + " has " + std::to_string(from.heads) + " heads of " +
                   std::to_string(from.row_bytes) + " bytes, and " + std::to_string(to.heads) +
                   " of " + std::to_string(to.row_bytes));
  }
  const bool needs_same_heads = from.role != PlaneRole::kLatent && from.role != PlaneRole::kScale;
  if (needs_same_heads &&
      (a.all != b.all || a.begin != b.begin || from_held.head_end != to_held.head_end)) {
    return Differs(where + " cannot be divided, and the two hold other heads of it");
  }
  return pair;
}

// The models without what may differ: layers, heads and how content is kept.
ModelSpec Compared(const ModelSpec& spec, const LayerGroup& group) {
  ModelSpec same;
  same.identity = spec.identity;
  same.variant = spec.variant;
  same.groups = {group};
  same.groups[0].layers = 1;
  same.groups[0].optional = false;
  for (Plane& plane : same.groups[0].planes) {
    plane.heads = 1;
    plane.row_bytes = DtypeBytes(plane.dtype);
    plane.sealed_as = SealedAs::kLossless;
    plane.state_parts = 0;
  }
  return same;
}

// Nothing in common: no planes.
Result<GroupPair> PairGroups(const ModelSpec& from, uint32_t from_index, const ModelSpec& to,
                             uint32_t to_index) {
  const LayerGroup& a = from.groups[from_index];
  const LayerGroup& b = to.groups[to_index];
  if (const std::string what = Compared(from, a).FirstDifference(Compared(to, b)); !what.empty()) {
    return Differs("group " + Quoted(a.name) + ": " + what);
  }
  const Held a_held = HeldOf(from, a), b_held = HeldOf(to, b);
  const std::string where = "group " + Quoted(a.name);
  if (a_held.layers != b_held.layers) {
    return Differs(where + " has " + std::to_string(a_held.layers) + " layers, and " +
                   std::to_string(b_held.layers));
  }
  GroupPair pair{.from = from_index,
                 .to = to_index,
                 .from_layer = a_held.layer_begin,
                 .to_layer = b_held.layer_begin};
  bool nothing = std::max(a_held.layer_begin, b_held.layer_begin) >=
                 std::min(a_held.layer_end, b_held.layer_end);
  for (size_t i = 0; i < a.planes.size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(PlanePair plane,
                           PairPlanes(a.planes[i], a_held, b.planes[i], b_held,
                                      where + ", plane " + Quoted(a.planes[i].name)));
    nothing |= plane.shape.heads == 0;
    pair.planes.push_back(std::move(plane));
  }
  if (nothing) pair.planes.clear();
  return pair;
}

}  // namespace

Result<KvOverlap> KvOverlap::Make(const ModelSpec& from, const ModelSpec& to) {
  CAIRN_RETURN_IF_ERROR(from.Validate());
  CAIRN_RETURN_IF_ERROR(to.Validate());
  if (from.shard.context_rank != to.shard.context_rank ||
      from.shard.context_size != to.shard.context_size) {
    return Differs("the two hold other parts of the positions (shard.context_rank)");
  }
  for (const auto& [spec, other] : {std::pair(&from, &to), std::pair(&to, &from)}) {
    for (const LayerGroup& group : spec->groups) {
      if (!Knows(*other, group.name)) {
        return Differs("only one of the models has the group " + Quoted(group.name));
      }
    }
  }
  KvOverlap overlap;
  for (uint32_t i = 0; i < from.groups.size(); ++i) {
    const LayerGroup* const other = GroupOf(to, from.groups[i].name);
    if (other == nullptr) continue;
    const auto to_index = static_cast<uint32_t>(other - to.groups.data());
    CAIRN_ASSIGN_OR_RETURN(GroupPair pair, PairGroups(from, i, to, to_index));
    if (!pair.planes.empty()) overlap.pairs_.push_back(std::move(pair));
  }
  if (overlap.pairs_.empty()) return Differs("the two have no layer and no head in common");
  return overlap;
}

const GroupPair* KvOverlap::PairOf(uint32_t from_group) const {
  const auto found = std::find_if(pairs_.begin(), pairs_.end(),
                                  [&](const GroupPair& pair) { return pair.from == from_group; });
  return found == pairs_.end() ? nullptr : &*found;
}

// ---------------------------------------------------------------- the views of a copy

namespace {

Status BadView(const GroupView& from, const std::string& what) {
  return Status(StatusCode::kInvalidArgument,
                "copy of KV: group " + std::to_string(from.group) + " of `from`: " + what);
}

}  // namespace

Status KvCut::Fill(const KvOverlap& overlap, const KvView& from, const KvView& to) {
  for (const GroupView& group : from.groups) {
    const GroupPair* const pair = overlap.PairOf(group.group);
    if (pair != nullptr && group.count != 0) CAIRN_RETURN_IF_ERROR(Add(*pair, group, to));
  }
  for (const auto& [side, of] : {std::pair(&from_, &from), std::pair(&to_, &to)}) {
    side->view = {.groups = side->groups, .memory = of->memory, .device = of->device};
  }
  return Status::Ok();
}

// A group may lie in two views of the target, and a copy then in two pieces.
Status KvCut::Add(const GroupPair& pair, const GroupView& from, const KvView& to) {
  const auto layers_of = [](const GroupView& view, uint32_t first) {
    const uint32_t begin = first + view.layer_begin;
    return Layers{begin, begin + static_cast<uint32_t>(view.planes[0].layer_bases.size())};
  };
  for (uint64_t at = from.position; at < from.position + from.count;) {
    const auto into = std::find_if(to.groups.begin(), to.groups.end(), [&](const GroupView& view) {
      return view.group == pair.to && at >= view.position && at < view.position + view.count;
    });
    if (into == to.groups.end()) {
      return BadView(from, "`to` has no place for position " + std::to_string(at));
    }
    const Layers a = layers_of(from, pair.from_layer), b = layers_of(*into, pair.to_layer);
    const Layers both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
    if (both.begin >= both.end) return BadView(from, "`to` has none of the layers described");
    const uint64_t end = std::min(from.position + from.count, into->position + into->count);
    const auto group = static_cast<uint32_t>(model_.groups.size());
    LayerGroup& shape = model_.groups.emplace_back();
    shape.layers = both.end - both.begin;
    for (const PlanePair& plane : pair.planes) shape.planes.push_back(plane.shape);
    AddSide(pair, from, /*is_from=*/true, both, group, &from_);
    AddSide(pair, *into, /*is_from=*/false, both, group, &to_);
    pieces_.push_back({at, end - at});
    at = end;
  }
  return Status::Ok();
}

void KvCut::AddSide(const GroupPair& pair, const GroupView& view, bool is_from,
                    const Layers& layers, uint32_t group, Side* side) {
  const uint32_t first =
      layers.begin - (is_from ? pair.from_layer : pair.to_layer) - view.layer_begin;
  std::vector<PlaneView>& planes = side->planes.emplace_back();
  for (size_t i = 0; i < pair.planes.size(); ++i) {
    const PlanePair& plane = pair.planes[i];
    PlaneView cut = view.planes[i];
    if (plane.of_parts) {
      const int64_t element_bytes = DtypeBytes(plane.shape.dtype);
      const int64_t step = cut.element_stride == 0 ? element_bytes : cut.element_stride;
      cut.head_stride = plane.shape.row_bytes / element_bytes * step;
    }
    const int64_t skipped = (is_from ? plane.from_head : plane.to_head) * cut.head_stride;
    std::vector<std::byte*>& bases = side->bases.emplace_back();
    for (uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      bases.push_back(cut.layer_bases[first + layer - layers.begin] + skipped);
    }
    cut.layer_bases = bases;
    planes.push_back(cut);
  }
  GroupView made = view;
  made.group = group;
  made.layer_begin = 0;
  made.planes = planes;
  side->groups.push_back(made);
}

uint64_t KvCut::bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    bytes += model_.groups[i].token_bytes() * pieces_[i].count;
  }
  return bytes;
}

}  // namespace cairn::engine
