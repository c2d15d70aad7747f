// SPDX-License-Identifier: Apache-2.0
//
// One restore of several that share a plan, a pipeline and a deadline: where it is read from, where
// it goes, and how it went. What one item meets, damage or its cancellation, is not the others'.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/core/mutex.h"
#include "cairn/branch.h"
#include "engine/commit/ticket.h"
#include "engine/restore/layer_words.h"
#include "engine/restore/plan.h"
#include "engine/restore/sink.h"

namespace cairn::engine {

struct HeadOfPlane {
  uint32_t plane = 0, head = 0;
};

struct RestoreItem {
  // --- Asked. Borrowed until the call returns.
  BranchId branch{};         // Where it is read from; or, if `node` is not 0, ...
  NodeId node{};             // ... the path that ends with the last position of this node.
  RestoreRequest request{};  // Its range, in positions of the source, and its view. No more of it.
  int64_t shift = 0;         // Position p of the source goes where the view has p + shift.
  // Completed as it goes on; their End is the caller's. Null: nobody looks how far it is.
  LayerWords* layers = nullptr;
  const TicketState* ticket = nullptr;  // Its Cancel ends this item. Null: nothing does.
  bool counts = true;                   // As a restore, among the metrics.
  // Of KV nothing but this head, of the one layer of a view of host memory; memory of the view's
  // other planes and heads is not touched, and need not be there. No page of it is kept for others.
  std::optional<HeadOfPlane> only{};
  // Asked under the commit lock before each plan, for a reader plans anew, by another tree, where
  // its writer has moved files. An error ends the item. Null: any tree will do.
  std::function<Status(const Tree&)> may_plan{};

  // --- Told
  Status status{};
  RestoreResult result{};  // If that is Ok. In positions of the source.
};

// How an item goes, while several threads work on it. Thread-safe.
class ItemOutcome {
 public:
  // What it needs, one each: records, small fragments, frames of large ones.
  void Expect(uint64_t jobs) { left_.fetch_add(jobs, std::memory_order_relaxed); }
  void JobDone() { left_.fetch_sub(1, std::memory_order_acq_rel); }
  // Whether what lies at `position` is still worth reading.
  bool Wants(uint64_t position) {
    if (ended_.load(std::memory_order_acquire) || Cancelled()) return false;
    const uint64_t restorable = restorable_.load(std::memory_order_relaxed);
    return restorable == UINT64_MAX || position < restorable;
  }
  // Damage costs what lies behind it: the first position that cannot be had is the limit. What
  // begins before it is still looked at, since it may be damaged as well.
  void Fail(const Status& status, uint64_t restorable);
  // It failed: nothing more of it is looked at. Of several the first counts.
  void End(Status status);
  // Nothing more of it is looked at, and if it lacks something it failed so.
  void Stop(Status status);
  // Stops it when its ticket was cancelled.
  bool Cancelled();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  Status status() const;

  // Set before others look.
  const TicketState* ticket = nullptr;
  bool has_positions = true;  // Of use to a caller, so that its damage says how far it is whole.

 private:
  std::atomic<uint64_t> left_{0};
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> restorable_{UINT64_MAX};  // The first position found damaged.
  mutable Mutex mutex_;
  Status status_ CAIRN_GUARDED_BY(mutex_);
};

class GpuTarget;

// Where what an item was given came from.
struct Hits {
  uint64_t hot_records = 0, hot_bytes = 0, log_records = 0;
  uint64_t cached_frames = 0;  // Out of the page cache.
  uint64_t pinned_frames = 0, pinned_bytes = 0;
};

// An item under way. Its plan stays pinned.
struct ItemRun {
  RestorePlan plan{};
  std::vector<OpenPiece> open{};  // The fragments of plan.sealed.
  std::vector<uint8_t> have{};    // By record of the plan: 1 once a tier had it. Empty: none.
  std::optional<HeadOfPlane> only{};
  std::unique_ptr<RestoreSink> sink{};
  GpuTarget* gpu = nullptr;      // Where it goes; null: host memory.
  PinnedTaker* taker = nullptr;  // The sink, if it takes what is pinned.
  ItemOutcome outcome{};
  Hits hits{};
  std::atomic<uint64_t> cached_bytes{0};  // Of KV, out of the page cache.

  bool HasRecord(size_t index) const { return !have.empty() && have[index] != 0; }
  void SetHasRecord(size_t index) {
    if (have.empty()) have.resize(plan.jobs.size());
    have[index] = 1;
  }
};

}  // namespace cairn::engine
