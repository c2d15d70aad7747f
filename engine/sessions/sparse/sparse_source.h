// SPDX-License-Identifier: Apache-2.0
//
// The content that a session reads: the path of a node, up to a position, on lease. It is the
// branch as it was when the session began, which a rewind of the branch does not change.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/branch_types.h"
#include "cairn/model.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

class SparseSource {
 public:
  // The branch's tokens before `end`, UINT64_MAX: all. The referenced objects outlive this.
  // kNotFound; kInvalidArgument: it has none, or fewer.
  static Result<std::shared_ptr<const SparseSource>> Take(const WriteDeps& deps,
                                                          CoalescedAppends* coalesced,
                                                          BranchId branch, uint64_t end);
  ~SparseSource();
  SparseSource(const SparseSource&) = delete;
  SparseSource& operator=(const SparseSource&) = delete;

  BranchId branch() const { return branch_; }
  NodeId node() const { return NodeId{path_.front().node}; }
  uint64_t tokens() const { return tokens_; }
  const ModelSpec& model() const { return *model_; }
  // Where the token before this position lies. REQUIRES: 0 < end <= tokens().
  uint64_t NodeBefore(uint64_t end) const;

 private:
  struct Step {
    uint64_t begin = 0, node = 0;
  };
  explicit SparseSource(const WriteDeps& deps) : deps_(deps) {}

  const WriteDeps& deps_;
  BranchId branch_{};
  uint64_t tokens_ = 0, lease_ = 0;
  std::vector<Step> path_;  // The newest first.
  std::shared_ptr<const ModelSpec> model_;
};

}  // namespace cairn::engine
