// SPDX-License-Identifier: Apache-2.0
#include "engine/background/page_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/codec/hash.h"
#include "base/codec/kv_copy.h"
#include "base/codec/token_block.h"
#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

namespace {

uint32_t PagesOf(uint32_t count, uint32_t page_rows) { return (count + page_rows - 1) / page_rows; }

// Memory for the frames of a slice, however badly they pack.
uint64_t PackedBytesMax(const FragmentLayout& layout, uint32_t slice, uint32_t count) {
  uint64_t bytes = 0;
  for (uint32_t first = 0; first < count; first += layout.page_rows()) {
    bytes += MaxFrameBytes(layout.Shape(slice, std::min(layout.page_rows(), count - first)));
  }
  return bytes;
}

}  // namespace

void PageWriter::Batch::Clear() {
  units.clear();
  frames.clear();
  bytes = 0;
}

Result<std::unique_ptr<PageWriter>> PageWriter::Create(Deps deps) {
  std::unique_ptr<PageWriter> writer(new PageWriter(std::move(deps)));
  const Deps& has = writer->deps_;
  CAIRN_ASSIGN_OR_RETURN(writer->number_, has.tables.callbacks->NewTableNumber());
  CAIRN_ASSIGN_OR_RETURN(writer->writer_,
                         sstable::SnapshotWriter::Create(has.tables, sstable::SnapshotKind::kPages,
                                                         writer->number_, has.write_bytes));
  return writer;
}

// ---------------------------------------------------------------- added

Status PageWriter::AddKv(const PageRange& range, const FragmentLayout& layout,
                         std::shared_ptr<const PageRows> rows) {
  for (uint32_t slice = 0; slice < layout.slices(); ++slice) {
    CAIRN_RETURN_IF_ERROR(AddUnit({.range = range,
                                   .layout = &layout,
                                   .rows = rows,
                                   .slice = slice,
                                   .page_rows = layout.page_rows(),
                                   .slices = layout.slices()}));
  }
  return Status::Ok();
}

Status PageWriter::AddUnit(Unit unit) {
  const uint32_t count = unit.range.count;
  const uint64_t packed_bytes = PackedBytesMax(*unit.layout, unit.slice, count);
  if (!filling_->units.empty() && filling_->bytes + packed_bytes > deps_.batch_bytes) {
    CAIRN_RETURN_IF_ERROR(PackNext());
  }
  unit.packed_offset = filling_->bytes;
  unit.first_frame = filling_->frames.size();
  unit.frames = PagesOf(count, unit.page_rows);
  filling_->bytes += packed_bytes;
  filling_->frames.resize(unit.first_frame + unit.frames);
  filling_->units.push_back(std::move(unit));
  return Status::Ok();
}

Status PageWriter::AddTokens(const PageRange& range, const FragmentLayout& layout,
                             std::span<const TokenId> ids) {
  CAIRN_RETURN_IF_ERROR(WriteAll());
  Begin(range, layout.page_rows(), layout.slices());
  for (size_t at = 0; at < ids.size(); at += layout.page_rows()) {
    const auto page = ids.subspan(at, std::min<size_t>(layout.page_rows(), ids.size() - at));
    const std::span<const std::byte> raw = std::as_bytes(page);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> block, EncodeTokens(page));
    CAIRN_RETURN_IF_ERROR(WriteFrame({block, raw.size(), deps_.hashes ? Hash(raw) : 0}));
  }
  return Status::Ok();
}

Status PageWriter::AddState(const PageRange& range, std::span<const std::byte> state) {
  CAIRN_RETURN_IF_ERROR(WriteAll());
  const auto pieces =
      static_cast<uint32_t>((state.size() + kStateFrameBytes - 1) / kStateFrameBytes);
  Begin(range, 1, pieces);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    const auto raw = state.first(std::min<size_t>(state.size(), kStateFrameBytes));
    CAIRN_RETURN_IF_ERROR(WriteFrame({raw, raw.size(), deps_.hashes ? Hash(raw) : 0}));
    state = state.subspan(raw.size());
  }
  return Status::Ok();
}

// ---------------------------------------------------------------- packed

void PageWriter::PackUnit(const Unit& unit, Batch* batch) const {
  const FragmentLayout& layout = *unit.layout;
  const uint32_t count = unit.range.count;
  std::byte* packed = batch->room.data() + unit.packed_offset;
  Frame* frame = &batch->frames[unit.first_frame];
  const HeadSlice at = layout.At(unit.slice);
  const uint64_t head_bytes = uint64_t{count} * layout.group().planes[at.plane].row_bytes;
  std::span<std::byte> rows =
      unit.rows->Plane(at.layer, at.plane).subspan(at.head * head_bytes, head_bytes);
  const FrameScales scales = layout.Scales(unit.slice);
  for (uint32_t first = 0; first < count; first += layout.page_rows(), ++frame) {
    const FrameShape shape = layout.Shape(unit.slice, std::min(layout.page_rows(), count - first));
    const std::span<std::byte> raw = rows.first(shape.raw_bytes());
    rows = rows.subspan(raw.size());
    if (scales != FrameScales::kNone) QuantiseFrame(shape, scales, raw);
    const uint64_t hash = deps_.hashes ? Hash(raw) : 0;
    const size_t stored =
        EncodeFrame(shape, raw, {packed, MaxFrameBytes(shape)}, {.scales = scales});
    *frame = {{packed, stored}, raw.size(), hash};
    packed += MaxFrameBytes(shape);
  }
}

// Packs what was added while the packed batch is written.
Status PageWriter::PackNext() {
  Batch* const batch = filling_;
  if (batch->room.size() < batch->bytes) {
    batch->room = AlignedBuffer();
    batch->room = AlignedBuffer::TryAllocate(deps_.allocator, batch->bytes, io::kBlockBytes);
    if (batch->room.empty() && batch->bytes != 0) {
      return Status(StatusCode::kOutOfMemory,
                    "packing pages needs " + std::to_string(batch->bytes) + " bytes at once");
    }
  }
  const auto meanwhile = [this]() -> Status {
    CAIRN_RETURN_IF_ERROR(WritePacked());
    return deps_.beside ? deps_.beside() : Status::Ok();
  };
  CAIRN_RETURN_IF_ERROR(deps_.parallel_for->Run(meanwhile, batch->units.size(), [&](size_t i) {
    PackUnit(batch->units[i], batch);
    return Status::Ok();
  }));
  packed_->Clear();
  std::swap(filling_, packed_);
  return Status::Ok();
}

Status PageWriter::Pack() { return filling_->units.empty() ? Status::Ok() : PackNext(); }

// ---------------------------------------------------------------- written

Status PageWriter::WriteAll() {
  CAIRN_RETURN_IF_ERROR(Pack());
  CAIRN_RETURN_IF_ERROR(WritePacked());
  packed_->Clear();
  return Status::Ok();
}

Status PageWriter::WritePacked() {
  if (deps_.quiet) {
    writer_->SetWriteBytes(deps_.quiet() ? sstable::kQuietWriteBytes : deps_.write_bytes);
  }
  for (const Unit& unit : packed_->units) {
    if (unit.slice == 0) Begin(unit.range, unit.page_rows, unit.slices);
    for (size_t i = 0; i < unit.frames; ++i) {
      CAIRN_RETURN_IF_ERROR(WriteFrame(packed_->frames[unit.first_frame + i]));
    }
  }
  return Status::Ok();
}

void PageWriter::Begin(const PageRange& range, uint32_t page_rows, uint32_t slices) {
  writer_->BeginFragment({.node = range.node,
                          .lane = range.lane,
                          .begin = range.begin,
                          .count = range.count,
                          .page_rows = page_rows,
                          .slices = slices,
                          .flags = range.exact ? 0 : sstable::kApproximateFragment});
  stored_bytes_.push_back(0);
}

Status PageWriter::WriteFrame(const Frame& frame) {
  CAIRN_RETURN_IF_ERROR(deps_.go_on(frame.stored.size()));
  if (deps_.hashes) hashes_.push_back(frame.raw_hash);
  stored_bytes_.back() += frame.stored.size();
  return writer_->AddFrame(frame.stored, static_cast<uint32_t>(frame.raw_bytes));
}

Result<sstable::SnapshotInfo> PageWriter::Finish() {
  CAIRN_RETURN_IF_ERROR(WriteAll());
  return writer_->Finish();
}

}  // namespace cairn::engine
