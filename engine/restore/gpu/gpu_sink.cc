// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/gpu_sink.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/codec/token_block.h"
#include "base/core/align.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/restore/gpu/gpu_fallback.h"

namespace cairn::engine {

namespace {

const char* FaultName(gpu::Fault fault) {
  switch (fault) {
    case gpu::Fault::kNone: return "none";
    case gpu::Fault::kTable: return "the table led out of the view";
    default: return "a frame that was verified did not decode";
  }
}

}  // namespace

void GpuSink::Load::Cover(std::span<const std::byte> bytes) {
  const Run run{bytes.data(), bytes.data() + bytes.size()};
  if (runs.empty()) runs.push_back(run);
  runs[0] = {std::min(runs[0].begin, run.begin), std::max(runs[0].end, run.end)};
}

// Adjacent frames have less than a cache line between them.
void GpuSink::Load::Follow(std::span<const std::byte> bytes) {
  const std::byte* const end = bytes.data() + bytes.size();
  if (!runs.empty() && bytes.data() >= runs.back().end &&
      bytes.data() - runs.back().end < sstable::kFrameAlignment) {
    runs.back().end = end;
  } else {
    runs.push_back({bytes.data(), end});
  }
}

uint64_t GpuSink::Load::bytes() const {
  uint64_t sum = 0;
  for (const Run& run : runs) sum += static_cast<uint64_t>(run.end - run.begin);
  return sum;
}

std::vector<uint64_t> GpuSink::Load::Places() const {
  std::vector<uint64_t> places = {0};
  for (const Run& run : runs) {
    places.back() += reinterpret_cast<uintptr_t>(run.begin) % gpu::kDeviceAlignment;
    const auto bytes = static_cast<uint64_t>(run.end - run.begin);
    places.push_back(AlignUp(places.back() + bytes, gpu::kDeviceAlignment));
  }
  return places;
}

GpuSink::GpuSink(const Deps& deps, const RestorePlan& plan, const RestoreRequest& request,
                 const RecordDeps& records, LayerWords* layers, std::span<const OpenPiece> open)
    : deps_(deps),
      into_(request.into),
      records_(records),
      tokens_(plan, request.tokens),
      layers_(layers),
      open_(open),
      counts_(plan, request.into, open),
      ready_(deps.target->waits(), "restore") {
  for (uint32_t view = 0; view < into_->groups.size(); ++view) {
    const LayerCounts::Target* const target = counts_.TargetOf(view);
    for (const auto& pieces : target->pieces) not_launched_.push_back(pieces.load());
    layer_count_ += target->pieces.size();
  }
  if (PinnedCache* const cache = deps.target->cache()) {
    fill_ = std::make_unique<PinnedFill>(cache, plan, open, /*ahead=*/false);
  }
}

Result<std::unique_ptr<GpuSink>> GpuSink::Make(const Deps& deps, const RestorePlan& plan,
                                               const RestoreRequest& request,
                                               const RecordDeps& records, LayerWords* layers,
                                               std::span<const OpenPiece> open) {
  std::unique_ptr<GpuSink> sink(new GpuSink(deps, plan, request, records, layers, open));
  CAIRN_RETURN_IF_ERROR(sink->Adopt(request));
  CAIRN_ASSIGN_OR_RETURN(sink->views_, GpuViews::Make(deps.target->waits(), deps.target->staging(),
                                                      *plan.model, *request.into, KvUse::kRestore,
                                                      [&] { return sink->AwaitReady(); }));
  CAIRN_ASSIGN_OR_RETURN(auto turns, KeyTurns::Make(plan));
  CAIRN_ASSIGN_OR_RETURN(
      sink->turns_, GpuTurns::Make(deps.target->waits(), deps.target->staging(), std::move(turns)));
  return sink;
}

Status GpuSink::AwaitReady() { return ready_.Await(deps_.deadline_ns, deps_.wanted); }

Status GpuSink::Adopt(const RestoreRequest& request) {
  if (request.gpu == nullptr) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(ready_.Adopt(request.gpu->ready));
  falls_back_ = request.gpu->fall_back_to_host;
  if (request.gpu->layer_events.empty()) return Status::Ok();
  gpu::Device& device = deps_.target->waits()->device();
  if (request.gpu->layer_events.size() != layer_count_) {
    return Status(StatusCode::kInvalidArgument, std::to_string(request.gpu->layer_events.size()) +
                                                    " layer_events; the view has " +
                                                    std::to_string(layer_count_) + " layers");
  }
  for (const uintptr_t handle : request.gpu->layer_events) {
    CAIRN_ASSIGN_OR_RETURN(const gpu::Event event, device.AdoptEvent(handle));
    layer_events_.push_back(event);
  }
  CAIRN_ASSIGN_OR_RETURN(behind_, device.NewStream(gpu::Priority::kLow));
  has_behind_ = true;
  return Status::Ok();
}

GpuSink::~GpuSink() {
  CAIRN_CHECK(in_flight_.load() == 0);
  views_ = nullptr;
  turns_ = nullptr;
  gpu::Device& device = deps_.target->waits()->device();
  if (has_behind_) device.Return(behind_);
  for (const gpu::Event event : layer_events_) device.Return(event);
}

// ---------------------------------------------------------------- described

GpuSink::Head GpuSink::HeadAt(LayerCounts::Target* target, uint32_t model_layer, uint32_t plane,
                              uint32_t head) const {
  const GroupView& view = *target->view;
  const auto group = static_cast<size_t>(&view - into_->groups.data());
  Head at;
  at.target = target;
  at.layer = model_layer - view.layer_begin;
  at.base = view.planes[plane].layer_bases[at.layer] +
            static_cast<int64_t>(head) * view.planes[plane].head_stride;
  at.view = views_->IndexOf(group, plane);
  at.plane_index = plane;
  at.plane = &target->group->planes[plane];
  return at;
}

// Rows whose first is at position `row0` of the view, which may be before the view's first.
gpu::WantedRows GpuSink::Wanted(const LayerCounts::Target& target, uint64_t row0, uint64_t first,
                                uint64_t end) const {
  const GroupView& view = *target.view;
  const uint64_t origin =
      view.table.kind == TableKind::kNone ? view.position : view.table.table_position;
  return {.index = static_cast<int64_t>(row0 - origin),
          .first = static_cast<uint32_t>(first),
          .end = static_cast<uint32_t>(end)};
}

void GpuSink::Note(const gpu::FrameToScatter& frame, const Head& at, int64_t shift,
                   uint64_t position, std::vector<gpu::RowsToTurn>* turned) const {
  if (turns_ == nullptr) return;
  const auto rows = turns_->RowsOf(frame, at.target->view->group, at.plane_index, shift, position);
  if (rows.has_value()) turned->push_back(*rows);
}

void GpuSink::Add(const ReadBytes& from, const Frames& frames, const Head& at) {
  const MutexLock lock(&mutex_);
  const auto [found, added] = windows_.try_emplace(from.buffer());
  Load& load = found->second;
  if (added) load.holds.push_back(from.Keep());
  for (const std::span<const std::byte> bytes : frames.covered) load.Cover(bytes);
  load.frames.insert(load.frames.end(), frames.scattered.begin(), frames.scattered.end());
  load.turned.insert(load.turned.end(), frames.turned.begin(), frames.turned.end());
  load.pieces.emplace_back(at.target, at.layer);
}

Status GpuSink::TokenFrame(const FrameJob& job, const ReadBytes& stored) const {
  if (!tokens_.wanted()) return Status::Ok();
  const OpenPiece& open = open_[job.piece];
  std::vector<TokenId> ids(open.fragment.rows(job.page));
  CAIRN_RETURN_IF_ERROR(DecodeTokens(stored.bytes(), ids));
  tokens_.OfPage(open, job, std::as_bytes(std::span(ids)));
  return Status::Ok();
}

Status GpuSink::Frame(const FrameJob& job, const ReadBytes& stored) {
  const OpenPiece& open = open_[job.piece];
  CAIRN_RETURN_IF_ERROR(open.table->Verify(open.entry(job.slice, job.page), stored.bytes()));
  if (open.piece.lane == kTokenLane) return TokenFrame(job, stored);
  LayerCounts::Target* const target = counts_.TargetOf(open.piece.view);
  if (target == nullptr) return Status::Ok();
  if (fill_ != nullptr) fill_->Keep(job, stored.bytes());
  CAIRN_ASSIGN_OR_RETURN(const Page page, Describe(job, stored.bytes(), target));
  Add(stored, page.frames, page.at);
  return Status::Ok();
}

// Describes a page of KV, and counts it as delivered.
Result<GpuSink::Page> GpuSink::Describe(const FrameJob& job, std::span<const std::byte> stored,
                                        LayerCounts::Target* target) {
  const OpenPiece& open = open_[job.piece];
  const HeadSlice slice = open.layout.At(job.slice);
  const PageRowsWanted page = WantedOfPage(open, job.page);
  Page found;
  found.at = HeadAt(target, slice.layer, slice.plane, slice.head);
  CAIRN_ASSIGN_OR_RETURN(
      const gpu::FrameToScatter frame,
      gpu::DescribeFrame(open.layout.Shape(job.slice, page.rows), stored, stored.data(),
                         found.at.base, views_->View(found.at.view), found.at.view,
                         Wanted(*target, open.piece.Target(page.page_begin),
                                page.begin - page.page_begin, page.end - page.page_begin)));
  found.frames.scattered.push_back(frame);
  found.frames.covered.push_back(stored);
  Note(frame, found.at, open.piece.shift, page.begin, &found.frames.turned);
  found.bytes = (page.end - page.begin) * found.at.plane->row_bytes;
  delivered_.Add(*found.at.plane, found.bytes, /*of_frame=*/true, open.piece.counts_as_exact());
  return found;
}

Result<uint64_t> GpuSink::Pinned(const FrameJob& job, const ReadBytes& stored) {
  LayerCounts::Target* const target = counts_.TargetOf(open_[job.piece].piece.view);
  if (target == nullptr) return uint64_t{0};
  CAIRN_ASSIGN_OR_RETURN(const Page page, Describe(job, stored.bytes(), target));
  if (pinned_.bytes() + stored.bytes().size() > kReadWindowBytes) {
    CAIRN_RETURN_IF_ERROR(PinnedDone());
  }
  pinned_.Follow(stored.bytes());
  if (CAIRN_KEPT(kGpuHoldPinned)) pinned_.holds.push_back(stored.Keep());
  const Frames& frames = page.frames;
  pinned_.frames.insert(pinned_.frames.end(), frames.scattered.begin(), frames.scattered.end());
  pinned_.turned.insert(pinned_.turned.end(), frames.turned.begin(), frames.turned.end());
  pinned_.pieces.emplace_back(page.at.target, page.at.layer);
  pinned_.of_cache = true;
  return page.bytes;
}

Status GpuSink::PinnedDone() {
  Load load = std::exchange(pinned_, {});
  return load.frames.empty() ? Status::Ok() : Launch(std::move(load));
}

Status GpuSink::Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) {
  return VisitFragment(
      open_[piece], piece, stored, first_position,
      [this](const FrameJob& job, const ReadBytes& frame) { return Frame(job, frame); });
}

uint64_t GpuSink::Unpacked(const FrameJob& job, const ReadBytes& raw) {
  const OpenPiece& open = open_[job.piece];
  if (open.piece.lane == kTokenLane) {
    tokens_.OfPage(open, job, raw.bytes());
    return 0;
  }
  LayerCounts::Target* const target = counts_.TargetOf(open.piece.view);
  if (target == nullptr) return 0;
  const HeadSlice slice = open.layout.At(job.slice);
  const Head at = HeadAt(target, slice.layer, slice.plane, slice.head);
  const PageRowsWanted page = WantedOfPage(open, job.page);
  const auto count = static_cast<uint32_t>(page.end - page.begin);
  const std::byte* const rows =
      raw.bytes().data() + (page.begin - page.page_begin) * at.plane->row_bytes;
  const uint64_t bytes = uint64_t{count} * at.plane->row_bytes;
  Frames frames;
  frames.scattered.push_back(gpu::DescribeRaw(
      count, at.plane->row_bytes / DtypeBytes(at.plane->dtype), rows, at.base,
      views_->View(at.view), at.view, Wanted(*target, open.piece.Target(page.begin), 0, count)));
  Note(frames.scattered[0], at, open.piece.shift, page.begin, &frames.turned);
  const Status staged = Stage(frames, at);
  if (!staged.ok()) {
    const MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = staged;
    return 0;
  }
  delivered_.Add(*at.plane, bytes, /*of_frame=*/true, open.piece.counts_as_exact());
  return bytes;
}

Status GpuSink::Stage(const Frames& frames, const Head& of) {
  const auto room_of = [](const gpu::FrameToScatter& frame) {
    return AlignUp(uint64_t{frame.payload_bytes}, uint64_t{gpu::kLargestUnit});
  };
  uint64_t room = 0;
  for (const gpu::FrameToScatter& frame : frames.scattered) room += room_of(frame);
  Load full;
  {
    const MutexLock lock(&mutex_);
    if (staged_.staged_bytes + room > staged_.staged.size()) {
      full = std::exchange(staged_, {});
      staged_.staged = deps_.target->pinned()->TakeBuffer(room);
      if (staged_.staged.empty()) {
        return Status(StatusCode::kOutOfMemory, "restore: no pinned memory");
      }
    }
    for (const gpu::FrameToScatter& frame : frames.scattered) {
      std::byte* const at = staged_.staged.data() + staged_.staged_bytes;
      std::memcpy(at, frame.payload, frame.payload_bytes);
      staged_.staged_bytes += room_of(frame);
      staged_.Cover({at, frame.payload_bytes});
      staged_.frames.push_back(frame);
      staged_.frames.back().payload = reinterpret_cast<const uint8_t*>(at);
    }
    staged_.turned.insert(staged_.turned.end(), frames.turned.begin(), frames.turned.end());
    staged_.pieces.emplace_back(of.target, of.layer);
  }
  return full.frames.empty() ? Status::Ok() : Launch(std::move(full));
}

Status GpuSink::FlushStaged() {
  Load load;
  {
    const MutexLock lock(&mutex_);
    load = std::exchange(staged_, {});
  }
  return load.frames.empty() ? Status::Ok() : Launch(std::move(load));
}

// ---------------------------------------------------------------- launched

Status GpuSink::WindowDone(size_t buffer) {
  Load load;
  {
    const MutexLock lock(&mutex_);
    const auto found = windows_.find(buffer);
    if (found == windows_.end()) return Status::Ok();
    load = std::move(found->second);
    windows_.erase(found);
  }
  return Launch(std::move(load));
}

Status GpuSink::Launch(Load load) {
  CAIRN_RETURN_IF_ERROR(AwaitReady());
  return Fly(std::move(load));
}

// From Take on nothing may throw that would leave the slot, or the count of loads in flight.
Status GpuSink::Fly(Load load) {
  const auto shared = std::make_shared<Load>(std::move(load));
  GpuRing::Ended ended = [this, shared](const Status& status, std::span<const gpu::Fault> faults) {
    Ended(shared.get(), status, faults);
  };
  CAIRN_ASSIGN_OR_RETURN(GpuRing::Slot * slot, deps_.target->ring()->Take(shared->Places().back(),
                                                                          shared->frames.size()));
  const Status enqueued = CatchBadAlloc([&] { return Enqueue(*shared, slot); });
  if (!enqueued.ok()) {
    const bool drained = deps_.target->ring()->Return(slot);
    if (!drained || !MayFallBack(*shared)) return enqueued;
    CAIRN_ASSIGN_OR_RETURN(Load unpacked, UnpackedOnHost(*shared));
    return Fly(std::move(unpacked));
  }
  in_flight_.fetch_add(1);
  if (!CAIRN_KEPT(kGpuHoldWindow)) shared->holds.clear();
  Status told = CatchBadAlloc([&] { return Enqueued(shared.get(), slot->done); });
  deps_.target->ring()->Fly(slot, shared->frames.size(), std::move(ended));
  return told;
}

Status GpuSink::Enqueue(const Load& load, GpuRing::Slot* slot) {
  const std::vector<uint64_t> places = load.Places();
  std::vector<gpu::CopyPiece> copies;
  for (size_t i = 0; i < load.runs.size(); ++i) {
    const Run& run = load.runs[i];
    copies.push_back(
        {slot->packed + places[i], run.begin, static_cast<uint64_t>(run.end - run.begin)});
  }
  for (size_t i = 0; i < load.frames.size(); ++i) {
    gpu::FrameToScatter& frame = slot->frames()[i];
    frame = load.frames[i];
    const auto* const host = reinterpret_cast<const std::byte*>(frame.payload);
    const auto of = std::find_if(copies.begin(), copies.end(), [&](const gpu::CopyPiece& copy) {
      return host >= copy.from && host <= copy.from + copy.bytes;
    });
    CAIRN_CHECK(of != copies.end());
    frame.payload = reinterpret_cast<const uint8_t*>(of->to + (host - of->from));
  }
  gpu::Device& device = deps_.target->waits()->device();
  CAIRN_RETURN_IF_ERROR(device.Copy(slot->stream, copies));
  if (CAIRN_KEPT(kGpuViewsCopied)) {
    CAIRN_RETURN_IF_ERROR(device.StreamWait(slot->stream, views_->copied()));
  }
  // One launch after the other, each with this many. (A launch with fewer warps, which go on with
  // the next frame, would take registers that the kernel does not have.)
  const uint64_t at_a_time = deps_.target->frames_of_launch();
  for (uint64_t first = 0; first < load.frames.size(); first += at_a_time) {
    gpu::DecodeScatter scatter;
    scatter.frames = slot->frames() + first;
    scatter.views = views_->on_device();
    scatter.faults = slot->faults() + first;
    scatter.count = static_cast<uint32_t>(std::min(at_a_time, load.frames.size() - first));
    CAIRN_RETURN_IF_ERROR(device.Launch(slot->stream, scatter));
  }
  if (!load.turned.empty()) CAIRN_RETURN_IF_ERROR(EnqueueTurns(load, slot));
  return device.Record(slot->stream, slot->done);
}

// Behind the launches that put the rows in place. A load that goes again begins with these as well,
// so that no row is turned twice.
Status GpuSink::EnqueueTurns(const Load& load, GpuRing::Slot* slot) {
  CAIRN_CHECK(load.turned.size() <= load.frames.size());
  std::copy(load.turned.begin(), load.turned.end(), slot->turned());
  gpu::Device& device = deps_.target->waits()->device();
  if (CAIRN_KEPT(kGpuTurnsCopied)) {
    CAIRN_RETURN_IF_ERROR(device.StreamWait(slot->stream, turns_->copied()));
  }
  if (!CAIRN_KEPT(kKeysTurned)) return Status::Ok();
  const uint64_t at_a_time = deps_.target->frames_of_launch();
  for (uint64_t first = 0; first < load.turned.size(); first += at_a_time) {
    gpu::RotateKeys rotate;
    rotate.rows = slot->turned() + first;
    rotate.views = views_->on_device();
    rotate.count = static_cast<uint32_t>(std::min(at_a_time, load.turned.size() - first));
    CAIRN_RETURN_IF_ERROR(device.Launch(slot->stream, rotate));
  }
  return Status::Ok();
}

// Its pieces were launched. Waiting for a layer's event waits for all earlier launches.
Status GpuSink::Enqueued(Load* load, gpu::Event done) {
  if (std::exchange(load->enqueued, true)) return Status::Ok();
  gpu::Device& device = deps_.target->waits()->device();
  const MutexLock lock(&mutex_);
  if (has_behind_ && CAIRN_KEPT(kGpuLayerBehind)) {
    CAIRN_RETURN_IF_ERROR(device.StreamWait(behind_, done));
  }
  for (const auto& [target, layer] : load->pieces) {
    const size_t index = target->first_layer + layer;
    if (--not_launched_[index] != 0) continue;
    if (has_behind_) CAIRN_RETURN_IF_ERROR(device.Record(behind_, layer_events_[index]));
    if (layers_ != nullptr) layers_->Enqueued(index);
  }
  return Status::Ok();
}

// ---------------------------------------------------------------- ended

void GpuSink::Ended(Load* load, const Status& status, std::span<const gpu::Fault> faults) {
  Status failed = status;
  for (size_t i = 0; failed.ok() && i < faults.size(); ++i) {
    if (!CAIRN_KEPT(kGpuFaults) || faults[i] == gpu::Fault::kNone) continue;
    // A frame that does not decode was right when it came in: the memory is not to be trusted.
    if (load->of_cache && faults[i] != gpu::Fault::kTable) deps_.target->cache()->Drop();
    failed = CatchBadAlloc([&]() -> Status {
      if (faults[i] == gpu::Fault::kTable || !MayFallBack(*load)) {
        return {StatusCode::kCorruption, std::string("gpu: ") + FaultName(faults[i])};
      }
      CAIRN_ASSIGN_OR_RETURN(Load unpacked, UnpackedOnHost(*load));
      const MutexLock lock(&mutex_);
      again_.push_back(std::move(unpacked));
      return Status::Ok();
    });
    if (failed.ok()) return;  // Its input is in a buffer of its own: the window may go.
  }
  if (failed.ok()) {
    for (const auto& [target, layer] : load->pieces) {
      LayerCounts::PieceDone(target, layer, this);
    }
  } else {
    const MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = failed;
  }
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
}

// A stream that waits for a layer's event may have read the layer: it must not be written again.
bool GpuSink::MayFallBack(const Load& load) const {
  if (!falls_back_ || load.again || !deps_.target->waits()->device().lost().ok()) return false;
  return !load.enqueued || !has_behind_ || !CAIRN_KEPT(kGpuFallBackUnseen);
}

Result<GpuSink::Load> GpuSink::UnpackedOnHost(const Load& load) {
  Load unpacked;
  unpacked.frames = load.frames;
  unpacked.turned = load.turned;
  unpacked.pieces = load.pieces;
  unpacked.enqueued = load.enqueued;
  unpacked.again = true;
  const uint64_t bytes = UnpackedBytes(load.frames);
  unpacked.staged = deps_.target->pinned()->TakeBuffer(bytes);
  if (unpacked.staged.empty()) {
    return Status(StatusCode::kOutOfMemory, "restore: no pinned memory");
  }
  const std::span<std::byte> room = unpacked.staged.span().first(bytes);
  CAIRN_RETURN_IF_ERROR(UnpackFrames(unpacked.frames, room));
  unpacked.Cover(room);
  return unpacked;
}

bool GpuSink::FlyAgain() {
  Load load;
  Status status;
  {
    const MutexLock lock(&mutex_);
    if (again_.empty()) return false;
    load = std::move(again_.back());
    again_.pop_back();
    status = failed_;
  }
  if (status.ok() && deps_.wanted && !deps_.wanted()) {
    status = Status(StatusCode::kCancelled, "restore: not wanted any more");
  }
  if (status.ok()) status = CatchBadAlloc([&] { return Fly(std::move(load)); });
  if (!status.ok()) {
    const MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = std::move(status);
  }
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

void GpuSink::LayerDone(size_t layer) {
  if (layers_ != nullptr) layers_->Complete(layer);
}

bool GpuSink::Reclaim(uint64_t deadline_ns) {
  if (in_flight_.load(std::memory_order_acquire) == 0) return false;
  if (FlyAgain()) return true;
  if (deadline_ns == 0) return deps_.target->ring()->Reap();
  return deps_.target->ring()->Await(deadline_ns);
}

// The barrier: all launches have ended when this returns, however the restore went.
Status GpuSink::Finish() {
  Status flushed = CatchBadAlloc([&] { return FlushStaged(); });
  while (CAIRN_KEPT(kGpuBarrier) && in_flight_.load(std::memory_order_acquire) != 0) {
    if (FlyAgain() || deps_.target->ring()->Await(io::kNoDeadline)) continue;
    deps_.target->waits()->scheduler().Yield();
  }
  const MutexLock lock(&mutex_);
  windows_.clear();
  pinned_ = {};  // A load that was not launched is not missed: it failed before.
  if (failed_.ok()) failed_ = std::move(flushed);
  return failed_;
}

}  // namespace cairn::engine
