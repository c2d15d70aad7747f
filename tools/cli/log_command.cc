// SPDX-License-Identifier: Apache-2.0
//
// log: the appends of a branch, as far as the log has them; what it gave back since is in tables,
// and nothing says any more how it was appended.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/forest_content.h"
#include "tools/cli/log_walk.h"
#include "tools/cli/names.h"

namespace cairn::cli {

namespace {

struct LogArguments : BranchArguments {
  size_t limit = 50;
};

// An append to a node of the path, or a fill of the branch, that is still in the log.
struct LoggedAppend {
  uint64_t sequence = 0, time_ns = 0, node = 0;
  bool fill = false, exact = true;
  uint64_t begin = UINT64_MAX, end = 0;  // Positions that got something; of an append its tokens.
  uint64_t tokens = 0;
  uint64_t raw_bytes = 0;  // As the model lays them out.
  wal::Location at;
};

class AppendReader final : public LogVisitor {
 public:
  AppendReader(BranchId branch, const std::vector<PathStep>& path, const ModelSpec& model)
      : branch_(static_cast<uint64_t>(branch)), model_(model) {
    for (const PathStep& step : path) ends_[static_cast<uint64_t>(step.node)] = step.end;
  }

  std::vector<LoggedAppend> TakeAppends() { return std::move(appends_); }
  uint64_t durable_sequence() const { return durable_; }

  void OnSegment(const wal::SegmentReader&, const wal::SegmentHeader& header) override {
    durable_ = std::max(durable_, header.synced_upto);
  }
  void OnGroup(const wal::SegmentReader::Group& group) override {
    durable_ =
        std::max(durable_, group.header.flags == wal::kGroupCleanEnd ? group.header.last_sequence()
                                                                     : group.header.synced_upto);
    for (const wal::RecordView& view : group.records) AddRecord(view);
  }
  void OnStop(const LogStop&) override {}

 private:
  void AddRecord(const wal::RecordView& view) {
    const auto ops = engine::DecodeRecord(view);
    if (!ops.ok()) return;  // The opening has judged what counts.
    for (const engine::Op& op : *ops) {
      switch (op.kind) {
        case engine::OpKind::kPart: {
          auto& lanes = parts_[view.unit];
          lanes.insert(lanes.end(), op.lanes.begin(), op.lanes.end());
          break;
        }
        case engine::OpKind::kAppend:
        case engine::OpKind::kFill: AddAppend(view, op); break;
        case engine::OpKind::kRewind:
          if ((op.flags & engine::kOpInPlace) != 0) CutBack(op.node, op.position);
          break;
        default: break;
      }
    }
  }

  void AddAppend(const wal::RecordView& view, const engine::Op& op) {
    LoggedAppend append{.sequence = view.sequence,
                        .time_ns = op.time_ns,
                        .node = op.node,
                        .fill = op.kind == engine::OpKind::kFill,
                        .exact = op.exact,
                        .at = view.location};
    std::vector<engine::LaneRange> lanes = op.lanes;
    if (const auto parts = parts_.find(view.unit); parts != parts_.end()) {
      lanes.insert(lanes.end(), parts->second.begin(), parts->second.end());
      parts_.erase(parts);
    }
    for (const engine::SealedRange& range : op.sealed) {
      lanes.push_back({.lane = range.lane, .begin = range.begin, .count = range.count});
    }
    const auto node = ends_.find(op.node);
    if (append.fill ? op.branch != branch_ : node == ends_.end()) return;
    for (const engine::LaneRange& lane : lanes) AddLane(lane, &append);
    if (append.begin >= append.end) return;  // A state alone.
    if (node != ends_.end())
      Shorten(node->second, &append);  // Behind a fork it is not this path's.
    if (append.begin < append.end) appends_.push_back(append);
  }

  void AddLane(const engine::LaneRange& lane, LoggedAppend* append) const {
    if (lane.lane > model_.groups.size()) return;  // A state.
    if (lane.lane == engine::kTokenLane) append->tokens += lane.count;
    append->raw_bytes += lane.count * engine::PositionBytes(model_, lane.lane);
    if (lane.lane != engine::kTokenLane && !append->fill && append->tokens > 0) return;
    append->begin = std::min(append->begin, lane.begin);
    append->end = std::max(append->end, lane.begin + lane.count);
  }

  static void Shorten(uint64_t end, LoggedAppend* append) {
    append->end = std::min(append->end, end);
    append->tokens = std::min(append->tokens, append->end - std::min(append->begin, append->end));
  }

  void CutBack(uint64_t node, uint64_t length) {
    for (LoggedAppend& append : appends_) {
      if (append.node == node) Shorten(length, &append);
    }
    std::erase_if(appends_, [](const LoggedAppend& one) { return one.begin >= one.end; });
  }

  const uint64_t branch_;
  const ModelSpec& model_;
  std::map<uint64_t, uint64_t> ends_;  // Where the branch leaves each node of its path.
  std::map<uint64_t, std::vector<engine::LaneRange>> parts_;  // Of large appends, by unit.
  std::vector<LoggedAppend> appends_;
  uint64_t durable_ = 0;
};

struct PathContent {
  std::vector<PathStep> path;
  std::map<uint64_t, NodeContent> nodes;

  // "log", "log, table"
  std::string WhereText(uint64_t begin, uint64_t end) const {
    std::set<Where> wheres;
    for (const PathStep& step : path) {
      for (const Piece& piece : nodes.at(static_cast<uint64_t>(step.node)).pieces) {
        const uint64_t from = std::max({piece.begin, begin, step.begin});
        if (from < std::min({piece.end, end, step.end})) wheres.insert(piece.where);
      }
    }
    std::string text;
    for (const Where where : wheres) {
      text += (text.empty() ? "" : ", ") + std::string(WhereInWords(where));
    }
    return text;
  }
};

// Positions of the branch that no append of the log brought, in order.
std::vector<std::pair<uint64_t, uint64_t>> Uncovered(const std::vector<LoggedAppend>& appends,
                                                     uint64_t length) {
  std::vector<std::pair<uint64_t, uint64_t>> covered, left;
  for (const LoggedAppend& one : appends) {
    if (one.tokens > 0) covered.emplace_back(one.begin, one.end);
  }
  std::sort(covered.begin(), covered.end());
  uint64_t at = 0;
  for (const auto& [begin, end] : covered) {
    if (begin > at) left.emplace_back(at, std::min(begin, length));
    at = std::max(at, end);
  }
  if (at < length) left.emplace_back(at, length);
  return left;
}

std::string PositionsText(uint64_t begin, uint64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

void PrintAppends(const PathContent& content, const std::vector<LoggedAppend>& appends,
                  const std::vector<std::pair<uint64_t, uint64_t>>& earlier, size_t left_out,
                  uint64_t durable) {
  TextTable table({"WHEN", "SEQUENCE", "POSITIONS", "TOKENS", "RAW", "DURABLE", "LIES IN"},
                  {1, 3, 4});
  for (const auto& [begin, end] : earlier) {
    table.Add({"earlier", "-", PositionsText(begin, end), std::to_string(end - begin), "-", "yes",
               content.WhereText(begin, end)});
  }
  for (const LoggedAppend& one : appends) {
    table.Add({TimeText(one.time_ns), std::to_string(one.sequence),
               PositionsText(one.begin, one.end), one.fill ? "fill" : std::to_string(one.tokens),
               BytesText(one.raw_bytes), one.sequence <= durable ? "yes" : "not yet known",
               content.WhereText(one.begin, one.end)});
  }
  if (earlier.empty() && appends.empty()) {
    std::printf("no appends\n");
    return;
  }
  std::printf("%s", table.ToString().c_str());
  if (left_out > 0) {
    std::printf("%s of the log before these; --limit shows more\n",
                Plural(left_out, "append").c_str());
  }
}

Result<int> RunLog(const LogArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, FindBranch(store, arguments.branch, arguments.ns));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  CAIRN_ASSIGN_OR_RETURN(const ModelInfo model, store.GetModel(info.model));
  PathContent content;
  CAIRN_ASSIGN_OR_RETURN(content.path, branch.Path());
  for (const PathStep& step : content.path) {
    CAIRN_ASSIGN_OR_RETURN(content.nodes[static_cast<uint64_t>(step.node)],
                           ReadNode(store, step.node));
  }
  CAIRN_ASSIGN_OR_RETURN(io::World world, WorldOfStore(arguments.store));
  std::string note;
  CAIRN_ASSIGN_OR_RETURN(const LogPlace place, FindLog(world, arguments.store, &note));
  AppendReader reader(info.id, content.path, model.spec);
  CAIRN_RETURN_IF_ERROR(WalkLog(world, place, &reader));
  std::vector<LoggedAppend> appends = reader.TakeAppends();
  const auto earlier = Uncovered(appends, info.length);
  const size_t left_out = appends.size() - std::min(appends.size(), arguments.limit);
  appends.erase(appends.begin(), appends.begin() + static_cast<std::ptrdiff_t>(left_out));
  if (!json) {
    PrintAppends(content, appends, earlier, left_out, reader.durable_sequence());
    return kExitOk;
  }
  Json listed = Json::array(), before = Json::array();
  for (const LoggedAppend& one : appends) {
    listed.push_back({{"sequence", one.sequence},
                      {"time_ns", one.time_ns},
                      {"kind", one.fill ? "fill" : "append"},
                      {"begin", one.begin},
                      {"end", one.end},
                      {"tokens", one.tokens},
                      {"raw_bytes", one.raw_bytes},
                      {"exact", one.exact},
                      {"durable", one.sequence <= reader.durable_sequence()},
                      {"lies_in", content.WhereText(one.begin, one.end)},
                      {"segment", one.at.segment},
                      {"offset", one.at.offset}});
  }
  for (const auto& [begin, end] : earlier) {
    before.push_back({{"begin", begin}, {"end", end}, {"lies_in", content.WhereText(begin, end)}});
  }
  PrintJson({{"earlier", before}, {"appends", listed}, {"left_out", left_out}});
  return kExitOk;
}

}  // namespace

void AddLogCommand(CLI::App& app, Session& session) {
  const auto log = std::make_shared<LogArguments>();
  CLI::App* command = AddCommand(
      app, session, "log", Access::kLooks,
      "The appends of a branch: when, how much, how safe, where it lies\n\n"
      "Those that the log still has, also of branches that this one was forked from. What was\n"
      "sealed into tables, and left the log, stands first, as \"earlier\": when and in which "
      "steps\n"
      "it came is not known any more. RAW is the whole append before packing, also\n"
      "where a fork has a part of it. DURABLE: it survives a power cut.\n"
      "\"not yet known\": it was written, and nothing that was written later says that it was "
      "made\n"
      "durable; the process that wrote it may know. What a rewind took back is not listed.",
      "  cairn log state chat-42\n"
      "  cairn log state chat-42 --json | jq '.appends[-1]'",
      log, RunLog);
  AddBranchArguments(command, log.get());
  AddNumberOption(command, "--limit", &log->limit, "How many at most, the last ones")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace cairn::cli
