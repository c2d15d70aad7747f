// SPDX-License-Identifier: Apache-2.0
//
// The read path: plan under the lock; what the hot tail holds is scattered at once; the rest comes
// through the pipeline.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/restore/pipeline.h"
#include "engine/restore/scatter.h"
#include "engine/space/crew.h"
#include "engine/store_core.h"
#include "engine/tree/retention.h"

namespace cairn {

using engine::FrameJob;
using engine::OpenPiece;
using engine::ReadJob;
using engine::RecordJob;
using engine::RestorePlan;

// What a pipeline needs to know to run one restore. First what the page cache has is scattered, and
// only what is missing goes on. Then what is known to be wanted is read:
// records, small fragments as a whole, and the entries of large ones; then the frames that these
// name.
class RestoreRun final : public engine::PipelineHost {
 public:
  RestoreRun(StoreCore* core, StoreCore::Reader reader, engine::Scatterer* scatterer,
             std::span<OpenPiece> open)
      : core_(core), reader_(reader), scatterer_(scatterer), open_(open) {}

  // What the page cache has, layer by layer. Looking up and copying frames is shared with helpers.
  Status TakeCached(const TicketState* ticket, engine::Crew* crew) {
    uint32_t slices = 0;
    for (size_t i = 0; i < open_.size(); ++i) {
      OpenPiece& open = open_[i];
      if (!open.small()) {
        slices = std::max(slices, open.end_slice);
        open.cached.resize(open.frames());
      } else if (scatterer_->ScatterCachedFragment(i)) {
        cached_ += std::exchange(open.missing, 0);
      }
    }
    const auto take_slice = [&](size_t index) {
      if (ticket != nullptr && ticket->cancel_requested()) {
        return Status(StatusCode::kCancelled, "the restore was cancelled");
      }
      const auto slice = static_cast<uint32_t>(index);
      for (size_t i = 0; i < open_.size(); ++i) {
        OpenPiece& open = open_[i];
        if (open.small() || slice < open.first_slice || slice >= open.end_slice) continue;
        for (uint32_t page = open.first_page; page < open.end_page; ++page) {
          const bool found = scatterer_->ScatterCached({i, slice, page});
          open.cached[open.IndexOfWanted(slice, page)] = found ? 1 : 0;
        }
      }
      return Status::Ok();
    };
    CAIRN_RETURN_IF_ERROR(crew->Run([] { return Status::Ok(); }, slices, take_slice));
    for (OpenPiece& open : open_) {
      if (open.small()) continue;
      const auto found =
          static_cast<size_t>(std::count(open.cached.begin(), open.cached.end(), uint8_t{1}));
      open.missing -= found;
      cached_ += found;
    }
    return Status::Ok();
  }
  uint64_t cached() const { return cached_; }

  void Add(const RecordJob& record) {
    uint64_t first = UINT64_MAX;
    for (const engine::RecordPiece& piece : record.pieces) first = std::min(first, piece.begin);
    jobs_.push_back({record.location.segment, ReadJob::Kind::kRecord, record.location.offset,
                     record.read_bytes, first, records_.size()});
    records_.push_back(&record);
  }

  // After the records: the log is read first, since a chain of deltas ends there.
  void AddFragments() {
    const auto first = static_cast<ptrdiff_t>(jobs_.size());
    for (size_t i = 0; i < open_.size(); ++i) {
      if (open_[i].missing == 0) continue;
      const sstable::FragmentEntry& fragment = open_[i].fragment;
      const bool small = open_[i].small();
      jobs_.push_back(
          {open_[i].piece.table, small ? ReadJob::Kind::kFragment : ReadJob::Kind::kEntries,
           small ? fragment.offset : fragment.entries_offset,
           small ? fragment.bytes() : fragment.entries_bytes(), open_[i].piece.begin, i});
    }
    std::stable_sort(jobs_.begin() + first, jobs_.end(), [](const ReadJob& a, const ReadJob& b) {
      return a.file != b.file ? a.file < b.file : a.offset < b.offset;
    });
  }

  // Of the fragments whose entries were read.
  void AddFrames() {
    for (size_t i = 0; i < open_.size(); ++i) {
      const OpenPiece& open = open_[i];
      if (open.entries.empty()) continue;
      for (uint32_t slice = open.first_slice; slice < open.end_slice; ++slice) {
        for (uint32_t page = open.first_page; page < open.end_page; ++page) {
          if (open.IsCached(slice, page)) continue;
          const sstable::FrameEntry& entry = open.entry(slice, page);
          jobs_.push_back({open.piece.table, ReadJob::Kind::kFrame, entry.offset,
                           entry.stored_bytes, open.FirstPosition(page), frames_.size()});
          frames_.push_back({i, slice, page});
        }
      }
    }
    // Layer by layer, where a layer of a fragment is worth a read of its own: so the first layers
    // are complete while the last are still on disk.
    std::stable_sort(jobs_.begin(), jobs_.end(), [this](const ReadJob& a, const ReadJob& b) {
      const uint32_t layer_a = LayerOf(a), layer_b = LayerOf(b);
      if (layer_a != layer_b) return layer_a < layer_b;
      if (a.file != b.file) return a.file < b.file;
      return a.offset < b.offset;
    });
  }
  std::vector<ReadJob> TakeJobs() { return std::exchange(jobs_, {}); }

  Result<std::shared_ptr<io::File>> OpenFor(const ReadJob& job) override {
    if (!job.in_table()) return core_->log_->OpenSegment(job.file);
    const bool frame = job.kind == ReadJob::Kind::kFrame;
    const auto& table = open_[frame ? frames_[job.index].piece : job.index].table;
    return std::shared_ptr<io::File>(table, &table->file());
  }
  Status Work(const ReadJob& job, std::span<const std::byte> bytes,
              uint64_t* first_position) override {
    switch (job.kind) {
      case ReadJob::Kind::kRecord: return scatterer_->Scatter(*records_[job.index], bytes, true);
      case ReadJob::Kind::kFragment: return WorkOnFragment(job.index, bytes, first_position);
      case ReadJob::Kind::kEntries: {
        OpenPiece& open = open_[job.index];
        CAIRN_ASSIGN_OR_RETURN(open.entries, open.table->ParseFrames(open.fragment, bytes));
        return Status::Ok();
      }
      case ReadJob::Kind::kFrame: break;
    }
    return scatterer_->ScatterFrame(frames_[job.index], bytes);
  }
  Status BeforeRead(uint64_t bytes) override {
    return reader_ == StoreCore::Reader::kSpace ? core_->pacer_.Take(bytes, 0) : Status::Ok();
  }
  engine::ReadLimits Limits() const override {
    if (reader_ != StoreCore::Reader::kSpace) {
      return {.piece_bytes = engine::kReadPieceBytes,
              .in_flight_bytes = UINT64_MAX,
              .in_line = CAIRN_KEPT(kBoundOfRestores)};
    }
    return {.piece_bytes = engine::kSpacePieceBytes,
            .in_flight_bytes = engine::kSpaceInFlightBytes,
            .in_line = false};
  }

 private:
  Status WorkOnFragment(size_t index, std::span<const std::byte> bytes, uint64_t* first_position) {
    OpenPiece& open = open_[index];
    const sstable::FragmentEntry& fragment = open.fragment;
    CAIRN_ASSIGN_OR_RETURN(open.entries,
                           open.table->ParseFrames(
                               fragment, bytes.subspan(fragment.entries_offset - fragment.offset)));
    const Status status = scatterer_->ScatterFragment(index, bytes, first_position);
    open.entries.clear();  // There is nothing left to be read.
    return status;
  }

  uint32_t LayerOf(const ReadJob& job) const {
    const FrameJob& frame = frames_[job.index];
    const OpenPiece& open = open_[frame.piece];
    if (open.piece.lane == engine::kTokenLane) return 0;
    const uint64_t layer_bytes = uint64_t{open.entry(frame.slice, frame.page).stored_bytes} *
                                 open.fragment.pages * open.layout.slices_per_layer();
    return layer_bytes < engine::kReadPieceBytes ? 0 : 1 + open.layout.At(frame.slice).layer;
  }

  StoreCore* const core_;
  const StoreCore::Reader reader_;
  engine::Scatterer* const scatterer_;
  const std::span<OpenPiece> open_;
  uint64_t cached_ = 0;  // Frames that the page cache had.
  std::vector<FrameJob> frames_;
  std::vector<const RecordJob*> records_;
  std::vector<ReadJob> jobs_;
};

// The tree knows a record from its reservation on; another thread may still be copying its payload.
wal::Pinned StoreCore::FindHot(const wal::Location& location, uint32_t bytes) {
  constexpr uint64_t kPauseNs = 5'000;
  wal::Pinned hot = log_->FindHot(location, bytes);
  while (hot.owner != nullptr && !wal::IsSealed(hot.bytes)) world_.scheduler->Sleep(kPauseNs);
  return hot;
}

namespace {

Status CheckProgress(const RestoreRequest& request, const LayerProgress* progress) {
  if (progress == nullptr) return Status::Ok();
  size_t layers = 0;
  for (size_t i = 0; request.into != nullptr && i < request.into->groups.size(); ++i) {
    layers += request.into->groups[i].planes[0].layer_bases.size();
  }
  if (progress->layers.size() >= layers) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "progress has room for " + std::to_string(progress->layers.size()) +
                    " layers; the view has " + std::to_string(layers));
}

struct FoundState {
  uint64_t position = 0;
  std::vector<std::byte> bytes;
};

// Whoever uses it by now must not see it change: the branch may be another by then.
bool SomeLayerIsDone(const LayerProgress* progress) {
  if (progress == nullptr) return false;
  return std::any_of(progress->layers.begin(), progress->layers.end(),
                     [](const std::atomic<uint32_t>& layer) { return layer.load() != 0; });
}

}  // namespace

template <typename Call>
auto StoreCore::WhileFilesMove(const Call& call) -> decltype(call(nullptr)) {
  uint64_t places = 0;
  auto result = call(&places);
  for (int again = 0; options_.read_only; ++again) {
    const StatusCode code = result.status().code();
    if (places == 0 || (code != StatusCode::kCorruption && code != StatusCode::kNotFound)) break;
    const Status stale(StatusCode::kStale,
                       "the writer has moved what was to be read: " + result.status().ToString());
    if (again == engine::kReadAgainMax) return stale;
    const Status followed = Follow(/*look_anyway=*/true).status();
    if (followed.code() == StatusCode::kStale) return followed;
    if (!followed.ok()) {  // Nothing better is known.
      if (code == StatusCode::kNotFound) return stale;
      break;
    }
    const uint64_t before = std::exchange(places, 0);
    result = call(&places);
    if (result.ok() || places != before) continue;
    // Bytes that are wrong where they are looked for by all that is known are damaged. A file that
    // is missing, beside a writer that was not able to tell, may have been given back.
    CAIRN_ASSIGN_OR_RETURN(const bool beside_writer, WriterLives());
    if (beside_writer && result.status().code() == StatusCode::kNotFound) return stale;
    break;
  }
  // To a caller kNotFound says that there is no such branch, or no such state.
  if (places != 0 && !result.ok()) return io::GoneIsDamage(result.status());
  return result;
}

Result<RestoreResult> StoreCore::Restore(BranchId id, const RestoreRequest& request,
                                         LayerProgress* progress, const TicketState* ticket) {
  const Use use(this);
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  static_cast<void>(FlushJoined(id));  // As in LookAt.
  Hits hits;
  bool begun = false;
  bool planned = false;  // Else it is the caller's mistake.
  const auto result = WhileFilesMove([&](uint64_t* places) -> Result<RestoreResult> {
    if (std::exchange(begun, true) && SomeLayerIsDone(progress)) {
      return Status(StatusCode::kStale,
                    "the writer has moved what was to be read, after some layers were told to be "
                    "complete");
    }
    hits = {};
    RestorePlan plan;
    std::unique_ptr<engine::Pins::Pin> pin;
    const uint64_t now_ns = world_.scheduler->WallNs();
    {
      Lock lock(mutex_);
      CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadBranch(id, &lock));
      CAIRN_ASSIGN_OR_RETURN(plan, engine::PlanRestore(tree_, *head, request));
      pin = pins_.Take(plan);
      NoteUsed(*head, now_ns);
    }
    CAIRN_RETURN_IF_ERROR(CheckProgress(request, progress));
    *places = engine::HashOfPlaces(plan);
    planned = true;
    return RunPlan(std::move(plan), request, Reader::kCaller, nullptr, progress, ticket, &hits);
  });
  if (!result.ok()) {
    if (planned) CountFailedRestore(result.status().code());
    return result;
  }
  counters_.restores.fetch_add(1, std::memory_order_relaxed);
  counters_.hot_records.fetch_add(hits.hot_records, std::memory_order_relaxed);
  counters_.hot_bytes.fetch_add(hits.hot_bytes, std::memory_order_relaxed);
  counters_.cached_frames.fetch_add(hits.cached_frames, std::memory_order_relaxed);
  counters_.cached_bytes.fetch_add(hits.cached_bytes, std::memory_order_relaxed);
  counters_.log_records.fetch_add(hits.log_records, std::memory_order_relaxed);
  counters_.log_bytes.fetch_add(result->bytes - result->hot_bytes - hits.frame_bytes,
                                std::memory_order_relaxed);
  counters_.frames.fetch_add(hits.frames, std::memory_order_relaxed);
  counters_.frame_bytes.fetch_add(hits.frame_bytes, std::memory_order_relaxed);
  restore_latency_.Add(world_.scheduler->MonotonicNs() - started_ns);
  return result;
}

// The fragments of all sealed pieces, and the tables that hold them.
Status StoreCore::FindFragments(const RestorePlan& plan, const RestoreRequest& request,
                                std::vector<OpenPiece>* open) {
  open->reserve(plan.sealed.size());
  for (const engine::SealedPiece& piece : plan.sealed) {
    CAIRN_ASSIGN_OR_RETURN(auto table, tables_.Open(piece.table));
    uint32_t layer_begin = 0, layer_end = UINT32_MAX;
    if (piece.lane != engine::kTokenLane && request.into != nullptr) {
      for (const GroupView& view : request.into->groups) {
        if (1 + view.group != piece.lane) continue;
        layer_begin = view.layer_begin;
        layer_end = layer_begin + static_cast<uint32_t>(view.planes[0].layer_bases.size());
      }
    }
    CAIRN_ASSIGN_OR_RETURN(
        OpenPiece found,
        engine::FindFragment(*plan.model, piece, std::move(table), layer_begin, layer_end));
    open->push_back(std::move(found));
  }
  return Status::Ok();
}

namespace {

std::span<const std::byte> FindStaged(const engine::RecordStage* stage,
                                      const wal::Location& location, uint32_t bytes) {
  return stage == nullptr ? std::span<const std::byte>() : stage->Find(location, bytes);
}

}  // namespace

// The plan must stay pinned.
Result<RestoreResult> StoreCore::RunPlan(RestorePlan plan, const RestoreRequest& request,
                                         Reader reader, const engine::RecordStage* stage,
                                         LayerProgress* progress, const TicketState* ticket,
                                         Hits* hits) {
  std::vector<OpenPiece> open;
  CAIRN_RETURN_IF_ERROR(FindFragments(plan, request, &open));
  engine::PageCache* const cache = reader != Reader::kSpace ? &page_cache_ : nullptr;
  engine::Scatterer scatterer(plan, request, store_id(), progress, open, cache,
                              reader == Reader::kPrefetch);
  RestoreRun run(this, reader, &scatterer, open);
  for (const RecordJob& job : plan.jobs) {
    const std::span<const std::byte> staged = FindStaged(stage, job.location, job.read_bytes);
    if (!staged.empty()) {
      CAIRN_RETURN_IF_ERROR(scatterer.Scatter(job, staged, true));
      ++hits->log_records;
      continue;
    }
    const wal::Pinned hot = FindHot(job.location, job.read_bytes);
    if (hot.owner == nullptr) {
      run.Add(job);
      ++hits->log_records;
      continue;
    }
    CAIRN_RETURN_IF_ERROR(scatterer.Scatter(job, hot.bytes, false));
    if (ticket != nullptr && ticket->cancel_requested()) {
      return Status(StatusCode::kCancelled, "the restore was cancelled");
    }
  }
  const uint64_t hot_bytes = scatterer.bytes();
  if (cache != nullptr) {
    engine::Crew crew(*world_.scheduler, executor_.get(),
                      reader == Reader::kPrefetch ? 0 : executor_threads_);
    CAIRN_RETURN_IF_ERROR(run.TakeCached(ticket, &crew));
  }
  run.AddFragments();
  const auto pipeline = std::make_shared<engine::ReadPipeline>(
      world_, reader == Reader::kSpace ? background_executor_.get() : executor_.get(),
      reader == Reader::kPrefetch ? 0 : executor_threads_, &read_pool_, &run, ticket,
      Deadline(request.timeout_ns));
  // Damage does not end it yet: there may be more below.
  static_cast<void>(pipeline->Run(run.TakeJobs()));
  run.AddFrames();
  CAIRN_RETURN_IF_ERROR(pipeline->Run(run.TakeJobs()));
  scatterer.FinishEmptyLayers();
  hits->hot_records = plan.jobs.size() - hits->log_records;
  hits->hot_bytes = hot_bytes;
  hits->cached_frames = run.cached();
  hits->cached_bytes = scatterer.cached_bytes();
  for (const OpenPiece& piece : open) hits->frames += piece.missing;
  hits->frame_bytes = scatterer.frame_bytes() - hits->cached_bytes;
  return RestoreResult{.begin = plan.begin,
                       .end = plan.end,
                       .kv_ends = std::move(plan.kv_ends),
                       .bytes = scatterer.bytes(),
                       .hot_bytes = hot_bytes + hits->cached_bytes,
                       .lossy_bytes = scatterer.lossy_bytes()};
}

Result<Ticket> StoreCore::RestoreAsync(BranchId id, const RestoreRequest& request,
                                       LayerProgress* progress) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  auto state = std::make_shared<TicketState>(
      world_, request.queue == nullptr ? nullptr : request.queue->state(), request.user_data);
  state->is_job = true;
  state->restored = std::make_shared<RestoreResult>();
  executor_->Post([self = shared_from_this(), id, request, progress, state] {
    if (!state->BeginJob()) return;
    Result<RestoreResult> restored =
        Guarded([&] { return self->Restore(id, request, progress, state.get()); });
    if (restored.ok()) *state->restored = std::move(*restored);
    state->Finish(restored.status());
  });
  return Ticket(state);
}

Status StoreCore::Prefetch(BranchId id, uint64_t begin, uint64_t end) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (begin > end) {
    return Status(StatusCode::kInvalidArgument,
                  "prefetch of [" + std::to_string(begin) + ", " + std::to_string(end) + ")");
  }
  if (prefetches_waiting_.fetch_add(1) >= engine::kPrefetchesMax) {
    prefetches_waiting_.fetch_sub(1);
    return Status(StatusCode::kBusy, std::to_string(engine::kPrefetchesMax) + " hints are waiting");
  }
  const auto job = [self = shared_from_this(), id, begin, end] {
    const Status status = Guarded([&] { return self->PrefetchNow(id, begin, end); });
    self->counters_.prefetches.fetch_add(1, std::memory_order_relaxed);
    if (!status.ok()) self->counters_.prefetches_failed.fetch_add(1, std::memory_order_relaxed);
    self->prefetches_waiting_.fetch_sub(1);
  };
  Status posted = Guarded([&] { prefetch_executor_->Post(job); });
  if (!posted.ok()) prefetches_waiting_.fetch_sub(1);
  return posted;
}

Status StoreCore::PrefetchNow(BranchId id, uint64_t begin, uint64_t end) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  RestorePlan plan;
  std::unique_ptr<engine::Pins::Pin> pin;
  {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadBranch(id, &lock));
    const uint64_t token_bytes =
        engine::PositionKvBytes(*tree_.FindModel(head->model)) + sizeof(TokenId);
    const uint64_t room = page_cache_.capacity() / engine::kPrefetchShare / token_bytes;
    end = std::min(end, head->lengths[engine::kTokenLane]);
    if (begin >= end) return Status::Ok();
    plan = engine::PlanPrefetch(tree_, *head, begin, begin + std::min(room, end - begin));
    pin = pins_.Take(plan);
  }
  Hits hits;
  return RunPlan(std::move(plan), RestoreRequest(), Reader::kPrefetch, nullptr, nullptr, nullptr,
                 &hits)
      .status();
}

Result<std::vector<TokenId>> StoreCore::ReadTokens(BranchId id, uint64_t begin, uint64_t end) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length, Length(id));
  if (begin > end || end > length) {
    return Status(StatusCode::kInvalidArgument, "tokens [" + std::to_string(begin) + ", " +
                                                    std::to_string(end) + ") of a branch of " +
                                                    std::to_string(length));
  }
  std::vector<TokenId> tokens(end - begin);
  if (tokens.empty()) return tokens;
  RestoreRequest request;
  request.begin = begin;
  request.end = end;
  request.tokens = tokens;
  CAIRN_RETURN_IF_ERROR(Restore(id, request, nullptr, nullptr).status());
  return tokens;
}

Result<Branch::StateAt> StoreCore::StateAt(BranchId id, uint64_t position, bool sampler) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  static_cast<void>(FlushJoined(id));  // As in LookAt.
  const auto state = WhileFilesMove([&](uint64_t* places) -> Result<FoundState> {
    FoundState found;
    engine::Mark mark;
    uint64_t node = 0;
    std::unique_ptr<engine::Pins::Pin> pin;
    {
      Lock lock(mutex_);
      CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadBranch(id, &lock));
      const engine::Mark* newest = tree_.FindMark(*head, sampler, position, &node);
      if (newest == nullptr) {
        return Status(StatusCode::kNotFound,
                      std::string("no ") + (sampler ? "sampler state" : "metadata") +
                          " at or before position " + std::to_string(position));
      }
      mark = *newest;
      const bool in_log = mark.place.table == 0;
      pin = pins_.Take(engine::Pins::Of::kReader, in_log ? mark.place.log.segment : UINT64_MAX,
                       in_log ? std::vector<uint64_t>() : std::vector<uint64_t>{mark.place.table});
    }
    *places = engine::HashOfPlace(mark.place);
    found.position = mark.position;
    CAIRN_ASSIGN_OR_RETURN(
        const engine::MemoryLine::Share share,
        read_pool_.line().Take(engine::kReadWindowBytes, [this] { return CheckUsable(); }));
    CAIRN_ASSIGN_OR_RETURN(found.bytes, ReadState(node, sampler, mark, nullptr));
    return found;
  });
  if (!state.ok()) return state.status();
  Branch::StateAt result;
  result.position = state->position;
  if (sampler) {
    CAIRN_ASSIGN_OR_RETURN(result.sampler, engine::DecodeSampler(state->bytes));
  } else {
    CAIRN_ASSIGN_OR_RETURN(result.metadata, engine::DecodeMetadata(state->bytes));
  }
  return result;
}

// The encoded state of a mark, whose place must stay pinned.
Result<std::vector<std::byte>> StoreCore::ReadState(uint64_t node, bool sampler,
                                                    const engine::Mark& mark,
                                                    const engine::RecordStage* stage) {
  if (mark.place.table != 0) {
    const engine::SealedPiece piece{mark.place.table, mark.place.FragmentNode(node),
                                    sampler ? engine::kSamplerLane : engine::kMetadataLane,
                                    mark.position, mark.position + 1};
    CAIRN_ASSIGN_OR_RETURN(auto table, tables_.Open(piece.table));
    CAIRN_ASSIGN_OR_RETURN(const OpenPiece open, engine::FindFragment(ModelSpec(), piece, table));
    const sstable::FragmentEntry& fragment = open.fragment;  // Of one frame.
    const uint64_t begin = fragment.offset / io::kBlockBytes * io::kBlockBytes;
    const uint64_t end = AlignUp(fragment.offset + fragment.bytes(), io::kBlockBytes);
    const engine::ReadBuffer buffer = read_pool_.TakeBuffer(end - begin);
    if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "reading a state");
    CAIRN_RETURN_IF_ERROR(table->file().Read(begin, buffer.span().first(end - begin)));
    CAIRN_ASSIGN_OR_RETURN(
        const std::vector<sstable::FrameEntry> entries,
        table->ParseFrames(fragment, buffer.span().subspan(fragment.entries_offset - begin,
                                                           fragment.entries_bytes())));
    const sstable::FrameEntry& entry = entries.front();
    const std::span<const std::byte> stored =
        buffer.span().subspan(entry.offset - begin, entry.stored_bytes);
    CAIRN_RETURN_IF_ERROR(table->Verify(entry, stored));
    std::vector<std::byte> state(stored.begin(), stored.end());
    return state;
  }
  const wal::Location& at = mark.place.log;
  std::span<const std::byte> bytes = FindStaged(stage, at, at.bytes);
  const wal::Pinned hot = bytes.empty() ? FindHot(at, at.bytes) : wal::Pinned();
  engine::ReadBuffer buffer;
  if (hot.owner != nullptr) {
    bytes = hot.bytes;
  } else if (bytes.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> file, log_->OpenSegment(at.segment));
    const uint64_t begin = at.offset / io::kBlockBytes * io::kBlockBytes;
    const uint64_t end =
        (at.offset + at.bytes + io::kBlockBytes - 1) / io::kBlockBytes * io::kBlockBytes;
    buffer = read_pool_.TakeBuffer(end - begin);
    if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "reading a sampler state");
    CAIRN_RETURN_IF_ERROR(file->Read(begin, buffer.span().first(end - begin)));
    bytes = buffer.span().subspan(at.offset - begin, at.bytes);
  }
  CAIRN_ASSIGN_OR_RETURN(const wal::RecordView record, wal::ParseRecord(bytes, at, store_id()));
  if (mark.strip >= record.strip_count()) {
    return Status(StatusCode::kCorruption, engine::PlaceText(at) + ": a state's strip is missing");
  }
  CAIRN_RETURN_IF_ERROR(record.VerifyStrip(bytes, mark.strip, store_id()));
  const std::span<const std::byte> strip =
      bytes.subspan(record.strip_offset(mark.strip), record.strip(mark.strip).bytes);
  std::vector<std::byte> state(strip.begin(), strip.end());
  return state;
}

}  // namespace cairn
