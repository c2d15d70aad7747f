// SPDX-License-Identifier: Apache-2.0
//
// WriteBatch: several ops in one record, so that the log keeps or loses them together.
#pragma once

#include <vector>

#include "cairn/write_batch.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

struct WrittenBatch {
  std::vector<BranchId> created;  // In the order of its creates and forks.
  Ticket ticket;
};

// `store`: the store whose branches the batch may name. Thread-safe; no lock may be held. Errors:
// those of Store::Write; then nothing of the batch was applied. After it is applied nothing is
// allocated.
Result<WrittenBatch> CommitBatch(const WriteDeps& deps, CoalescedAppends* coalesced,
                                 const StoreCore* store, const WriteBatch& batch,
                                 const AppendOptions& options);

}  // namespace cairn::engine
