// SPDX-License-Identifier: Apache-2.0
#include "engine/space/seal_table.h"

#include <algorithm>

#include "base/codec/kv_copy.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/constants.h"
#include "engine/pages/page_writer.h"
#include "engine/space/prove_table.h"
#include "engine/tree/fragment_layout.h"
#include "engine/tree/seal_source.h"

namespace cairn::engine {

namespace {

// The rows of a source, staged as frames want them: [layer][plane][head][position][row].
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

  bool gathers() const override { return false; }
  std::span<std::byte> Plane(uint32_t layer, uint32_t plane,
                             std::span<std::byte> /*room*/) const override {
    return {bases_[plane][layer], SliceBytes(group_.planes[plane], count_)};
  }
  // Refers to this.
  std::vector<PlaneView> Views() const {
    std::vector<PlaneView> views;
    for (size_t plane = 0; plane < bases_.size(); ++plane) {
      const int64_t row = group_.planes[plane].row_bytes;
      views.push_back({.layer_bases = bases_[plane],
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

class SealTable {
 public:
  SealTable(TableSet* tables, const Allocator& allocator, SealReader* reader,
            io::ParallelFor* parallel_for)
      : tables_(tables), allocator_(allocator), reader_(reader), parallel_for_(parallel_for) {}

  Result<sstable::SnapshotInfo> Run(std::span<SealSource> sources) {
    CAIRN_ASSIGN_OR_RETURN(writer_, PageWriter::Create({.tables = tables_->context(),
                                                        .allocator = allocator_,
                                                        .parallel_for = parallel_for_,
                                                        .batch_bytes = kFrameBatchBytes,
                                                        .write_bytes = sstable::kQuietWriteBytes,
                                                        .hashes = true,
                                                        .go_on = [this](uint64_t stored_bytes) {
                                                          return reader_->Take(0, stored_bytes);
                                                        }}));
    for (const SealSource& source : sources) CAIRN_RETURN_IF_ERROR(Add(source));
    CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer_->Finish());
    for (size_t i = 0; i < sources.size(); ++i) {
      sources[i].stored_bytes = writer_->stored_bytes()[i];
    }
    const uint64_t number = writer_->number();
    const Status proved = Guarded([&] {
      return ProveTable(tables_, number, sources, writer_->hashes(), allocator_, reader_,
                        parallel_for_);
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
  Status Add(const SealSource& source) {
    const PageRange range{source.node, source.lane, source.begin, source.count, source.exact()};
    if (source.lane == kSamplerLane || source.lane == kMetadataLane) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> state, reader_->ReadState(source));
      return writer_->AddState(range, state);
    }
    const FragmentLayout layout(*source.model, source.lane);
    if (source.lane != kTokenLane) return AddKv(source, range, layout);
    std::vector<TokenId> ids(source.count);
    CAIRN_RETURN_IF_ERROR(reader_->ReadTokens(source, ids));
    return writer_->AddTokens(range, layout, ids);
  }

  Status AddKv(const SealSource& source, const PageRange& range, const FragmentLayout& layout) {
    const uint64_t bytes = layout.position_bytes() * source.count;
    if (stage_.size() < bytes) {
      stage_ = AlignedBuffer::TryAllocate(allocator_, bytes, io::kBlockBytes);
      if (stage_.empty()) {
        return Status(StatusCode::kOutOfMemory,
                      "sealing needs " + std::to_string(bytes) + " bytes at once");
      }
    }
    const auto rows =
        std::make_shared<const StagedRows>(layout.group(), source.count, stage_.data());
    const std::vector<PlaneView> planes = rows->Views();
    CAIRN_RETURN_IF_ERROR(reader_->ReadKv(source, {.group = source.lane - 1,
                                                   .position = source.begin,
                                                   .count = source.count,
                                                   .planes = planes}));
    CAIRN_RETURN_IF_ERROR(writer_->AddKv(range, layout, rows));
    return writer_->Pack();  // The next source is staged in the same place.
  }

  TableSet* const tables_;
  const Allocator allocator_;
  SealReader* const reader_;
  io::ParallelFor* const parallel_for_;
  AlignedBuffer stage_;
  std::unique_ptr<PageWriter> writer_;
};

}  // namespace

Result<sstable::SnapshotInfo> WriteSealTable(TableSet* tables, const Allocator& allocator,
                                             std::span<SealSource> sources, SealReader* reader,
                                             io::ParallelFor* parallel_for) {
  CAIRN_CHECK(!sources.empty());
  return SealTable(tables, allocator, reader, parallel_for).Run(sources);
}

}  // namespace cairn::engine
