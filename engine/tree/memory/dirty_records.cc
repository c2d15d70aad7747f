// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/dirty_records.h"

#include <algorithm>

namespace cairn::engine {

void DirtyRecords::Touch(Node* node) {
  if (node->dirty) return;
  nodes_.push_back(node->id);
  node->dirty = true;
  replay_reads_ += node->in_index ? 1 : 0;
}

void DirtyRecords::Touch(Head* head) {
  if (head->dirty) return;
  heads_.push_back(head->id);
  head->dirty = true;
  replay_reads_ += head->flushed.there ? 1 : 0;
}

void DirtyRecords::TouchModel(uint64_t model) {
  if (std::find(models_.begin(), models_.end(), model) == models_.end()) models_.push_back(model);
}

void DirtyRecords::ReserveNodes(size_t in_memory) {
  const size_t entries = nodes_.size() + in_memory;
  if (nodes_.capacity() < entries) nodes_.reserve(2 * entries);
}

void DirtyRecords::Clear() {
  for (std::vector<uint64_t>* const ids : {&heads_, &nodes_, &models_, &gone_tables_}) ids->clear();
}

}  // namespace cairn::engine
