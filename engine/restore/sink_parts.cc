// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/sink_parts.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/core/check.h"

namespace cairn::engine {

namespace {

Status Damaged(const ReadRecord& record, const std::string& what) {
  return Status(StatusCode::kCorruption, PlaceText(record.view.location) + ": " + what);
}

// The range of a lane in the ops of a record that a piece names.
Result<const LaneRange*> RangeOfPiece(const RecordPiece& piece, std::span<const Op> ops,
                                      const ReadRecord& record) {
  if (piece.op_index >= ops.size()) return Damaged(record, "an op is missing");
  const LaneRange* range = nullptr;
  for (const LaneRange& lane : ops[piece.op_index].lanes) {
    if (lane.lane == piece.lane && lane.begin == piece.extent_begin) range = &lane;
  }
  if (range == nullptr || piece.end > range->begin + range->count) {
    return Damaged(record, "positions are missing");
  }
  return range;
}

}  // namespace

Status VisitRecord(
    const RecordJob& job, std::span<const std::byte> bytes, const StoreId& store, bool verify,
    const TokenRows& tokens,
    const std::function<Status(const RecordPiece&, const LaneRange&, const ReadRecord&)>& kv) {
  CAIRN_ASSIGN_OR_RETURN(const wal::RecordView view, wal::ParseRecord(bytes, job.location, store));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Op> ops, DecodeRecord(view));
  const ReadRecord record{view, bytes, store, verify};
  for (const RecordPiece& piece : job.pieces) {
    CAIRN_ASSIGN_OR_RETURN(const LaneRange* range, RangeOfPiece(piece, ops, record));
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
  if (range.strip + layout.strip_bytes().size() > record.view.strip_count()) {
    return Damaged(record, "strips of KV are missing");
  }
  size_t verified = SIZE_MAX;
  for (const KvLayout::Slice& slice : layout.slices()) {
    if (slice.layer < view.layer_begin) continue;
    const uint32_t layer = slice.layer - view.layer_begin;
    if (layer >= target.pieces.size()) break;
    const size_t strip = range.strip + slice.strip;
    if (strip != verified) {
      if (record.view.strip(strip).bytes != layout.strip_bytes()[slice.strip]) {
        return Damaged(record, "a strip of KV has another size");
      }
      if (record.verify) {
        CAIRN_RETURN_IF_ERROR(record.view.VerifyStrip(record.bytes, strip, record.store));
      }
      verified = strip;
    }
    const std::byte* const rows =
        record.bytes.data() + record.view.strip_offset(strip) + slice.offset;
    CAIRN_RETURN_IF_ERROR(visit(slice, layer, rows));
  }
  return Status::Ok();
}

Status TokenRows::OfRecord(const RecordPiece& piece, const LaneRange& range,
                           const ReadRecord& record) const {
  if (range.strip >= record.view.strip_count() ||
      record.view.strip(range.strip).bytes != range.count * sizeof(TokenId)) {
    return Damaged(record, "the strip of token ids does not fit");
  }
  if (record.verify) {
    CAIRN_RETURN_IF_ERROR(record.view.VerifyStrip(record.bytes, range.strip, record.store));
  }
  const std::byte* ids = record.bytes.data() + record.view.strip_offset(range.strip);
  std::memcpy(into_.data() + (piece.begin - plan_.begin),
              ids + (piece.begin - range.begin) * sizeof(TokenId),
              (piece.end - piece.begin) * sizeof(TokenId));
  return Status::Ok();
}

void TokenRows::OfPage(const OpenPiece& open, const FrameJob& job,
                       std::span<const std::byte> raw) const {
  if (!wanted()) return;
  const PageRowsWanted page = WantedOfPage(open, job.page);
  std::memcpy(into_.data() + (page.begin - plan_.begin),
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
