// SPDX-License-Identifier: Apache-2.0
#include "engine/space/seal_table.h"

#include <algorithm>

#include "base/codec/hash.h"
#include "base/codec/kv_copy.h"
#include "base/codec/kv_frame.h"
#include "base/codec/token_block.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/commit/constants.h"
#include "engine/restore/plan.h"
#include "engine/tree/fragment_layout.h"

namespace cairn::engine {

namespace {

class SealTable {
 public:
  SealTable(TableSet* tables, const Allocator& allocator, SealReader* reader)
      : tables_(tables), allocator_(allocator), reader_(reader) {}

  Result<sstable::SnapshotInfo> Run(std::span<Tree::SealSource> sources) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t number, tables_->context().host->NewTableNumber());
    CAIRN_ASSIGN_OR_RETURN(writer_, sstable::SnapshotWriter::Create(
                                        tables_->context(), sstable::SnapshotKind::kPages, number));
    for (Tree::SealSource& source : sources) {
      CAIRN_RETURN_IF_ERROR(reader_->GoOn());
      stored_bytes_ = 0;
      CAIRN_RETURN_IF_ERROR(Write(source));
      source.stored_bytes = stored_bytes_;
    }
    CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer_->Finish());
    if (const Status proved = Prove(number, sources); !proved.ok()) {
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
  Status Add(std::span<const std::byte> stored, uint64_t raw_bytes,
             std::span<const std::byte> raw) {
    hashes_.push_back(Hash(raw));
    stored_bytes_ += stored.size();
    return writer_->AddFrame(stored, static_cast<uint32_t>(raw_bytes));
  }

  Status Write(const Tree::SealSource& source) {
    const FragmentLayout layout(*source.model, source.lane);
    writer_->BeginFragment({.node = source.node,
                            .lane = source.lane,
                            .begin = source.begin,
                            .count = source.count,
                            .page_rows = layout.page_rows(),
                            .slices = layout.slices()});
    if (source.lane == kTokenLane) return WriteTokens(source, layout);
    if (source.lane == kSamplerLane || source.lane == kMetadataLane) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> state, reader_->ReadState(source));
      return Add(state, state.size(), state);
    }
    return WriteKv(source, layout);
  }

  Status WriteTokens(const Tree::SealSource& source, const FragmentLayout& layout) {
    std::vector<TokenId> ids(source.count);
    CAIRN_RETURN_IF_ERROR(reader_->ReadTokens(source, ids));
    for (size_t at = 0; at < ids.size(); at += layout.page_rows()) {
      const auto page =
          std::span(ids).subspan(at, std::min<size_t>(layout.page_rows(), ids.size() - at));
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> block, EncodeTokens(page));
      CAIRN_RETURN_IF_ERROR(Add(block, page.size_bytes(), std::as_bytes(page)));
    }
    return Status::Ok();
  }

  // Staged as the frames want it: [layer][plane][head][position][row].
  Status WriteKv(const Tree::SealSource& source, const FragmentLayout& layout) {
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
    for (uint32_t slice = 0; slice < layout.slices(); ++slice) {
      const HeadSlice head = layout.At(slice);
      const uint64_t row = group.planes[head.plane].row_bytes;
      const std::byte* rows =
          bases[head.plane][head.layer] + uint64_t{head.head} * source.count * row;
      for (uint32_t first = 0; first < source.count; first += layout.page_rows()) {
        const uint32_t count = std::min(layout.page_rows(), source.count - first);
        const FrameShape shape = layout.Shape(slice, count);
        if (packed_.size() < MaxFrameBytes(shape)) packed_.resize(MaxFrameBytes(shape));
        const std::span<const std::byte> raw(rows + first * row, shape.raw_bytes());
        const size_t stored = EncodeFrame(shape, raw, packed_);
        CAIRN_RETURN_IF_ERROR(Add(std::span(packed_).first(stored), raw.size(), raw));
      }
    }
    return Status::Ok();
  }

  // The log's space is freed on the word of this table, so it must decode to what went in.
  Status Prove(uint64_t number, std::span<const Tree::SealSource> sources) {
    CAIRN_ASSIGN_OR_RETURN(const auto table, tables_->Open(number));
    CAIRN_ASSIGN_OR_RETURN(const auto fragments, table->Fragments());
    CAIRN_CHECK(fragments.size() == sources.size());
    size_t next_hash = 0;
    for (size_t i = 0; i < fragments.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(reader_->GoOn());
      CAIRN_ASSIGN_OR_RETURN(const auto frames, table->Frames(fragments[i]));
      const FragmentLayout layout(*sources[i].model, sources[i].lane);
      for (size_t first = 0; first < frames.size();) {
        // As many frames as a window takes, with one read.
        const uint64_t begin = frames[first].offset / io::kBlockBytes * io::kBlockBytes;
        size_t end = first + 1;
        while (end < frames.size() &&
               frames[end].offset + frames[end].stored_bytes - begin <= kReadWindowBytes) {
          ++end;
        }
        const uint64_t bytes =
            AlignUp(frames[end - 1].offset + frames[end - 1].stored_bytes, io::kBlockBytes) - begin;
        if (window_.size() < bytes) {
          window_ = AlignedBuffer::TryAllocate(allocator_, std::max(bytes, kReadWindowBytes),
                                               io::kBlockBytes);
          if (window_.empty()) return Status(StatusCode::kOutOfMemory, "proving a table");
        }
        CAIRN_RETURN_IF_ERROR(table->file().Read(begin, window_.span().first(bytes)));
        for (; first < end; ++first) {
          const auto stored =
              window_.span().subspan(frames[first].offset - begin, frames[first].stored_bytes);
          CAIRN_RETURN_IF_ERROR(table->Verify(frames[first], stored));
          CAIRN_ASSIGN_OR_RETURN(const uint64_t hash,
                                 RawHash(layout, sources[i], fragments[i], first, stored));
          if (hash != hashes_[next_hash++]) {
            return Status(StatusCode::kCorruption,
                          "table " + std::to_string(number) + ": offset " +
                              std::to_string(frames[first].offset) +
                              ": a frame does not decode to what was packed");
          }
        }
      }
    }
    CAIRN_CHECK(next_hash == hashes_.size());
    return Status::Ok();
  }

  Result<uint64_t> RawHash(const FragmentLayout& layout, const Tree::SealSource& source,
                           const sstable::FragmentEntry& fragment, size_t frame,
                           std::span<const std::byte> stored) {
    const auto page = static_cast<uint32_t>(frame % fragment.pages);
    if (source.lane == kTokenLane) {
      std::vector<TokenId> ids(fragment.rows(page));
      CAIRN_RETURN_IF_ERROR(DecodeTokens(stored, ids));
      return Hash(std::as_bytes(std::span(ids)));
    }
    if (source.lane == kSamplerLane || source.lane == kMetadataLane) return Hash(stored);
    const FrameShape shape =
        layout.Shape(static_cast<uint32_t>(frame / fragment.pages), fragment.rows(page));
    if (packed_.size() < shape.raw_bytes()) packed_.resize(shape.raw_bytes());
    const std::span<std::byte> raw = std::span(packed_).first(shape.raw_bytes());
    CAIRN_RETURN_IF_ERROR(DecodeFrame(shape, stored, raw));
    return Hash(raw);
  }

  TableSet* const tables_;
  const Allocator allocator_;
  SealReader* const reader_;
  std::unique_ptr<sstable::SnapshotWriter> writer_;
  AlignedBuffer stage_, window_;
  std::vector<std::byte> packed_;
  std::vector<uint64_t> hashes_;  // Of every frame before it was packed.
  uint64_t stored_bytes_ = 0;     // Of the fragment.
};

}  // namespace

Result<sstable::SnapshotInfo> WriteSealTable(TableSet* tables, const Allocator& allocator,
                                             std::span<Tree::SealSource> sources,
                                             SealReader* reader) {
  CAIRN_CHECK(!sources.empty());
  return SealTable(tables, allocator, reader).Run(sources);
}

}  // namespace cairn::engine
