// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/forest_content.h"

#include <algorithm>
#include <functional>
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

uint64_t BelowOn(const ForestContent& content, uint64_t node, uint64_t end) {
  const auto found = content.find(node);
  return found == content.end() ? 0 : found->second.BytesBelow(end);
}

// Who reaches a position is who ends beyond it, on its node or on one that leaves that. A label is
// a branch, or what several have in common; 0 is none.
using LabelOf = std::function<uint64_t(const SeenBranch&)>;
using Labelled = std::unordered_map<uint64_t, uint64_t>;  // Bytes by label.

// Bytes that nobody else reaches.
Labelled OwnBytes(const Forest& forest, const ForestContent& content, const LabelOf& label_of) {
  struct End {
    uint64_t position, label;
  };
  Labelled own;
  std::unordered_map<uint64_t, uint64_t> only;  // By node: the one label that reaches it, or 0.
  const std::vector<uint64_t> order = Preorder(forest);
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const ForestNode& node = forest.nodes.at(*id);
    std::vector<End> ends;
    for (const SeenBranch& head : node.heads) ends.push_back({head.length, label_of(head)});
    for (const uint64_t child : node.children) {
      ends.push_back({forest.nodes.at(child).begin, only.at(child)});
    }
    CAIRN_CHECK(!ends.empty());
    std::sort(ends.begin(), ends.end(),
              [](const End& a, const End& b) { return a.position > b.position; });
    const uint64_t label = ends[0].label;
    const auto other =
        std::find_if(ends.begin(), ends.end(), [&](const End& end) { return end.label != label; });
    only[node.id] = other == ends.end() ? label : 0;
    if (label == 0) continue;
    const uint64_t from = other == ends.end() ? 0 : other->position;
    own[label] += BelowOn(content, node.id, ends[0].position) - BelowOn(content, node.id, from);
  }
  return own;
}

// Bytes that somebody reaches, each once.
Labelled ReachedBytes(const Forest& forest, const ForestContent& content, const LabelOf& label_of) {
  Labelled reached;
  std::unordered_map<uint64_t, std::map<uint64_t, uint64_t>> farthest;  // By node and label.
  const std::vector<uint64_t> order = Preorder(forest);
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const ForestNode& node = forest.nodes.at(*id);
    std::map<uint64_t, uint64_t>& ends = farthest[node.id];
    for (const SeenBranch& head : node.heads) {
      uint64_t& end = ends[label_of(head)];
      end = std::max(end, head.length);
    }
    for (const uint64_t child : node.children) {
      for (const auto& [label, unused] : farthest.at(child)) {
        uint64_t& end = ends[label];
        end = std::max(end, forest.nodes.at(child).begin);
      }
      farthest.erase(child);
    }
    for (const auto& [label, end] : ends) reached[label] += BelowOn(content, node.id, end);
  }
  return reached;
}

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

const char* WhereInWords(Where where) {
  return where == Where::kNone ? "without KV" : WhereName(where);
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

Result<NodeContent> ReadNode(const Store& store, NodeId node) {
  CAIRN_ASSIGN_OR_RETURN(auto found, store.core()->lookup().ContentOf(node));
  return ToContent(std::move(found));
}

Result<ForestContent> ReadContent(const Store& store, const Forest& forest) {
  ForestContent content;
  for (const auto& [id, node] : forest.nodes) {
    Result<NodeContent> found = ReadNode(store, NodeId{id});
    if (found.status().code() == StatusCode::kNotFound) continue;
    CAIRN_RETURN_IF_ERROR(found.status());
    content.emplace(id, std::move(*found));
  }
  return content;
}

std::unordered_map<uint64_t, BranchBytes> CountBytes(const Forest& forest,
                                                     const ForestContent& content) {
  Labelled own = OwnBytes(forest, content,
                          [](const SeenBranch& head) { return static_cast<uint64_t>(head.id); });
  std::unordered_map<uint64_t, BranchBytes> bytes;
  std::unordered_map<uint64_t, uint64_t> above;  // By node: the bytes of the path before it.
  for (const uint64_t id : Preorder(forest)) {
    const ForestNode& node = forest.nodes.at(id);
    const auto parent = above.find(node.parent);
    const uint64_t before =
        parent == above.end() ? 0 : parent->second + BelowOn(content, node.parent, node.begin);
    above[id] = before;
    for (const SeenBranch& head : node.heads) {
      const uint64_t mine = own[static_cast<uint64_t>(head.id)];
      bytes[static_cast<uint64_t>(head.id)] = {
          .own = mine, .shared = before + BelowOn(content, id, head.length) - mine};
    }
  }
  return bytes;
}

std::map<std::string, BranchBytes> CountNamespaceBytes(const Forest& forest,
                                                       const ForestContent& content) {
  std::vector<std::string> names;
  std::map<std::string, uint64_t> labels;
  const auto label_of = [&](const SeenBranch& head) {
    const auto [found, is_new] = labels.try_emplace(head.ns, names.size() + 1);
    if (is_new) names.push_back(head.ns);
    return found->second;
  };
  Labelled own = OwnBytes(forest, content, label_of);
  std::map<std::string, BranchBytes> bytes;
  for (const auto& [label, reached] : ReachedBytes(forest, content, label_of)) {
    bytes[names[label - 1]] = {.own = own[label], .shared = reached - own[label]};
  }
  return bytes;
}

uint64_t CountAllBytes(const Forest& forest, const ForestContent& content) {
  return ReachedBytes(forest, content, [](const SeenBranch&) { return uint64_t{1}; })[1];
}

}  // namespace cairn::cli
