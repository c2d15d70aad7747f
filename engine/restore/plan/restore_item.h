// SPDX-License-Identifier: Apache-2.0
//
// One of several restores that share a pipeline and a deadline: its sources, its target, and its
// result. Damage or cancellation of one item does not affect the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/core/mutex.h"
#include "cairn/restore.h"
#include "engine/commit/ticket.h"
#include "engine/restore/plan/layer_words.h"
#include "engine/restore/plan/plan.h"
#include "engine/restore/plan/sink.h"

namespace cairn::engine {

struct HeadOfPlane {
  uint32_t plane = 0, head = 0;
};

struct RestoreItem {
  // --- Input. Borrowed until the call returns.
  BranchId branch{};         // Its source; or, if `node` is not 0, ...
  NodeId node{};             // ... the path that ends with the last position of this node.
  RestoreRequest request{};  // Range, ids, view, GpuSync; nothing else of it.
  // Several sources, or one that is shifted, instead of `branch`, `node` and the request's range.
  // All or nothing: what one of them lacks fails the item. Ids begin with the first position of the
  // view that a source has.
  std::vector<RestoreSource> sources{};
  // Off: keys of shifted sources come as they are stored.
  bool turns_keys = true;
  // Updated as layers complete; the caller calls its End. Null: progress is not reported.
  LayerWords* layers = nullptr;
  const TicketState* ticket = nullptr;  // Its Cancel ends this item. Null: none.
  bool counts = true;                   // As a restore, in the metrics.
  // Restores only this head's KV, for the one layer of a view of host memory. Memory of the view's
  // other planes and heads is not touched, and need not exist. No page of it is cached for others.
  std::optional<HeadOfPlane> only{};
  // Called under the commit lock before each plan: a reader makes a new plan, from a new tree, when
  // its writer has moved files. An error ends the item. Null: any tree will do.
  std::function<Status(const Tree&)> may_plan{};

  // --- Output
  Status status{};
  RestoreResult result{};  // If `status` is Ok. In positions of the view.
};

// The progress of an item while several threads work on it. Thread-safe.
class ItemOutcome {
 public:
  // Adds reads that it needs: records, small fragments, frames of large ones.
  void Expect(uint64_t jobs) { left_.fetch_add(jobs, std::memory_order_relaxed); }
  void JobDone() { left_.fetch_sub(1, std::memory_order_acq_rel); }
  // Whether content at `position` is still worth reading.
  bool Wants(uint64_t position) {
    if (ended_.load(std::memory_order_acquire) || Cancelled()) return false;
    const uint64_t restorable = restorable_.load(std::memory_order_relaxed);
    return restorable == UINT64_MAX || position < restorable;
  }
  // Damage costs everything behind it: the first position that cannot be read is the limit. Content
  // before it is still checked, since it may be damaged as well.
  void Fail(const Status& status, uint64_t restorable);
  // It failed: no more work is done for it. The first of several errors counts.
  void End(Status status);
  // No more work is done for it; it fails with `status` if it lacks something.
  void Stop(Status status);
  // Stops it when its ticket was cancelled.
  bool Cancelled();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  Status status() const;

  // Set before other threads see it.
  const TicketState* ticket = nullptr;
  bool has_positions = true;  // Known to the caller, so that its damage says how far it is whole.

 private:
  std::atomic<uint64_t> left_{0};
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> restorable_{UINT64_MAX};  // The first position found damaged.
  mutable Mutex mutex_;
  Status status_ CAIRN_GUARDED_BY(mutex_);
};

class GpuTarget;

// Where an item's content came from.
struct Hits {
  uint64_t hot_records = 0, hot_bytes = 0, log_records = 0;
  uint64_t cached_frames = 0;  // Out of the page cache.
  uint64_t pinned_frames = 0, pinned_bytes = 0;
};

// An item under way. Its plan stays pinned.
struct ItemRun {
  RestorePlan plan{};
  std::vector<OpenPiece> open{};  // The fragments of plan.sealed.
  // By record of the plan: 1 once a tier has delivered it. Empty: none.
  std::vector<uint8_t> have{};
  std::optional<HeadOfPlane> only{};
  std::unique_ptr<RestoreSink> sink{};
  GpuTarget* gpu = nullptr;      // Its target; null: host memory.
  PinnedTaker* taker = nullptr;  // The sink, if it takes pinned frames.
  ItemOutcome outcome{};
  Hits hits{};
  // KV that came out of the page cache: of tables, and of records.
  std::atomic<uint64_t> cached_bytes{0}, cached_record_bytes{0};

  bool HasRecord(size_t index) const { return !have.empty() && have[index] != 0; }
  void SetHasRecord(size_t index) {
    if (have.empty()) have.resize(plan.jobs.size());
    have[index] = 1;
  }
};

}  // namespace cairn::engine
