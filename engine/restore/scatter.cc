// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/scatter.h"

#include <algorithm>
#include <cstring>

#include "base/codec/token_block.h"
#include "base/core/check.h"

namespace cairn::engine {

namespace {

Status Damaged(const wal::RecordView& record, const std::string& what) {
  return Status(StatusCode::kCorruption, "log segment " + std::to_string(record.location.segment) +
                                             ", offset " + std::to_string(record.location.offset) +
                                             ": " + what);
}

}  // namespace

Scatterer::Scatterer(const RestorePlan& plan, const RestoreRequest& request, const StoreId& store,
                     LayerProgress* progress, std::span<const OpenPiece> open)
    : plan_(plan), request_(request), store_(store), progress_(progress), open_(open) {
  size_t next_progress = 0;
  for (size_t i = 0; request.into != nullptr && i < request.into->groups.size(); ++i) {
    const GroupView& view = request.into->groups[i];
    auto target = std::make_unique<GroupTarget>();
    target->view = &view;
    target->group = &plan.model->groups[view.group];
    target->first_progress = next_progress;
    target->pieces = std::vector<std::atomic<uint64_t>>(view.planes[0].layer_bases.size());
    next_progress += target->pieces.size();
    uint64_t pieces = 0;
    for (const RecordJob& job : plan.jobs) {
      for (const RecordPiece& piece : job.pieces) pieces += piece.lane == 1 + view.group;
    }
    for (std::atomic<uint64_t>& left : target->pieces) left.store(pieces);
    targets_.push_back(std::move(target));
  }
  for (const OpenPiece& piece : open) {
    GroupTarget* target = TargetOf(piece.piece.lane);
    if (target == nullptr) continue;
    for (uint32_t slice = piece.first_slice; slice < piece.end_slice; ++slice) {
      target->pieces[piece.layout.At(slice).layer - target->view->layer_begin].fetch_add(
          piece.end_page - piece.first_page);
    }
  }
}

Scatterer::GroupTarget* Scatterer::TargetOf(uint32_t lane) {
  for (const std::unique_ptr<GroupTarget>& one : targets_) {
    if (1 + one->view->group == lane) return one.get();
  }
  return nullptr;
}

void Scatterer::FinishEmptyLayers() {
  for (const std::unique_ptr<GroupTarget>& target : targets_) {
    for (uint32_t layer = 0; layer < target->pieces.size(); ++layer) {
      if (target->pieces[layer].load() == 0 && progress_ != nullptr) {
        progress_->layers[target->first_progress + layer].store(1, std::memory_order_release);
      }
    }
  }
}

void Scatterer::LayerDone(GroupTarget* target, uint32_t layer) {
  if (target->pieces[layer].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (progress_ == nullptr) return;
  progress_->layers[target->first_progress + layer].store(1, std::memory_order_release);
}

Status Scatterer::Scatter(const RecordJob& job, std::span<const std::byte> bytes, bool verify) {
  CAIRN_ASSIGN_OR_RETURN(const wal::RecordView record,
                         wal::ParseRecord(bytes, job.location, store_));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Op> ops, DecodeRecord(record));
  for (const RecordPiece& piece : job.pieces) {
    if (piece.op_index >= ops.size()) return Damaged(record, "an op is missing");
    const LaneRange* range = nullptr;
    for (const LaneRange& lane : ops[piece.op_index].lanes) {
      if (lane.lane == piece.lane && lane.begin == piece.extent_begin) range = &lane;
    }
    if (range == nullptr || piece.end > range->begin + range->count) {
      return Damaged(record, "positions are missing");
    }
    CAIRN_RETURN_IF_ERROR(piece.lane == kTokenLane
                              ? ScatterTokens(piece, *range, record, bytes, verify)
                              : ScatterKv(piece, *range, record, bytes, verify));
  }
  return Status::Ok();
}

Status Scatterer::ScatterTokens(const RecordPiece& piece, const LaneRange& range,
                                const wal::RecordView& record, std::span<const std::byte> bytes,
                                bool verify) {
  if (range.strip >= record.strip_count() ||
      record.strip(range.strip).bytes != range.count * sizeof(TokenId)) {
    return Damaged(record, "the strip of token ids does not fit");
  }
  if (verify) CAIRN_RETURN_IF_ERROR(record.VerifyStrip(bytes, range.strip, store_));
  const std::byte* ids = bytes.data() + record.strip_offset(range.strip);
  std::memcpy(request_.tokens.data() + (piece.begin - plan_.begin),
              ids + (piece.begin - range.begin) * sizeof(TokenId),
              (piece.end - piece.begin) * sizeof(TokenId));
  return Status::Ok();
}

Status Scatterer::ScatterKv(const RecordPiece& piece, const LaneRange& range,
                            const wal::RecordView& record, std::span<const std::byte> bytes,
                            bool verify) {
  GroupTarget* const target = TargetOf(piece.lane);
  CAIRN_CHECK(target != nullptr);
  const GroupView& view = *target->view;
  const KvLayout layout(*target->group, range.count);
  if (range.strip + layout.strip_bytes().size() > record.strip_count()) {
    return Damaged(record, "strips of KV are missing");
  }
  const PositionMap map(view, piece.begin, piece.end - piece.begin);
  const auto layers = static_cast<uint32_t>(target->pieces.size());
  size_t verified = SIZE_MAX;
  uint64_t copied = 0;
  for (const KvLayout::Slice& slice : layout.slices()) {
    if (slice.layer < view.layer_begin) continue;
    const uint32_t layer = slice.layer - view.layer_begin;
    if (layer >= layers) break;
    const size_t strip = range.strip + slice.strip;
    if (strip != verified) {
      if (record.strip(strip).bytes != layout.strip_bytes()[slice.strip]) {
        return Damaged(record, "a strip of KV has another size");
      }
      if (verify) CAIRN_RETURN_IF_ERROR(record.VerifyStrip(bytes, strip, store_));
      verified = strip;
    }
    const Plane& plane = target->group->planes[slice.plane];
    ScatterSlice(plane, view.planes[slice.plane], layer, map,
                 bytes.data() + record.strip_offset(strip) + slice.offset, range.count,
                 piece.begin - range.begin);
    copied += SliceBytes(plane, map.count());
    if (slice.plane + 1 == target->group->planes.size()) LayerDone(target, layer);
  }
  bytes_.fetch_add(copied, std::memory_order_relaxed);
  return Status::Ok();
}

Status Scatterer::ScatterFrame(const FrameJob& job, std::span<const std::byte> stored) {
  const OpenPiece& open = open_[job.piece];
  CAIRN_RETURN_IF_ERROR(open.table->Verify(open.entry(job.slice, job.page), stored));
  return open.piece.lane == kTokenLane ? ScatterTokenFrame(job, stored)
                                       : ScatterKvFrame(job, stored);
}

Status Scatterer::ScatterTokenFrame(const FrameJob& job, std::span<const std::byte> stored) {
  const OpenPiece& open = open_[job.piece];
  std::vector<TokenId> ids(open.fragment.rows(job.page));
  CAIRN_RETURN_IF_ERROR(DecodeTokens(stored, ids));
  const uint64_t page_begin = open.fragment.begin + uint64_t{job.page} * open.fragment.page_rows;
  const uint64_t begin = std::max(open.piece.begin, page_begin);
  const uint64_t end = std::min(open.piece.end, page_begin + ids.size());
  std::memcpy(request_.tokens.data() + (begin - plan_.begin), ids.data() + (begin - page_begin),
              (end - begin) * sizeof(TokenId));
  return Status::Ok();
}

Status Scatterer::ScatterKvFrame(const FrameJob& job, std::span<const std::byte> stored) {
  const OpenPiece& open = open_[job.piece];
  GroupTarget* const target = TargetOf(open.piece.lane);
  CAIRN_CHECK(target != nullptr);
  const HeadSlice at = open.layout.At(job.slice);
  const uint32_t rows = open.fragment.rows(job.page);
  const FrameShape shape = open.layout.Shape(job.slice, rows);
  // Frames are some 64 KiB; the scratch stays in the cache between them.
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < shape.raw_bytes()) scratch.resize(shape.raw_bytes());
  const std::span<std::byte> raw = std::span(scratch).first(shape.raw_bytes());
  CAIRN_RETURN_IF_ERROR(DecodeFrame(shape, stored, raw));

  const uint64_t page_begin = open.fragment.begin + uint64_t{job.page} * open.fragment.page_rows;
  const uint64_t begin = std::max(open.piece.begin, page_begin);
  const uint64_t end = std::min(open.piece.end, page_begin + rows);
  const GroupView& view = *target->view;
  const uint32_t layer = at.layer - view.layer_begin;
  // The frame is a plane of one layer with one head.
  Plane plane = target->group->planes[at.plane];
  plane.heads = 1;
  PlaneView one = view.planes[at.plane];
  std::byte* const base = one.layer_bases[layer] + static_cast<int64_t>(at.head) * one.head_stride;
  one.layer_bases = {&base, 1};
  const PositionMap map(view, begin, end - begin);
  ScatterSlice(plane, one, 0, map, raw.data(), rows, begin - page_begin);
  bytes_.fetch_add(SliceBytes(plane, map.count()), std::memory_order_relaxed);
  frame_bytes_.fetch_add(SliceBytes(plane, map.count()), std::memory_order_relaxed);
  if (plane.sealed_as != SealedAs::kLossless) {
    lossy_bytes_.fetch_add(SliceBytes(plane, map.count()), std::memory_order_relaxed);
  }
  LayerDone(target, layer);
  return Status::Ok();
}

}  // namespace cairn::engine
