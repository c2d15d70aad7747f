// SPDX-License-Identifier: Apache-2.0
#include "engine/background/table_callbacks.h"

#include "base/core/check.h"
#include "engine/background/index_flusher.h"

namespace cairn::engine {

Status IndexTableCallbacks::TakeSpace(uint64_t bytes) {
  if (deps_.rate_limiter->working()) {
    // A merge reads about what it writes.
    CAIRN_RETURN_IF_ERROR(deps_.rate_limiter->Take(bytes, bytes));
    CAIRN_RETURN_IF_ERROR(flusher_->FlushTreeIfDue());
  }
  return ReclaimTableCallbacks::TakeSpace(bytes);
}

Status DataTableCallbacks::TakeSpace(uint64_t bytes) {
  const Status taken = deps_.ledger->Take(bytes, wal::Purpose::kData);
  watcher_->OnRefused(taken);
  return taken;
}

void DataTableCallbacks::ReturnSpace(uint64_t bytes) {
  ReclaimTableCallbacks::ReturnSpace(bytes);
  watcher_->OnFreed();
}

}  // namespace cairn::engine
