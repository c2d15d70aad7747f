// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/commit/kv_layout.h"
#include "engine/restore/gpu/gpu_sink.h"
#include "engine/restore/gpu/pinned_sink.h"
#include "engine/restore/gpu/pinned_tier.h"
#include "engine/restore/host_sink.h"
#include "engine/restore/plan/page_tier.h"
#include "engine/restore/state_sink.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

namespace {

// Fills a read-ahead buffer through the pipeline.
class ReadAheadCallbacks final : public PipelineCallbacks {
 public:
  ReadAheadCallbacks(ReadAheadBuffer* read_ahead, std::span<const ReadAheadBuffer::Entry> entries,
                     const ReadDeps& deps)
      : read_ahead_(read_ahead), entries_(entries), deps_(deps) {}

  std::vector<ReadJob> Jobs() {
    std::vector<ReadJob> jobs;
    jobs.reserve(entries_.size());
    for (size_t i = 0; i < entries_.size(); ++i) {
      const wal::Location& at = entries_[i].location;
      jobs.push_back({at.segment, ReadJob::Kind::kRecord, at.offset, entries_[i].bytes, 0, i});
    }
    return jobs;
  }
  Status status() const { return outcome_.status(); }

  Result<std::shared_ptr<io::File>> OpenFor(const ReadJob& job, bool /*waits*/) override {
    return deps_.log->OpenSegment(job.file);
  }
  Status Work(const ReadJob& job, const ReadBytes& bytes, uint64_t* /*first_position*/) override {
    const std::span<std::byte> room = read_ahead_->RoomOf(entries_[job.index]);
    std::memcpy(room.data(), bytes.bytes().data(), room.size());
    return Status::Ok();
  }
  void WindowDone(std::span<const ReadJob> /*jobs*/, size_t /*buffer*/) override {}
  Status BeforeRead(uint64_t bytes) override { return deps_.before_read(bytes); }
  ReadLimits Limits() const override { return deps_.limits; }
  ItemOutcome& OutcomeOf(const ReadJob& /*job*/) override { return outcome_; }
  bool AnyWanted() override { return !outcome_.ended(); }
  void StopAll(const Status& status) override { outcome_.End(status); }
  bool Reclaim(uint64_t /*deadline_ns*/) override { return false; }

 private:
  ReadAheadBuffer* const read_ahead_;
  const std::span<const ReadAheadBuffer::Entry> entries_;
  const ReadDeps& deps_;
  ItemOutcome outcome_;
};

}  // namespace

// The page cache charges the budget itself.
Reader::Reader(const io::World& world, BlockArena* arena, const MemoryParts& memory,
               std::span<const Gpu> gpus, MemoryBudget* budget, std::function<void()> pin_ended)
    : world_(world),
      allocator_(arena->allocator()),
      page_allocator_(arena->from()),
      pins_([this] { return world_.scheduler->MonotonicNs(); }, std::move(pin_ended)),
      open_files_(*world_.scheduler, OpenFilesKept(*world_.files)),
      tables_(memory.directories),
      read_pool_(world_, allocator_, memory.read_buffers, budget),
      page_cache_(budget, page_allocator_, memory),
      outlines_(memory.outlines) {
  for (const Gpu& gpu : gpus) {
    gpus_.push_back(
        std::make_unique<GpuTarget>(gpu, world_, memory.read_buffers, memory.pinned_kept, budget));
  }
}

void Reader::OpenPinned(const std::function<void(const std::string& line)>& tell) {
  for (const auto& gpu : gpus_) {
    const Status opened = gpu->OpenCache(page_allocator_);
    if (opened.ok()) continue;
    tell("gpu " + std::to_string(gpu->ordinal()) +
         ": no pinned memory, so its restores read all pages from tables: " + opened.ToString());
  }
}

void Reader::ForgetTable(uint64_t number) {
  tables_.Forget(number);
  for (const auto& gpu : gpus_) {
    if (gpu->cache() != nullptr) gpu->cache()->Forget(number);
  }
}

void Reader::AddPinned(StoreMetrics* metrics) const {
  for (const auto& gpu : gpus_) {
    const PinnedCache* const cache = gpu->cache();
    if (cache == nullptr) continue;
    metrics->pinned_bytes += cache->bytes();
    metrics->pinned_misses += cache->counters().misses.load();
    metrics->pinned_promotions += cache->counters().promotions.load();
    metrics->pinned_refusals += cache->counters().refusals.load();
  }
}

void Reader::ReleaseCaches() {
  tables_.Clear();
  open_files_.CloseIdle();
  page_cache_.Clear();
  outlines_.Clear();
  read_pool_.queues().Clear();
  for (const auto& gpu : gpus_) gpu->Clear();
}

// ---------------------------------------------------------------- restores

// State of a call of Restore between attempts.
struct Reader::Attempt {
  std::span<RestoreItem> items;
  std::vector<size_t> pending;   // Without a result yet.
  std::vector<uint8_t> planned;  // By item: 1 once it had a plan. Else its arguments are wrong.
  uint64_t started_ns = 0;
  uint64_t deadline_ns = io::kNoDeadline;
  bool again = false;
};

void Reader::Restore(std::span<RestoreItem> items, uint64_t deadline_ns) {
  Attempt attempt{.items = items,
                  .pending = std::vector<size_t>(items.size()),
                  .planned = std::vector<uint8_t>(items.size()),
                  .started_ns = world_.scheduler->MonotonicNs(),
                  .deadline_ns = deadline_ns};
  for (size_t i = 0; i < items.size(); ++i) attempt.pending[i] = i;
  const Status status =
      WhileFilesMove([&](uint64_t* places) { return TryItems(&attempt, places); });
  // Each has its own reason, unless the present state cannot be had at all.
  for (const size_t i : attempt.pending) {
    const bool stale = status.code() == StatusCode::kStale;
    items[i].status = stale ? status : io::MissingIsCorruption(items[i].status);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].status.ok() || attempt.planned[i] == 0 || !items[i].counts) continue;
    CountFailed(items[i].status.code());
  }
}

// Items that are pending afterwards failed in a way that a writer may have caused, and may be tried
// again.
Status Reader::TryItems(Attempt* attempt, uint64_t* places) {
  const std::vector<size_t> pending = std::exchange(attempt->pending, {});
  const bool again = std::exchange(attempt->again, true);
  std::vector<ItemRun> runs(pending.size());
  std::vector<Pinned> pins;
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < pending.size(); ++i) {
    RestoreItem& item = attempt->items[pending[i]];
    ItemRun& run = runs[i];
    // A source that was used must not change: the branch may be another one by then.
    Status planned;
    if (again && item.layers != nullptr && item.layers->SomeTold()) {
      planned = Status(StatusCode::kStale,
                       "the writer has moved what was to be read, after some layers were told of");
    } else {
      planned = PlanItem(&item, &run, &pins);
    }
    if (!planned.ok()) {
      run.outcome.End(planned);
      continue;
    }
    attempt->planned[pending[i]] = 1;
    hashes.push_back(HashOfPlaces(run.plan));
    Status open = FindGpu(item.request, runs, &run);
    if (open.ok()) {
      run.only = item.only;
      open = OpenItem(item.request, item.layers, ReadFor::kCaller, attempt->deadline_ns, &run);
    }
    if (!open.ok()) run.outcome.End(std::move(open));
  }
  if (!hashes.empty()) *places = Hash(std::as_bytes(std::span(hashes))) | 1;
  // Reads for the index of prefixes are the background's: they do not count as use of the device.
  if (std::any_of(attempt->items.begin(), attempt->items.end(),
                  [](const RestoreItem& item) { return item.counts; })) {
    RecordUse();
  }
  Run(runs, ReadFor::kCaller, nullptr, attempt->deadline_ns);
  Status first;
  for (size_t i = 0; i < pending.size(); ++i) {
    RestoreItem& item = attempt->items[pending[i]];
    item.status = runs[i].outcome.status();
    if (item.status.ok()) {
      ReportResult(attempt->started_ns, &runs[i], &item);
    } else if (runs[i].plan.model != nullptr &&
               io::MissingIsCorruption(item.status).code() == StatusCode::kCorruption) {
      attempt->pending.push_back(pending[i]);
      if (first.ok()) first = item.status;
    }
  }
  return first;
}

void Reader::ReportResult(uint64_t started_ns, ItemRun* run, RestoreItem* item) {
  const Delivered delivered = run->sink->delivered();
  const uint64_t cached_bytes = run->cached_bytes.load(std::memory_order_relaxed);
  const uint64_t of_records = run->cached_record_bytes.load(std::memory_order_relaxed);
  const uint64_t frame_bytes = delivered.frame_bytes - cached_bytes - run->hits.pinned_bytes;
  uint64_t frames = 0;
  for (const OpenPiece& piece : run->open) frames += piece.missing;
  item->result = {
      .begin = run->plan.begin,
      .end = run->plan.end,
      .kv_ends = std::move(run->plan.kv_ends),
      .bytes = delivered.bytes,
      .hot_bytes = run->hits.hot_bytes + cached_bytes + of_records + run->hits.pinned_bytes,
      .lossy_bytes = delivered.lossy_bytes,
      .approximate_bytes = delivered.approximate_bytes};
  if (!item->counts) return;
  const auto count = [](std::atomic<uint64_t>& counter, uint64_t more) {
    counter.fetch_add(more, std::memory_order_relaxed);
  };
  count(counters_.restores, 1);
  count(counters_.hot_records, run->hits.hot_records);
  count(counters_.hot_bytes, run->hits.hot_bytes);
  count(counters_.cached_frames, run->hits.cached_frames);
  count(counters_.cached_bytes, cached_bytes + of_records);
  count(counters_.pinned_frames, run->hits.pinned_frames);
  count(counters_.pinned_bytes, run->hits.pinned_bytes);
  count(counters_.log_records, run->hits.log_records);
  count(counters_.log_bytes, delivered.bytes - item->result.hot_bytes - frame_bytes);
  count(counters_.frames, frames);
  count(counters_.frame_bytes, frame_bytes);
  counters_.latency.Add(world_.scheduler->MonotonicNs() - started_ns);
}

void Reader::CountFailed(StatusCode code) {
  std::atomic<uint64_t>* counter = &counters_.failed_other;
  if (code == StatusCode::kCorruption) counter = &counters_.failed_corruption;
  if (code == StatusCode::kIoError) counter = &counters_.failed_io;
  if (code == StatusCode::kOutOfMemory) counter = &counters_.failed_memory;
  if (code == StatusCode::kDeadlineExceeded) counter = &counters_.failed_deadline;
  if (code == StatusCode::kCancelled) counter = &counters_.failed_cancelled;
  counter->fetch_add(1, std::memory_order_relaxed);
}

// ---------------------------------------------------------------- the way of an item

// The fragments of all sealed pieces, and the tables that hold them.
Status Reader::FindFragments(const RestoreRequest& request, ItemRun* run) {
  run->open.reserve(run->plan.sealed.size());
  for (const SealedPiece& piece : run->plan.sealed) {
    CAIRN_ASSIGN_OR_RETURN(auto table, tables_.Open(piece.table));
    uint32_t layer_begin = 0, layer_end = UINT32_MAX;
    if (piece.lane != kTokenLane && request.into != nullptr) {
      const GroupView& view = request.into->groups[piece.view];
      layer_begin = view.layer_begin;
      layer_end = layer_begin + static_cast<uint32_t>(view.planes[0].layer_bases.size());
    }
    CAIRN_ASSIGN_OR_RETURN(OpenPiece found, FindFragment(*run->plan.model, piece, std::move(table),
                                                         layer_begin, layer_end));
    if (run->only.has_value()) {
      CAIRN_CHECK(layer_end == layer_begin + 1);
      found.first_slice = found.layout.SliceOf({layer_begin, run->only->plane, run->only->head});
      found.end_slice = found.first_slice + 1;
      found.missing = found.frames();
    }
    run->open.push_back(std::move(found));
  }
  return Status::Ok();
}

Result<GpuTarget*> Reader::FindGpu(uint32_t ordinal, const char* what) const {
  for (const auto& gpu : gpus_) {
    if (gpu->ordinal() == ordinal) return gpu.get();
  }
  return Status(StatusCode::kInvalidArgument, std::string(what) + " is " + std::to_string(ordinal) +
                                                  "; the store has no such GPU (Options::gpus)");
}

// The items of a call share their buffers, which are pinned for one device.
Status Reader::FindGpu(const RestoreRequest& request, std::span<const ItemRun> others,
                       ItemRun* run) {
  if (request.into == nullptr || request.into->memory == MemoryKind::kHost) {
    if (request.gpu == nullptr) return Status::Ok();
    return Status(StatusCode::kInvalidArgument, "restore: gpu: the view is of host memory");
  }
  const std::string what =
      std::string("kv view: memory is ") + MemoryKindName(request.into->memory) + ", device";
  CAIRN_ASSIGN_OR_RETURN(run->gpu, FindGpu(request.into->device, what.c_str()));
  for (const ItemRun& other : others) {
    if (other.gpu == nullptr || other.gpu == run->gpu) continue;
    run->gpu = nullptr;
    return Status(StatusCode::kInvalidArgument, "restore: one call goes to one GPU");
  }
  return Status::Ok();
}

Status Reader::OpenItem(const RestoreRequest& request, LayerWords* layers, ReadFor why,
                        uint64_t deadline_ns, ItemRun* run) {
  CAIRN_RETURN_IF_ERROR(FindFragments(request, run));
  if (run->gpu != nullptr && why == ReadFor::kPrefetch) {
    auto sink = std::make_unique<PinnedSink>(run->gpu->cache(), run->plan, run->open);
    run->taker = sink.get();
    run->sink = std::move(sink);
    return Status::Ok();
  }
  if (run->gpu != nullptr) {
    const auto wanted = [run] { return !run->outcome.Cancelled() && !run->outcome.ended(); };
    CAIRN_ASSIGN_OR_RETURN(
        auto sink, GpuSink::Make({.target = run->gpu, .wanted = wanted, .deadline_ns = deadline_ns},
                                 run->plan, request, Records(), layers, run->open));
    if (run->gpu->cache() != nullptr) run->taker = sink.get();
    run->sink = std::move(sink);
    return Status::Ok();
  }
  const bool keeps = why != ReadFor::kSpace && !run->only.has_value();
  CAIRN_ASSIGN_OR_RETURN(run->sink, HostSink::Make(run->plan, request, Records(), layers, run->open,
                                                   keeps ? &page_cache_ : nullptr,
                                                   why == ReadFor::kPrefetch, run->only));
  return Status::Ok();
}

ReadDeps Reader::DepsFor(ReadFor why, uint64_t deadline_ns) {
  const bool space = why == ReadFor::kSpace;
  ReadDeps deps{.world = world_,
                .executor = space ? deps_.background : deps_.executor,
                .helpers = why == ReadFor::kPrefetch ? 0 : deps_.threads,
                .pool = &read_pool_,
                .log = deps_.log,
                .deadline_ns = deadline_ns,
                .limits = {.piece_bytes = kReadPieceBytes,
                           .in_flight_bytes = UINT64_MAX,
                           .in_line = CAIRN_KEPT(kBoundOfRestores)}};
  if (space) {
    const bool quiet = IsQuiet();
    deps.limits = {.piece_bytes = quiet ? kSpacePieceBytes : kSpaceAlonePieceBytes,
                   .in_flight_bytes = quiet ? kSpaceInFlightBytes : kSpaceAloneInFlightBytes,
                   .in_line = false};
    deps.before_read = [this](uint64_t bytes) { return deps_.callbacks->Pace(bytes); };
  }
  return deps;
}

// The plans must stay pinned. Items that have ended already need no sink.
void Reader::Run(std::span<ItemRun> items, ReadFor why, const ReadAheadBuffer* read_ahead,
                 uint64_t deadline_ns) {
  for (ItemRun& item : items) {
    outlines_.Narrow(item.plan.jobs);
    item.outcome.Expect(item.plan.jobs.size());
    for (const OpenPiece& open : item.open) item.outcome.Expect(open.small() ? 1 : open.missing);
  }
  if (why == ReadFor::kPrefetch) RecordUse();
  ReadDeps deps = DepsFor(why, deadline_ns);
  // A prefetch for a GPU also brings in what the page cache has, and needs no pinned buffers.
  bool asks_page_cache = why != ReadFor::kSpace;
  for (const ItemRun& item : items) {
    if (item.gpu == nullptr) continue;
    if (why == ReadFor::kPrefetch) {
      asks_page_cache = false;
    } else {
      deps.pool = item.gpu->pinned();
    }
  }
  ReadAheadTier read_before(read_ahead);
  HotTier hot(deps_.log, *world_.scheduler, deps.executor, deps.helpers);
  PinnedTier pinned;
  CacheTier cached(asks_page_cache ? &page_cache_ : nullptr, *world_.scheduler, deps.executor,
                   deps.helpers);
  FileTier files(deps);
  const std::array<PageTier*, 5> tiers = {&read_before, &hot, &pinned, &cached, &files};
  const Status served = CatchBadAlloc([&] {
    for (PageTier* tier : tiers) tier->Serve(items);
  });
  for (ItemRun& item : items) {
    if (!served.ok()) item.outcome.Stop(served);
    if (item.sink == nullptr) continue;
    Status finished = item.sink->Finish();
    if (!finished.ok()) item.outcome.End(std::move(finished));
  }
}

Status Reader::WhileFilesMove(const std::function<Status(uint64_t* places)>& call) {
  uint64_t places = 0;
  Status result = call(&places);
  for (int again = 0; deps_.callbacks->read_only(); ++again) {
    const StatusCode code = result.code();
    const StatusCode at_rest = io::MissingIsCorruption(result).code();  // If no file moved.
    if (places == 0 || at_rest != StatusCode::kCorruption) break;
    const Status stale(StatusCode::kStale,
                       "the writer has moved what was to be read: " + result.ToString());
    if (again == kReadAgainMax) return stale;
    const Status followed = deps_.callbacks->FollowWriter();
    if (followed.code() == StatusCode::kStale) return followed;
    if (!followed.ok()) {  // No newer state is known.
      if (code == StatusCode::kNotFound) return stale;
      break;
    }
    const uint64_t before = std::exchange(places, 0);
    result = call(&places);
    if (result.ok() || places != before) continue;
    // Wrong bytes at the best known place are damage. A missing file, beside a writer that could
    // not publish a hint, may have been given back.
    CAIRN_ASSIGN_OR_RETURN(const bool beside_writer, deps_.callbacks->WriterLives());
    if (beside_writer && result.code() == StatusCode::kNotFound) return stale;
    break;
  }
  // For a caller kNotFound means that there is no such branch, or no such state.
  if (places != 0 && !result.ok()) return io::MissingIsCorruption(result);
  return result;
}

// ---------------------------------------------------------------- prefetches and states

Status Reader::Prefetch(BranchId id, const PrefetchRequest& request) {
  std::vector<ItemRun> runs(1);
  uint64_t capacity = page_cache_.capacity();
  if (request.gpu.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(runs[0].gpu, FindGpu(*request.gpu, "prefetch: gpu"));
    if (runs[0].gpu->cache() == nullptr) return Status::Ok();
    capacity = runs[0].gpu->cache()->capacity();
  }
  std::unique_ptr<Pins::Pin> pin;
  CAIRN_RETURN_IF_ERROR(
      deps_.callbacks->VisitBranch(id, /*used=*/false, [&](const Tree& tree, const Head& head) {
        const uint64_t token_bytes = PositionKvBytes(*tree.FindModel(head.model)) + sizeof(TokenId);
        const uint64_t room = capacity / kPrefetchShare / token_bytes;
        const uint64_t begin = request.begin;
        // It may be shorter by now.
        const uint64_t end = std::min(request.end, head.lengths[kTokenLane]);
        if (begin >= end) return Status::Ok();
        runs[0].plan = PlanPrefetch(tree, head, begin, begin + std::min(room, end - begin));
        if (runs[0].gpu != nullptr) {
          std::erase_if(runs[0].plan.sealed,
                        [](const SealedPiece& piece) { return piece.lane == kTokenLane; });
        }
        pin = pins_.Take({Pins::Of::kBranch, static_cast<uint64_t>(id)}, runs[0].plan);
        return Status::Ok();
      }));
  if (pin == nullptr) return Status::Ok();
  const RestoreRequest nowhere;
  CAIRN_RETURN_IF_ERROR(OpenItem(nowhere, nullptr, ReadFor::kPrefetch, io::kNoDeadline, &runs[0]));
  Run(runs, ReadFor::kPrefetch, nullptr, io::kNoDeadline);
  return runs[0].outcome.status();
}

Result<Reader::State> Reader::ReadState(const StateOf& state) {
  State found;
  const auto read = [&](uint64_t* places) -> Status {
    Mark mark;
    uint64_t node = 0;
    std::unique_ptr<Pins::Pin> pin;
    const ReaderCallbacks::Visitor visit = [&](const Tree& tree, const Head& head) {
      const Mark* newest = FindMark(tree, head, state.sampler, state.position, &node);
      if (newest == nullptr) {
        return Status(StatusCode::kNotFound,
                      std::string("no ") + (state.sampler ? "sampler state" : "metadata") +
                          " at or before position " + std::to_string(state.position));
      }
      mark = *newest;
      std::vector<uint64_t> segments, tables;
      const bool in_log = mark.place.table == 0;
      (in_log ? segments : tables).push_back(in_log ? mark.place.log.segment : mark.place.table);
      pin = pins_.Take({Pins::Of::kBranch, static_cast<uint64_t>(state.branch)},
                       std::move(segments), std::move(tables));
      return Status::Ok();
    };
    CAIRN_RETURN_IF_ERROR(deps_.callbacks->VisitBranch(state.branch, /*used=*/false, visit));
    *places = HashOfPlace(mark.place);
    found.position = mark.position;
    CAIRN_ASSIGN_OR_RETURN(found.encoded,
                           ReadMarkFor(ReadFor::kCaller, node, state.sampler, mark, nullptr));
    return Status::Ok();
  };
  CAIRN_RETURN_IF_ERROR(WhileFilesMove(read));
  return found;
}

// The encoded state of a mark, whose place must stay pinned.
Result<std::vector<std::byte>> Reader::ReadMarkFor(ReadFor why, uint64_t node, bool sampler,
                                                   const Mark& mark,
                                                   const ReadAheadBuffer* read_ahead) {
  std::vector<ItemRun> runs(1);
  ItemRun& run = runs[0];
  run.outcome.has_positions = false;
  if (mark.place.table != 0) {
    run.plan.model = std::make_shared<const ModelSpec>();  // A state's layout needs none of it.
    run.plan.sealed.push_back({.table = mark.place.table,
                               .node = mark.place.FragmentNode(node),
                               .lane = sampler ? kSamplerLane : kMetadataLane,
                               .begin = mark.position,
                               .end = mark.position + 1});
    CAIRN_RETURN_IF_ERROR(FindFragments(RestoreRequest(), &run));
  } else {
    run.plan.jobs.push_back({mark.place.log, mark.place.log.bytes, {}, mark.strip});
  }
  auto sink = std::make_unique<StateSink>(Records(), run.open);
  StateSink* const state = sink.get();
  run.sink = std::move(sink);
  Run(runs, why, read_ahead, io::kNoDeadline);
  CAIRN_RETURN_IF_ERROR(run.outcome.status());
  return state->Take();
}

// ---------------------------------------------------------------- the space thread

Status Reader::ReadPlan(RestorePlan plan, const RestoreRequest& request,
                        const ReadAheadBuffer* read_ahead) {
  std::vector<ItemRun> runs(1);
  runs[0].plan = std::move(plan);
  CAIRN_RETURN_IF_ERROR(OpenItem(request, nullptr, ReadFor::kSpace, io::kNoDeadline, &runs[0]));
  Run(runs, ReadFor::kSpace, read_ahead, io::kNoDeadline);
  return runs[0].outcome.status();
}

Result<std::vector<std::byte>> Reader::ReadMark(uint64_t node, bool sampler, const Mark& mark,
                                                const ReadAheadBuffer* read_ahead) {
  return ReadMarkFor(ReadFor::kSpace, node, sampler, mark, read_ahead);
}

void Reader::Fill(ReadAheadBuffer* read_ahead) {
  const auto entries = read_ahead->Arrange(allocator_);
  if (entries.empty()) return read_ahead->Clear();
  const ReadDeps deps = DepsFor(ReadFor::kSpace, io::kNoDeadline);
  ReadAheadCallbacks callbacks(read_ahead, entries, deps);
  const auto pipeline = std::make_shared<ReadPipeline>(world_, deps.executor, deps.helpers,
                                                       &read_pool_, &callbacks, io::kNoDeadline);
  pipeline->Run(callbacks.Jobs());
  if (callbacks.status().ok()) {
    read_ahead->Filled();
  } else {
    read_ahead->Clear();
  }
}

bool Reader::IsHot(const wal::Location& location, uint32_t bytes) {
  return FindHot(deps_.log, location, bytes).owner != nullptr;
}

}  // namespace cairn::engine
