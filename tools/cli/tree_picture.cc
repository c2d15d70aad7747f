// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tree_picture.h"

#include <algorithm>
#include <unordered_map>

#include "base/core/check.h"

namespace cairn::cli {

namespace {

void AddRun(std::vector<LineRun>* runs, Where where, uint64_t end) {
  if (!runs->empty() && runs->back().where == where) {
    runs->back().end = end;
  } else {
    runs->push_back({where, end});
  }
}

std::vector<LineRun> RunsOf(const ForestPicture& picture, const TreeLine& line) {
  std::vector<LineRun> runs;
  uint64_t at = line.begin;
  for (size_t i = 0; i < line.nodes.size(); ++i) {
    const bool last = i + 1 == line.nodes.size();
    const uint64_t end =
        last ? line.head->length : picture.forest.nodes.at(line.nodes[i + 1]).begin;
    const auto content = picture.content.find(line.nodes[i]);
    if (content != picture.content.end()) {
      for (const Piece& piece : content->second.pieces) {
        if (piece.end <= at || piece.begin >= end) continue;
        if (piece.begin > at) AddRun(&runs, Where::kNone, piece.begin);
        at = std::min(piece.end, end);
        AddRun(&runs, piece.where, at);
      }
    }
    if (at < end) AddRun(&runs, Where::kNone, end);
    at = std::max(at, end);
  }
  return runs;
}

void MakeRows(const std::unordered_map<uint64_t, BranchBytes>& bytes, ForestPicture* picture) {
  std::vector<size_t> row_of(picture->lines.lines.size(), SIZE_MAX);
  std::vector<size_t> parents(picture->lines.lines.size(), SIZE_MAX);
  for (const size_t index : picture->lines.Preorder()) {
    const TreeLine& line = picture->lines.lines[index];
    row_of[index] = picture->rows.size();
    for (const size_t child : line.leaving) parents[child] = row_of[index];
    TreeRow row{.line = &line, .parent = parents[index], .runs = RunsOf(*picture, line)};
    if (row.parent != SIZE_MAX) row.depth = picture->rows[row.parent].depth + 1;
    const auto found = bytes.find(static_cast<uint64_t>(line.head->id));
    if (found != bytes.end()) row.bytes = found->second;
    picture->rows.push_back(std::move(row));
  }
  for (size_t i = picture->rows.size(); i-- > 0;) {
    const TreeRow& row = picture->rows[i];
    if (row.parent != SIZE_MAX) picture->rows[row.parent].below += row.below + 1;
  }
}

}  // namespace

uint64_t TreePicture::branches() const {
  uint64_t count = 0;
  for (const ForestPicture& one : forests) count += one.rows.size();
  return count;
}

uint64_t TreePicture::nodes() const {
  uint64_t count = 0;
  for (const ForestPicture& one : forests) count += one.forest.nodes.size();
  return count;
}

Result<TreePicture> MakePicture(const Store& store, const std::string& path, uint64_t made_ns,
                                const ForestFilter& filter) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<Forest> forests, LoadForests(store, filter));
  // Other namespaces may share what the one has that is drawn: bytes are counted over all of them.
  std::vector<Forest> all;
  if (filter.ns.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(all, LoadForests(store, {}));
  }
  TreePicture picture{.store = path, .made_ns = made_ns, .forests = {}};
  // Lines point into their forest, and rows to their lines: neither moves from here on.
  picture.forests.reserve(forests.size());
  for (Forest& forest : forests) {
    ForestPicture& one = picture.forests.emplace_back();
    one.forest = std::move(forest);
    one.lines = MakeLines(one.forest);
    for (const SeenBranch& empty : one.forest.empty) {
      one.lines.roots.push_back(one.lines.lines.size());
      one.lines.lines.push_back({&empty, 0, {}, {}});
    }
    const auto same_model = std::find_if(all.begin(), all.end(), [&](const Forest& other) {
      return other.model.id == one.forest.model.id;
    });
    const Forest& counted = same_model == all.end() ? one.forest : *same_model;
    CAIRN_ASSIGN_OR_RETURN(one.content, ReadContent(store, counted));
    MakeRows(CountBytes(counted, one.content), &one);
  }
  return picture;
}

std::string MarkupText(std::string_view text) {
  std::string markup;
  for (const char c : text) {
    switch (c) {
      case '&': markup += "&amp;"; break;
      case '<': markup += "&lt;"; break;
      case '>': markup += "&gt;"; break;
      case '"': markup += "&quot;"; break;
      case '\'': markup += "&#39;"; break;
      default: markup += c;
    }
  }
  // XML has no characters U+FFFE and U+FFFF, not even escaped.
  for (const char* none : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"}) {
    for (size_t at; (at = markup.find(none)) != std::string::npos;) {
      markup.replace(at, 3, "\xEF\xBF\xBD");
    }
  }
  return markup;
}

}  // namespace cairn::cli
