// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/forest_content.h"

#include <algorithm>
#include <set>

#include "base/core/check.h"
#include "engine/store/store_core.h"

namespace cairn::cli {

namespace {

using Stretch = engine::Lookup::Stretch;

Where WhereOf(const Stretch& stretch) {
  switch (stretch.where) {
    case Stretch::Where::kEvicted: return Where::kEvicted;
    case Stretch::Where::kGap: return Where::kNone;
    case Stretch::Where::kLog: return stretch.exact ? Where::kLog : Where::kApproximate;
    case Stretch::Where::kTable: return stretch.exact ? Where::kTable : Where::kApproximate;
  }
  return Where::kNone;
}

// `part` of `count` positions, of `bytes` that are spread evenly over them.
uint64_t ShareOf(uint64_t bytes, uint64_t part, uint64_t count) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{bytes} * part / count);
}

// The stretch's bytes that fall on its positions below `end`, so that parts add up to all of it.
uint64_t Below(const Stretch& stretch, uint64_t end) {
  if (end <= stretch.begin) return 0;
  return ShareOf(stretch.bytes, std::min(end, stretch.end) - stretch.begin,
                 stretch.end - stretch.begin);
}

// One list of all lanes' stretches, cut where any of them changes.
std::vector<Piece> MergeLanes(const std::vector<std::vector<Stretch>>& lanes) {
  std::set<uint64_t> cuts;
  for (const std::vector<Stretch>& lane : lanes) {
    for (const Stretch& stretch : lane) cuts.insert({stretch.begin, stretch.end});
  }
  std::vector<size_t> at(lanes.size(), 0);
  std::vector<Piece> pieces;
  uint64_t begin = 0;
  for (const uint64_t end : cuts) {
    Piece piece{.begin = begin, .end = end};
    bool any = false;
    for (size_t i = 0; i < lanes.size(); ++i) {
      while (at[i] < lanes[i].size() && lanes[i][at[i]].end <= begin) ++at[i];
      if (at[i] == lanes[i].size() || lanes[i][at[i]].begin >= end) continue;
      const Stretch& stretch = lanes[i][at[i]];
      any = true;
      // Lane 0 has the token ids, which alone say nothing about KV.
      if (i > 0 || lanes.size() == 1) piece.where = std::min(piece.where, WhereOf(stretch));
      const uint64_t bytes = Below(stretch, end) - Below(stretch, begin);
      (stretch.where == Stretch::Where::kTable ? piece.table_bytes : piece.log_bytes) += bytes;
    }
    if (any) pieces.push_back(piece);
    begin = end;
  }
  return pieces;
}

NodeContent ToContent(engine::Lookup::NodeContent found) {
  NodeContent content{.ns = std::move(found.ns),
                      .pieces = MergeLanes(found.lanes),
                      .samplers = {},
                      .metadata = {},
                      .spans = std::move(found.spans)};
  for (const auto& state : found.states) {
    if (state.sampler) content.samplers = {content.samplers.count + 1, state.position};
    if (state.metadata) content.metadata = {content.metadata.count + 1, state.position};
  }
  return content;
}

// The branches on a node, from its far end down: who reaches a position is who ends beyond it, on
// the node or on one that leaves it.
class Reach {
 public:
  Reach(const Forest& forest, const ForestContent& content) : forest_(forest), content_(content) {}

  std::unordered_map<uint64_t, BranchBytes> Count() {
    const std::vector<uint64_t> order = Preorder(forest_);
    for (auto id = order.rbegin(); id != order.rend(); ++id) CountNode(forest_.nodes.at(*id));
    for (const uint64_t id : order) CountPaths(forest_.nodes.at(id));
    return std::move(bytes_);
  }

 private:
  // A branch, where it ends or leaves. 0: several of them.
  struct End {
    uint64_t position, branch;
  };

  uint64_t Below(uint64_t node, uint64_t end) const {
    const auto found = content_.find(node);
    return found == content_.end() ? 0 : found->second.BytesBelow(end);
  }

  void CountNode(const ForestNode& node) {
    std::vector<End> ends;
    for (const SeenBranch& head : node.heads) {
      ends.push_back({head.length, static_cast<uint64_t>(head.id)});
    }
    for (const uint64_t child : node.children) {
      ends.push_back({forest_.nodes.at(child).begin, only_.at(child)});
    }
    CAIRN_CHECK(!ends.empty());
    std::sort(ends.begin(), ends.end(),
              [](const End& a, const End& b) { return a.position > b.position; });
    only_[node.id] = ends.size() == 1 ? ends[0].branch : 0;
    const uint64_t sole_from = ends.size() == 1 ? 0 : ends[1].position;
    if (ends[0].branch == 0) return;
    bytes_[ends[0].branch].own += Below(node.id, ends[0].position) - Below(node.id, sole_from);
  }

  // The bytes of all paths that end on the node; what is not a branch's own is shared.
  void CountPaths(const ForestNode& node) {
    const auto parent = above_.find(node.parent);
    const uint64_t above =
        parent == above_.end() ? 0 : parent->second + Below(node.parent, node.begin);
    above_[node.id] = above;
    for (const SeenBranch& head : node.heads) {
      BranchBytes& bytes = bytes_[static_cast<uint64_t>(head.id)];
      bytes.shared = above + Below(node.id, head.length) - bytes.own;
    }
  }

  const Forest& forest_;
  const ForestContent& content_;
  std::unordered_map<uint64_t, uint64_t> only_;   // By node: the one branch that reaches it, or 0.
  std::unordered_map<uint64_t, uint64_t> above_;  // By node: bytes of the path before it.
  std::unordered_map<uint64_t, BranchBytes> bytes_;
};

}  // namespace

const char* WhereName(Where where) {
  switch (where) {
    case Where::kEvicted: return "evicted";
    case Where::kApproximate: return "approximate";
    case Where::kLog: return "log";
    case Where::kTable: return "table";
    case Where::kNone: return "none";
  }
  return "?";
}

uint64_t NodeContent::BytesBelow(uint64_t end) const {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.begin >= end) break;
    bytes +=
        ShareOf(piece.bytes(), std::min(end, piece.end) - piece.begin, piece.end - piece.begin);
  }
  return bytes;
}

Result<ForestContent> ReadContent(const Store& store, const Forest& forest) {
  ForestContent content;
  for (const auto& [id, node] : forest.nodes) {
    auto found = store.core()->lookup().ContentOf(NodeId{id});
    if (found.status().code() == StatusCode::kNotFound) continue;
    CAIRN_RETURN_IF_ERROR(found.status());
    content.emplace(id, ToContent(std::move(*found)));
  }
  return content;
}

std::unordered_map<uint64_t, BranchBytes> CountBytes(const Forest& forest,
                                                     const ForestContent& content) {
  return Reach(forest, content).Count();
}

}  // namespace cairn::cli
