// SPDX-License-Identifier: Apache-2.0
//
// The reads that branches and stores offer: those of reader.h, for an open store, by the caller or
// as a job. Accepted appends of a branch are applied before it is read.
//
// Thread-safe, but for Start and Stop. No lock may be held around the calls. Errors: those of
// Branch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/io/executor.h"
#include "base/io/world.h"
#include "cairn/branch.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"
#include "engine/restore/plan/layer_words.h"
#include "engine/restore/plan/restore_item.h"
#include "engine/restore/reader.h"

namespace cairn::engine {

class BranchReads {
 public:
  // The referenced objects outlive this.
  BranchReads(const WriteDeps& deps, CoalescedAppends* coalesced, Reader* reader)
      : deps_(deps), coalesced_(coalesced), reader_(*reader) {}
  BranchReads(const BranchReads&) = delete;
  BranchReads& operator=(const BranchReads&) = delete;

  void Start();  // Once the log is open.
  void Stop();   // Finishes the prefetches that were accepted.

  Result<RestoreResult> Restore(BranchId id, const RestoreRequest& request,
                                LayerProgress* progress);
  Result<Ticket> RestoreAsync(BranchId id, const RestoreRequest& request, LayerProgress* progress);
  // Reads many sources at once (restore_item.h): one pipeline, one deadline. Returns an error only
  // if the store is closed; the result of each item is in the item.
  Status RestoreMany(std::span<RestoreItem> items, uint64_t timeout_ns);
  // Accepts a prefetch. kBusy when too many wait.
  Status Prefetch(BranchId id, const PrefetchRequest& request);
  Result<std::vector<TokenId>> ReadTokens(BranchId id, uint64_t begin, uint64_t end);
  Result<Branch::StateAt> StateAt(BranchId id, uint64_t position, bool sampler);

 private:
  Result<RestoreResult> RestoreLayers(BranchId id, const RestoreRequest& request,
                                      LayerWords* layers, const TicketState* ticket);
  Status PrefetchNow(BranchId id, const PrefetchRequest& request);

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
  Reader& reader_;
  std::atomic<uint32_t> prefetches_waiting_{0};  // Or running.
  std::unique_ptr<io::Executor> prefetcher_;     // One thread, started by the first prefetch.
};

}  // namespace cairn::engine
