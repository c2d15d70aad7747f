// SPDX-License-Identifier: Apache-2.0
//
// Restores of a plan: what it loads is held, compared again unless its lease or the tree says that
// it is the same, and read as one item of several sources.
#include <algorithm>
#include <string>

#include "engine/blend/constants.h"
#include "engine/blend/held_parts.h"
#include "engine/blend/planner.h"
#include "engine/find/path_match.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

namespace {

Status BadPlan(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "plan: " + what);
}

std::string NodeText(const BlendSegment& segment) {
  return "plan: node " + std::to_string(static_cast<uint64_t>(segment.node));
}

// Segments and steps each cover the prompt, and what is loaded is somewhere.
bool IsWhole(const BlendPlan& plan) {
  uint64_t at = 0;
  std::vector<PromptRange> nowhere;
  for (const BlendSegment& segment : plan.segments) {
    if (segment.begin != at || segment.end <= at) return false;
    if (segment.source > UINT64_MAX - (segment.end - segment.begin)) return false;
    if (segment.match == BlendMatch::kNone) nowhere.push_back({segment.begin, segment.end});
    at = segment.end;
  }
  if (at != plan.tokens) return false;
  at = 0;
  auto none = nowhere.begin();
  for (const BlendStep& step : plan.steps) {
    if (step.begin != at || step.end <= at) return false;
    at = step.end;
    if (!step.loads) continue;
    while (none != nowhere.end() && none->end <= step.begin) ++none;
    if (none != nowhere.end() && none->begin < step.end) return false;
  }
  return at == plan.tokens;
}

}  // namespace

Result<std::shared_ptr<const ModelSpec>> BlendPlanner::CheckPlan(const BlendPlan& plan) const {
  if (!IsWhole(plan)) return BadPlan("its segments or steps do not cover the prompt");
  const Committer::Lock lock(deps_.write->mutex());
  if (plan.seen.store != SeenNow(lock).store) return BadPlan("it is of another store");
  const auto number = static_cast<uint64_t>(plan.model);
  std::shared_ptr<const ModelSpec> model = deps_.write->tree().FindModel(number);
  if (model != nullptr) return model;
  return Status(StatusCode::kNotFound,
                "plan: model " + std::to_string(number) + " is not registered");
}

uint64_t BlendPlanner::TurnedBytes(const ModelSpec& model, std::span<const RestoreSource> sources) {
  uint64_t of_token = 0, tokens = 0;
  for (const LayerGroup& group : model.groups) {
    for (const Plane& plane : group.planes) {
      const bool turns = plane.rotary.state == RotaryState::kApplied;
      if (turns) of_token += uint64_t{group.layers} * plane.heads * plane.row_bytes;
    }
  }
  for (const RestoreSource& source : sources) {
    if (source.shift != 0) tokens += source.end - source.begin;
  }
  return of_token * tokens;
}

// Both are of one path, which begins as the prompt does: approximate KV behind an exact prefix.
bool BlendPlanner::GoesOn(const BlendSegment& before, const BlendSegment& segment) {
  return before.match == BlendMatch::kPrefix && before.node == segment.node && segment.shift() == 0;
}

std::vector<RestoreSource> BlendPlanner::SourcesOf(const BlendPlan& plan, Range range) {
  std::vector<RestoreSource> sources;
  auto segment = plan.segments.begin();
  for (const BlendStep& step : plan.steps) {
    if (!step.loads) continue;
    const uint64_t end = std::min(step.end, range.end);
    uint64_t at = std::max(step.begin, range.begin);
    while (at < end) {
      while (segment->end <= at) ++segment;
      const uint64_t until = std::min(end, segment->end);
      const bool goes_on =
          segment != plan.segments.begin() && GoesOn(*std::prev(segment), *segment);
      RestoreSource source{.node = segment->node,
                           .begin = at - segment->begin + segment->source,
                           .end = until - segment->begin + segment->source,
                           .shift = segment->shift(),
                           .foreign = segment->match != BlendMatch::kPrefix};
      source.whole = source.foreign && !goes_on;
      if (goes_on && !sources.empty() && sources.back().end == source.begin) {
        sources.back().needed_end = source.end;
      }
      sources.push_back(source);
      at = until;
    }
  }
  return sources;
}

// The segments of which something is loaded.
std::vector<BlendSegment> BlendPlanner::NeededOf(const BlendPlan& plan, Range range) {
  std::vector<BlendSegment> needed;
  auto step = plan.steps.begin();
  for (const BlendSegment& segment : plan.segments) {
    const Range both{std::max(segment.begin, range.begin), std::min(segment.end, range.end)};
    if (segment.match == BlendMatch::kNone || both.begin >= both.end) continue;
    while (step != plan.steps.end() && (!step->loads || step->end <= both.begin)) ++step;
    if (step == plan.steps.end()) break;
    if (step->begin < both.end) needed.push_back(segment);
  }
  return needed;
}

// From here on what is needed is true, as long as `hold` lives.
Status BlendPlanner::HoldPlan(const BlendPlan& plan, std::span<const BlendSegment> needed,
                              PathHold* hold) {
  {
    const Committer::Lock lock(deps_.write->mutex());
    hold->Begin({});
  }
  std::vector<Content> contents;
  HeldParts parts(deps_.write->tree());
  for (std::span<const BlendSegment> left = needed; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kPiecesAtOnce));
    left = left.subspan(some.size());
    TreeNeeds needs;
    for (const BlendSegment& one : some) needs.nodes.push_back(static_cast<uint64_t>(one.node));
    Committer::Lock lock(deps_.write->mutex());
    CAIRN_RETURN_IF_ERROR(deps_.write->access->Load(needs, &lock));
    const Tree& tree = deps_.write->tree();
    for (const BlendSegment& one : some) {
      CAIRN_RETURN_IF_ERROR(CheckSegment(plan, one, lock));
      const Node& node = *tree.FindNode(static_cast<uint64_t>(one.node));
      const uint64_t end = one.source + (one.end - one.begin);
      parts.Add(node, end);
      contents.push_back(ContentOf(node, one.source, end, lock));
    }
    hold->Add(parts.TakeNew(/*with_bytes=*/false));
  }
  {
    const Committer::Lock lock(deps_.write->mutex());
    deps_.write->tree().leases().Expire(deps_.write->lifecycle->NowNs());
    const bool true_still = IsUnchanged(plan, lock) || IsLeased(plan, lock);
    if (true_still || !CAIRN_KEPT(kStaleHit)) return Status::Ok();
  }
  return Confirm(plan.model, needed, &contents);
}

Status BlendPlanner::CheckSegment(const BlendPlan& plan, const BlendSegment& segment,
                                  const Committer::Lock&) const {
  const Tree& tree = deps_.write->tree();
  const Node* const node = tree.FindNode(static_cast<uint64_t>(segment.node));
  if (node == nullptr) {
    return Status(StatusCode::kNotFound, NodeText(segment) + " does not exist any more");
  }
  const uint64_t end = segment.source + (segment.end - segment.begin);
  if (node->model != static_cast<uint64_t>(plan.model) || node->lanes[kTokenLane].end < end) {
    return Status(StatusCode::kConflict, NodeText(segment) + " does not reach to position " +
                                             std::to_string(end) + " any more");
  }
  if (segment.match == BlendMatch::kPrefix && FirstApproximate(tree, *node, end) < end) {
    return Status(StatusCode::kConflict, NodeText(segment) + " has KV that is not exact by now");
  }
  return Status::Ok();
}

bool BlendPlanner::IsUnchanged(const BlendPlan& plan, const Committer::Lock& lock) const {
  const BlendPlan::Seen now = SeenNow(lock);
  return deps_.indexer != nullptr && plan.seen.opening == now.opening &&
         plan.seen.generation == now.generation && plan.seen.changes == now.changes;
}

// A lease ends with the first part that goes.
bool BlendPlanner::IsLeased(const BlendPlan& plan, const Committer::Lock&) const {
  return plan.lease != LeaseId{} && plan.seen.opening == deps_.leases->opening() &&
         deps_.leases->Holds(plan.lease, plan.seen.lease_node, plan.seen.lease_position);
}

Status BlendPlanner::Confirm(ModelId model, std::span<const BlendSegment> needed,
                             std::vector<Content>* contents) {
  std::vector<PathRun*> runs;
  for (Content& content : *contents) runs.push_back(&content.run);
  CAIRN_RETURN_IF_ERROR(ReadRuns(deps_.reader, runs, /*memory_only=*/false));
  for (size_t i = 0; i < needed.size(); ++i) {
    const Content& content = (*contents)[i];
    if (content.run.status.code() == StatusCode::kCorruption) return content.run.status;
    BlendSegment now = needed[i];
    SetDigest(content.run.ids, content.run, content.ns_seed, model, &now);
    if (std::equal(now.digest, now.digest + 2, needed[i].digest)) continue;
    return Status(StatusCode::kConflict, NodeText(now) + " has other tokens by now; plan again");
  }
  return Status::Ok();
}

Result<RestoreResult> BlendPlanner::Restore(const BlendPlan& plan, const RestoreRequest& request,
                                            LayerProgress* progress) {
  const Lifecycle::Call call(deps_.write->lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.write->lifecycle->CheckUsable());
  LayerWords layers(*deps_.write->world.scheduler, progress);
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const ModelSpec> model, CheckPlan(plan));
  if (!request.tokens.empty()) {
    return Status(StatusCode::kInvalidArgument, "request.tokens: a plan brings KV alone");
  }
  CAIRN_ASSIGN_OR_RETURN(const Range range,
                         RangeOf(request.begin, request.end, plan.tokens, "restore of a plan"));
  const std::vector<BlendSegment> needed = NeededOf(plan, range);
  RestoreItem item;
  item.sources = SourcesOf(plan, range);
  item.turns_keys = plan.position_correction;
  item.request = request;
  item.request.require_kv = true;
  item.layers = &layers;
  if (item.sources.empty() || request.into == nullptr) {
    RestoreResult nothing{.begin = range.begin, .end = range.end};
    if (request.into != nullptr) nothing.kv_ends.assign(request.into->groups.size(), range.begin);
    layers.End(true);
    return nothing;
  }
  for (size_t round = 0; round < kPlanRounds; ++round) {
    PathHold hold(*deps_.write);
    CAIRN_RETURN_IF_ERROR(HoldPlan(plan, needed, &hold));
    bool other_tree = false;
    item.may_plan = [&](const Tree& tree) {
      other_tree = !hold.Covers(tree.generation());
      return other_tree ? Status(StatusCode::kStale, "plan: the tree has changed") : Status::Ok();
    };
    Status status = deps_.reads->RestoreMany({&item, 1}, request.timeout_ns);
    if (status.ok()) status = item.status;
    if (other_tree) continue;
    layers.End(status.ok());
    CAIRN_RETURN_IF_ERROR(status);
    if (item.turns_keys) {
      counters_.turned_bytes.fetch_add(TurnedBytes(*model, item.sources),
                                       std::memory_order_relaxed);
    }
    item.result.begin = range.begin;
    item.result.end = range.end;
    return std::move(item.result);
  }
  return Status(StatusCode::kStale, "plan: the tree changes faster than it is read");
}

}  // namespace cairn::engine
