// SPDX-License-Identifier: Apache-2.0
//
// Store::PlanBlend makes plans, and Store::Restore brings what they load. A plan is made in steps:
//
//   find the prefix and runs of the prompt; or take
//     the pieces that the caller names                find/prefix_finder.h, find/chunk_finder.h
//   choose a source for each part of the prompt       cover.h
//   extend the pieces while ids stay similar          extend.h
//   hold the pieces; compare what changed meanwhile   settle.cc
//   check that keys turn as the model says            position_check.h
//   choose the tokens to compute                      recompute.h
//   grant the lease                                   settle.cc
//
// A piece that is dropped, rewound or evicted meanwhile is left out, and the plan is not `complete`
// then. A plan writes nothing: a crash costs its lease, and a restore of it fails or is right.
//
// Thread-safe. No lock may be held around the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/blend.h"
#include "cairn/restore.h"
#include "engine/blend/counters.h"
#include "engine/blend/piece.h"
#include "engine/blend/position_check.h"
#include "engine/find/chunk_finder.h"
#include "engine/find/path_hold.h"
#include "engine/find/path_runs.h"
#include "engine/find/prefix_finder.h"
#include "engine/manifest/manifest_store.h"

namespace cairn::engine {

class BlendPlanner {
 public:
  // They outlive this. `tell`: as of a PositionCheck.
  BlendPlanner(PrefixFinder* prefixes, ChunkFinder* chunks, const ManifestStore* manifest,
               std::function<void(const std::string&)> tell)
      : prefixes_(*prefixes),
        chunks_(*chunks),
        manifest_(*manifest),
        deps_(prefixes->deps()),
        positions_(deps_.reader, &counters_.failed_checks, std::move(tell)) {}
  BlendPlanner(const BlendPlanner&) = delete;
  BlendPlanner& operator=(const BlendPlanner&) = delete;

  // Errors: those of Store.
  Result<BlendPlan> Plan(const PrefixQuery& query, const BlendOptions& options);
  // The same of options.sources alone: nothing is searched, even if there are none.
  Result<BlendPlan> PlanKnown(const PrefixQuery& query, const BlendOptions& options);
  Result<RestoreResult> Restore(const BlendPlan& plan, const RestoreRequest& request,
                                LayerProgress* progress);

  const PrefixFinder::Deps& deps() const { return deps_; }
  const BlendCounters& counters() const { return counters_; }

 private:
  // A plan under way.
  struct Draft {
    const PrefixQuery& query;
    const BlendOptions& options;
    bool searches = true;  // Else its pieces are options.sources.
    std::shared_ptr<const ModelSpec> model{};
    BlendPlan::Seen before{};     // The tree that pieces are looked for in.
    uint64_t matched = 0;         // PrefixHit::matched
    std::vector<Piece> pieces{};  // In order.
    BlendPlan plan{};
  };
  // How a piece's content lies in the tree.
  struct Content {
    PathRun run{};
    uint64_t ns_seed = 0;
  };

  Result<BlendPlan> PlanAgain(const PrefixQuery& query, const BlendOptions& options, bool searches);
  Result<BlendPlan> PlanOnce(const PrefixQuery& query, const BlendOptions& options, bool searches,
                             bool* other_tree);
  BlendPlan::Seen SeenNow(const Committer::Lock& lock) const;
  Status Search(Draft* draft);
  Status TakeSources(Draft* draft);
  Status TakeSource(const BlendSource& source, size_t index, Draft* draft, PathRun* run);
  bool BeginsAs(const Draft& draft, const Head& head, uint64_t end) const;
  Status CheckPositions(Draft* draft);
  // The tokens that are computed. REQUIRES: the pieces are held.
  Result<std::vector<PromptRange>> ComputedOf(const Draft& draft);
  void Count(const BlendPlan& plan);
  static void Fill(std::span<const PromptRange> computed, Draft* draft);

  // --- settle.cc
  Status HoldPieces(Draft* draft, std::vector<Content>* contents, PathHold* hold);
  bool IsThere(const Draft& draft, const Piece& piece, const Committer::Lock& lock) const;
  Status CheckShift(const Draft& draft, const Piece& piece, const Committer::Lock& lock) const;
  Status Compare(Draft* draft, std::vector<Content>* contents);
  // False: what was held is gone.
  Result<bool> Finish(Draft* draft, const PathHold& hold);
  Result<bool> LeaseAll(Draft* draft, const PathHold& hold);
  Status LoadNodes(const Draft& draft, std::span<const Piece> pieces, Committer::Lock* lock) const;
  Content ContentOf(const Node& node, uint64_t begin, uint64_t end,
                    const Committer::Lock& lock) const;

  // --- plan_restore.cc
  Result<std::shared_ptr<const ModelSpec>> CheckPlan(const BlendPlan& plan) const;
  static bool GoesOn(const BlendSegment& before, const BlendSegment& segment);
  static std::vector<RestoreSource> SourcesOf(const BlendPlan& plan, Range range);
  static std::vector<BlendSegment> NeededOf(const BlendPlan& plan, Range range);
  // Bytes of keys that are turned.
  static uint64_t TurnedBytes(const ModelSpec& model, std::span<const RestoreSource> sources);
  Status HoldPlan(const BlendPlan& plan, std::span<const BlendSegment> needed, PathHold* hold);
  Status CheckSegment(const BlendPlan& plan, const BlendSegment& segment,
                      const Committer::Lock& lock) const;
  bool IsUnchanged(const BlendPlan& plan, const Committer::Lock& lock) const;
  bool IsLeased(const BlendPlan& plan, const Committer::Lock& lock) const;
  Status Confirm(ModelId model, std::span<const BlendSegment> needed,
                 std::vector<Content>* contents);

  PrefixFinder& prefixes_;
  ChunkFinder& chunks_;
  const ManifestStore& manifest_;
  const PrefixFinder::Deps& deps_;
  BlendCounters counters_;
  PositionCheck positions_;
};

}  // namespace cairn::engine
