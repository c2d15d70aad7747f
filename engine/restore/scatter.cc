// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/scatter.h"

#include <algorithm>
#include <cstring>

#include "base/codec/token_block.h"
#include "base/core/check.h"

namespace cairn::engine {

namespace {

Status Damaged(const wal::RecordView& record, const std::string& what) {
  return Status(StatusCode::kCorruption, PlaceText(record.location) + ": " + what);
}

PageName NameOf(const OpenPiece& open, const FrameJob& job) {
  return {open.piece.table, open.fragment.offset,
          uint64_t{job.slice} * open.fragment.pages + job.page};
}

PageName NameOf(const OpenPiece& small) {
  return {small.piece.table, small.fragment.offset, PageName::kAllFrames};
}

// Where each frame of a small fragment begins when all are unpacked, and the end.
std::vector<uint64_t> RawOffsets(const OpenPiece& small) {
  std::vector<uint64_t> offsets = {0};
  offsets.reserve(small.fragment.frames() + 1);
  for (uint32_t slice = 0; slice < small.fragment.slices; ++slice) {
    for (uint32_t page = 0; page < small.fragment.pages; ++page) {
      offsets.push_back(offsets.back() + small.RawBytes(slice, page));
    }
  }
  return offsets;
}

// Memory that stays in the processor's cache from one frame to the next: some 64 KiB.
std::span<std::byte> Scratch(uint64_t bytes) {
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < bytes) scratch.resize(bytes);
  return std::span(scratch).first(bytes);
}

}  // namespace

Scatterer::Scatterer(const RestorePlan& plan, const RestoreRequest& request, const StoreId& store,
                     LayerProgress* progress, std::span<const OpenPiece> open, PageCache* cache,
                     bool prefetch)
    : plan_(plan),
      request_(request),
      store_(store),
      progress_(progress),
      open_(open),
      cache_(cache),
      prefetch_(prefetch) {
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
  uint64_t frame_bytes = 0;
  for (const OpenPiece& piece : open) {
    for (uint32_t slice = piece.first_slice; slice < piece.end_slice; ++slice) {
      for (uint32_t page = piece.first_page; page < piece.end_page; ++page) {
        frame_bytes += piece.RawBytes(slice, page);
      }
    }
    GroupTarget* target = TargetOf(piece.piece.lane);
    if (target == nullptr) continue;
    for (uint32_t slice = piece.first_slice; slice < piece.end_slice; ++slice) {
      target->pieces[piece.layout.At(slice).layer - target->view->layer_begin].fetch_add(
          piece.end_page - piece.first_page);
    }
  }
  large_ = cache != nullptr && !prefetch && frame_bytes > cache->passing_bytes();
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

bool Scatterer::ScatterCached(const FrameJob& job) {
  const OpenPiece& open = open_[job.piece];
  const PageCache::Page page = cache_->Find(NameOf(open, job), open.fragment.frames_hash);
  if (page == nullptr) return false;
  cached_bytes_.fetch_add(ScatterRaw(job, page->span()), std::memory_order_relaxed);
  return true;
}

// What was asked for ahead is as good as what was asked for twice.
PageCache::Admission Scatterer::Admit(const PageName& name, uint64_t bytes) {
  if (cache_ == nullptr) return PageCache::Admission::kNo;
  const PageCache::Admission admission = cache_->Admit(name, bytes, large_);
  return prefetch_ && admission == PageCache::Admission::kNew ? PageCache::Admission::kAgain
                                                              : admission;
}

bool Scatterer::ScatterCachedFragment(size_t piece) {
  const OpenPiece& open = open_[piece];
  const PageCache::Page all = cache_->Find(NameOf(open), open.fragment.frames_hash);
  if (all == nullptr) return false;
  uint64_t at = 0, bytes = 0;
  for (uint32_t slice = 0; slice < open.end_slice; ++slice) {
    for (uint32_t page = 0; page < open.fragment.pages; ++page) {
      const uint64_t raw_bytes = open.RawBytes(slice, page);
      const bool wanted =
          slice >= open.first_slice && page >= open.first_page && page < open.end_page;
      if (wanted) bytes += ScatterRaw({piece, slice, page}, all->span().subspan(at, raw_bytes));
      at += raw_bytes;
    }
  }
  cached_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

Status Scatterer::Unpack(const FrameJob& job, std::span<const std::byte> stored,
                         std::span<std::byte> raw) const {
  const OpenPiece& open = open_[job.piece];
  CAIRN_RETURN_IF_ERROR(open.table->Verify(open.entry(job.slice, job.page), stored));
  if (open.piece.lane != kTokenLane) {
    return DecodeFrame(open.layout.Shape(job.slice, open.fragment.rows(job.page)), stored, raw);
  }
  return DecodeTokens(
      stored, std::span(reinterpret_cast<TokenId*>(raw.data()), raw.size() / sizeof(TokenId)));
}

Status Scatterer::ScatterFrame(const FrameJob& job, std::span<const std::byte> stored) {
  const OpenPiece& open = open_[job.piece];
  const uint64_t raw_bytes = open.RawBytes(job.slice, job.page);
  const PageName name = NameOf(open, job);
  const PageCache::Admission admission = Admit(name, raw_bytes);
  if (prefetch_ && admission == PageCache::Admission::kNo) return Status::Ok();
  AlignedBuffer kept;
  if (admission != PageCache::Admission::kNo) kept = cache_->Allocate(raw_bytes);
  const std::span<std::byte> raw = kept.empty() ? Scratch(raw_bytes) : kept.span();
  CAIRN_RETURN_IF_ERROR(Unpack(job, stored, raw));
  ScatterRaw(job, raw);
  if (!kept.empty()) {
    cache_->Insert(name, open.fragment.frames_hash, std::move(kept), admission);
  }
  return Status::Ok();
}

Status Scatterer::ScatterFragment(size_t piece, std::span<const std::byte> stored,
                                  uint64_t* first_position) {
  const OpenPiece& open = open_[piece];
  const sstable::FragmentEntry& fragment = open.fragment;
  const std::vector<uint64_t> offsets = RawOffsets(open);
  const PageCache::Admission admission = Admit(NameOf(open), offsets.back());
  if (prefetch_ && admission == PageCache::Admission::kNo) return Status::Ok();
  AlignedBuffer kept;
  if (admission != PageCache::Admission::kNo) kept = cache_->Allocate(offsets.back());
  bool whole = !kept.empty();
  for (uint32_t page = 0; page < fragment.pages; ++page) {
    for (uint32_t slice = 0; slice < fragment.slices; ++slice) {
      const bool wanted = page >= open.first_page && page < open.end_page &&
                          slice >= open.first_slice && slice < open.end_slice;
      if (!wanted && !whole) continue;
      const size_t index = size_t{slice} * fragment.pages + page;
      const uint64_t raw_bytes = offsets[index + 1] - offsets[index];
      const std::span<std::byte> raw =
          whole ? kept.span().subspan(offsets[index], raw_bytes) : Scratch(raw_bytes);
      const sstable::FrameEntry& entry = open.entries[index];
      const FrameJob job{piece, slice, page};
      const Status status =
          Unpack(job, stored.subspan(entry.offset - fragment.offset, entry.stored_bytes), raw);
      // Damage to what was not wanted only means that the fragment is not kept.
      if (!status.ok()) whole = false;
      if (!wanted) continue;
      if (!status.ok()) {
        *first_position = open.FirstPosition(page);
        return status;
      }
      ScatterRaw(job, raw);
    }
  }
  if (whole) cache_->Insert(NameOf(open), fragment.frames_hash, std::move(kept), admission);
  return Status::Ok();
}

uint64_t Scatterer::ScatterRaw(const FrameJob& job, std::span<const std::byte> raw) {
  return open_[job.piece].piece.lane == kTokenLane ? ScatterRawTokens(job, raw)
                                                   : ScatterRawKv(job, raw);
}

uint64_t Scatterer::ScatterRawTokens(const FrameJob& job, std::span<const std::byte> raw) {
  if (request_.tokens.empty()) return 0;
  const OpenPiece& open = open_[job.piece];
  const uint64_t page_begin = open.fragment.begin + uint64_t{job.page} * open.fragment.page_rows;
  const uint64_t begin = std::max(open.piece.begin, page_begin);
  const uint64_t end = std::min(open.piece.end, page_begin + raw.size() / sizeof(TokenId));
  std::memcpy(request_.tokens.data() + (begin - plan_.begin),
              raw.data() + (begin - page_begin) * sizeof(TokenId), (end - begin) * sizeof(TokenId));
  return 0;
}

uint64_t Scatterer::ScatterRawKv(const FrameJob& job, std::span<const std::byte> raw) {
  const OpenPiece& open = open_[job.piece];
  GroupTarget* const target = TargetOf(open.piece.lane);
  if (target == nullptr) return 0;
  const HeadSlice at = open.layout.At(job.slice);
  const uint32_t rows = open.fragment.rows(job.page);
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
  const uint64_t bytes = SliceBytes(plane, map.count());
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  frame_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (plane.sealed_as != SealedAs::kLossless) {
    lossy_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  LayerDone(target, layer);
  return bytes;
}

}  // namespace cairn::engine
