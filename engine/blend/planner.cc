// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/planner.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "base/core/check.h"
#include "engine/blend/constants.h"
#include "engine/blend/cover.h"
#include "engine/blend/extend.h"
#include "engine/blend/options.h"
#include "engine/blend/recompute.h"
#include "engine/find/chunk_stretches.h"
#include "engine/find/path_match.h"
#include "engine/restore/plan/restorable.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

Result<BlendPlan> BlendPlanner::Plan(const PrefixQuery& query, const BlendOptions& options) {
  return PlanAgain(query, options, /*searches=*/options.sources.empty());
}
Result<BlendPlan> BlendPlanner::PlanKnown(const PrefixQuery& query, const BlendOptions& options) {
  return PlanAgain(query, options, /*searches=*/false);
}

Result<BlendPlan> BlendPlanner::PlanAgain(const PrefixQuery& query, const BlendOptions& options,
                                          bool searches) {
  const Lifecycle::Call call(deps_.write->lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.write->lifecycle->CheckUsable());
  if (query.tokens.empty()) {
    return Status(StatusCode::kInvalidArgument, "query.tokens: a plan of no tokens");
  }
  CAIRN_RETURN_IF_ERROR(searches ? prefixes_.CheckQuery(query) : prefixes_.CheckFields(query));
  CAIRN_RETURN_IF_ERROR(CheckBlendOptions(options, query.tokens.size()));
  for (size_t round = 0; round < kPlanRounds; ++round) {
    bool other_tree = false;
    CAIRN_ASSIGN_OR_RETURN(BlendPlan plan, PlanOnce(query, options, searches, &other_tree));
    if (other_tree) continue;
    Count(plan);
    return plan;
  }
  return Status(StatusCode::kStale, "plan: the tree changes faster than it is read");
}

Result<BlendPlan> BlendPlanner::PlanOnce(const PrefixQuery& query, const BlendOptions& options,
                                         bool searches, bool* other_tree) {
  Draft draft{.query = query, .options = options, .searches = searches};
  {
    const Committer::Lock lock(deps_.write->mutex());
    draft.before = SeenNow(lock);
    draft.model = deps_.write->tree().FindModel(static_cast<uint64_t>(query.model));
  }
  CAIRN_RETURN_IF_ERROR(CheckBlendModel(options, *draft.model));
  draft.plan.model = query.model;
  draft.plan.tokens = query.tokens.size();
  draft.plan.position_correction = options.position_correction;
  CAIRN_RETURN_IF_ERROR(searches ? Search(&draft) : TakeSources(&draft));
  std::erase_if(draft.pieces, [&](const Piece& piece) {
    return !piece.of_hit && !piece.prefix && piece.end - piece.begin < options.min_tokens;
  });
  PathHold hold(*deps_.write);
  std::vector<Content> contents;
  CAIRN_RETURN_IF_ERROR(HoldPieces(&draft, &contents, &hold));
  CAIRN_RETURN_IF_ERROR(Compare(&draft, &contents));
  CAIRN_RETURN_IF_ERROR(CheckPositions(&draft));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<PromptRange> computed, ComputedOf(draft));
  Fill(computed, &draft);
  CAIRN_ASSIGN_OR_RETURN(const bool held, Finish(&draft, hold));
  *other_tree = !held;
  return std::move(draft.plan);
}

void BlendPlanner::Count(const BlendPlan& plan) {
  const auto add = [](std::atomic<uint64_t>* counter, uint64_t count) {
    counter->fetch_add(count, std::memory_order_relaxed);
  };
  for (const BlendSegment& segment : plan.segments) {
    std::atomic<uint64_t>* const of_match[] = {&counters_.unknown_tokens, &counters_.prefix_tokens,
                                               &counters_.full_tokens, &counters_.partial_tokens};
    add(of_match[static_cast<size_t>(segment.match)], segment.end - segment.begin);
  }
  add(&counters_.plans, 1);
  add(&counters_.computed_tokens, plan.compute_tokens);
}

BlendPlan::Seen BlendPlanner::SeenNow(const Committer::Lock&) const {
  const StoreId store = manifest_.store();
  return {.store = Hash(std::as_bytes(std::span(store.bytes))),
          .opening = deps_.leases->opening(),
          .generation = deps_.write->tree().generation(),
          .changes = deps_.indexer == nullptr ? 0 : deps_.indexer->changes()};
}

// ---------------------------------------------------------------- pieces

Status BlendPlanner::Search(Draft* draft) {
  PrefixQuery query = draft->query;
  query.lease_ns = 0;
  query.confirm = true;
  CAIRN_ASSIGN_OR_RETURN(const ChunkMatches found, chunks_.Find(query));
  CAIRN_ASSIGN_OR_RETURN(const PrefixHit hit, prefixes_.Search(query));
  draft->plan.complete = found.complete && hit.complete;
  draft->matched = hit.matched;
  Piece prefix{.end = std::min(hit.exact, hit.restorable),
               .node = static_cast<uint64_t>(hit.node),
               .of_hit = true,
               .prefix = true};
  Piece rest = prefix;
  rest.begin = rest.source = prefix.end;
  rest.end = hit.restorable;
  rest.prefix = false;
  if (prefix.begin < prefix.end) draft->pieces.push_back(std::move(prefix));
  if (rest.begin < rest.end) draft->pieces.push_back(std::move(rest));
  std::vector<Piece> others = Cover(found.matches, hit.restorable);
  std::move(others.begin(), others.end(), std::back_inserter(draft->pieces));
  return PieceExtender(*deps_.write, deps_.reader, query, draft->options).Extend(&draft->pieces);
}

Status BlendPlanner::TakeSources(Draft* draft) {
  std::vector<PathRun> runs(draft->options.sources.size());
  std::vector<PathRun*> read;
  for (size_t i = 0; i < runs.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(TakeSource(draft->options.sources[i], i, draft, &runs[i]));
    read.push_back(&runs[i]);
  }
  CAIRN_RETURN_IF_ERROR(ReadRuns(deps_.reader, read, draft->query.memory_only));
  for (size_t i = 0; i < runs.size(); ++i) {
    const PathRun& run = runs[i];
    const Piece& piece = draft->pieces[i];
    uint64_t same = 0;
    while (same < run.ids.size() &&
           IsSame(run, run.begin + same, draft->query, piece.begin + same)) {
      ++same;
    }
    if (same == run.end - run.begin) continue;
    if (run.status.code() == StatusCode::kCorruption) return run.status;
    return Status(StatusCode::kConflict, "options.sources[" + std::to_string(i) +
                                             "] has other tokens from position " +
                                             std::to_string(run.begin + same) + " on");
  }
  return Status::Ok();
}

// As far as content spans and provenance say, in all groups: what FindPrefix would call exact.
bool BlendPlanner::BeginsAs(const Draft& draft, const Head& head, uint64_t end) const {
  const Tree& tree = deps_.write->tree();
  const PathMatch match = MatchPath(tree, *tree.FindNode(head.node), end, draft.query.spans,
                                    /*approximate=*/false);
  return match.matched == end && match.exact == end;
}

Status BlendPlanner::TakeSource(const BlendSource& source, size_t index, Draft* draft,
                                PathRun* run) {
  const std::string name = "options.sources[" + std::to_string(index) + "]";
  if (!draft->query.memory_only) static_cast<void>(deps_.coalesced->Flush(source.branch));
  Committer::Lock lock(deps_.write->mutex());
  const auto branch = static_cast<uint64_t>(source.branch);
  const Tree& tree = deps_.write->tree();
  if (draft->query.memory_only && !tree.KnowsHead(branch)) {
    return Status(StatusCode::kBusy, name + " is not in memory");
  }
  CAIRN_ASSIGN_OR_RETURN(const Head* const head,
                         deps_.write->access->LoadBranch(source.branch, &lock));
  if (head->model != static_cast<uint64_t>(draft->query.model)) {
    return Status(StatusCode::kModelMismatch, name + " is of another model than the query");
  }
  if (source.end > head->lengths[kTokenLane]) {
    return Status(StatusCode::kConflict, name + " ends at position " + std::to_string(source.end) +
                                             " of a branch of " +
                                             std::to_string(head->lengths[kTokenLane]) + " tokens");
  }
  const ChunkStretch whole{source.begin, source.end};
  const auto exact = ExactStretches(tree, *tree.FindNode(head->node), source.begin, source.end);
  if (exact.size() != 1 || exact.front() != whole) {
    const uint64_t lacks =
        exact.empty() || exact.front().begin != source.begin ? source.begin : exact.front().end;
    return Status(StatusCode::kEvicted,
                  name + " has no exact KV of position " + std::to_string(lacks));
  }
  const bool prefix = source.begin == 0 && source.at == 0 && BeginsAs(*draft, *head, source.end);
  draft->pieces.push_back({.begin = source.at,
                           .end = source.at + (source.end - source.begin),
                           .node = head->node,
                           .source = source.begin,
                           .prefix = prefix});
  *run = {.node = head->node,
          .begin = source.begin,
          .end = source.end,
          .spans = CollectSpans(tree, *head, source.begin, source.end)};
  return Status::Ok();
}

// Before keys are turned for the first time.
Status BlendPlanner::CheckPositions(Draft* draft) {
  const bool shifts = std::any_of(draft->pieces.begin(), draft->pieces.end(),
                                  [](const Piece& piece) { return piece.shift() != 0; });
  if (!shifts || !draft->options.position_correction) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(
      draft->plan.positions_checked,
      positions_.Check(*draft->model, draft->query.model, draft->query, draft->pieces));
  return Status::Ok();
}

// ---------------------------------------------------------------- steps

// A run that begins within a prefix needs what groups with windows need there: it begins before,
// where they have that.
Result<std::vector<PromptRange>> BlendPlanner::ComputedOf(const Draft& draft) {
  std::vector<PromptRange> computed = RecomputedOf(draft.query.tokens, draft.pieces, draft.options);
  if (draft.pieces.empty() || !draft.pieces.front().of_hit) return computed;
  const Piece& last =
      draft.pieces.size() > 1 && draft.pieces[1].of_hit ? draft.pieces[1] : draft.pieces.front();
  Committer::Lock lock(deps_.write->mutex());
  CAIRN_RETURN_IF_ERROR(LoadNodes(draft, {&last, 1}, &lock));
  const Tree& tree = deps_.write->tree();
  const Node* const node = tree.FindNode(last.node);
  if (node == nullptr) return computed;  // It was dropped, which Finish notices.
  for (PromptRange& range : computed) {
    if (range.begin >= last.end) break;
    range.begin = RestorableLength(tree, HeadOfNode(*node), range.begin);
  }
  return Joined(std::move(computed));
}

void BlendPlanner::Fill(std::span<const PromptRange> computed, Draft* draft) {
  BlendPlan& plan = draft->plan;
  std::vector<BlendSegment> segments;
  const auto add_none = [&](uint64_t begin, uint64_t end) {
    if (begin < end) segments.push_back({.begin = begin, .end = end});
  };
  uint64_t at = 0;
  for (const BlendSegment& segment : plan.segments) {
    CAIRN_CHECK(at <= segment.begin && segment.begin < segment.end);
    add_none(at, segment.begin);
    segments.push_back(segment);
    at = segment.end;
  }
  add_none(at, plan.tokens);
  plan.segments = std::move(segments);

  const uint64_t prefix =
      plan.segments.front().match == BlendMatch::kPrefix ? plan.segments.front().end : 0;
  plan.exact = plan.tokens;
  at = 0;
  for (const PromptRange& range : computed) {
    if (at < range.begin) {
      plan.steps.push_back({.loads = true, .begin = at, .end = range.begin});
      plan.load_tokens += range.begin - at;
      if (range.begin > prefix) plan.exact = std::min(plan.exact, std::max(at, prefix));
    }
    plan.steps.push_back({.loads = false, .begin = range.begin, .end = range.end});
    plan.compute_tokens += range.end - range.begin;
    at = range.end;
  }
  CAIRN_CHECK(at == plan.tokens);
  plan.load_bytes = plan.load_tokens * draft->model->token_bytes();
}

}  // namespace cairn::engine
