// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/sparse_source.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "base/core/check.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

Result<std::shared_ptr<const SparseSource>> SparseSource::Take(const WriteDeps& deps,
                                                               CoalescedAppends* coalesced,
                                                               BranchId branch, uint64_t end) {
  const std::shared_ptr<SparseSource> source(new SparseSource(deps));
  Committer::Lock lock;
  CAIRN_ASSIGN_OR_RETURN(const Head* const head, coalesced->LookAt(branch, &lock));
  const Tree& tree = deps.tree();
  const uint64_t length = head->lengths[kTokenLane];
  source->branch_ = branch;
  source->tokens_ = std::min(end, length);
  if (length == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "sparse: the branch has no tokens, so there is nothing to fetch");
  }
  if (source->tokens_ == 0 || (end != UINT64_MAX && end > length)) {
    return Status(StatusCode::kInvalidArgument, "sparse: end is " + std::to_string(end) +
                                                    "; the branch has " + std::to_string(length) +
                                                    " tokens");
  }
  source->model_ = tree.FindModel(head->model);
  for (const Node* node = tree.OnPath(head->node); node != nullptr;
       node = tree.OnPath(node->parent)) {
    const uint64_t begin = node->lanes[kTokenLane].start;
    if (begin < source->tokens_) source->path_.push_back({begin, node->id});
  }
  // A lease on every node: when the last branch that needs it goes, the node at the end dies, lease
  // or not, and then nothing else would keep those above unchanged.
  std::vector<LeasedPart> parts;
  uint64_t end_on_node = source->tokens_;
  for (const Step& step : source->path_) {
    if (end_on_node > step.begin) parts.push_back({step.node, end_on_node});
    end_on_node = step.begin;
  }
  source->lease_ = deps.tree().leases().Grant(parts, UINT64_MAX);
  return std::shared_ptr<const SparseSource>(source);
}

SparseSource::~SparseSource() {
  if (lease_ == 0) return;
  const std::lock_guard lock(deps_.mutex());
  deps_.tree().leases().Release(lease_);
}

uint64_t SparseSource::NodeBefore(uint64_t end) const {
  CAIRN_CHECK(end > 0 && end <= tokens_);
  const auto on = std::find_if(path_.begin(), path_.end(),
                               [end](const Step& step) { return step.begin < end; });
  return on->node;
}

}  // namespace cairn::engine
