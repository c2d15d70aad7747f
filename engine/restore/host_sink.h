// SPDX-License-Identifier: Apache-2.0
//
// The sink of a restore into host memory. Copies at once: token ids and KV to where the request
// wants them, and unpacked frames into the page cache as well. It keeps no buffer.
#pragma once

#include <optional>

#include "base/codec/kv_copy.h"
#include "engine/commit/kv_layout.h"
#include "engine/restore/plan/key_turns.h"
#include "engine/restore/plan/layer_counts.h"
#include "engine/restore/plan/layer_words.h"
#include "engine/restore/plan/page_cache.h"
#include "engine/restore/plan/restore_item.h"
#include "engine/restore/plan/sink.h"
#include "engine/restore/plan/sink_parts.h"

namespace cairn::engine {

class HostSink final : public RestoreSink {
 public:
  // `open`: all fragments whose frames will come; their entries may be filled in meanwhile.
  // `layers` null: progress is not reported. `cache` null: no frame is kept. `ahead`: a prefetch,
  // which has no target; everything is unpacked for the cache alone. `only`: see RestoreItem.
  // kInvalidArgument: see KeyTurns::Make.
  static Result<std::unique_ptr<HostSink>> Make(const RestorePlan& plan,
                                                const RestoreRequest& request,
                                                const RecordDeps& records, LayerWords* layers,
                                                std::span<const OpenPiece> open, PageCache* cache,
                                                bool ahead, std::optional<HeadOfPlane> only);

  Status Record(const RecordJob& job, const ReadBytes& record, bool verify) override;
  Status Frame(const FrameJob& job, const ReadBytes& stored) override;
  Status Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) override;
  std::optional<uint64_t> RecordFromCache(const RecordJob& job) override;
  uint64_t Unpacked(const FrameJob& job, const ReadBytes& raw) override {
    return Scatter(job, raw.bytes());
  }
  void LayerDone(size_t layer) override {
    if (layers_ != nullptr) layers_->Complete(layer);
  }
  bool Reclaim(uint64_t /*deadline_ns*/) override { return false; }
  Status WindowDone(size_t /*buffer*/) override { return Status::Ok(); }
  Status Finish() override { return Status::Ok(); }
  Delivered delivered() const override { return delivered_.Total(); }

 private:
  HostSink(const RestorePlan& plan, const RestoreRequest& request, const RecordDeps& records,
           LayerWords* layers, std::span<const OpenPiece> open, PageCache* cache, bool ahead,
           std::optional<HeadOfPlane> only);
  // --- Records: host_sink_records.cc
  struct OfRecord;
  struct Kept {
    PageCache::Admission admission = PageCache::Admission::kNo;
    AlignedBuffer bytes{};
  };
  Status RecordIds(const RecordPiece& piece, const LaneRange& range, const OfRecord& of);
  Status RecordKv(const RecordPiece& piece, const LaneRange& range, const OfRecord& of);
  Kept Keep(const PageName& name, uint64_t bytes, uint32_t lane);
  static size_t SliceIndex(const LayerCounts::Target& target, const KvLayout::Slice& slice);
  void PlaceSlice(LayerCounts::Target* target, const RecordPiece& piece, const LaneRange& range,
                  const KvLayout::Slice& slice, const std::byte* rows, const PositionMap& map);
  void SliceDone(LayerCounts::Target* target, const RecordPiece& piece,
                 const KvLayout::Slice& slice, uint64_t count);
  Status PlacePacked(const LayerCounts::Target& target, const RecordPiece& piece,
                     const LaneRange& range, const RecordSlice& slice, ScratchBuffers* room);
  template <typename Visit>
  bool ForAllOf(const RecordJob& job, const Visit& visit);

  Status Unpack(const FrameJob& job, std::span<const std::byte> stored,
                std::span<std::byte> raw) const;
  // Scatters an unpacked frame. Returns the KV bytes that were wanted of it.
  uint64_t Scatter(const FrameJob& job, std::span<const std::byte> raw);
  uint64_t ScatterKv(const FrameJob& job, std::span<const std::byte> raw);
  // Rows of `count` positions, of which those from `first` on are wanted. The first wanted one is
  // at `position` of its source, whose positions are moved by `shift`.
  struct SourceRows {
    const std::byte* rows;
    uint64_t count, first;
    uint64_t position;
    int64_t shift;
  };
  // To their places, turned where they must be. `layer` is that of the view.
  void Place(const LayerCounts::Target& target, uint32_t layer, uint32_t plane,
             const PositionMap& map, const SourceRows& rows) const;
  static void PlaceRows(const Plane& plane, const PlaneView& view, uint32_t layer,
                        const PositionMap& map, const SourceRows& rows,
                        const KeyTurns::Shifted* turns);
  // The same for some heads, from `at.head` on.
  void PlaceHeads(const LayerCounts::Target& target, const HeadSlice& at, uint32_t heads,
                  const PositionMap& map, const SourceRows& rows) const;
  static Result<std::span<std::byte>> Room(ScratchBuffers* room, uint64_t bytes);
  PageCache::Admission Admit(const PageName& name, uint64_t bytes, uint32_t lane);

  const RecordDeps records_;
  const TokenRows tokens_;
  LayerWords* const layers_;
  const std::span<const OpenPiece> open_;
  std::unique_ptr<KeyTurns> turns_;
  LayerCounts counts_;
  PageCache* const cache_;
  const bool ahead_;
  const std::optional<HeadOfPlane> only_;
  DeliveredCount delivered_;
};

}  // namespace cairn::engine
