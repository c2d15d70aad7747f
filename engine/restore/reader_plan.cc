// SPDX-License-Identifier: Apache-2.0
//
// The plan of one item of a restore.
#include <algorithm>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "engine/restore/reader.h"

namespace cairn::engine {

namespace {

Status CheckProgress(const RestoreItem& item) {
  if (item.layers == nullptr || !item.layers->wanted()) return Status::Ok();
  const KvView* const into = item.request.into;
  size_t layers = 0;
  for (size_t i = 0; into != nullptr && i < into->groups.size(); ++i) {
    layers += into->groups[i].planes[0].layer_bases.size();
  }
  const size_t words = item.layers->words().size();
  if (words >= layers) return Status::Ok();
  return Status(StatusCode::kInvalidArgument, "progress has room for " + std::to_string(words) +
                                                  " layers; the view has " +
                                                  std::to_string(layers));
}

Pins::Holder HolderOf(const RestoreSource& source) {
  if (source.node != NodeId{}) return {Pins::Of::kNode, static_cast<uint64_t>(source.node)};
  return {Pins::Of::kBranch, static_cast<uint64_t>(source.branch)};
}

Status CheckRoomForTokens(const RestoreRequest& request, const RestorePlan& plan) {
  if (request.tokens.empty() || request.tokens.size() >= plan.end - plan.begin) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "room for " + std::to_string(request.tokens.size()) + " token ids, " +
                    std::to_string(plan.end - plan.begin) + " are wanted");
}

// Several sources go to places of their own, all of them positions of the view.
Status CheckTargets(std::span<const RestoreSource> sources) {
  std::vector<Range> targets;
  for (const RestoreSource& source : sources) {
    const uint64_t begin = TargetOf(source.begin, source.shift);
    const uint64_t end = TargetOf(source.end, source.shift);
    const bool wraps = source.shift < 0 ? begin > source.begin : end < source.end;
    if (wraps || source.begin > source.end) {
      return Status(StatusCode::kInvalidArgument,
                    "restore: a source of [" + std::to_string(source.begin) + ", " +
                        std::to_string(source.end) + ") cannot be shifted by " +
                        std::to_string(source.shift));
    }
    targets.push_back({begin, end});
  }
  std::sort(targets.begin(), targets.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < targets.size(); ++i) {
    if (targets[i].begin >= targets[i - 1].end) continue;
    return Status(StatusCode::kInvalidArgument,
                  "restore: two sources go to position " + std::to_string(targets[i].begin));
  }
  return Status::Ok();
}

}  // namespace

// Each source is looked at under a lock of its own, and pinned there.
Status Reader::PlanItem(RestoreItem* item, ItemRun* run, std::vector<Pinned>* pins) {
  const RestoreSource alone{.branch = item->branch,
                            .node = item->node,
                            .begin = item->request.begin,
                            .end = item->request.end};
  const std::span<const RestoreSource> sources =
      item->sources.empty() ? std::span(&alone, 1) : std::span(item->sources);
  uint64_t several_end = 0;
  for (const RestoreSource& source : item->sources) {
    if (sources.size() == 1) break;
    CAIRN_CHECK(source.end != UINT64_MAX);
    several_end = std::max(several_end, TargetOf(source.end, source.shift));
  }
  if (sources.size() > 1) CAIRN_RETURN_IF_ERROR(CheckTargets(sources));
  RestorePlan plan;
  for (const RestoreSource& source : sources) {
    const ReaderCallbacks::Visitor visit = [&](const Tree& tree, const Head& head) {
      if (item->may_plan) CAIRN_RETURN_IF_ERROR(item->may_plan(tree));
      CAIRN_ASSIGN_OR_RETURN(RestorePlan part,
                             PlanRestore(tree, head, source, item->request, several_end));
      pins->push_back(pins_.Take(HolderOf(source), part));
      return AddPlan(std::move(part), &plan);
    };
    CAIRN_RETURN_IF_ERROR(source.node != NodeId{}
                              ? deps_.callbacks->VisitNode(source.node, visit)
                              : deps_.callbacks->VisitBranch(source.branch, /*used=*/true, visit));
  }
  CAIRN_RETURN_IF_ERROR(CheckRoomForTokens(item->request, plan));
  CAIRN_RETURN_IF_ERROR(CheckProgress(*item));
  if (sources.size() > 1) MergePlans(&plan);
  plan.turns_keys = item->turns_keys;
  run->plan = std::move(plan);
  run->outcome.ticket = item->ticket;
  return Status::Ok();
}

}  // namespace cairn::engine
