// SPDX-License-Identifier: Apache-2.0
//
// The page of a forest: page/tree.html with its style, its script, the SVG, and the rows as columns
// of numbers. Columns of small differences compress well: some 30 bytes a node.
#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/core/check.h"
#include "tools/cli/names.h"
#include "tools/cli/tree_page_parts.h"
#include "tools/cli/tree_picture.h"

namespace cairn::cli {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr size_t kSpansShown = 8;  // A node's first ones.

// Text of the store may hold "</script>", and must not end the element that it stands in.
std::string ScriptText(const Json& value) {
  std::string safe;
  for (const char c : value.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    switch (c) {
      case '<': safe += "\\u003c"; break;
      case '>': safe += "\\u003e"; break;
      case '&': safe += "\\u0026"; break;
      default: safe += c;
    }
  }
  return safe;
}

// "'sha256-...'" of a digest in hexadecimal, as a Content-Security-Policy names a script.
std::string ScriptSource(std::string_view hex) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text = "sha256-";
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < hex.size(); ++i) {
    uint32_t digit = 0;
    std::from_chars(&hex[i], &hex[i] + 1, digit, 16);
    bits = bits << 4 | digit;
    count += 4;
    if (count < 6) continue;
    count -= 6;
    text += kDigits[bits >> count & 63];
  }
  if (count > 0) text += kDigits[bits << (6 - count) & 63];
  return text + "=";
}

// A value a row, or a node.
class Column {
 public:
  void Add(std::string_view value) {
    if (!text_.empty()) text_ += ',';
    text_ += value;
  }
  void Add(uint64_t value) { Add(std::string_view(std::to_string(value))); }
  // In place of a number that is near the one before.
  void AddDifference(uint64_t value) {
    Add(std::string_view(std::to_string(static_cast<int64_t>(value - before_))));
    before_ = value;
  }
  void AddSigned(int64_t value) { Add(std::string_view(std::to_string(value))); }
  std::string ToString(const char* name) const {
    return std::string("\"") + name + "\":[" + text_ + "]";
  }

 private:
  std::string text_;
  uint64_t before_ = 0;
};

// Facts that few rows or nodes have, by their number.
class Rare {
 public:
  void Add(size_t at, const Json& value) {
    if (!text_.empty()) text_ += ',';
    text_ += '"' + std::to_string(at) + "\":" + value.dump();
  }
  std::string ToString(const char* name) const {
    return std::string("\"") + name + "\":{" + text_ + "}";
  }

 private:
  std::string text_;
};

int64_t Seconds(uint64_t from_ns, uint64_t to_ns) {
  return static_cast<int64_t>(to_ns / kSecond) - static_cast<int64_t>(from_ns / kSecond);
}

char Letter(Where where) {
  switch (where) {
    case Where::kEvicted: return 'e';
    case Where::kApproximate: return 'a';
    case Where::kLog: return 'l';
    case Where::kTable: return 't';
    case Where::kNone: return 'n';
  }
  return '?';
}

class DataWriter {
 public:
  explicit DataWriter(const TreePicture& picture) : picture_(picture) {}

  std::string Write() {
    Json forests = Json::array();
    for (const ForestPicture& forest : picture_.forests) {
      forests.push_back({{"heading", Heading(forest.forest)}, {"rows", forest.rows.size()}});
      for (size_t row = 0; row < forest.rows.size(); ++row) AddRow(forest, row);
    }
    std::string text = "{\"made\":" + std::to_string(picture_.made_ns / kSecond) +
                       ",\"store\":" + ScriptText(Printable(picture_.store)) +
                       ",\"forests\":" + ScriptText(forests);
    for (const auto& [name, column] : std::initializer_list<std::pair<const char*, const Column*>>{
             {"up", &up_},           {"at", &at_},
             {"len", &length_},      {"id", &id_},
             {"name", &name_},       {"used", &used_},
             {"created", &created_}, {"kv", &kv_},
             {"updated", &updated_}, {"own", &own_},
             {"nodes", &nodes_},     {"shared", &shared_},
             {"nid", &node_id_},     {"nlen", &node_length_},
             {"nlog", &log_bytes_},  {"ntab", &table_bytes_},
             {"sam", &samplers_},    {"saml", &sampler_last_},
             {"met", &metadata_},    {"metl", &metadata_last_}}) {
      text += ',' + column->ToString(name);
    }
    for (const auto& [name, rare] : std::initializer_list<std::pair<const char*, const Rare*>>{
             {"rest", &restorable_}, {"keep", &keep_}, {"spans", &spans_}}) {
      text += ',' + rare->ToString(name);
    }
    return text + "}";
  }

 private:
  void AddRow(const ForestPicture& forest, size_t index) {
    const TreeRow& row = forest.rows[index];
    const SeenBranch& head = *row.line->head;
    up_.Add(row.parent == SIZE_MAX ? 0 : index - row.parent);
    at_.Add(row.line->begin);
    length_.Add(head.length);
    id_.AddDifference(static_cast<uint64_t>(head.id));
    name_.Add(ScriptText(head.name.empty() ? "" : BranchLabel(head)));
    used_.AddSigned(Seconds(head.used_at_ns, picture_.made_ns));
    created_.AddSigned(Seconds(head.created_at_ns, head.used_at_ns));
    updated_.AddSigned(Seconds(head.updated_at_ns, head.used_at_ns));
    std::string runs;
    uint64_t at = row.line->begin;
    for (const LineRun& run : row.runs) {
      runs += Letter(run.where) + std::to_string(run.end - at);
      at = run.end;
    }
    kv_.Add('"' + runs + '"');
    own_.Add(row.bytes.own);
    shared_.Add(row.bytes.shared);
    if (head.restorable.value_or(head.length) != head.length) {
      restorable_.Add(rows_, *head.restorable);
    }
    if (head.keep != Keep()) {
      keep_.Add(rows_, {head.keep.pinned, head.keep.priority, head.keep.ttl_ns / kSecond});
    }
    nodes_.Add(row.line->nodes.size());
    for (size_t i = 0; i < row.line->nodes.size(); ++i) {
      const bool last = i + 1 == row.line->nodes.size();
      const ForestNode& node = forest.forest.nodes.at(row.line->nodes[i]);
      AddNode(forest, node,
              last ? head.length : forest.forest.nodes.at(row.line->nodes[i + 1]).begin);
    }
    ++rows_;
  }

  void AddNode(const ForestPicture& forest, const ForestNode& node, uint64_t end) {
    static const NodeContent kNothing;
    const auto found = forest.content.find(node.id);
    const NodeContent& content = found == forest.content.end() ? kNothing : found->second;
    uint64_t log_bytes = 0, table_bytes = 0;
    for (const Piece& piece : content.pieces) {
      log_bytes += piece.log_bytes;
      table_bytes += piece.table_bytes;
    }
    node_id_.AddDifference(node.id);
    node_length_.Add(end - node.begin);
    log_bytes_.Add(log_bytes);
    table_bytes_.Add(table_bytes);
    for (auto [count, last, state] : {std::tuple(&samplers_, &sampler_last_, content.samplers),
                                      std::tuple(&metadata_, &metadata_last_, content.metadata)}) {
      count->Add(state.count);
      last->AddSigned(state.count == 0 ? 0 : static_cast<int64_t>(end - state.last));
    }
    if (!content.spans.empty()) {
      Json first = Json::array();
      for (size_t i = 0; i < std::min(content.spans.size(), kSpansShown); ++i) {
        const ContentSpan& span = content.spans[i];
        first.push_back({span.begin, span.end, span.atomic ? 1 : 0});
      }
      spans_.Add(nodes_seen_, {{"count", content.spans.size()}, {"first", first}});
    }
    ++nodes_seen_;
  }

  const TreePicture& picture_;
  size_t rows_ = 0, nodes_seen_ = 0;
  Column up_, at_, length_, id_, name_, used_, created_, updated_, kv_, own_, shared_, nodes_;
  Column node_id_, node_length_, log_bytes_, table_bytes_;
  Column samplers_, sampler_last_, metadata_, metadata_last_;
  Rare restorable_, keep_, spans_;
};

}  // namespace

std::string TreePage(const TreePicture& picture) {
  std::string page;
  std::string_view rest = kTreeHtml;
  while (true) {
    const size_t begin = rest.find('@');
    page += rest.substr(0, begin);
    if (begin == std::string_view::npos) return page;
    const size_t end = rest.find('@', begin + 1);
    CAIRN_CHECK(end != std::string_view::npos);
    const std::string_view word = rest.substr(begin + 1, end - begin - 1);
    rest.remove_prefix(end + 1);
    if (word == "script_hash") {
      page += ScriptSource(kTreeScriptSha256);
    } else if (word == "title") {
      page += MarkupText(Printable(picture.store)) + " - cairn tree";
    } else if (word == "style") {
      page += kTreeCss;
    } else if (word == "svg") {
      page += TreeSvg(picture);
    } else if (word == "data") {
      page += DataWriter(picture).Write();
    } else if (word == "script") {
      page += kTreeScript;
    } else {
      CAIRN_CHECK(false);
    }
  }
}

}  // namespace cairn::cli
