// SPDX-License-Identifier: Apache-2.0
//
// Records on their way to host memory: out of a device or the hot tail, or, slice by slice, out of
// the page cache.
#include <algorithm>
#include <cstring>
#include <functional>

#include "base/core/check.h"
#include "engine/restore/host_sink.h"
#include "engine/restore/plan/page_names.h"

namespace cairn::engine {

// A record of which something is wanted.
struct HostSink::OfRecord {
  const ReadRecord& record;
  ScratchBuffers* room;
  bool caches;  // It was read, and may be wanted again.
};

Status HostSink::Record(const RecordJob& job, const ReadBytes& read, bool verify) {
  ScratchBuffers own;  // For records that a tier has in memory.
  const auto of = [&](const ReadRecord& record) -> OfRecord {
    return {record, read.room() != nullptr ? read.room() : &own,
            cache_ != nullptr && verify && record.outline().keeps()};
  };
  const auto ids = [&](const RecordPiece& piece, const LaneRange& range, const ReadRecord& record) {
    return RecordIds(piece, range, of(record));
  };
  const auto kv = [&](const RecordPiece& piece, const LaneRange& range, const ReadRecord& record) {
    return RecordKv(piece, range, of(record));
  };
  return VisitRecord(job, read.bytes(), records_, verify, ids, kv);
}

Status HostSink::RecordIds(const RecordPiece& piece, const LaneRange& range, const OfRecord& of) {
  CAIRN_RETURN_IF_ERROR(tokens_.OfRecord(piece, range, of.record));
  if (!of.caches) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const std::span<const std::byte> ids, of.record.Strip(range.strip));
  const RecordPages names(of.record.outline().location());
  Kept kept = Keep(names.Ids(range), ids.size(), kTokenLane);
  if (kept.bytes.empty()) return Status::Ok();
  std::memcpy(kept.bytes.data(), ids.data(), ids.size());
  cache_->Insert(names.Ids(range), names.seal(), std::move(kept.bytes), kept.admission);
  return Status::Ok();
}

// Memory of the page cache, if it takes a page of this name.
HostSink::Kept HostSink::Keep(const PageName& name, uint64_t bytes, uint32_t lane) {
  Kept kept;
  kept.admission = Admit(name, bytes, lane);
  if (kept.admission != PageCache::Admission::kNo) kept.bytes = cache_->Allocate(bytes);
  return kept;
}

Status HostSink::RecordKv(const RecordPiece& piece, const LaneRange& range, const OfRecord& of) {
  LayerCounts::Target* const target = counts_.TargetOf(piece.view);
  CAIRN_CHECK(target != nullptr);
  const PositionMap map(*target->view, piece.Target(piece.begin), piece.end - piece.begin);
  // A slice is kept as a whole, if most of it was asked for.
  const bool caches = of.caches && 2 * (piece.end - piece.begin) >= range.count;
  const auto place = [&](const RecordSlice& slice) -> Status {
    const Plane& plane = target->group->planes[slice.at.plane];
    const uint64_t bytes = SliceBytes(plane, range.count);
    const RecordPages names(of.record.outline().location());
    const PageName name = names.Slice(range, SliceIndex(*target, slice.at));
    Kept kept;
    if (caches && bytes >= kPackedSliceBytesMin) kept = Keep(name, bytes, range.lane);
    if (!kept.bytes.empty()) {
      CAIRN_RETURN_IF_ERROR(UnpackSlice(slice, plane, range.count, kept.bytes.span()));
      PlaceSlice(target, piece, range, slice.at, kept.bytes.data(), map);
      cache_->Insert(name, names.seal(), std::move(kept.bytes), kept.admission);
      return Status::Ok();
    }
    if (slice.frames == nullptr) {
      PlaceSlice(target, piece, range, slice.at, slice.rows, map);
      return Status::Ok();
    }
    CAIRN_RETURN_IF_ERROR(PlacePacked(*target, piece, range, slice, of.room));
    SliceDone(target, piece, slice.at, map.count());
    return Status::Ok();
  };
  return VisitSlices(*target, range, of.record, std::ref(place));
}

size_t HostSink::SliceIndex(const LayerCounts::Target& target, const KvLayout::Slice& slice) {
  return slice.layer * target.group->planes.size() + slice.plane;
}

// `rows`: of all positions and heads of the range. `map`: of the wanted positions.
void HostSink::PlaceSlice(LayerCounts::Target* target, const RecordPiece& piece,
                          const LaneRange& range, const KvLayout::Slice& slice,
                          const std::byte* rows, const PositionMap& map) {
  const uint32_t layer = slice.layer - target->view->layer_begin;
  SourceRows wanted{rows, range.count, piece.begin - range.begin, piece.begin, piece.shift};
  if (!only_.has_value()) {
    Place(*target, layer, slice.plane, map, wanted);
  } else if (only_->plane == slice.plane) {
    Plane head = target->group->planes[slice.plane];
    head.heads = 1;
    wanted.rows += only_->head * SliceBytes(head, range.count);
    PlaceHeads(*target, {layer, slice.plane, only_->head}, 1, map, wanted);
  }
  SliceDone(target, piece, slice, map.count());
}

void HostSink::SliceDone(LayerCounts::Target* target, const RecordPiece& piece,
                         const KvLayout::Slice& slice, uint64_t count) {
  Plane plane = target->group->planes[slice.plane];
  if (only_.has_value()) plane.heads = only_->plane == slice.plane ? 1 : 0;
  delivered_.Add(plane, SliceBytes(plane, count), /*of_frame=*/false, piece.counts_as_exact());
  if (slice.plane + 1 == target->group->planes.size()) {
    LayerCounts::PieceDone(target, slice.layer - target->view->layer_begin, this);
  }
}

// Unpacks the frames that hold something wanted, each into the memory of the one before.
Status HostSink::PlacePacked(const LayerCounts::Target& target, const RecordPiece& piece,
                             const LaneRange& range, const RecordSlice& slice,
                             ScratchBuffers* room) {
  const Plane& plane = target.group->planes[slice.at.plane];
  WantedOfSlice wanted{0, plane.heads, piece.begin - range.begin, piece.end - range.begin};
  if (only_.has_value()) {
    wanted.first_head = only_->head;
    wanted.end_head = only_->plane == slice.at.plane ? only_->head + 1 : only_->head;
  }
  const auto unpack = [&](const SliceFrames::Frame& frame,
                          std::span<const std::byte> stored) -> Status {
    const WantedOfSlice here = wanted.In(frame);
    if (here.empty()) return Status::Ok();
    CAIRN_ASSIGN_OR_RETURN(const std::span<std::byte> raw, Room(room, frame.shape.raw_bytes()));
    if (const Status decoded = DecodeFrame(frame.shape, stored, raw); !decoded.ok()) {
      return slice.Damaged(decoded);
    }
    const uint64_t rows_before = (here.first_head - frame.first_head) * frame.positions;
    const PositionMap map(*target.view, piece.Target(range.begin + here.first),
                          here.end - here.first);
    PlaceHeads(target, {slice.layer, slice.at.plane, here.first_head},
               here.end_head - here.first_head, map,
               {.rows = raw.data() + rows_before * plane.row_bytes,
                .count = frame.positions,
                .first = here.first - frame.first,
                .position = range.begin + here.first,
                .shift = piece.shift});
    return Status::Ok();
  };
  return VisitFrames(slice, plane, range.count, unpack);
}

// ---------------------------------------------------------------- out of the page cache

// Calls `visit` for what a job wants of its record, a slice or (null) the ids, until it returns
// false.
template <typename Visit>
bool HostSink::ForAllOf(const RecordJob& job, const Visit& visit) {
  for (const RecordPiece& piece : job.pieces) {
    const LaneRange* const range =
        job.outline->Find(piece.op_index, piece.lane, piece.extent_begin);
    if (range == nullptr || piece.end > range->begin + range->count) return false;
    if (piece.lane == kTokenLane) {
      if (!visit(piece, *range, nullptr)) return false;
      continue;
    }
    const LayerCounts::Target* const target = counts_.TargetOf(piece.view);
    CAIRN_CHECK(target != nullptr);
    const uint32_t first_layer = target->view->layer_begin;
    const KvLayout layout(*target->group, range->count);
    for (const KvLayout::Slice& slice : layout.slices()) {
      const bool wanted =
          slice.layer >= first_layer && slice.layer < first_layer + target->pieces.size();
      if (wanted && !visit(piece, *range, &slice)) return false;
    }
  }
  return true;
}

std::optional<uint64_t> HostSink::RecordFromCache(const RecordJob& job) {
  if (cache_ == nullptr || ahead_) return std::nullopt;
  const RecordPages names(job.location);
  std::vector<PageCache::Page> pages;  // In the order of the visits.
  const bool found = ForAllOf(
      job, [&](const RecordPiece& piece, const LaneRange& range, const KvLayout::Slice* slice) {
        uint64_t bytes = range.count * sizeof(TokenId);
        PageName name = names.Ids(range);
        if (slice != nullptr) {
          const LayerCounts::Target* const target = counts_.TargetOf(piece.view);
          bytes = SliceBytes(target->group->planes[slice->plane], range.count);
          name = names.Slice(range, SliceIndex(*target, *slice));
        }
        PageCache::Page page = cache_->Find(name, names.seal());
        if (page == nullptr) return false;
        CAIRN_CHECK(page->size() == bytes);
        pages.push_back(std::move(page));
        return true;
      });
  if (!found) return std::nullopt;
  uint64_t bytes = 0;
  size_t next = 0;
  const bool placed = ForAllOf(
      job, [&](const RecordPiece& piece, const LaneRange& range, const KvLayout::Slice* slice) {
        const std::span<const std::byte> page = pages[next++]->span();
        if (slice == nullptr) {
          tokens_.OfIds(piece, range, page);
          return true;
        }
        LayerCounts::Target* const target = counts_.TargetOf(piece.view);
        const PositionMap map(*target->view, piece.Target(piece.begin), piece.end - piece.begin);
        PlaceSlice(target, piece, range, *slice, page.data(), map);
        bytes += SliceBytes(target->group->planes[slice->plane], map.count());
        return true;
      });
  CAIRN_CHECK(placed && next == pages.size());
  return bytes;
}

}  // namespace cairn::engine
