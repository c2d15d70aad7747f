// SPDX-License-Identifier: Apache-2.0
//
// diff: where two branches leave each other, and what each has behind that.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>

#include "base/core/check.h"
#include "tools/cli/command.h"
#include "tools/cli/forest_content.h"
#include "tools/cli/names.h"
#include "tools/cli/seen_branch.h"

namespace cairn::cli {

namespace {

constexpr uint64_t kIdsAtOnce = 1 << 16;
constexpr uint64_t kIdsShown = 8;

struct DiffArguments {
  std::string store, a, b;
  std::optional<std::string> ns;
};

// One of the two.
struct Side {
  Branch branch;
  SeenBranch seen;
  std::vector<PathStep> path;
  std::map<Where, uint64_t> behind;  // Positions behind the last shared one.
  uint64_t bytes = 0;                // Of these.
  std::vector<TokenId> next;         // Its ids from where the ids differ, the first few.
};

Result<Side> LookAtSide(const Store& store, const std::string& word,
                        const std::optional<std::string>& ns) {
  Side side;
  CAIRN_ASSIGN_OR_RETURN(side.branch, FindBranch(store, word, ns));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, side.branch.Info());
  CAIRN_ASSIGN_OR_RETURN(side.seen, SeeBranch(side.branch, info));
  CAIRN_ASSIGN_OR_RETURN(side.path, side.branch.Path());
  return side;
}

// Positions that lie on the same nodes.
uint64_t SharedPositions(const Side& a, const Side& b) {
  uint64_t shared = 0;
  for (size_t i = 0; i < std::min(a.path.size(), b.path.size()); ++i) {
    if (a.path[i].node != b.path[i].node) break;
    shared = std::min(a.path[i].end, b.path[i].end);
  }
  return shared;
}

// Ids are equal up to there; those that are shared need no reading.
Result<uint64_t> EqualIds(const Side& a, const Side& b, uint64_t from) {
  const uint64_t end = std::min(a.seen.length, b.seen.length);
  while (from < end) {
    const uint64_t upto = std::min(end, from + kIdsAtOnce);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> left, a.branch.ReadTokens(from, upto));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<TokenId> right, b.branch.ReadTokens(from, upto));
    const auto differ = std::mismatch(left.begin(), left.end(), right.begin());
    if (differ.first != left.end()) {
      return from + static_cast<uint64_t>(differ.first - left.begin());
    }
    from = upto;
  }
  return end;
}

Status LookBehind(const Store& store, uint64_t shared, uint64_t equal, Side* side) {
  for (const PathStep& step : side->path) {
    if (step.end <= shared) continue;
    CAIRN_ASSIGN_OR_RETURN(const NodeContent content, ReadNode(store, step.node));
    const uint64_t begin = std::max(step.begin, shared);
    side->bytes += content.BytesBelow(step.end) - content.BytesBelow(begin);
    for (const Piece& piece : content.pieces) {
      const uint64_t from = std::max(piece.begin, begin), to = std::min(piece.end, step.end);
      if (from < to) side->behind[piece.where] += to - from;
    }
  }
  const uint64_t end = std::min(side->seen.length, equal + kIdsShown);
  CAIRN_ASSIGN_OR_RETURN(side->next, side->branch.ReadTokens(equal, end));
  return Status::Ok();
}

Json ToJson(const Side& side, uint64_t shared) {
  Json json = ToJson(side.seen);
  Json where = Json::object();
  for (const auto& [kind, count] : side.behind) where[WhereName(kind)] = count;
  json["behind"] = {{"tokens", side.seen.length - shared},
                    {"bytes", side.bytes},
                    {"positions", where},
                    {"next_ids", side.next}};
  return json;
}

void PrintSide(const Side& side, uint64_t shared, uint64_t equal) {
  std::string where;
  for (const auto& [kind, count] : side.behind) {
    where += (where.empty() ? "" : ", ") + std::to_string(count) + ' ' + WhereInWords(kind);
  }
  std::printf("%s\n", LabelWithId(side.seen).c_str());
  std::printf("  behind   %s, %s%s\n", Plural(side.seen.length - shared, "token").c_str(),
              BytesText(side.bytes).c_str(), where.empty() ? "" : (": " + where).c_str());
  if (side.seen.restorable.has_value()) {
    std::printf("  KV       up to %s\n", KvText(side.seen).c_str());
  }
  std::string ids;
  for (const TokenId id : side.next) ids += ' ' + std::to_string(id);
  if (side.seen.length > equal + side.next.size()) ids += " ...";
  std::printf("  ids     %s\n", ids.empty() ? " none" : ids.c_str());
}

Result<int> RunDiff(const DiffArguments& arguments, bool json) {
  CAIRN_ASSIGN_OR_RETURN(const Store store, OpenForReading(arguments.store));
  CAIRN_ASSIGN_OR_RETURN(Side a, LookAtSide(store, arguments.a, arguments.ns));
  CAIRN_ASSIGN_OR_RETURN(Side b, LookAtSide(store, arguments.b, arguments.ns));
  if (a.seen.model != b.seen.model) {
    return Status(StatusCode::kModelMismatch,
                  LabelWithId(a.seen) + " is of model " +
                      std::to_string(static_cast<uint64_t>(a.seen.model)) + ", " +
                      LabelWithId(b.seen) + " of model " +
                      std::to_string(static_cast<uint64_t>(b.seen.model)) +
                      ": their ids do not compare");
  }
  const uint64_t shared = SharedPositions(a, b);
  CAIRN_ASSIGN_OR_RETURN(const uint64_t equal, EqualIds(a, b, shared));
  for (Side* side : {&a, &b}) CAIRN_RETURN_IF_ERROR(LookBehind(store, shared, equal, side));
  if (json) {
    PrintJson({{"shared", shared},
               {"equal_ids", equal},
               {"a", ToJson(a, shared)},
               {"b", ToJson(b, shared)}});
    return kExitOk;
  }
  std::printf("stored once up to %" PRIu64 "\nids equal up to   %" PRIu64 "\n", shared, equal);
  for (const Side* side : {&a, &b}) PrintSide(*side, shared, equal);
  return kExitOk;
}

}  // namespace

void AddDiffCommand(CLI::App& app, Session& session) {
  const auto diff = std::make_shared<DiffArguments>();
  CLI::App* command = AddCommand(
      app, session, "diff", Access::kLooks,
      "Where two branches leave each other, and what is behind\n\n"
      "\"stored once\": up to there both are the same nodes, whose bytes they share. \"ids "
      "equal\":\n"
      "up to there the token ids are the same; where that is further, they are stored twice, as "
      "of\n"
      "two conversations that began alike and were not forked. Then, of each branch, what it has\n"
      "behind the shared positions, and its ids from where the ids differ.",
      "  cairn diff state chat-42 what-if\n"
      "  cairn diff state tenant-a/chat '#17' --json | jq .equal_ids",
      diff, RunDiff);
  AddStoreArgument(command, &diff->store);
  command->add_option("A", diff->a, kBranchHelp)->required();
  command->add_option("B", diff->b, kBranchHelp)->required();
  command->add_option("--ns", diff->ns,
                      "Namespace; A and B are NAMEs in it; '' is the default one");
}

}  // namespace cairn::cli
