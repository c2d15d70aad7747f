// SPDX-License-Identifier: Apache-2.0
#include "engine/space/seal_table.h"

#include <algorithm>

#include "base/codec/hash.h"
#include "base/codec/kv_copy.h"
#include "base/codec/token_block.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/constants.h"
#include "engine/space/pack_frames.h"
#include "engine/space/prove_table.h"
#include "engine/tree/fragment_layout.h"
#include "engine/tree/seal_source.h"

namespace cairn::engine {

namespace {

class SealTable {
 public:
  SealTable(TableSet* tables, const Allocator& allocator, SealReader* reader,
            io::ParallelFor* parallel_for)
      : tables_(tables),
        allocator_(allocator),
        reader_(reader),
        parallel_for_(parallel_for),
        packer_(parallel_for) {}

  Result<sstable::SnapshotInfo> Run(std::span<SealSource> sources) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t number, tables_->context().host->NewTableNumber());
    CAIRN_ASSIGN_OR_RETURN(
        writer_, sstable::SnapshotWriter::Create(tables_->context(), sstable::SnapshotKind::kPages,
                                                 number, sstable::kQuietWriteBytes));
    for (SealSource& source : sources) {
      stored_bytes_ = 0;
      CAIRN_RETURN_IF_ERROR(Write(source));
      source.stored_bytes = stored_bytes_;
    }
    CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer_->Finish());
    const Status proved = Guarded([&] {
      return ProveTable(tables_, number, sources, hashes_, allocator_, reader_, parallel_for_);
    });
    if (!proved.ok()) {
      tables_->Forget(number);
      const Status removed =
          io::RemoveIfExists(*tables_->context().files,
                             sstable::SnapshotTablePath(tables_->context().directory, number));
      if (removed.ok()) tables_->context().host->ReturnSpace(info.bytes);
      return proved;
    }
    return info;
  }

 private:
  Status Add(const PackedFrame& frame) {
    hashes_.push_back(frame.raw_hash);
    stored_bytes_ += frame.stored.size();
    CAIRN_RETURN_IF_ERROR(reader_->Take(0, frame.stored.size()));
    return writer_->AddFrame(frame.stored, static_cast<uint32_t>(frame.raw_bytes));
  }

  Status Write(const SealSource& source) {
    if (source.lane == kSamplerLane || source.lane == kMetadataLane) return WriteState(source);
    const FragmentLayout layout(*source.model, source.lane);
    Begin(source, layout.page_rows(), layout.slices());
    return source.lane == kTokenLane ? WriteTokens(source, layout) : WriteKv(source, layout);
  }

  void Begin(const SealSource& source, uint32_t page_rows, uint32_t slices) {
    writer_->BeginFragment({.node = source.node,
                            .lane = source.lane,
                            .begin = source.begin,
                            .count = source.count,
                            .page_rows = page_rows,
                            .slices = slices,
                            .flags = source.exact() ? 0 : sstable::kApproximateFragment});
  }

  Status WriteState(const SealSource& source) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> state, reader_->ReadState(source));
    const uint64_t frames = (state.size() + kStateFrameBytes - 1) / kStateFrameBytes;
    Begin(source, 1, static_cast<uint32_t>(frames));
    std::span<const std::byte> rest = state;
    while (!rest.empty()) {
      const auto frame = rest.first(std::min<size_t>(rest.size(), kStateFrameBytes));
      CAIRN_RETURN_IF_ERROR(Add({frame, frame.size(), Hash(frame)}));
      rest = rest.subspan(frame.size());
    }
    return Status::Ok();
  }

  Status WriteTokens(const SealSource& source, const FragmentLayout& layout) {
    std::vector<TokenId> ids(source.count);
    CAIRN_RETURN_IF_ERROR(reader_->ReadTokens(source, ids));
    for (size_t at = 0; at < ids.size(); at += layout.page_rows()) {
      const auto page =
          std::span(ids).subspan(at, std::min<size_t>(layout.page_rows(), ids.size() - at));
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> block, EncodeTokens(page));
      CAIRN_RETURN_IF_ERROR(Add({block, page.size_bytes(), Hash(std::as_bytes(page))}));
    }
    return Status::Ok();
  }

  // Staged as the frames want it: [layer][plane][head][position][row].
  Status WriteKv(const SealSource& source, const FragmentLayout& layout) {
    const LayerGroup& group = layout.group();
    const uint64_t bytes = group.token_bytes() * source.count;
    if (stage_.size() < bytes) {
      stage_ = AlignedBuffer::TryAllocate(allocator_, bytes, io::kBlockBytes);
      if (stage_.empty()) {
        return Status(StatusCode::kOutOfMemory,
                      "sealing needs " + std::to_string(bytes) + " bytes at once");
      }
    }
    std::vector<std::vector<std::byte*>> bases(group.planes.size());
    std::byte* at = stage_.data();
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (size_t plane = 0; plane < group.planes.size(); ++plane) {
        bases[plane].push_back(at);
        at += SliceBytes(group.planes[plane], source.count);
      }
    }
    std::vector<PlaneView> planes;
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      const int64_t row = group.planes[plane].row_bytes;
      planes.push_back({.layer_bases = bases[plane],
                        .token_stride = row,
                        .head_stride = row * static_cast<int64_t>(source.count)});
    }
    CAIRN_RETURN_IF_ERROR(reader_->ReadKv(source, {.group = source.lane - 1,
                                                   .position = source.begin,
                                                   .count = source.count,
                                                   .planes = planes}));
    std::vector<RawFrame> frames;
    for (uint32_t slice = 0; slice < layout.slices(); ++slice) {
      const HeadSlice head = layout.At(slice);
      const uint64_t row = group.planes[head.plane].row_bytes;
      std::byte* rows = bases[head.plane][head.layer] + uint64_t{head.head} * source.count * row;
      for (uint32_t first = 0; first < source.count; first += layout.page_rows()) {
        const FrameShape shape =
            layout.Shape(slice, std::min(layout.page_rows(), source.count - first));
        frames.push_back({shape, {rows + first * row, shape.raw_bytes()}, layout.Scales(slice)});
      }
    }
    return packer_.Pack(frames, [this](const PackedFrame& frame) { return Add(frame); });
  }

  TableSet* const tables_;
  const Allocator allocator_;
  SealReader* const reader_;
  io::ParallelFor* const parallel_for_;
  FramePacker packer_;
  std::unique_ptr<sstable::SnapshotWriter> writer_;
  AlignedBuffer stage_;
  std::vector<uint64_t> hashes_;  // Of every frame before it was packed.
  uint64_t stored_bytes_ = 0;     // Of the fragment.
};

}  // namespace

Result<sstable::SnapshotInfo> WriteSealTable(TableSet* tables, const Allocator& allocator,
                                             std::span<SealSource> sources, SealReader* reader,
                                             io::ParallelFor* parallel_for) {
  CAIRN_CHECK(!sources.empty());
  return SealTable(tables, allocator, reader, parallel_for).Run(sources);
}

}  // namespace cairn::engine
