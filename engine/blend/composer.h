// SPDX-License-Identifier: Apache-2.0
//
// Store::Compose: names to branches, branches to ids and known sources, and those to a plan.
//
// Thread-safe. No lock may be held around the calls.
#pragma once

#include <string>
#include <vector>

#include "cairn/compose.h"
#include "engine/blend/planner.h"

namespace cairn::engine {

class Composer {
 public:
  // It outlives this.
  explicit Composer(BlendPlanner* planner) : planner_(*planner), deps_(planner->deps()) {}
  Composer(const Composer&) = delete;
  Composer& operator=(const Composer&) = delete;

  // Errors: those of Store.
  Result<Composed> Compose(const ComposeRequest& request, const BlendOptions& options);

 private:
  Result<std::vector<ComposeDocument>> DocumentsOf(const ComposeRequest& request);
  Result<PathRun> Look(const ComposeRequest& request, const ComposeDocument& document, uint64_t at,
                       ComposedDocument* composed, std::vector<BlendSource>* sources);
  static Status AddSpans(const ComposeDocument& document, const PathRun& run, uint64_t at,
                         std::vector<ContentSpan>* spans);

  BlendPlanner& planner_;
  const PrefixFinder::Deps& deps_;
};

}  // namespace cairn::engine
