// SPDX-License-Identifier: Apache-2.0
//
// Puts the pieces of one record or frame where the caller wants them. One Scatterer serves one
// restore; its methods may run for different ones at once, since they hold different positions.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/commit/kv_layout.h"
#include "engine/restore/page_cache.h"
#include "engine/restore/plan.h"

namespace cairn::engine {

class Scatterer {
 public:
  // `open`: all whose frames will be scattered; they may get their entries meanwhile. `cache` may
  // be null. `prefetch`: the request has no room, and all is unpacked for the cache alone.
  Scatterer(const RestorePlan& plan, const RestoreRequest& request, const StoreId& store,
            LayerProgress* progress, std::span<const OpenPiece> open, PageCache* cache,
            bool prefetch);

  // `record` holds job.read_bytes of the record. `verify`: it came from a device, so every strip is
  // checked before a byte of it is copied. kCorruption names segment and offset.
  Status Scatter(const RecordJob& job, std::span<const std::byte> record, bool verify);
  // `stored` are the bytes of the frame as they came from the device. kCorruption names the file.
  Status ScatterFrame(const FrameJob& job, std::span<const std::byte> stored);
  // Of a small OpenPiece, whose entries were read: `stored` is the whole fragment. On failure
  // `first_position` is set to the first that cannot be had.
  Status ScatterFragment(size_t piece, std::span<const std::byte> stored, uint64_t* first_position);
  // False when it is not in the cache: a frame, or a small fragment.
  bool ScatterCached(const FrameJob& job);
  bool ScatterCachedFragment(size_t piece);
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t frame_bytes() const { return frame_bytes_.load(std::memory_order_relaxed); }
  uint64_t cached_bytes() const { return cached_bytes_.load(std::memory_order_relaxed); }
  uint64_t lossy_bytes() const { return lossy_bytes_.load(std::memory_order_relaxed); }
  // Groups of which nothing was wanted are complete from the start.
  void FinishEmptyLayers();

 private:
  struct GroupTarget {
    const GroupView* view;
    const LayerGroup* group;
    size_t first_progress;                      // Index in LayerProgress of its first layer.
    std::vector<std::atomic<uint64_t>> pieces;  // Left to do, by layer of the view.
  };
  Status ScatterTokens(const RecordPiece& piece, const LaneRange& range,
                       const wal::RecordView& record, std::span<const std::byte> bytes,
                       bool verify);
  Status ScatterKv(const RecordPiece& piece, const LaneRange& range, const wal::RecordView& record,
                   std::span<const std::byte> bytes, bool verify);
  Status Unpack(const FrameJob& job, std::span<const std::byte> stored,
                std::span<std::byte> raw) const;
  // A frame that is unpacked. The KV bytes that it was wanted for.
  uint64_t ScatterRaw(const FrameJob& job, std::span<const std::byte> raw);
  uint64_t ScatterRawTokens(const FrameJob& job, std::span<const std::byte> raw);
  uint64_t ScatterRawKv(const FrameJob& job, std::span<const std::byte> raw);
  PageCache::Admission Admit(const PageName& name, uint64_t bytes);
  GroupTarget* TargetOf(uint32_t lane);
  void LayerDone(GroupTarget* target, uint32_t layer);

  const RestorePlan& plan_;
  const RestoreRequest& request_;
  const StoreId store_;
  LayerProgress* const progress_;
  const std::span<const OpenPiece> open_;
  std::vector<std::unique_ptr<GroupTarget>> targets_;
  PageCache* const cache_;
  const bool prefetch_;
  bool large_ = false;  // More frames than the cache takes in at first sight.
  // KV; of that out of frames; of these out of the cache; of planes that are not sealed without
  // loss.
  std::atomic<uint64_t> bytes_{0}, frame_bytes_{0}, cached_bytes_{0}, lossy_bytes_{0};
};

}  // namespace cairn::engine
