// SPDX-License-Identifier: Apache-2.0
#include "engine/metrics/commit_counters.h"

namespace cairn::engine {

void CommitCounters::OnCommitted(const CommittedOp& op) noexcept {
  if (op.origin != CommitOrigin::kCaller) return;
  const auto add = [](std::atomic<uint64_t>* counter, uint64_t count) {
    counter->fetch_add(count, std::memory_order_relaxed);
  };
  switch (op.op.kind) {
    case OpKind::kAppend:
    case OpKind::kFill:
      if (op.fills) {
        add(&filled_bytes_, op.kv_bytes);
      } else {
        add(&appends_, 1);
      }
      add(&tokens_, op.ids.size());
      add(&kv_bytes_, op.kv_bytes);
      break;
    case OpKind::kFork: add(&forks_, 1); break;
    case OpKind::kRewind: add(&rewinds_, 1); break;
    case OpKind::kDrop: add(&drops_, 1); break;
    default: break;
  }
}

}  // namespace cairn::engine
