// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/seal_queue.h"

#include <utility>

#include "engine/tree/memory/reserve_more.h"
#include "engine/tree/memory/residency.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

void SealQueue::Reserve(size_t more) { ReserveMore(&due_, more); }

void SealQueue::Add(Node* node, uint64_t tokens, const ModelSpec& model) {
  uint64_t token_bytes = PositionKvBytes(model);            // Without states, which are few,
  if (token_bytes == 0) token_bytes = model.token_bytes();  // unless there is nothing else.
  if (tokens * token_bytes >= large_bytes_) return;
  ++node->unsealed_deltas;
  node->unsealed_tokens += tokens;
  const bool due = (deltas_ != 0 && node->unsealed_deltas >= deltas_) ||
                   (tokens_ != 0 && node->unsealed_tokens >= tokens_);
  if (!due && !node->seal_due) return;
  if (!node->seal_due) {
    due_.push_back(node->id);
    node->seal_due = true;
    tokens = node->unsealed_tokens;
  }
  bytes_ += tokens * token_bytes;
}

std::vector<uint64_t> SealQueue::Take(Residency* memory) {
  for (const uint64_t id : due_) {
    Node* const node = memory->MutableNode(id);
    if (node == nullptr) continue;
    node->seal_due = false;
    node->unsealed_deltas = node->unsealed_tokens = 0;
  }
  bytes_ = 0;
  return std::exchange(due_, {});
}

}  // namespace cairn::engine
