// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/host_sink.h"

#include <algorithm>

#include "base/codec/token_block.h"
#include "base/core/check.h"
#include "engine/restore/plan/page_names.h"

namespace cairn::engine {

namespace {

// Offset of each frame of a small fragment when all are unpacked, and the end.
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

}  // namespace

HostSink::HostSink(const RestorePlan& plan, const RestoreRequest& request,
                   const RecordDeps& records, LayerWords* layers, std::span<const OpenPiece> open,
                   PageCache* cache, bool ahead, std::optional<HeadOfPlane> only)
    : records_(records),
      tokens_(plan, request.tokens),
      layers_(layers),
      open_(open),
      counts_(plan, request.into, open),
      cache_(cache),
      ahead_(ahead),
      only_(only) {}

Result<std::unique_ptr<HostSink>> HostSink::Make(const RestorePlan& plan,
                                                 const RestoreRequest& request,
                                                 const RecordDeps& records, LayerWords* layers,
                                                 std::span<const OpenPiece> open, PageCache* cache,
                                                 bool ahead, std::optional<HeadOfPlane> only) {
  std::unique_ptr<HostSink> sink(
      new HostSink(plan, request, records, layers, open, cache, ahead, only));
  CAIRN_ASSIGN_OR_RETURN(sink->turns_, KeyTurns::Make(plan));
  return sink;
}

// A prefetched frame is admitted like one that was asked for twice.
PageCache::Admission HostSink::Admit(const PageName& name, uint64_t bytes, uint32_t lane) {
  if (cache_ == nullptr) return PageCache::Admission::kNo;
  const PageCache::Admission admission = cache_->Admit(name, bytes, ahead_ || lane == kTokenLane);
  return ahead_ && admission == PageCache::Admission::kNew ? PageCache::Admission::kAgain
                                                           : admission;
}

// A frame that is not kept is unpacked into the scratch memory of the frame before.
Result<std::span<std::byte>> HostSink::Room(ScratchBuffers* room, uint64_t bytes) {
  CAIRN_CHECK(room != nullptr);
  const std::span<std::byte> taken = room->Take(bytes);
  if (taken.size() == bytes) return taken;
  return Status(StatusCode::kOutOfMemory, "no memory to unpack a page");
}

Status HostSink::Unpack(const FrameJob& job, std::span<const std::byte> stored,
                        std::span<std::byte> raw) const {
  const OpenPiece& open = open_[job.piece];
  CAIRN_RETURN_IF_ERROR(open.table->Verify(open.entry(job.slice, job.page), stored));
  if (open.piece.lane != kTokenLane) {
    return DecodeFrame(open.layout.Shape(job.slice, open.fragment.rows(job.page)), stored, raw);
  }
  return DecodeTokens(
      stored, std::span(reinterpret_cast<TokenId*>(raw.data()), raw.size() / sizeof(TokenId)));
}

Status HostSink::Frame(const FrameJob& job, const ReadBytes& stored) {
  const OpenPiece& open = open_[job.piece];
  const uint64_t raw_bytes = open.RawBytes(job.slice, job.page);
  const PageName name = NameOfFrame(open, job.slice, job.page);
  const PageCache::Admission admission = Admit(name, raw_bytes, open.piece.lane);
  if (ahead_ && admission == PageCache::Admission::kNo) return Status::Ok();
  AlignedBuffer kept;
  if (admission != PageCache::Admission::kNo) kept = cache_->Allocate(raw_bytes);
  std::span<std::byte> raw = kept.span();
  if (kept.empty()) {
    CAIRN_ASSIGN_OR_RETURN(raw, Room(stored.room(), raw_bytes));
  }
  CAIRN_RETURN_IF_ERROR(Unpack(job, stored.bytes(), raw));
  Scatter(job, raw);
  if (!kept.empty()) {
    cache_->Insert(name, open.fragment.frames_hash, std::move(kept), admission);
  }
  return Status::Ok();
}

Status HostSink::Fragment(size_t piece, const ReadBytes& read, uint64_t* first_position) {
  const std::span<const std::byte> stored = read.bytes();
  const OpenPiece& open = open_[piece];
  const sstable::FragmentEntry& fragment = open.fragment;
  const std::vector<uint64_t> offsets = RawOffsets(open);
  const PageCache::Admission admission =
      Admit(NameOfFragment(open), offsets.back(), open.piece.lane);
  if (ahead_ && admission == PageCache::Admission::kNo) return Status::Ok();
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
      std::span<std::byte> raw;
      if (whole) {
        raw = kept.span().subspan(offsets[index], raw_bytes);
      } else {
        CAIRN_ASSIGN_OR_RETURN(raw, Room(read.room(), raw_bytes));
      }
      const sstable::FrameEntry& entry = open.entries[index];
      const FrameJob job{piece, slice, page};
      const Status status =
          Unpack(job, stored.subspan(entry.offset - fragment.offset, entry.stored_bytes), raw);
      // Damage of unwanted frames only means that the fragment is not kept.
      if (!status.ok()) whole = false;
      if (!wanted) continue;
      if (!status.ok()) {
        *first_position = open.FirstPosition(page);
        return status;
      }
      Scatter(job, raw);
    }
  }
  if (whole) {
    cache_->Insert(NameOfFragment(open), fragment.frames_hash, std::move(kept), admission);
  }
  return Status::Ok();
}

uint64_t HostSink::Scatter(const FrameJob& job, std::span<const std::byte> raw) {
  const OpenPiece& open = open_[job.piece];
  if (open.piece.lane != kTokenLane) return ScatterKv(job, raw);
  tokens_.OfPage(open, job, raw);
  return 0;
}

void HostSink::Place(const LayerCounts::Target& target, uint32_t layer, uint32_t plane,
                     const PositionMap& map, const SourceRows& rows) const {
  PlaceRows(target.group->planes[plane], target.view->planes[plane], layer, map, rows,
            turns_->Find(target.view->group, plane, rows.shift));
}

void HostSink::PlaceHeads(const LayerCounts::Target& target, const HeadSlice& at, uint32_t heads,
                          const PositionMap& map, const SourceRows& rows) const {
  Plane plane = target.group->planes[at.plane];
  plane.heads = heads;
  PlaneView some = target.view->planes[at.plane];
  std::byte* const base =
      some.layer_bases[at.layer] + static_cast<int64_t>(at.head) * some.head_stride;
  some.layer_bases = {&base, 1};
  PlaceRows(plane, some, 0, map, rows, turns_->Find(target.view->group, at.plane, rows.shift));
}

void HostSink::PlaceRows(const Plane& plane, const PlaneView& view, uint32_t layer,
                         const PositionMap& map, const SourceRows& rows,
                         const KeyTurns::Shifted* turns) {
  if (turns == nullptr) {
    ScatterSlice(plane, view, layer, map, rows.rows, rows.count, rows.first);
    return;
  }
  ScatterTurned(plane, view, layer, map, rows.rows, rows.count, rows.first, [&](const RowRun& run) {
    turns->Turn(run, rows.position + run.first, plane.heads);
  });
}

uint64_t HostSink::ScatterKv(const FrameJob& job, std::span<const std::byte> raw) {
  const OpenPiece& open = open_[job.piece];
  LayerCounts::Target* const target = counts_.TargetOf(open.piece.view);
  if (target == nullptr) return 0;
  const HeadSlice at = open.layout.At(job.slice);
  const PageRowsWanted page = WantedOfPage(open, job.page);
  const GroupView& view = *target->view;
  const uint32_t layer = at.layer - view.layer_begin;
  const PositionMap map(view, open.piece.Target(page.begin), page.end - page.begin);
  PlaceHeads(*target, {layer, at.plane, at.head}, 1, map,
             {raw.data(), page.rows, page.begin - page.page_begin, page.begin, open.piece.shift});
  Plane plane = target->group->planes[at.plane];
  plane.heads = 1;
  const uint64_t bytes = SliceBytes(plane, map.count());
  delivered_.Add(plane, bytes, /*of_frame=*/true, open.piece.counts_as_exact());
  LayerCounts::PieceDone(target, layer, this);
  return bytes;
}

}  // namespace cairn::engine
