// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/ingest_table.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <new>

#include "base/codec/kv_copy.h"
#include "base/codec/kv_frame.h"
#include "base/codec/token_block.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/constants.h"
#include "engine/tree/fragment_layout.h"

namespace cairn::engine {

namespace {

// One page of a group's KV: a fragment. The first may begin within a page of the branch.
struct Page {
  const GroupView* view;
  const FragmentLayout* layout;
  PositionMap map;
  uint32_t rows() const { return static_cast<uint32_t>(map.count()); }
};

// One layer of a page on its way. Whoever takes it packs it.
struct Layer {
  enum State : uint32_t { kOpen, kTaken, kPacked };
  std::atomic<uint32_t> state{kTaken};
  std::shared_ptr<const Page> page;
  uint32_t layer = 0;
  AlignedBuffer raw, packed;            // Of one plane; of all.
  std::vector<uint32_t> stored, bytes;  // Of each frame; before it was packed.

  bool IsPacked() const { return state.load(std::memory_order_acquire) == kPacked; }
  bool Take() {
    uint32_t open = kOpen;
    return state.compare_exchange_strong(open, kTaken, std::memory_order_acq_rel);
  }
};

// Nothing is allocated here, since a job must not throw.
void Pack(Layer* work) {
  const Page& page = *work->page;
  const LayerGroup& group = page.layout->group();
  size_t frame = 0, at = 0;
  for (size_t p = 0; p < group.planes.size(); ++p) {
    const Plane& plane = group.planes[p];
    GatherSlice(plane, page.view->planes[p], work->layer, page.map, work->raw.data());
    for (uint32_t head = 0; head < plane.heads; ++head, ++frame) {
      const uint32_t slice =
          work->layer * page.layout->slices_per_layer() + static_cast<uint32_t>(frame);
      const FrameShape shape = page.layout->Shape(slice, page.rows());
      const FrameScales scales = page.layout->Scales(slice);
      const auto raw = work->raw.span().subspan(head * shape.raw_bytes(), shape.raw_bytes());
      if (scales != FrameScales::kNone) QuantiseFrame(shape, scales, raw);
      const size_t stored =
          EncodeFrame(shape, raw, work->packed.span().subspan(at), {.scales = scales});
      work->stored[frame] = static_cast<uint32_t>(stored);
      work->bytes[frame] = static_cast<uint32_t>(shape.raw_bytes());
      at += stored;
    }
  }
}

class IngestTable {
 public:
  IngestTable(const IngestContext& context, const IngestSource& source)
      : context_(context), source_(source) {
    if (source.delta->kv == nullptr) return;
    for (const GroupView& view : source.delta->kv->groups) {
      if (view.count != 0) views_.push_back(&view);
    }
    std::sort(views_.begin(), views_.end(),
              [](const GroupView* a, const GroupView* b) { return a->group < b->group; });
    for (const GroupView* view : views_) layouts_.emplace_back(*source.model, 1 + view->group);
  }

  // No job may work on the caller's memory when this is over. One that comes late has the layer,
  // but nothing to do with it, and must not keep its memory.
  ~IngestTable() {
    for (const auto& layer : ahead_) {
      if (!layer->Take()) AwaitPacked(*layer);
      free_.push_back(layer);
    }
    for (const auto& layer : free_) {
      layer->raw = AlignedBuffer();
      layer->packed = AlignedBuffer();
    }
  }

  Result<Ingested> Run() {
    CAIRN_RETURN_IF_ERROR(context_.go_on());
    CAIRN_RETURN_IF_ERROR(TakeMemory());
    CAIRN_ASSIGN_OR_RETURN(const uint64_t number, context_.tables.host->NewTableNumber());
    CAIRN_ASSIGN_OR_RETURN(
        writer_, sstable::SnapshotWriter::Create(context_.tables, sstable::SnapshotKind::kPages,
                                                 number, write_bytes_));
    if (source_.tokens) CAIRN_RETURN_IF_ERROR(WriteTokens());
    while (true) {
      while (!free_.empty() && NextLayer()) PackAhead();
      if (ahead_.empty()) break;
      CAIRN_RETURN_IF_ERROR(context_.go_on());
      // Rather than wait for a job this thread packs what comes behind.
      const std::shared_ptr<Layer> layer = ahead_.front();
      for (size_t i = 0; i < ahead_.size() && !layer->IsPacked(); ++i) {
        if (!ahead_[i]->Take()) continue;
        Pack(ahead_[i].get());
        ahead_[i]->state.store(Layer::kPacked, std::memory_order_relaxed);
      }
      AwaitPacked(*layer);
      CAIRN_RETURN_IF_ERROR(Write(*layer));
      ahead_.pop_front();
      free_.push_back(layer);
    }
    CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info, writer_->Finish());
    done_.table = {number, info.bytes};
    done_.raw_bytes = info.raw_bytes;
    return std::move(done_);
  }

 private:
  // A layer that is large enough for every layer of every page.
  void MeasureLayers() {
    for (size_t i = 0; i < views_.size(); ++i) {
      const FragmentLayout& layout = layouts_[i];
      const auto rows =
          static_cast<uint32_t>(std::min<uint64_t>(layout.page_rows(), views_[i]->count));
      uint64_t packed = 0;
      for (uint32_t slice = 0; slice < layout.slices_per_layer(); ++slice) {
        packed += MaxFrameBytes(layout.Shape(slice, rows));
      }
      for (const Plane& plane : layout.group().planes) {
        raw_bytes_ = std::max(raw_bytes_, SliceBytes(plane, rows));
      }
      packed_bytes_ = std::max(packed_bytes_, packed);
      frames_ = std::max<size_t>(frames_, layout.slices_per_layer());
    }
  }

  // Where memory is short fewer layers are packed ahead, and the table is written in smaller
  // pieces.
  Status TakeMemory() {
    MeasureLayers();
    const uint64_t layer_bytes = raw_bytes_ + packed_bytes_;
    const uint64_t may_have = context_.memory->bytes_max() / kIngestAtOnce;
    uint64_t writes = sstable::kSnapshotWriteBuffers * sstable::kSnapshotWriteBytes;
    if (writes > may_have / 2) {
      write_bytes_ = sstable::kQuietWriteBytes;
      writes = sstable::kSnapshotWriteBuffers * write_bytes_;
    }
    uint64_t layers = 0;
    if (layer_bytes != 0) {
      const uint64_t room = (may_have - std::min(may_have, writes)) / layer_bytes;
      layers = std::clamp<uint64_t>(room, kIngestLayersMin, 2 * (1 + uint64_t{context_.helpers}));
    }
    if (CAIRN_KEPT(kBoundOfIngests)) {
      CAIRN_ASSIGN_OR_RETURN(share_,
                             context_.memory->Take(writes + layers * layer_bytes, context_.go_on));
    }
    return AllocateLayers(layers);
  }

  Status AllocateLayers(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      auto layer = std::make_shared<Layer>();
      layer->raw = AlignedBuffer::TryAllocate(context_.allocator, raw_bytes_, io::kBlockBytes);
      layer->packed =
          AlignedBuffer::TryAllocate(context_.allocator, packed_bytes_, io::kBlockBytes);
      if (layer->raw.empty() || layer->packed.empty()) {
        return Status(
            StatusCode::kOutOfMemory,
            "packing a layer needs " + std::to_string(raw_bytes_ + packed_bytes_) + " bytes");
      }
      layer->stored.resize(frames_);
      layer->bytes.resize(frames_);
      free_.push_back(std::move(layer));
    }
    return Status::Ok();
  }

  // Moves on to the next layer, page, group; false when there is none.
  bool NextLayer() {
    if (page_ != nullptr && ++layer_ < page_->layout->group().layers) return true;
    layer_ = 0;
    if (page_ != nullptr) {
      position_ += page_->rows();
      if (position_ == views_[view_]->position + views_[view_]->count) {
        ++view_;
        page_ = nullptr;
      }
    }
    if (view_ == views_.size()) return false;
    const GroupView& view = *views_[view_];
    if (page_ == nullptr) position_ = view.position;
    const uint64_t page_rows = layouts_[view_].page_rows();
    const uint64_t end =
        std::min(view.position + view.count, (position_ / page_rows + 1) * page_rows);
    page_ = std::make_shared<const Page>(
        Page{&view, &layouts_[view_], PositionMap(view, position_, end - position_)});
    return true;
  }

  void PackAhead() {
    const std::shared_ptr<Layer> layer = free_.back();
    free_.pop_back();
    ahead_.push_back(layer);
    layer->page = page_;
    layer->layer = layer_;
    layer->state.store(Layer::kOpen, std::memory_order_release);
    // It may come late, when all this is over or the layer is another one: it then finds nothing to
    // take, or helps with that.
    try {
      context_.executor->Post([layer, scheduler = context_.scheduler] {
        if (!layer->Take()) return;
        Pack(layer.get());
        layer->state.store(Layer::kPacked, std::memory_order_release);
        scheduler->WakeAll(layer->state);
      });
    } catch (const std::bad_alloc&) {  // Then it is packed when its turn comes.
    }
  }

  void AwaitPacked(Layer& layer) {
    while (layer.state.load(std::memory_order_acquire) == Layer::kTaken) {
      context_.scheduler->Wait(layer.state, Layer::kTaken, io::kNoDeadline);
    }
  }

  void BeginFragment(uint32_t lane, uint64_t begin, uint64_t count, const FragmentLayout& layout) {
    writer_->BeginFragment(
        {.node = source_.node,
         .lane = lane,
         .begin = begin,
         .count = static_cast<uint32_t>(count),
         .page_rows = layout.page_rows(),
         .slices = layout.slices(),
         .flags = lane == kTokenLane || source_.delta->exact ? 0 : sstable::kApproximateFragment});
    done_.ranges.push_back({source_.node, begin, lane, static_cast<uint32_t>(count), 0});
  }

  Status Add(std::span<const std::byte> stored, uint64_t raw_bytes) {
    done_.ranges.back().stored_bytes += stored.size();
    return writer_->AddFrame(stored, static_cast<uint32_t>(raw_bytes));
  }

  Status WriteTokens() {
    const FragmentLayout layout(*source_.model, kTokenLane);
    const std::span<const TokenId> ids = source_.delta->tokens;
    BeginFragment(kTokenLane, source_.length, ids.size(), layout);
    for (size_t at = 0; at < ids.size(); at += layout.page_rows()) {
      const auto page = ids.subspan(at, std::min<size_t>(layout.page_rows(), ids.size() - at));
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> block, EncodeTokens(page));
      CAIRN_RETURN_IF_ERROR(Add(block, page.size_bytes()));
    }
    return Status::Ok();
  }

  Status Write(const Layer& layer) {
    const Page& page = *layer.page;
    if (layer.layer == 0) {
      const uint32_t lane = 1 + page.view->group;
      const bool goes_on = !done_.ranges.empty() && done_.ranges.back().lane == lane;
      const uint64_t begin =
          goes_on ? done_.ranges.back().begin + done_.ranges.back().count : page.view->position;
      BeginFragment(lane, begin, page.rows(), *page.layout);
    }
    size_t at = 0;
    for (uint32_t frame = 0; frame < page.layout->slices_per_layer(); ++frame) {
      CAIRN_RETURN_IF_ERROR(
          Add(layer.packed.span().subspan(at, layer.stored[frame]), layer.bytes[frame]));
      at += layer.stored[frame];
    }
    return Status::Ok();
  }

  const IngestContext& context_;
  const IngestSource& source_;
  std::vector<const GroupView*> views_;        // Of groups that have something, ascending.
  std::vector<FragmentLayout> layouts_;        // Of those.
  MemoryLine::Share share_;                    // Of all that comes behind it.
  uint64_t raw_bytes_ = 0, packed_bytes_ = 0;  // Of a layer.
  size_t frames_ = 0;
  size_t write_bytes_ = sstable::kSnapshotWriteBytes;
  std::unique_ptr<sstable::SnapshotWriter> writer_;
  Ingested done_;
  // Where NextLayer is.
  size_t view_ = 0;
  uint64_t position_ = 0;
  std::shared_ptr<const Page> page_;
  uint32_t layer_ = 0;
  std::vector<std::shared_ptr<Layer>> free_;
  std::deque<std::shared_ptr<Layer>> ahead_;  // In the order of the table.
};

}  // namespace

Result<Ingested> WriteIngestTable(const IngestContext& context, const IngestSource& source) {
  return IngestTable(context, source).Run();
}

}  // namespace cairn::engine
