// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/ingest_table.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/codec/kv_copy.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/mutex.h"
#include "base/core/out_of_memory.h"
#include "base/io/parallel_for.h"
#include "engine/commit/page_writer.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/fragment_layout.h"

namespace cairn::engine {

namespace {

// One page of a group's KV in the caller's memory. The first may begin within a page of the branch.
class ViewRows final : public PageRows {
 public:
  ViewRows(const LayerGroup& group, const GroupView& view, uint64_t begin, uint64_t count)
      : group_(group), view_(view), map_(view, begin, count) {}

  bool gathers() const override { return true; }
  std::span<std::byte> Plane(uint32_t layer, uint32_t plane,
                             std::span<std::byte> room) const override {
    GatherSlice(group_.planes[plane], view_.planes[plane], layer, map_, room.data());
    return room.first(SliceBytes(group_.planes[plane], map_.count()));
  }

 private:
  const LayerGroup& group_;
  const GroupView& view_;
  const PositionMap map_;
};

// The same in the memory of a GPU. The first failure is set in `failed`, which all share.
class GpuRows final : public PageRows {
 public:
  struct Failed {
    Mutex mutex;
    Status status CAIRN_GUARDED_BY(mutex);
    void Set(Status why) {
      const MutexLock lock(&mutex);
      if (status.ok()) status = std::move(why);
    }
    Status Get() {
      const MutexLock lock(&mutex);
      return status;
    }
  };
  GpuRows(const GpuSource& source, const LayerGroup& group, size_t index, uint64_t begin,
          uint64_t count, Failed* failed)
      : source_(source),
        group_(group),
        index_(index),
        begin_(begin),
        count_(count),
        failed_(failed) {}

  bool gathers() const override { return true; }
  std::span<std::byte> Plane(uint32_t layer, uint32_t plane,
                             std::span<std::byte> room) const override {
    const std::span<std::byte> rows = room.first(SliceBytes(group_.planes[plane], count_));
    const GpuSource::Slice slice{index_, layer, plane, begin_, count_, rows.data()};
    Status gathered = failed_->Get();
    if (gathered.ok()) gathered = CatchBadAlloc([&] { return source_.Gather({&slice, 1}); });
    if (!gathered.ok()) {
      std::fill(rows.begin(), rows.end(), std::byte{0});  // The table is discarded.
      failed_->Set(std::move(gathered));
    }
    return rows;
  }

 private:
  const GpuSource& source_;
  const LayerGroup& group_;
  const size_t index_;
  const uint64_t begin_, count_;
  Failed* const failed_;
};

// One page of the view, from the caller's memory or a GPU.
std::shared_ptr<const PageRows> RowsAt(const IngestSource& source, const GroupView& view,
                                       const LayerGroup& group, uint64_t begin, uint64_t count,
                                       GpuRows::Failed* failed) {
  if (source.gpu == nullptr) return std::make_shared<const ViewRows>(group, view, begin, count);
  const auto index = static_cast<size_t>(&view - source.delta->kv->groups.data());
  return std::make_shared<const GpuRows>(*source.gpu, group, index, begin, count, failed);
}

// What packing leaves of the view's KV, by one head of each of some pages.
double PackedShare(const IngestSource& source, const GroupView& view, const FragmentLayout& layout,
                   const Allocator& allocator) {
  uint64_t raw = 0, packed = 0;
  GpuRows::Failed failed;
  for (uint64_t i = 0; i < kIngestSamples; ++i) {
    const uint64_t at = view.position + view.count * i / kIngestSamples;
    const uint64_t count = std::min<uint64_t>(layout.page_rows(), view.position + view.count - at);
    const auto slice = static_cast<uint32_t>(layout.slices() * i / kIngestSamples);
    const HeadSlice head = layout.At(slice);
    const FrameShape shape = layout.Shape(slice, static_cast<uint32_t>(count));
    const Plane& plane = layout.group().planes[head.plane];
    const AlignedBuffer room =
        AlignedBuffer::TryAllocate(allocator, SliceBytes(plane, count), io::kBlockBytes);
    const AlignedBuffer out =
        AlignedBuffer::TryAllocate(allocator, MaxFrameBytes(shape), io::kBlockBytes);
    if (room.empty() || out.empty()) return 1;
    const auto rows = RowsAt(source, view, layout.group(), at, count, &failed);
    const std::span<std::byte> frame =
        rows->Plane(head.layer, head.plane, room.span())
            .subspan(head.head * shape.raw_bytes(), shape.raw_bytes());
    const FrameScales scales = layout.Scales(slice);
    if (scales != FrameScales::kNone) QuantiseFrame(shape, scales, frame);
    raw += frame.size();
    packed += EncodeFrame(shape, frame, out.span(), {.scales = scales});
  }
  if (!failed.Get().ok()) return 1;
  return static_cast<double>(packed) / static_cast<double>(raw);
}

class IngestTable {
 public:
  IngestTable(const IngestContext& context, const IngestSource& source)
      : context_(context), source_(source) {
    if (source.delta->kv == nullptr) return;
    for (const GroupView& view : source.delta->kv->groups) {
      if (view.count != 0) views_.push_back(&view);
    }
    std::sort(views_.begin(), views_.end(), [](const GroupView* a, const GroupView* b) {
      return std::pair(a->group, a->position) < std::pair(b->group, b->position);
    });
    for (const GroupView* view : views_) layouts_.emplace_back(*source.model, 1 + view->group);
  }

  Result<Ingested> Run() {
    CAIRN_RETURN_IF_ERROR(context_.go_on());
    CAIRN_RETURN_IF_ERROR(TakeMemory());
    io::ParallelFor parallel_for(*context_.scheduler, context_.executor, context_.helpers);
    CAIRN_ASSIGN_OR_RETURN(const auto writer,
                           PageWriter::Create({.tables = context_.tables,
                                               .allocator = context_.allocator,
                                               .parallel_for = &parallel_for,
                                               .batch_bytes = batch_bytes_,
                                               .write_bytes = write_bytes_,
                                               .go_on = [this](uint64_t) { return GoOn(); }}));
    if (source_.tokens) {
      const FragmentLayout layout(*source_.model, kTokenLane);
      const std::span<const TokenId> ids = source_.delta->tokens;
      CAIRN_RETURN_IF_ERROR(writer->AddTokens(
          Range(kTokenLane, source_.length, ids.size(), /*exact=*/true), layout, ids));
    }
    for (size_t i = 0; i < views_.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(AddPages(*views_[i], layouts_[i], writer.get()));
    }
    CAIRN_RETURN_IF_ERROR(writer->Pack());
    CAIRN_RETURN_IF_ERROR(GoOn());
    CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer->Finish());
    CAIRN_CHECK(done_.ranges.size() == writer->stored_bytes().size());
    for (size_t i = 0; i < done_.ranges.size(); ++i) {
      done_.ranges[i].stored_bytes = writer->stored_bytes()[i];
    }
    done_.table = {writer->number(), info.bytes};
    done_.raw_bytes = info.raw_bytes;
    return std::move(done_);
  }

 private:
  // If memory is short fewer layers are packed ahead, and the table is written in smaller pieces.
  Status TakeMemory() {
    uint64_t layer_bytes = 0;  // Enough for every layer of every page.
    for (size_t i = 0; i < views_.size(); ++i) {
      const auto rows = std::min<uint64_t>(layouts_[i].page_rows(), views_[i]->count);
      layer_bytes = std::max(
          layer_bytes, PageWriter::GatheredLayerBytes(layouts_[i], static_cast<uint32_t>(rows)));
    }
    const uint64_t may_have = context_.memory->bytes_max() / kIngestAtOnce;
    uint64_t writes = sstable::kSnapshotWriteBuffers * sstable::kSnapshotWriteBytes;
    if (writes > may_have / 2) {
      write_bytes_ = sstable::kQuietWriteBytes;
      writes = sstable::kSnapshotWriteBuffers * write_bytes_;
    }
    uint64_t layers = 0;  // In each of two batches.
    if (layer_bytes != 0) {
      const uint64_t room = (may_have - std::min(may_have, writes)) / layer_bytes;
      layers = std::clamp<uint64_t>(room / 2, kIngestLayersMin, 1 + uint64_t{context_.helpers});
    }
    batch_bytes_ = layers * layer_bytes;
    if (!CAIRN_KEPT(kBoundOfIngests)) return Status::Ok();
    CAIRN_ASSIGN_OR_RETURN(share_,
                           context_.memory->Take(writes + 2 * batch_bytes_, context_.go_on));
    return Status::Ok();
  }

  Status AddPages(const GroupView& view, const FragmentLayout& layout, PageWriter* writer) {
    const uint64_t end = view.position + view.count;
    for (uint64_t at = view.position; at < end;) {
      const uint64_t page_end = std::min(end, (at / layout.page_rows() + 1) * layout.page_rows());
      const PageRange range = Range(1 + view.group, at, page_end - at, source_.delta->exact);
      CAIRN_RETURN_IF_ERROR(writer->AddKv(range, layout, RowsOf(view, layout, at, page_end - at)));
      at = page_end;
    }
    return Status::Ok();
  }

  Status GoOn() {
    CAIRN_RETURN_IF_ERROR(failed_.Get());
    return context_.go_on();
  }
  std::shared_ptr<const PageRows> RowsOf(const GroupView& view, const FragmentLayout& layout,
                                         uint64_t begin, uint64_t count) {
    return RowsAt(source_, view, layout.group(), begin, count, &failed_);
  }

  PageRange Range(uint32_t lane, uint64_t begin, uint64_t count, bool exact) {
    const auto positions = static_cast<uint32_t>(count);
    done_.ranges.push_back({source_.node, begin, lane, positions, 0});
    return {source_.node, lane, begin, positions, exact};
  }

  const IngestContext& context_;
  const IngestSource& source_;
  std::vector<const GroupView*> views_;  // Groups that have KV, ascending.
  std::vector<FragmentLayout> layouts_;  // Their layouts.
  MemoryLine::Share share_;              // For all packing and writing.
  uint64_t batch_bytes_ = 0;
  size_t write_bytes_ = sstable::kSnapshotWriteBytes;
  GpuRows::Failed failed_;
  Ingested done_;
};

}  // namespace

uint64_t PackedBytesAbout(const IngestSource& source, Allocator allocator) {
  uint64_t bytes = source.delta->tokens.size_bytes();
  if (source.delta->kv == nullptr) return bytes;
  for (const GroupView& view : source.delta->kv->groups) {
    if (view.count == 0) continue;
    const FragmentLayout layout(*source.model, 1 + view.group);
    bytes += static_cast<uint64_t>(static_cast<double>(view.count * layout.position_bytes()) *
                                   PackedShare(source, view, layout, allocator));
  }
  return bytes;
}

Result<Ingested> WriteIngestTable(const IngestContext& context, const IngestSource& source) {
  return IngestTable(context, source).Run();
}

}  // namespace cairn::engine
