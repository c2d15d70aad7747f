// SPDX-License-Identifier: Apache-2.0
#include "engine/background/seal_table.h"

#include <algorithm>
#include <utility>

#include "base/codec/kv_copy.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/background/page_writer.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/fragment_layout.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn::engine {

namespace {

// The rows of a source, staged in the order of frames: [layer][plane][head][position][row].
class StagedRows final : public PageRows {
 public:
  StagedRows(const LayerGroup& group, uint32_t count, std::byte* stage)
      : group_(group), count_(count), bases_(group.planes.size()) {
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (size_t plane = 0; plane < group.planes.size(); ++plane) {
        bases_[plane].push_back(stage);
        stage += SliceBytes(group.planes[plane], count);
      }
    }
  }

  std::span<std::byte> Plane(uint32_t layer, uint32_t plane) const override {
    return {bases_[plane][layer], SliceBytes(group_.planes[plane], count_)};
  }
  // Views of positions from the `first`th on. They refer to `bases`, which this fills.
  std::vector<PlaneView> Views(uint32_t first, std::vector<std::vector<std::byte*>>* bases) const {
    *bases = bases_;
    std::vector<PlaneView> views;
    for (size_t plane = 0; plane < bases->size(); ++plane) {
      const int64_t row = group_.planes[plane].row_bytes;
      for (std::byte*& base : (*bases)[plane]) base += first * row;
      views.push_back({.layer_bases = (*bases)[plane],
                       .token_stride = row,
                       .head_stride = row * static_cast<int64_t>(count_)});
    }
    return views;
  }

 private:
  const LayerGroup& group_;
  const uint32_t count_;
  std::vector<std::vector<std::byte*>> bases_;  // By plane and layer.
};

bool IsKv(const SealSource& source) {
  return source.lane != kTokenLane && source.lane != kSamplerLane && source.lane != kMetadataLane;
}

// A source of KV on its way into a table.
struct Stage {
  explicit Stage(AlignedBuffer* room) : memory(room) {}
  const SealSource* source = nullptr;
  AlignedBuffer* memory;
  std::unique_ptr<FragmentLayout> layout;  // The rows refer to it.
  std::shared_ptr<const StagedRows> rows;
  uint64_t read_end = 0;  // Positions up to it were read.
  bool whole() const { return read_end == source->begin + source->count; }
};

class SealTable {
 public:
  SealTable(TableSet* tables, const Allocator& allocator, SealReader* reader,
            io::ParallelFor* parallel_for, uint64_t stage_bytes, StageMemory* stages)
      : tables_(tables),
        allocator_(allocator),
        reader_(reader),
        parallel_for_(parallel_for),
        stage_bytes_(stage_bytes),
        staged_(&stages->staged),
        ahead_(&stages->ahead) {}

  Result<WrittenTable> Run(std::span<SealSource> sources) {
    CAIRN_ASSIGN_OR_RETURN(
        writer_,
        PageWriter::Create(
            {.tables = tables_->context(),
             .allocator = allocator_,
             .parallel_for = parallel_for_,
             .batch_bytes = kFrameBatchBytes,
             .write_bytes = kSpaceAlonePieceBytes,
             .hashes = true,
             .quiet = [this] { return reader_->Quiet(); },
             .beside = [this] { return ReadAhead(); },
             .go_on = [this](uint64_t stored_bytes) { return reader_->Take(stored_bytes); }}));
    sources_ = sources;
    for (const SealSource& source : sources) CAIRN_RETURN_IF_ERROR(Add(source));
    CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer_->Finish());
    for (size_t i = 0; i < sources.size(); ++i) {
      sources[i].stored_bytes = writer_->stored_bytes()[i];
    }
    return WrittenTable(tables_, info, writer_->TakeHashes());
  }

 private:
  Status Add(const SealSource& source) {
    const PageRange range{source.node, source.lane, source.begin, source.count, source.exact()};
    if (source.lane == kSamplerLane || source.lane == kMetadataLane) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> state, reader_->ReadState(source));
      return writer_->AddState(range, state);
    }
    if (IsKv(source)) return AddKv(source, range);
    const FragmentLayout layout(*source.model, source.lane);
    std::vector<TokenId> ids(source.count);
    CAIRN_RETURN_IF_ERROR(reader_->ReadTokens(source, ids));
    return writer_->AddTokens(range, layout, ids);
  }

  Status AddKv(const SealSource& source, const PageRange& range) {
    if (ahead_.source == &source) {
      std::swap(staged_, ahead_);
    } else {
      CAIRN_RETURN_IF_ERROR(Begin(source, &staged_));
    }
    ahead_.source = nullptr;
    while (!staged_.whole()) CAIRN_RETURN_IF_ERROR(ReadMore(UINT64_MAX, &staged_));
    next_ = NextOfKv(source);
    CAIRN_RETURN_IF_ERROR(writer_->AddKv(range, *staged_.layout, staged_.rows));
    return writer_->Pack();  // The source after the next is staged in the same memory.
  }

  // Reads a little of the next source while a batch of this one is packed.
  Status ReadAhead() {
    if (next_ == nullptr) return Status::Ok();
    if (ahead_.source == nullptr) {
      const uint64_t bytes =
          FragmentLayout(*next_->model, next_->lane).position_bytes() * next_->count;
      const uint64_t both = staged_.memory->size() + std::max(bytes, ahead_.memory->size());
      if (both > stage_bytes_ || !Begin(*next_, &ahead_).ok()) {
        next_ = nullptr;
        return Status::Ok();
      }
    }
    return ahead_.whole() ? Status::Ok() : ReadMore(kStagedAtOnceBytes, &ahead_);
  }

  const SealSource* NextOfKv(const SealSource& source) const {
    for (const SealSource* next = &source + 1; next != sources_.data() + sources_.size(); ++next) {
      if (IsKv(*next)) return next;
    }
    return nullptr;
  }

  Status Begin(const SealSource& source, Stage* stage) {
    auto layout = std::make_unique<FragmentLayout>(*source.model, source.lane);
    const uint64_t bytes = layout->position_bytes() * source.count;
    // Memory of a large source must not prevent reading ahead.
    const bool oversized = stage->memory->size() > stage_bytes_ / 2 && bytes <= stage_bytes_ / 2;
    if (stage->memory->size() < bytes || oversized) {
      *stage->memory = AlignedBuffer();
      *stage->memory = AlignedBuffer::TryAllocate(allocator_, bytes, io::kBlockBytes);
      if (stage->memory->empty()) {
        return Status(StatusCode::kOutOfMemory,
                      "sealing needs " + std::to_string(bytes) + " bytes at once");
      }
    }
    stage->rows =
        std::make_shared<const StagedRows>(layout->group(), source.count, stage->memory->data());
    stage->layout = std::move(layout);
    stage->read_end = source.begin;
    stage->source = &source;
    return Status::Ok();
  }

  // Reads whole extents, from read_end on, until it has read `bytes` or the source is whole.
  Status ReadMore(uint64_t bytes, Stage* stage) {
    const SealSource& source = *stage->source;
    const uint64_t begin = stage->read_end;
    uint64_t end = begin;
    for (const Extent& extent : source.extents) {
      end = std::max<uint64_t>(end, extent.begin + extent.count);
      if ((end - begin) * stage->layout->position_bytes() >= bytes) break;
    }
    CAIRN_CHECK(end > begin && end <= source.begin + source.count);
    std::vector<std::vector<std::byte*>> bases;
    const std::vector<PlaneView> planes =
        stage->rows->Views(static_cast<uint32_t>(begin - source.begin), &bases);
    CAIRN_RETURN_IF_ERROR(reader_->ReadKv(source, {.group = source.lane - 1,
                                                   .position = begin,
                                                   .count = static_cast<uint32_t>(end - begin),
                                                   .planes = planes}));
    stage->read_end = end;
    return Status::Ok();
  }

  TableSet* const tables_;
  const Allocator allocator_;
  SealReader* const reader_;
  io::ParallelFor* const parallel_for_;
  const uint64_t stage_bytes_;
  std::span<const SealSource> sources_;
  Stage staged_, ahead_;
  const SealSource* next_ = nullptr;  // The one to be read ahead.
  std::unique_ptr<PageWriter> writer_;
};

}  // namespace

WrittenTable& WrittenTable::operator=(WrittenTable&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  tables_ = std::exchange(other.tables_, nullptr);
  info_ = std::move(other.info_);
  hashes_ = std::move(other.hashes_);
  return *this;
}

// If the file cannot be deleted the next opening removes it; until then its space is taken.
void WrittenTable::Remove() {
  TableSet* const tables = std::exchange(tables_, nullptr);
  if (tables == nullptr) return;
  (void)CatchBadAlloc([&] {
    const sstable::TableContext& context = tables->context();
    tables->Forget(info_.number);
    CAIRN_RETURN_IF_ERROR(io::RemoveIfExists(
        *context.files, sstable::SnapshotTablePath(context.directory, info_.number)));
    context.callbacks->ReturnSpace(info_.bytes);
    return Status::Ok();
  });
}

Result<WrittenTable> WriteSealTable(TableSet* tables, const Allocator& allocator,
                                    std::span<SealSource> sources, SealReader* reader,
                                    io::ParallelFor* parallel_for, uint64_t stage_bytes,
                                    StageMemory* stages) {
  CAIRN_CHECK(!sources.empty());
  return SealTable(tables, allocator, reader, parallel_for, stage_bytes, stages).Run(sources);
}

}  // namespace cairn::engine
