// SPDX-License-Identifier: Apache-2.0
//
// Shared by sinks of every kind of memory: taking a record apart, token ids, which always go to
// host memory, and counting what was delivered.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "cairn/branch_types.h"
#include "engine/commit/kv_layout.h"
#include "engine/commit/slice_frames.h"
#include "engine/restore/plan/layer_counts.h"
#include "engine/restore/plan/plan.h"
#include "engine/restore/plan/record_outline.h"
#include "engine/restore/plan/sink.h"

namespace cairn::engine {

// By what records are taken apart.
struct RecordDeps {
  StoreId store;
  RecordOutlines* outlines = nullptr;
};

// A record, or the strips of it that a job wants, as they were read.
class ReadRecord {
 public:
  // `bytes` begin `offset` behind the start of the record. `verify`: they came from a device, so
  // every strip is checked before any byte of it is used.
  ReadRecord(const RecordOutline& outline, std::span<const std::byte> bytes, uint32_t offset,
             const StoreId& store, bool verify)
      : outline_(outline), bytes_(bytes), offset_(offset), store_(store), verify_(verify) {}

  const RecordOutline& outline() const { return outline_; }
  // Which must exist. kCorruption: it is damaged, or the job did not want it.
  Result<std::span<const std::byte>> Strip(size_t index) const;

 private:
  const RecordOutline& outline_;
  const std::span<const std::byte> bytes_;
  const uint32_t offset_;
  const StoreId& store_;
  const bool verify_;
};

// One for each item.
class TokenRows {
 public:
  TokenRows(const RestorePlan& plan, std::span<TokenId> into) : plan_(plan), into_(into) {}
  bool wanted() const { return !into_.empty(); }
  Status OfRecord(const RecordPiece& piece, const LaneRange& range, const ReadRecord& record) const;
  // `ids`: those of the range.
  void OfIds(const RecordPiece& piece, const LaneRange& range,
             std::span<const std::byte> ids) const;
  // `raw`: all ids of the page.
  void OfPage(const OpenPiece& open, const FrameJob& job, std::span<const std::byte> raw) const;

 private:
  const RestorePlan& plan_;
  const std::span<TokenId> into_;
};

using VisitRange = std::function<Status(const RecordPiece&, const LaneRange&, const ReadRecord&)>;
// Takes a record apart: its ids go to `ids`, each piece of KV to `kv`. kCorruption names segment
// and offset.
Status VisitRecord(const RecordJob& job, std::span<const std::byte> bytes, const RecordDeps& deps,
                   bool verify, const VisitRange& ids, const VisitRange& kv);
// One plane of one layer of a range: its rows, or its frames.
struct RecordSlice {
  const KvLayout::Slice& at;
  uint32_t layer = 0;               // The view's.
  const std::byte* rows = nullptr;  // [head][position][row], for all positions of the range; or
  StripFrames* frames = nullptr;    // they are packed. Then the visitor takes all of them.
  // Why a frame cannot be used, with the place of its record.
  Status Damaged(const Status& why) const;

  const ReadRecord& record;
};
// The slices of a range that the target's view wants, in order.
Status VisitSlices(const LayerCounts::Target& target, const LaneRange& range,
                   const ReadRecord& record,
                   const std::function<Status(const RecordSlice& slice)>& visit);
// The frames of a packed slice in order, as they are stored.
Status VisitFrames(const RecordSlice& slice, const Plane& plane, uint64_t count,
                   const std::function<Status(const SliceFrames::Frame& frame,
                                              std::span<const std::byte> stored)>& visit);

// All rows of a slice of `count` positions, as they are before they are packed.
Status UnpackSlice(const RecordSlice& slice, const Plane& plane, uint64_t count,
                   std::span<std::byte> into);

// The wanted positions of a page, and where its first row lies.
struct PageRowsWanted {
  uint64_t page_begin = 0, begin = 0, end = 0;
  uint32_t rows = 0;  // The page's.
};
PageRowsWanted WantedOfPage(const OpenPiece& open, uint32_t page);

// Calls `frame` for every wanted frame of a small fragment, page by page; on an error
// `first_position` is set as by RestoreSink::Fragment.
template <typename Frame>
Status VisitFragment(const OpenPiece& open, size_t piece, const ReadBytes& stored,
                     uint64_t* first_position, const Frame& frame) {
  for (uint32_t page = open.first_page; page < open.end_page; ++page) {
    for (uint32_t slice = open.first_slice; slice < open.end_slice; ++slice) {
      const sstable::FrameEntry& entry = open.entry(slice, page);
      Status status = frame(FrameJob{piece, slice, page},
                            stored.Part(entry.offset - open.fragment.offset, entry.stored_bytes));
      if (status.ok()) continue;
      *first_position = open.FirstPosition(page);
      return status;
    }
  }
  return Status::Ok();
}

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
