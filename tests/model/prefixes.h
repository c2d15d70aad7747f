// SPDX-License-Identifier: Apache-2.0
//
// Compares what Store::FindPrefix finds with the longest common prefix over all that the reference
// model has: a hit is never longer than the content, never in a namespace that was not asked; a
// fork of it has the KV that it reports; and, where the store says that it looked at all, it is all
// that the branch with those ids has. Where a namespace indexes chunks, what is found of a branch's
// ids is ids that a fork of the node found has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tests/model/comparison.h"
#include "tests/model/reference_model.h"

namespace cairn::testing {

class Prefixes {
 public:
  Prefixes(const std::vector<ModelSpec>& specs, const ReferenceModel& model)
      : specs_(specs), model_(model) {}

  // The last `count` positions of the branch were appended to it.
  void OnAppended(const ModelBranch& branch, uint64_t count);
  // The branch loses some of its positions. As long as they lie there, a store may find them.
  void OnCut(const ModelBranch& branch);
  // Asks for the ids of each branch.
  void Compare(Store& store, const BranchIds& branches_of);
  uint64_t found() const { return found_; }
  uint64_t chunks_found() const { return chunks_found_; }
  uint64_t planned() const { return planned_; }  // Tokens that plans load.

 private:
  // The ids of a branch, present or past.
  struct Path {
    size_t model = 0;
    std::string ns;
    std::vector<TokenId> tokens;
    std::vector<uint64_t> positions;  // ModelPosition::id
  };
  struct Question {
    Path path;
    std::vector<std::string_view> namespaces;
  };

  static Path PathOf(const ModelBranch& branch);
  bool IsAsked(const Question& question, uint64_t position) const;
  uint64_t CommonWith(const Question& question, const Path& path) const;
  bool MayBeFound(const Question& question, const Path& path) const;
  static uint64_t ForkableLength(const ModelBranch& want, Branch source);
  static void ForkHit(Store& store, const PrefixHit& hit);
  void Ask(Store& store, const ModelBranch& want, const Branch& branch, uint64_t which);
  void AskChunks(Store& store, const ModelBranch& want, const Branch& branch);
  void AskPlan(Store& store, const ModelBranch& want, const Branch& branch);
  void CompareHit(const Question& question, const ModelBranch& want, const Branch& branch,
                  const PrefixHit& hit) const;

  const std::vector<ModelSpec>& specs_;
  const ReferenceModel& model_;
  std::vector<std::string> ns_of_;  // By ModelPosition::id, of the branch that it was appended to.
  std::vector<Path> gone_;
  uint64_t found_ = 0, chunks_found_ = 0, planned_ = 0;
};

}  // namespace cairn::testing
