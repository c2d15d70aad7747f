// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/read_pool.h"

#include <algorithm>

namespace cairn::engine {

ReadBuffer::~ReadBuffer() {
  if (memory_.empty()) return;
  const uint64_t bytes = memory_.size();
  memory_ = AlignedBuffer();
  pool_->ReturnBuffer(bytes);
}

ReadBuffer ReadPool::TakeBuffer(uint64_t bytes, bool needed) {
  const uint64_t wanted = std::max(bytes, kReadWindowBytes);
  if (bytes_.fetch_add(wanted) + wanted > bytes_max_ && !needed) {
    bytes_.fetch_sub(wanted);
    return {};
  }
  budget_->Take(wanted);
  AlignedBuffer memory = AlignedBuffer::TryAllocate(allocator_, wanted, io::kBlockBytes);
  if (memory.empty()) {
    bytes_.fetch_sub(wanted);
    budget_->Return(wanted);
  }
  return {this, std::move(memory)};
}

void ReadPool::ReturnBuffer(uint64_t bytes) {
  bytes_.fetch_sub(bytes);
  budget_->Return(bytes);
}

}  // namespace cairn::engine
