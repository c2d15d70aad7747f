// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/sink_parts.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/core/check.h"

namespace cairn::engine {

namespace {

Status Damaged(const ReadRecord& record, const std::string& what) {
  return Status(StatusCode::kCorruption, PlaceText(record.outline().location()) + ": " + what);
}

// The range of a lane in the ops of a record that a piece names.
Result<const LaneRange*> RangeOfPiece(const RecordPiece& piece, const ReadRecord& record) {
  if (piece.op_index >= record.outline().op_count()) return Damaged(record, "an op is missing");
  const LaneRange* const range =
      record.outline().Find(piece.op_index, piece.lane, piece.extent_begin);
  if (range == nullptr || piece.end > range->begin + range->count) {
    return Damaged(record, "positions are missing");
  }
  return range;
}

}  // namespace

Result<std::span<const std::byte>> ReadRecord::Strip(size_t index) const {
  const wal::StripPlace& strip = outline_.strip(index);
  const uint64_t end = uint64_t{strip.offset} + strip.bytes;
  if (strip.offset < offset_ || end > offset_ + bytes_.size()) {
    return Damaged(*this, "a strip lies where none is expected");
  }
  const std::span<const std::byte> bytes = bytes_.subspan(strip.offset - offset_, strip.bytes);
  if (verify_) CAIRN_RETURN_IF_ERROR(outline_.VerifyStrip(index, bytes, store_));
  return bytes;
}

Status VisitRecord(const RecordJob& job, std::span<const std::byte> bytes, const RecordDeps& deps,
                   bool verify, const VisitRange& ids, const VisitRange& kv) {
  CAIRN_ASSIGN_OR_RETURN(const auto outline, deps.outlines->Of(job, bytes, deps.store));
  const ReadRecord record(*outline, bytes, job.read_offset, deps.store, verify);
  for (const RecordPiece& piece : job.pieces) {
    CAIRN_ASSIGN_OR_RETURN(const LaneRange* range, RangeOfPiece(piece, record));
    const VisitRange& visit = piece.lane == kTokenLane ? ids : kv;
    CAIRN_RETURN_IF_ERROR(visit(piece, *range, record));
  }
  return Status::Ok();
}

namespace {

// Frames of slices that the view does not want.
Status SkipFrames(const RecordSlice& slice, const Plane& plane, uint64_t count) {
  return VisitFrames(
      slice, plane, count,
      [](const SliceFrames::Frame&, std::span<const std::byte>) { return Status::Ok(); });
}

// The strips of a range, one after the other.
class StripsOfRange {
 public:
  StripsOfRange(const LayerGroup& group, const LaneRange& range, const KvLayout& layout,
                const ReadRecord& record)
      : group_(group), range_(range), layout_(layout), record_(record) {}

  // The strip that holds the slice.
  Status Enter(const KvLayout::Slice& slice) {
    if (slice.strip == taken_) return Status::Ok();
    if (packed_) CAIRN_RETURN_IF_ERROR(EndOfPacked());
    const wal::StripPlace& strip = record_.outline().strip(range_.strip + slice.strip);
    packed_ = record_.outline().IsPacked(range_.strip + slice.strip);
    if (packed_ && !std::all_of(group_.planes.begin(), group_.planes.end(), MayBePacked)) {
      return Damaged(record_, "a strip is packed, and its planes never are");
    }
    if (!packed_ && strip.bytes != layout_.strip_bytes()[slice.strip]) {
      return Damaged(record_, "a strip of KV has another size");
    }
    CAIRN_ASSIGN_OR_RETURN(bytes_, record_.Strip(range_.strip + slice.strip));
    taken_ = slice.strip;
    frames_ = StripFrames(bytes_);
    return Status::Ok();
  }
  RecordSlice Slice(const KvLayout::Slice& slice, uint32_t layer) {
    return {.at = slice,
            .layer = layer,
            .rows = packed_ ? nullptr : bytes_.data() + slice.offset,
            .frames = packed_ ? &frames_ : nullptr,
            .record = record_};
  }
  Status EndOfPacked() const {
    const Status end = frames_.End();
    return end.ok() ? end : Damaged(record_, end.ToString());
  }
  bool packed() const { return packed_; }

 private:
  const LayerGroup& group_;
  const LaneRange& range_;
  const KvLayout& layout_;
  const ReadRecord& record_;
  size_t taken_ = SIZE_MAX;
  bool packed_ = false;
  std::span<const std::byte> bytes_{};  // The strip's.
  StripFrames frames_{{}};
};

}  // namespace

Status RecordSlice::Damaged(const Status& why) const {
  const std::string place = PlaceText(record.outline().location());
  return why.code() == StatusCode::kUnsupportedFormat
             ? why.WithContext(place)
             : Status(StatusCode::kCorruption, place + ": " + why.ToString());
}

Status VisitFrames(const RecordSlice& slice, const Plane& plane, uint64_t count,
                   const std::function<Status(const SliceFrames::Frame& frame,
                                              std::span<const std::byte> stored)>& visit) {
  CAIRN_CHECK(slice.frames != nullptr);
  const SliceFrames frames(plane, count);
  for (uint32_t i = 0; i < frames.size(); ++i) {
    const SliceFrames::Frame frame = frames.At(i);
    const auto stored = slice.frames->Next(frame.shape);
    if (!stored.ok()) return slice.Damaged(stored.status());
    CAIRN_RETURN_IF_ERROR(visit(frame, *stored));
  }
  return Status::Ok();
}

Status UnpackSlice(const RecordSlice& slice, const Plane& plane, uint64_t count,
                   std::span<std::byte> into) {
  CAIRN_CHECK(into.size() == SliceBytes(plane, count));
  if (slice.frames == nullptr) {
    std::memcpy(into.data(), slice.rows, into.size());
    return Status::Ok();
  }
  return VisitFrames(
      slice, plane, count,
      [&](const SliceFrames::Frame& frame, std::span<const std::byte> stored) -> Status {
        const Status decoded =
            DecodeFrame(frame.shape, stored, into.subspan(frame.offset, frame.shape.raw_bytes()));
        return decoded.ok() ? decoded : slice.Damaged(decoded);
      });
}

Status VisitSlices(const LayerCounts::Target& target, const LaneRange& range,
                   const ReadRecord& record,
                   const std::function<Status(const RecordSlice& slice)>& visit) {
  const GroupView& view = *target.view;
  const KvLayout layout(*target.group, range.count);
  if (range.strip + layout.strip_bytes().size() > record.outline().strip_count()) {
    return Damaged(record, "strips of KV are missing");
  }
  StripsOfRange strips(*target.group, range, layout, record);
  // Small slices share a strip. The frames before those of a wanted slice must be walked over.
  const size_t end_layer = view.layer_begin + target.pieces.size();
  size_t first_strip = SIZE_MAX;
  for (const KvLayout::Slice& slice : layout.slices()) {
    if (slice.layer == view.layer_begin) first_strip = std::min<size_t>(first_strip, slice.strip);
  }
  for (const KvLayout::Slice& slice : layout.slices()) {
    if (slice.strip < first_strip) continue;
    if (slice.layer >= end_layer) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(strips.Enter(slice));
    const bool wanted = slice.layer >= view.layer_begin;
    const RecordSlice one = strips.Slice(slice, wanted ? slice.layer - view.layer_begin : 0);
    if (wanted) {
      CAIRN_RETURN_IF_ERROR(visit(one));
    } else if (strips.packed()) {
      CAIRN_RETURN_IF_ERROR(SkipFrames(one, target.group->planes[slice.plane], range.count));
    }
  }
  return strips.packed() ? strips.EndOfPacked() : Status::Ok();
}

Status TokenRows::OfRecord(const RecordPiece& piece, const LaneRange& range,
                           const ReadRecord& record) const {
  if (range.strip >= record.outline().strip_count() ||
      record.outline().strip(range.strip).bytes != range.count * sizeof(TokenId)) {
    return Damaged(record, "the strip of token ids does not fit");
  }
  CAIRN_ASSIGN_OR_RETURN(const std::span<const std::byte> ids, record.Strip(range.strip));
  OfIds(piece, range, ids);
  return Status::Ok();
}

void TokenRows::OfIds(const RecordPiece& piece, const LaneRange& range,
                      std::span<const std::byte> ids) const {
  std::memcpy(into_.data() + (piece.Target(piece.begin) - plan_.begin),
              ids.data() + (piece.begin - range.begin) * sizeof(TokenId),
              (piece.end - piece.begin) * sizeof(TokenId));
}

void TokenRows::OfPage(const OpenPiece& open, const FrameJob& job,
                       std::span<const std::byte> raw) const {
  if (!wanted()) return;
  const PageRowsWanted page = WantedOfPage(open, job.page);
  std::memcpy(into_.data() + (open.piece.Target(page.begin) - plan_.begin),
              raw.data() + (page.begin - page.page_begin) * sizeof(TokenId),
              (page.end - page.begin) * sizeof(TokenId));
}

PageRowsWanted WantedOfPage(const OpenPiece& open, uint32_t page) {
  PageRowsWanted wanted;
  wanted.rows = open.fragment.rows(page);
  wanted.page_begin = open.fragment.begin + uint64_t{page} * open.fragment.page_rows;
  wanted.begin = std::max(open.piece.begin, wanted.page_begin);
  wanted.end = std::min(open.piece.end, wanted.page_begin + wanted.rows);
  return wanted;
}

}  // namespace cairn::engine
