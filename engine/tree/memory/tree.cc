// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/tree.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

Status NoBranch(uint64_t branch) {
  return Status(StatusCode::kNotFound, "branch #" + std::to_string(branch) + " does not exist");
}

Status DoesNotApply(const Op& op, const std::string& what) {
  return Status(StatusCode::kCorruption, std::string(OpKindName(static_cast<uint16_t>(op.kind))) +
                                             " of branch #" + std::to_string(op.branch) +
                                             " does not fit the tree: " + what);
}

const Node* Tree::OnPath(uint64_t node) const {
  const Node* const found = FindNode(node);
  CAIRN_CHECK(node == 0 || found != nullptr);  // A restore would leave out its content.
  return found;
}

std::shared_ptr<const ModelSpec> Tree::FindModel(uint64_t model) const {
  const auto it = models_.find(model);
  return it == models_.end() ? nullptr : it->second;
}

void Tree::SetModel(uint64_t model, std::shared_ptr<const ModelSpec> spec) {
  models_.insert_or_assign(model, std::move(spec));
}

void Tree::CountExtent(Node* node, size_t lane, const Extent& extent, int sign) {
  const auto factor = static_cast<uint64_t>(int64_t{sign});  // Modulo 2^64.
  if (extent.place.absent()) node->lanes[lane].absent += factor * extent.count;
  if (extent.place.evicted()) node->lanes[lane].evicted += factor * extent.count;
  if (extent.place.absent() || !extent.place.known()) return;
  const uint64_t raw_bytes = extent.count * PositionBytes(ModelOf(*node), lane);
  if (!extent.place.in_table()) {
    segment_usages_.Count(extent.place.log.segment, raw_bytes, lane == kTokenLane ? 0 : 1, sign);
    return;
  }
  table_usages_.Count(extent.place, extent.count, sign);
  // The sums count it raw.
  sums_.CountHeld(node->use, factor * (extent.place.Share(extent.count) - raw_bytes));
}

void Tree::CountMark(const Place& place, int sign) {
  table_usages_.Count(place, 1, sign);
  if (place.log.segment != 0) segment_usages_.Count(place.log.segment, 1, 0, sign);
}

void Tree::MarkUsed(uint64_t branch, uint64_t now_ns) {
  Head* const head = residency_.MutableHead(branch);
  if (head == nullptr) return;
  dirty_.Touch(head);
  head->used_at_ns = std::max(head->used_at_ns, now_ns);
  head->reused = true;
}

void Tree::MarkUsedBefore(uint64_t branch, uint64_t now_ns) {
  Head* const head = residency_.MutableHead(branch);
  if (head == nullptr || head->used_at_ns <= now_ns) return;
  dirty_.Touch(head);
  head->used_at_ns = now_ns;
}

void Tree::ForgetTable(uint64_t table) {
  dirty_.AddGoneTable(table);
  table_usages_.Forget(table);
}

}  // namespace cairn::engine
