// SPDX-License-Identifier: Apache-2.0
//
// What sinks of every kind of memory share: how a record is taken apart, token ids, which always go
// to host memory, and the count of what was delivered.
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "cairn/branch.h"
#include "engine/restore/plan.h"
#include "engine/restore/sink.h"

namespace cairn::engine {

Status DamagedRecord(const wal::RecordView& record, const std::string& what);

// The range of a lane in the ops of a record that a piece names; kCorruption: it has none.
Result<const LaneRange*> RangeOfPiece(const RecordPiece& piece, std::span<const Op> ops,
                                      const wal::RecordView& record);

// Of one item.
class TokenRows {
 public:
  TokenRows(const RestorePlan& plan, std::span<TokenId> into, const StoreId& store)
      : plan_(plan), into_(into), store_(store) {}
  bool wanted() const { return !into_.empty(); }
  Status OfRecord(const RecordPiece& piece, const LaneRange& range, const wal::RecordView& record,
                  std::span<const std::byte> bytes, bool verify) const;
  // `raw`: all ids of the page.
  void OfPage(const OpenPiece& open, const FrameJob& job, std::span<const std::byte> raw) const;

 private:
  const RestorePlan& plan_;
  const std::span<TokenId> into_;
  const StoreId store_;
};

// Positions of a page that are wanted, and where its first row stands.
struct PageRowsWanted {
  uint64_t page_begin = 0, begin = 0, end = 0;
  uint32_t rows = 0;  // Of the page.
};
PageRowsWanted WantedOfPage(const OpenPiece& open, uint32_t page);

// Thread-safe.
class DeliveredCount {
 public:
  void Add(const Plane& plane, uint64_t bytes, bool of_frame, bool exact) {
    const auto count = [bytes](std::atomic<uint64_t>& to) {
      to.fetch_add(bytes, std::memory_order_relaxed);
    };
    count(bytes_);
    if (of_frame) count(frame_bytes_);
    if (of_frame && plane.sealed_as != SealedAs::kLossless) count(lossy_bytes_);
    if (!exact) count(approximate_bytes_);
  }
  Delivered Total() const {
    return {.bytes = bytes_.load(std::memory_order_relaxed),
            .frame_bytes = frame_bytes_.load(std::memory_order_relaxed),
            .lossy_bytes = lossy_bytes_.load(std::memory_order_relaxed),
            .approximate_bytes = approximate_bytes_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<uint64_t> bytes_{0}, frame_bytes_{0}, lossy_bytes_{0}, approximate_bytes_{0};
};

}  // namespace cairn::engine
