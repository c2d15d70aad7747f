// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/sink_parts.h"

#include <algorithm>
#include <cstring>

namespace cairn::engine {

Status DamagedRecord(const wal::RecordView& record, const std::string& what) {
  return Status(StatusCode::kCorruption, PlaceText(record.location) + ": " + what);
}

Result<const LaneRange*> RangeOfPiece(const RecordPiece& piece, std::span<const Op> ops,
                                      const wal::RecordView& record) {
  if (piece.op_index >= ops.size()) return DamagedRecord(record, "an op is missing");
  const LaneRange* range = nullptr;
  for (const LaneRange& lane : ops[piece.op_index].lanes) {
    if (lane.lane == piece.lane && lane.begin == piece.extent_begin) range = &lane;
  }
  if (range == nullptr || piece.end > range->begin + range->count) {
    return DamagedRecord(record, "positions are missing");
  }
  return range;
}

Status TokenRows::OfRecord(const RecordPiece& piece, const LaneRange& range,
                           const wal::RecordView& record, std::span<const std::byte> bytes,
                           bool verify) const {
  if (range.strip >= record.strip_count() ||
      record.strip(range.strip).bytes != range.count * sizeof(TokenId)) {
    return DamagedRecord(record, "the strip of token ids does not fit");
  }
  if (verify) CAIRN_RETURN_IF_ERROR(record.VerifyStrip(bytes, range.strip, store_));
  const std::byte* ids = bytes.data() + record.strip_offset(range.strip);
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
