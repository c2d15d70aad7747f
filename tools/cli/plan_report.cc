// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "tools/cli/names.h"

namespace cairn::cli {

namespace {

constexpr uint64_t kBarColumns = 72;

struct OnNode {
  BranchInfo branch{};
  uint64_t end = 0;  // How much of the path that ends there it has.
};
// By node, the branch that was changed last of those that have most of it.
using Owners = std::map<NodeId, OnNode>;

Status AddBranches(const Store& store, const BranchPage& page, const BlendPlan& plan,
                   Owners* owners) {
  for (const BranchInfo& info : page.branches) {
    if (info.model != plan.model) continue;
    const Result<Branch> branch = store.GetBranch(info.id);
    if (branch.status().code() == StatusCode::kNotFound) continue;  // Dropped meanwhile.
    CAIRN_RETURN_IF_ERROR(branch.status());
    const Result<std::vector<PathStep>> path = branch->Path();
    if (path.status().code() == StatusCode::kNotFound) continue;
    CAIRN_RETURN_IF_ERROR(path.status());
    for (const PathStep& step : *path) {
      const auto known = owners->find(step.node);
      if (known == owners->end()) continue;
      OnNode& one = known->second;
      if (std::pair(step.end, info.updated_at_ns) >= std::pair(one.end, one.branch.updated_at_ns)) {
        one = {info, step.end};
      }
    }
  }
  return Status::Ok();
}

Result<Owners> OwnersOf(const Store& store, const BlendPlan& plan,
                        const std::vector<std::string_view>& spaces) {
  Owners owners;
  for (const BlendSegment& segment : plan.segments) {
    if (segment.match != BlendMatch::kNone) owners[segment.node];
  }
  for (const std::string_view ns : spaces) {
    std::string cursor;
    do {
      CAIRN_ASSIGN_OR_RETURN(const BranchPage page,
                             store.ListBranches(ns, "", kListedAtOnce, cursor));
      CAIRN_RETURN_IF_ERROR(AddBranches(store, page, plan, &owners));
      cursor = page.cursor;
    } while (!cursor.empty());
  }
  return owners;
}

const BranchInfo* OwnerOf(const Owners& owners, const BlendSegment& segment) {
  const auto found = owners.find(segment.node);
  return found == owners.end() || found->second.end == 0 ? nullptr : &found->second.branch;
}

char LetterOf(BlendMatch match) {
  switch (match) {
    case BlendMatch::kPrefix: return '=';
    case BlendMatch::kFull: return '#';
    case BlendMatch::kPartial: return '~';
    case BlendMatch::kNone: return '.';
  }
  return '?';
}

// One letter for a stretch of the prompt: what most of it comes from, '.' for what is computed.
std::string BarOf(const BlendPlan& plan) {
  const uint64_t columns = std::min(kBarColumns, plan.tokens);
  std::vector<std::map<char, uint64_t>> counts(columns);
  const auto add = [&](uint64_t begin, uint64_t end, char letter) {
    while (begin < end) {
      const uint64_t column = begin * columns / plan.tokens;
      const uint64_t next = ((column + 1) * plan.tokens + columns - 1) / columns;
      const uint64_t until = std::min(end, std::max(next, begin + 1));
      counts[column][letter] += until - begin;
      begin = until;
    }
  };
  for (const BlendStep& step : plan.steps) {
    if (!step.loads) {
      add(step.begin, step.end, '.');
      continue;
    }
    for (const BlendSegment& segment : plan.segments) {
      add(std::max(step.begin, segment.begin), std::min(step.end, segment.end),
          LetterOf(segment.match));
    }
  }
  std::string bar;
  for (const auto& column : counts) {
    bar += std::max_element(column.begin(), column.end(), [](const auto& a, const auto& b) {
             return a.second < b.second;
           })->first;
  }
  return bar;
}

Json JsonOf(const BlendPlan& plan, const Owners& owners) {
  Json segments = Json::array(), steps = Json::array();
  for (const BlendSegment& segment : plan.segments) {
    Json one = {
        {"begin", segment.begin}, {"end", segment.end}, {"match", BlendMatchName(segment.match)}};
    if (segment.match != BlendMatch::kNone) {
      one["source"] = segment.source;
      one["node"] = static_cast<uint64_t>(segment.node);
      const BranchInfo* const owner = OwnerOf(owners, segment);
      one["branch"] = owner == nullptr ? Json(nullptr) : Json(owner->name);
      one["ns"] = owner == nullptr ? Json(nullptr) : Json(owner->ns);
      one["id"] = owner == nullptr ? Json(nullptr) : Json(static_cast<uint64_t>(owner->id));
    }
    segments.push_back(std::move(one));
  }
  for (const BlendStep& step : plan.steps) {
    steps.push_back(
        {{"do", step.loads ? "load" : "compute"}, {"begin", step.begin}, {"end", step.end}});
  }
  return {{"tokens", plan.tokens},
          {"load_tokens", plan.load_tokens},
          {"compute_tokens", plan.compute_tokens},
          {"load_bytes", plan.load_bytes},
          {"exact", plan.exact},
          {"complete", plan.complete},
          {"positions_checked", plan.positions_checked},
          {"segments", std::move(segments)},
          {"steps", std::move(steps)}};
}

void PrintPlan(const BlendPlan& plan, const Owners& owners) {
  std::printf("%s: %llu loaded (%s), %llu computed; exact up to %llu%s\n",
              Plural(plan.tokens, "token").c_str(),
              static_cast<unsigned long long>(plan.load_tokens), BytesText(plan.load_bytes).c_str(),
              static_cast<unsigned long long>(plan.compute_tokens),
              static_cast<unsigned long long>(plan.exact),
              plan.complete ? "" : "; the store is still being indexed");
  std::printf("  %s\n  = prefix  # full  ~ partial  . computed\n", BarOf(plan).c_str());
  TextTable table({"begin", "end", "match", "from", "of"}, {0, 1, 3});
  for (const BlendSegment& segment : plan.segments) {
    const bool none = segment.match == BlendMatch::kNone;
    const BranchInfo* const owner = none ? nullptr : OwnerOf(owners, segment);
    table.Add({std::to_string(segment.begin), std::to_string(segment.end),
               BlendMatchName(segment.match), none ? "" : std::to_string(segment.source),
               owner != nullptr ? LabelWithId(*owner)
               : none           ? ""
                                : "a branch that is gone by now"});
  }
  std::fputs(table.ToString().c_str(), stdout);
}

}  // namespace

Result<BlendOptions> ReadBlendOptions(const std::vector<std::string>& given) {
  BlendOptions options;
  for (const std::string& one : given) {
    const size_t sign = one.find('=');
    if (sign == std::string::npos) {
      return Status(StatusCode::kInvalidArgument, "--option " + Quoted(one) + " has no '='");
    }
    CAIRN_RETURN_IF_ERROR(SetBlendOption(&options, one.substr(0, sign), one.substr(sign + 1))
                              .WithContext("--option"));
  }
  return options;
}

Status ReportPlan(const Store& store, const BlendPlan& plan,
                  const std::vector<std::string_view>& spaces, bool json, const Json& extra) {
  CAIRN_ASSIGN_OR_RETURN(const Owners owners, OwnersOf(store, plan, spaces));
  if (json) {
    Json all = extra.is_null() ? Json::object() : extra;
    all.update(JsonOf(plan, owners));
    PrintJson(all);
  } else {
    PrintPlan(plan, owners);
  }
  return Status::Ok();
}

}  // namespace cairn::cli
