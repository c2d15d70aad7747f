// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/file_tier.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/core/out_of_memory.h"

namespace cairn::engine {

namespace {

bool LiesBefore(const ReadJob& a, const ReadJob& b) {
  return a.file != b.file ? a.file < b.file : a.offset < b.offset;
}

}  // namespace

void FileTier::Serve(std::span<ItemRun> items) {
  items_ = items;
  AddRecords();
  AddFragments();
  if (jobs_.empty()) return;
  const auto pipeline = std::make_shared<ReadPipeline>(deps_.world, deps_.executor, deps_.helpers,
                                                       deps_.pool, this, deps_.deadline_ns);
  // Damage does not end it yet: there may be more below.
  pipeline->Run(std::exchange(jobs_, {}));
  AddFrames();
  pipeline->Run(std::exchange(jobs_, {}));
}

void FileTier::AddRecords() {
  for (size_t i = 0; i < items_.size(); ++i) {
    ItemRun& item = items_[i];
    for (size_t k = 0; k < item.plan.jobs.size() && !item.outcome.ended(); ++k) {
      if (item.HasRecord(k)) continue;
      const RecordJob& record = item.plan.jobs[k];
      uint64_t first = UINT64_MAX;
      for (const RecordPiece& piece : record.pieces)
        first = std::min(first, piece.Target(piece.begin));
      jobs_.push_back({record.location.segment, ReadJob::Kind::kRecord,
                       uint64_t{record.location.offset} + record.read_offset, record.read_bytes,
                       first, k, i});
      ++item.hits.log_records;
    }
  }
  if (items_.size() > 1) std::stable_sort(jobs_.begin(), jobs_.end(), LiesBefore);
}

// After the records: the log is read first, since a chain of deltas ends there.
void FileTier::AddFragments() {
  const auto first = static_cast<ptrdiff_t>(jobs_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].outcome.ended()) continue;
    for (size_t k = 0; k < items_[i].open.size(); ++k) {
      const OpenPiece& open = items_[i].open[k];
      if (open.missing == 0) continue;
      const sstable::FragmentEntry& fragment = open.fragment;
      const bool small = open.small();
      jobs_.push_back({open.piece.table, small ? ReadJob::Kind::kFragment : ReadJob::Kind::kEntries,
                       small ? fragment.offset : fragment.entries_offset,
                       small ? fragment.bytes() : fragment.entries_bytes(),
                       open.piece.Target(open.piece.begin), k, i});
    }
  }
  std::stable_sort(jobs_.begin() + first, jobs_.end(), LiesBefore);
}

// Adds the frames of fragments whose entries were read.
void FileTier::AddFrames() {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].outcome.ended()) continue;
    for (size_t k = 0; k < items_[i].open.size(); ++k) {
      const OpenPiece& open = items_[i].open[k];
      if (open.entries.empty()) continue;
      for (uint32_t slice = open.first_slice; slice < open.end_slice; ++slice) {
        for (uint32_t page = open.first_page; page < open.end_page; ++page) {
          if (open.IsCached(slice, page)) continue;
          const sstable::FrameEntry& entry = open.entry(slice, page);
          jobs_.push_back({open.piece.table, ReadJob::Kind::kFrame, entry.offset,
                           entry.stored_bytes, open.FirstPosition(page), frames_.size(), i});
          frames_.push_back({k, slice, page});
        }
      }
    }
  }
  // Layer by layer, where a layer of a fragment is worth a read of its own: so the first layers are
  // complete while the last are still on disk.
  std::stable_sort(jobs_.begin(), jobs_.end(), [this](const ReadJob& a, const ReadJob& b) {
    const uint32_t layer_a = LayerOf(a), layer_b = LayerOf(b);
    return layer_a != layer_b ? layer_a < layer_b : LiesBefore(a, b);
  });
}

OpenPiece& FileTier::PieceOf(const ReadJob& job) {
  const bool frame = job.kind == ReadJob::Kind::kFrame;
  return items_[job.item].open[frame ? frames_[job.index].piece : job.index];
}

uint32_t FileTier::LayerOf(const ReadJob& job) {
  const OpenPiece& open = PieceOf(job);
  if (open.piece.lane == kTokenLane || open.is_state()) return 0;
  const FrameJob& frame = frames_[job.index];
  const uint64_t layer_bytes = uint64_t{open.entry(frame.slice, frame.page).stored_bytes} *
                               open.fragment.pages * open.layout.slices_per_layer();
  return layer_bytes < kReadPieceBytes ? 0 : 1 + open.layout.At(frame.slice).layer;
}

Result<std::shared_ptr<io::File>> FileTier::OpenFor(const ReadJob& job, bool waits) {
  if (!job.in_table()) return deps_.log->OpenSegment(job.file);
  return PieceOf(job).table->OpenFile(waits);
}

Status FileTier::Work(const ReadJob& job, const ReadBytes& bytes, uint64_t* first_position) {
  ItemRun& item = items_[job.item];
  switch (job.kind) {
    case ReadJob::Kind::kRecord:
      CAIRN_RETURN_IF_ERROR(item.sink->Record(item.plan.jobs[job.index], bytes, true));
      break;
    case ReadJob::Kind::kFragment:
      CAIRN_RETURN_IF_ERROR(WorkOnFragment(job.item, job.index, bytes, first_position));
      break;
    case ReadJob::Kind::kEntries: {
      OpenPiece& open = item.open[job.index];
      CAIRN_ASSIGN_OR_RETURN(open.entries, open.table->ParseFrames(open.fragment, bytes.bytes()));
      return Status::Ok();
    }
    case ReadJob::Kind::kFrame:
      CAIRN_RETURN_IF_ERROR(item.sink->Frame(frames_[job.index], bytes));
      break;
  }
  item.outcome.JobDone();
  return Status::Ok();
}

// Jobs of an item mostly follow each other; calling a sink twice does no harm.
void FileTier::WindowDone(std::span<const ReadJob> jobs, size_t buffer) {
  size_t last = SIZE_MAX;
  for (const ReadJob& job : jobs) {
    if (job.item == last) continue;
    last = job.item;
    ItemRun& item = items_[job.item];
    if (item.sink == nullptr) continue;
    const Status status = CatchBadAlloc([&] { return item.sink->WindowDone(buffer); });
    if (!status.ok()) item.outcome.End(status);
  }
}

Status FileTier::WorkOnFragment(size_t item, size_t piece, const ReadBytes& bytes,
                                uint64_t* first_position) {
  OpenPiece& open = items_[item].open[piece];
  const sstable::FragmentEntry& fragment = open.fragment;
  const std::span<const std::byte> entries =
      bytes.bytes().subspan(fragment.entries_offset - fragment.offset);
  CAIRN_ASSIGN_OR_RETURN(open.entries, open.table->ParseFrames(fragment, entries));
  const Status status = items_[item].sink->Fragment(piece, bytes, first_position);
  open.entries.clear();  // There is nothing left to be read.
  return status;
}

bool FileTier::AnyWanted() {
  return std::any_of(items_.begin(), items_.end(), [](ItemRun& item) {
    return !item.outcome.Cancelled() && !item.outcome.ended();
  });
}

void FileTier::StopAll(const Status& status) {
  for (ItemRun& item : items_) item.outcome.Stop(status);
}

bool FileTier::Reclaim(uint64_t deadline_ns) {
  bool some = false;
  for (ItemRun& item : items_) {
    if (item.sink != nullptr) some |= item.sink->Reclaim(some ? 0 : deadline_ns);
  }
  return some;
}

}  // namespace cairn::engine
