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

Status VisitRecord(
    const RecordJob& job, std::span<const std::byte> bytes, const RecordDeps& deps, bool verify,
    const TokenRows& tokens,
    const std::function<Status(const RecordPiece&, const LaneRange&, const ReadRecord&)>& kv) {
  CAIRN_ASSIGN_OR_RETURN(const auto outline, deps.outlines->Of(job, bytes, deps.store));
  const ReadRecord record(*outline, bytes, job.read_offset, deps.store, verify);
  for (const RecordPiece& piece : job.pieces) {
    CAIRN_ASSIGN_OR_RETURN(const LaneRange* range, RangeOfPiece(piece, record));
    CAIRN_RETURN_IF_ERROR(piece.lane == kTokenLane ? tokens.OfRecord(piece, *range, record)
                                                   : kv(piece, *range, record));
  }
  return Status::Ok();
}

Status VisitSlices(const LayerCounts::Target& target, const LaneRange& range,
                   const ReadRecord& record,
                   const std::function<Status(const KvLayout::Slice& slice, uint32_t layer,
                                              const std::byte* rows)>& visit) {
  const GroupView& view = *target.view;
  const KvLayout layout(*target.group, range.count);
  if (range.strip + layout.strip_bytes().size() > record.outline().strip_count()) {
    return Damaged(record, "strips of KV are missing");
  }
  size_t taken = SIZE_MAX;
  std::span<const std::byte> bytes;  // The strip's bytes.
  for (const KvLayout::Slice& slice : layout.slices()) {
    if (slice.layer < view.layer_begin) continue;
    const uint32_t layer = slice.layer - view.layer_begin;
    if (layer >= target.pieces.size()) break;
    const size_t strip = range.strip + slice.strip;
    if (strip != taken) {
      if (record.outline().strip(strip).bytes != layout.strip_bytes()[slice.strip]) {
        return Damaged(record, "a strip of KV has another size");
      }
      CAIRN_ASSIGN_OR_RETURN(bytes, record.Strip(strip));
      taken = strip;
    }
    CAIRN_RETURN_IF_ERROR(visit(slice, layer, bytes.data() + slice.offset));
  }
  return Status::Ok();
}

Status TokenRows::OfRecord(const RecordPiece& piece, const LaneRange& range,
                           const ReadRecord& record) const {
  if (range.strip >= record.outline().strip_count() ||
      record.outline().strip(range.strip).bytes != range.count * sizeof(TokenId)) {
    return Damaged(record, "the strip of token ids does not fit");
  }
  CAIRN_ASSIGN_OR_RETURN(const std::span<const std::byte> ids, record.Strip(range.strip));
  std::memcpy(into_.data() + (piece.Target(piece.begin) - plan_.begin),
              ids.data() + (piece.begin - range.begin) * sizeof(TokenId),
              (piece.end - piece.begin) * sizeof(TokenId));
  return Status::Ok();
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
