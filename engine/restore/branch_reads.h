// SPDX-License-Identifier: Apache-2.0
//
// Reading, as branches and stores offer it: what reader.h does, for a store that is open, by the
// caller or by a job. What was accepted for a branch is applied before it is read.
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
#include "engine/commit/joined_appends.h"
#include "engine/commit/write_means.h"
#include "engine/restore/layer_words.h"
#include "engine/restore/reader.h"
#include "engine/restore/restore_item.h"

namespace cairn::engine {

class BranchReads {
 public:
  // What is named outlives this.
  BranchReads(const WriteMeans& means, JoinedAppends* joined, Reader* reader)
      : means_(means), joined_(joined), reader_(*reader) {}
  BranchReads(const BranchReads&) = delete;
  BranchReads& operator=(const BranchReads&) = delete;

  void Start();  // Once the log is open.
  void Stop();   // Finishes the hints that were taken.

  Result<RestoreResult> Restore(BranchId id, const RestoreRequest& request,
                                LayerProgress* progress);
  Result<Ticket> RestoreAsync(BranchId id, const RestoreRequest& request, LayerProgress* progress);
  // Many sources at once (restore_item.h): one pipeline, one deadline. An error of its own says
  // that the store is closed; how each item went stands in it.
  Status RestoreMany(std::span<RestoreItem> items, uint64_t timeout_ns);
  // Takes the hint. kBusy when too many wait.
  Status Prefetch(BranchId id, const PrefetchRequest& request);
  Result<std::vector<TokenId>> ReadTokens(BranchId id, uint64_t begin, uint64_t end);
  Result<Branch::StateAt> StateAt(BranchId id, uint64_t position, bool sampler);

 private:
  Result<RestoreResult> RestoreLayers(BranchId id, const RestoreRequest& request,
                                      LayerWords* layers, const TicketState* ticket);
  Status PrefetchNow(BranchId id, const PrefetchRequest& request);

  const WriteMeans& means_;
  JoinedAppends* const joined_;
  Reader& reader_;
  std::atomic<uint32_t> prefetches_waiting_{0};  // Or running.
  std::unique_ptr<io::Executor> prefetcher_;     // One thread, once there is a hint.
};

}  // namespace cairn::engine
