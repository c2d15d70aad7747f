// SPDX-License-Identifier: Apache-2.0
//
// BlendPlanner settles a plan: it holds the pieces, so that nothing takes their content, compares
// them again if something may have changed since they were found, and grants the lease.
#include <algorithm>
#include <utility>

#include "engine/blend/constants.h"
#include "engine/blend/held_parts.h"
#include "engine/blend/options.h"
#include "engine/blend/planner.h"
#include "engine/find/chunk_stretches.h"
#include "engine/find/path_match.h"
#include "engine/restore/plan/restorable.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

namespace {

bool IsOfQuery(const PrefixQuery& query, std::string_view ns) {
  return ns == query.ns || std::find(query.also.begin(), query.also.end(), ns) != query.also.end();
}

// The ids of the run are equal to the query's, or differ, as the piece says.
bool IsAsFound(const PrefixQuery& query, const Piece& piece, const PathRun& run) {
  if (run.ids.empty()) return false;
  auto differs = piece.differs.begin();
  for (uint64_t at = piece.begin; at < piece.end; ++at) {
    const bool equal = differs == piece.differs.end() || *differs != at;
    if (!equal) ++differs;
    if (IsSame(run, piece.SourceOf(at), query, at) != equal) return false;
  }
  return true;
}

}  // namespace

bool BlendPlanner::IsThere(const Draft& draft, const Piece& piece, const Committer::Lock&) const {
  const Tree& tree = deps_.write->tree();
  const Node* const node = tree.FindNode(piece.node);
  if (node == nullptr || node->model != static_cast<uint64_t>(draft.query.model)) return false;
  if (draft.searches && !IsOfQuery(draft.query, node->ns)) return false;
  if (piece.of_hit) {
    const PathMatch match =
        MatchPath(tree, *node, draft.matched, draft.query.spans, draft.query.approximate);
    return match.matched == draft.matched && match.restorable >= piece.end &&
           (!piece.prefix || match.exact >= piece.end);
  }
  const ChunkStretch whole{piece.source, piece.source_end()};
  const auto exact = ExactStretches(tree, *node, whole.begin, whole.end);
  return exact.size() == 1 && exact.front() == whole;
}

// kInvalidArgument: keys of the piece cannot be turned to where it stands in the prompt.
Status BlendPlanner::CheckShift(const Draft& draft, const Piece& piece,
                                const Committer::Lock&) const {
  if (piece.of_hit || !draft.options.position_correction) return Status::Ok();
  if (piece.shift() != 0) CAIRN_RETURN_IF_ERROR(CheckTurnable(*draft.model));
  if (!HasSeveralPositions(*draft.model)) return Status::Ok();
  const Tree& tree = deps_.write->tree();
  const Head head = HeadOfNode(*tree.FindNode(piece.node));
  if (piece.shift() == 0) {  // The same content before it moves its positions alike.
    const auto before = CollectSpans(tree, head, 0, piece.begin);
    if (FirstOtherSpan(before, draft.query.spans, piece.begin) == piece.begin) return Status::Ok();
  }
  const bool here = !draft.query.spans.empty() && draft.query.spans.front().begin < piece.end;
  if (!here && CollectSpans(tree, head, 0, piece.source_end()).empty()) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "query.spans: tokens have several positions, and content stands before the end of "
                "the segment [" +
                    std::to_string(piece.begin) + ", " + std::to_string(piece.end) +
                    ") or of its source: how it is shifted is not known");
}

Status BlendPlanner::HoldPieces(Draft* draft, std::vector<Content>* contents, PathHold* hold) {
  {
    const Committer::Lock lock(deps_.write->mutex());
    hold->Begin({});
  }
  std::vector<Piece> there;
  HeldParts parts(deps_.write->tree());
  for (std::span<Piece> left = draft->pieces; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kPiecesAtOnce));
    left = left.subspan(some.size());
    Committer::Lock lock(deps_.write->mutex());
    CAIRN_RETURN_IF_ERROR(LoadNodes(*draft, some, &lock));
    const Tree& tree = deps_.write->tree();
    for (Piece& piece : some) {
      if (!IsThere(*draft, piece, lock)) {
        draft->plan.complete = false;
        continue;
      }
      CAIRN_RETURN_IF_ERROR(CheckShift(*draft, piece, lock));
      const Node& node = *tree.FindNode(piece.node);
      parts.Add(node, piece.source_end());
      contents->push_back(ContentOf(node, piece.source, piece.source_end(), lock));
      there.push_back(std::move(piece));
    }
    hold->Add(parts.TakeNew(/*with_bytes=*/false));
  }
  draft->pieces = std::move(there);
  const Committer::Lock lock(deps_.write->mutex());
  draft->plan.seen = SeenNow(lock);
  return Status::Ok();
}

Status BlendPlanner::LoadNodes(const Draft& draft, std::span<const Piece> pieces,
                               Committer::Lock* lock) const {
  std::vector<uint64_t> nodes;
  for (const Piece& piece : pieces) nodes.push_back(piece.node);
  return deps_.write->access->LoadNodes(nodes, draft.query.memory_only, lock);
}

BlendPlanner::Content BlendPlanner::ContentOf(const Node& node, uint64_t begin, uint64_t end,
                                              const Committer::Lock&) const {
  const Tree& tree = deps_.write->tree();
  return {.run = {.node = node.id,
                  .begin = begin,
                  .end = end,
                  .spans = CollectSpans(tree, HeadOfNode(node), begin, end)},
          .ns_seed = SeedOf(node.ns)};
}

// From here on content stays as it is. A writer's changes are counted; where nothing counts them
// all is compared.
Status BlendPlanner::Compare(Draft* draft, std::vector<Content>* contents) {
  const BlendPlan::Seen& now = draft->plan.seen;
  const bool same = !CAIRN_KEPT(kStaleHit) ||
                    (deps_.indexer != nullptr && now.generation == draft->before.generation &&
                     now.changes == draft->before.changes);
  std::vector<PathRun*> read;
  for (size_t i = 0; i < contents->size(); ++i) {
    if (!same || !draft->pieces[i].differs.empty()) read.push_back(&(*contents)[i].run);
  }
  CAIRN_RETURN_IF_ERROR(ReadRuns(deps_.reader, read, draft->query.memory_only));
  std::vector<Piece> kept;
  for (size_t i = 0; i < contents->size(); ++i) {
    Piece& piece = draft->pieces[i];
    PathRun& run = (*contents)[i].run;
    const bool was_read = !same || !piece.differs.empty();
    const bool is_same = !was_read || IsAsFound(draft->query, piece, run);
    if (!is_same) {
      draft->plan.complete = false;
      continue;
    }
    std::span<const TokenId> ids = run.ids;
    if (!was_read) ids = draft->query.tokens.subspan(piece.begin, piece.end - piece.begin);
    draft->plan.segments.push_back({.begin = piece.begin,
                                    .end = piece.end,
                                    .match = piece.prefix            ? BlendMatch::kPrefix
                                             : piece.differs.empty() ? BlendMatch::kFull
                                                                     : BlendMatch::kPartial,
                                    .node = NodeId{piece.node},
                                    .source = piece.source});
    SetDigest(ids, run, (*contents)[i].ns_seed, draft->query.model, &draft->plan.segments.back());
    kept.push_back(std::move(piece));
  }
  draft->pieces = std::move(kept);
  return Status::Ok();
}

// The lease is granted with some of its parts, and extended by the others.
Result<bool> BlendPlanner::Finish(Draft* draft, const PathHold& hold) {
  BlendPlan& plan = draft->plan;
  const Result<bool> held = LeaseAll(draft, hold);
  const bool failed = !held.ok() || !*held;
  if (failed && plan.lease != LeaseId{}) static_cast<void>(deps_.leases->Release(plan.lease));
  return held;
}

Result<bool> BlendPlanner::LeaseAll(Draft* draft, const PathHold& hold) {
  BlendPlan& plan = draft->plan;
  const uint64_t now_ns = deps_.write->lifecycle->NowNs();
  const bool wanted = draft->query.lease_ns != 0 && CAIRN_KEPT(kLeaseOfHit);
  bool has_room = true;
  HeldParts parts(deps_.write->tree());
  for (std::span<const Piece> left = draft->pieces; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kPiecesAtOnce));
    left = left.subspan(some.size());
    Committer::Lock lock(deps_.write->mutex());
    CAIRN_RETURN_IF_ERROR(LoadNodes(*draft, some, &lock));
    const Tree& tree = deps_.write->tree();
    for (const Piece& piece : some) {
      const Node* const node = tree.FindNode(piece.node);
      if (node == nullptr) return false;  // Dropped: the next plan is without it.
      parts.Add(*node, piece.source_end());
    }
    if (!wanted || !has_room) continue;
    const std::vector<LeasedPart> all = parts.TakeNew(/*with_bytes=*/true);
    if (all.empty()) continue;
    if (plan.lease == LeaseId{}) {
      plan.lease =
          deps_.leases->Grant(all, LeaseTable::EndsWith::kAnyPart, now_ns, draft->query.lease_ns);
      plan.seen.lease_node = all.front().node;
      plan.seen.lease_position = all.front().position;
      has_room = plan.lease != LeaseId{};
    } else {
      has_room = deps_.leases->Extend(plan.lease, all);
      if (!has_room && !IsLeased(plan, lock)) return false;  // A part of it was dropped.
    }
  }
  if (!has_room && plan.lease != LeaseId{}) {  // Part of it would be none.
    static_cast<void>(deps_.leases->Release(std::exchange(plan.lease, LeaseId{})));
  }
  const Committer::Lock lock(deps_.write->mutex());
  if (plan.lease != LeaseId{} && !IsLeased(plan, lock)) return false;
  BlendPlan::Seen seen = SeenNow(lock);
  seen.lease_node = plan.seen.lease_node;
  seen.lease_position = plan.seen.lease_position;
  plan.seen = seen;
  return hold.Covers(deps_.write->tree().generation());
}

}  // namespace cairn::engine
