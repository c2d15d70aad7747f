// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/sparse_session.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/io/no_cancel.h"
#include "engine/config/constants.h"
#include "engine/device/adopted_stream.h"
#include "engine/sessions/sparse/sparse_warmth.h"

namespace cairn {

namespace {

// While it lives nothing is read in the background.
class Paused {
 public:
  explicit Paused(engine::BackgroundReads* reads) : reads_(*reads) { reads_.Pause(); }
  ~Paused() { reads_.Resume(); }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  engine::BackgroundReads& reads_;
};

}  // namespace

Status SparseSessionState::Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "sparse: " + what);
}

// ---------------------------------------------------------------- opening and closing

Result<std::shared_ptr<SparseSessionState>> SparseSessionState::Make(
    std::shared_ptr<SparseArenaState> arena, std::shared_ptr<const engine::SparseSource> source,
    const SparseOptions& options) {
  const std::shared_ptr<SparseSessionState> state(
      new SparseSessionState(std::move(arena), std::move(source)), Destroy);
  CAIRN_RETURN_IF_ERROR(state->Open(options));
  return state;
}

Status SparseSessionState::Open(const SparseOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(layout_,
                         engine::SparseLayout::Of(source_->model(), options, source_->tokens()));
  memory_ = std::make_unique<engine::SparseMemory>(&waits_, layout_);
  CAIRN_RETURN_IF_ERROR(arena_->TakeDeviceBytes(memory_->device_bytes()));
  taken_bytes_ = memory_->device_bytes();
  layers_.resize(layout_.layers);
  for (Layer& layer : layers_) {
    CAIRN_ASSIGN_OR_RETURN(layer.ended, waits_.device().NewEvent());
    layer.has_event = true;
  }
  const Status allocated = memory_->Allocate();
  is_lost_ = memory_->is_lost() || (!allocated.ok() && !waits_.device().lost().ok());
  CAIRN_RETURN_IF_ERROR(allocated);
  arena_->pool().Enter(this);
  return options.warm ? Warm() : Status::Ok();
}

// Fetches the pieces that an earlier session had, the oldest first, so that the order of use is the
// same. Pieces that cannot be had are skipped; a fetch that wants them will report it.
Status SparseSessionState::Warm() {
  const auto saved =
      engine::ReadWarmth(arena_->deps().derived, source_->branch(), source_->tokens(), layout_);
  if (!saved.ok()) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, waits_.device().NewStream(gpu::Priority::kHigh));
  Status warmed;
  for (uint32_t layer = 0; layer < layout_.layers && warmed.ok(); ++layer) {
    warmed = WarmLayer(
        layer, std::span(*saved).subspan(size_t{layer} * layout_.heads, layout_.heads), stream);
  }
  waits_.device().Return(stream);
  return is_lost_ ? warmed : Status::Ok();
}

Status SparseSessionState::WarmLayer(uint32_t layer, std::span<const std::vector<uint32_t>> heads,
                                     gpu::Stream stream) {
  size_t longest = 0;
  for (const auto& head : heads) longest = std::max(longest, head.size());
  for (size_t done = 0; done < longest; done += layout_.wanted_max) {
    SparseWanted wanted{.layer = layer};
    CAIRN_RETURN_IF_ERROR(AwaitStaging(wanted));
    for (uint32_t head = 0; head < layout_.heads; ++head) {
      const std::vector<uint32_t>& pieces = heads[head];
      const size_t from = std::min(done, pieces.size());
      const size_t count = std::min<size_t>(layout_.wanted_max, pieces.size() - from);
      memory_->staged_counts(layer)[head] = static_cast<uint32_t>(count);
      std::copy_n(pieces.begin() + static_cast<std::ptrdiff_t>(from), count,
                  memory_->staged(layer) + size_t{head} * layout_.wanted_max);
      wanted.count = std::max(wanted.count, static_cast<uint32_t>(count));
    }
    CAIRN_RETURN_IF_ERROR(FetchStaged(wanted, stream).status());
  }
  return Status::Ok();
}

Status SparseSessionState::Save() {
  const engine::WriteDeps& write = *arena_->deps().write;
  CAIRN_RETURN_IF_ERROR(write.lifecycle->CheckWritable());
  const io::Turn::Holder turn(&turn_);
  engine::PiecesByUse pieces;
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    CAIRN_RETURN_IF_ERROR(AwaitLayer(layer));
    if (layers_[layer].is_spoiled) {
      pieces.resize(pieces.size() + layout_.heads);
      continue;
    }
    CAIRN_RETURN_IF_ERROR(memory_->ReadPieces(layer, &pieces));
  }
  const uint64_t tokens = source_->tokens();
  const Result<bool> written =
      engine::WriteWarmth(arena_->deps().derived, source_->branch(),
                          NodeId{source_->NodeBefore(tokens)}, tokens, layout_, pieces);
  // Only the position may not fit: then the branch is shorter by now.
  const bool shorter = written.status().code() == StatusCode::kInvalidArgument;
  if (shorter || (written.ok() && !*written)) return WasRewound();
  return written.status();
}

Status SparseSessionState::WasRewound() const {
  return Status(StatusCode::kConflict, "sparse: the branch was rewound to before token " +
                                           std::to_string(source_->tokens()) +
                                           ", which the session has");
}

uint32_t SparseSessionState::pieces() const {
  return std::atomic_ref(layout_.pieces).load(std::memory_order_relaxed);
}

Status SparseSessionState::Extend(std::shared_ptr<const engine::SparseSource> source) {
  const io::Turn::Holder turn(&turn_);
  const uint64_t had = source_->tokens();
  if (source == nullptr || source->tokens() < had ||
      source->NodeBefore(had) != source_->NodeBefore(had)) {
    return WasRewound();
  }
  const uint64_t pieces = source->tokens() / layout_.piece_tokens;
  if (pieces > uint64_t{layout_.pages} * layout_.pieces_of_page()) {
    return Bad("the branch has " + std::to_string(source->tokens()) +
               " tokens, more than tokens_max has room for");
  }
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    CAIRN_RETURN_IF_ERROR(AwaitLayer(layer));
  }
  const Paused paused(&reads_);
  if (layout_.pieces % layout_.pieces_of_page() != 0) {
    // A page that is not full gets another key.
    std::vector<size_t> last;
    for (size_t row = 0; row < size_t{layout_.layers} * layout_.heads; ++row) {
      last.push_back(row * layout_.pages + layout_.pieces / layout_.pieces_of_page());
    }
    const io::Turn::Holder pool(arena_->pool().turn());
    arena_->pool().Release(this, last);
  }
  CAIRN_RETURN_IF_ERROR(SendPieces(static_cast<uint32_t>(pieces)));
  std::atomic_ref(layout_.pieces).store(static_cast<uint32_t>(pieces), std::memory_order_relaxed);
  const io::Turn::Holder pool(arena_->pool().turn());
  source_ = std::move(source);
  return Status::Ok();
}

// REQUIRES: no work is enqueued.
Status SparseSessionState::SendPieces(uint32_t pieces) {
  has_sent_pieces_ = false;
  const Status sent = memory_->SetPieces(pieces);
  has_sent_pieces_ = sent.ok();
  if (memory_->is_lost()) {
    const io::Turn::Holder enqueue(&enqueue_turn_);
    is_lost_ = true;
  }
  return sent;
}

Status SparseSessionState::AwaitEnqueued() {
  for (const Layer& layer : layers_) {
    if (layer.has_event) CAIRN_RETURN_IF_ERROR(waits_.For(layer.ended, io::kNoDeadline));
  }
  if (has_replayed_event_) CAIRN_RETURN_IF_ERROR(waits_.For(replayed_, io::kNoDeadline));
  return is_lost_ ? Status(StatusCode::kIoError, "sparse: the device does not answer")
                  : Status::Ok();
}

// In a child of fork() the memory, and the device, are the parent's.
void SparseSessionState::Destroy(SparseSessionState* state) {
  const io::NoCancel guard;
  if (state->waits_.scheduler().ProcessId() == state->process_id_) delete state;
}

SparseSessionState::~SparseSessionState() {
  reads_.Pause();
  bool is_lost = false;
  for (const Layer& layer : layers_) {
    if (layer.has_event) is_lost |= !waits_.For(layer.ended, io::kNoDeadline).ok();
  }
  if (has_replayed_event_) is_lost |= !waits_.For(replayed_, io::kNoDeadline).ok();
  {
    const io::Turn::Holder turn(&enqueue_turn_);
    is_lost_ |= is_lost;
  }
  // Memory that kernels may still read is never reused. Until it has left the pool, another session
  // that evicts asks for its tables.
  if (is_lost_) {
    arena_->pool().Abandon(this);
    if (memory_ != nullptr) memory_->Leak();
  } else {
    arena_->pool().Leave(this);
  }
  // Jobs asked for the events until then.
  for (const Layer& layer : layers_) {
    if (layer.has_event) waits_.device().Return(layer.ended);
  }
  if (has_replayed_event_) waits_.device().Return(replayed_);
  memory_ = nullptr;
  arena_->ReturnDeviceBytes(taken_bytes_);
}

// ---------------------------------------------------------------- pages

bool SparseSessionState::IsMapped(size_t index) const {
  std::atomic_ref<uint64_t> entry(memory_->pages(LayerOf(index))[InLayer(index)]);
  return entry.load(std::memory_order_relaxed) != gpu::kNoPage;
}

void SparseSessionState::Map(size_t index, std::byte* page) {
  std::atomic_ref<uint64_t> entry(memory_->pages(LayerOf(index))[InLayer(index)]);
  entry.store(reinterpret_cast<uint64_t>(page), std::memory_order_release);
}

bool SparseSessionState::TakeUsed(size_t index) {
  std::atomic_ref<uint8_t> used(memory_->used(LayerOf(index))[InLayer(index)]);
  return used.exchange(0, std::memory_order_relaxed) != 0;
}

Status SparseSessionState::AwaitReaders(size_t index) {
  bool is_replayed = false;
  {
    const io::Turn::Holder turn(&enqueue_turn_);
    if (is_lost_) return Status(StatusCode::kIoError, "sparse: the device does not answer");
    is_replayed = layers_[LayerOf(index)].is_captured;
  }
  CAIRN_RETURN_IF_ERROR(waits_.For(layers_[LayerOf(index)].ended, io::kNoDeadline));
  return is_replayed ? waits_.For(replayed_, io::kNoDeadline) : Status::Ok();
}

bool SparseSessionState::Has(const engine::PageKey& key) const {
  const uint64_t end = key.first + key.tokens;
  return end <= source_->tokens() && source_->NodeBefore(end) == key.node;
}

engine::PageKey SparseSessionState::KeyOf(size_t index) const {
  const size_t in_layer = InLayer(index);
  const uint64_t first = uint64_t{in_layer % layout_.pages} * layout_.page_tokens;
  const uint64_t end =
      std::min(first + layout_.page_tokens, uint64_t{layout_.pieces} * layout_.piece_tokens);
  return {.node = source_->NodeBefore(end),
          .first = first,
          .tokens = static_cast<uint32_t>(end - first),
          .layer = LayerOf(index),
          .head = static_cast<uint32_t>(in_layer / layout_.pages),
          .group = layout_.group,
          .planes = layout_.plane_bits(),
          .piece_tokens = layout_.piece_tokens,
          .page_tokens = layout_.page_tokens};
}

std::set<size_t> SparseSessionState::FaultsOf(uint32_t layer, uint64_t* pieces) const {
  std::set<size_t> pages;
  for (uint32_t head = 0; head < layout_.heads; ++head) {
    const uint32_t count = memory_->fault_counts(layer)[head];
    CAIRN_CHECK(count <= layout_.wanted_max);
    const uint32_t* const faults = memory_->faults(layer) + size_t{head} * layout_.wanted_max;
    for (uint32_t i = 0; i < count; ++i) {
      CAIRN_CHECK(faults[i] < layout_.pieces);
      pages.insert(IndexOf(layer, head, faults[i] / layout_.pieces_of_page()));
    }
    *pieces += count;
  }
  return pages;
}

// Brings as many as there is room for. REQUIRES: the pool's turn.
Status SparseSessionState::BringPages(std::span<const size_t> pages, uint64_t timeout_ns) {
  std::vector<engine::PagePool::Wanted> wanted;
  for (const size_t index : pages) {
    if (wanted.size() == engine::kSparsePagesAtOnce) break;
    if (!IsMapped(index)) wanted.push_back({KeyOf(index), index});
  }
  if (wanted.empty()) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const engine::PagePool::Brought brought,
                         arena_->pool().Bring(this, source_->node(), layout_, wanted, timeout_ns));
  Count(&engine::SparseCounters::pages_read, brought.read);
  Count(&engine::SparseCounters::page_bytes_read, brought.read_bytes);
  return Status::Ok();
}

void SparseSessionState::Count(std::atomic<uint64_t> engine::SparseCounters::*counter,
                               uint64_t more) {
  (counters_.*counter).fetch_add(more, std::memory_order_relaxed);
  (arena_->counters().*counter).fetch_add(more, std::memory_order_relaxed);
  (arena_->deps().totals->counters.*counter).fetch_add(more, std::memory_order_relaxed);
}

// ---------------------------------------------------------------- in the background

Status SparseSessionState::AwaitLayer(uint32_t layer, uint64_t deadline_ns) const {
  CAIRN_RETURN_IF_ERROR(waits_.For(layers_[layer].ended, deadline_ns));
  return layers_[layer].is_captured ? waits_.For(replayed_, deadline_ns) : Status::Ok();
}

Result<bool> SparseSessionState::HasEnded(uint32_t layer) const {
  CAIRN_ASSIGN_OR_RETURN(const bool ended, waits_.device().Reached(layers_[layer].ended));
  if (!ended || !layers_[layer].is_captured) return ended;
  return waits_.device().Reached(replayed_);
}

// Reads the pages that relaxed fetches lacked, of those that have ended. `is_replay`: captured
// layers are fetched next.
Status SparseSessionState::LookAtPending(bool is_replay) {
  // Those that found no room the last time come first, else the last layers never find any.
  const uint32_t from = look_from_;
  bool is_full = false;
  for (uint32_t i = 0; i < layout_.layers; ++i) {
    const uint32_t layer = (from + i) % layout_.layers;
    if (!layers_[layer].is_pending) continue;
    CAIRN_ASSIGN_OR_RETURN(const bool has_ended, HasEnded(layer));
    if (!has_ended) continue;
    const bool noted = NoteFaults(layer, is_replay && layers_[layer].is_captured);
    if (!noted && !std::exchange(is_full, true)) look_from_ = layer;
  }
  return reads_.TakeError();
}

// False: there is no room. Then a later call looks again, unless it `is_last`: the next fetch
// overwrites what this one lacked. REQUIRES: the layer's last fetch is pending, and has ended.
bool SparseSessionState::NoteFaults(uint32_t layer, bool is_last) {
  uint64_t pieces = 0;
  const std::set<size_t> pages = FaultsOf(layer, &pieces);
  const bool noted = reads_.Demand(pages);
  if (!noted && !is_last) return false;
  layers_[layer].is_pending = false;
  Count(&engine::SparseCounters::faults, pieces);
  Count(&engine::SparseCounters::left_out, pieces);
  return noted;
}

// ---------------------------------------------------------------- fetching

Status SparseSessionState::CheckWanted(const SparseWanted& wanted) const {
  if (wanted.layer >= layout_.layers) {
    return Bad("layer is " + std::to_string(wanted.layer) + "; there are " +
               std::to_string(layout_.layers));
  }
  if (wanted.count > layout_.wanted_max) {
    return Bad("count is " + std::to_string(wanted.count) + ", more than wanted_max, " +
               std::to_string(layout_.wanted_max));
  }
  if (wanted.count != 0 && wanted.pieces == nullptr) return Bad("pieces is null");
  if (layout_.heads > 1 && wanted.stride < wanted.count) {
    return Bad("stride is " + std::to_string(wanted.stride) + ", less than count");
  }
  return Status::Ok();
}

Result<SparseView> SparseSessionState::Fetch(const SparseWanted& wanted) {
  CAIRN_RETURN_IF_ERROR(arena_->deps().write->lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckWanted(wanted));
  const io::Turn::Holder turn(&turn_);
  CAIRN_RETURN_IF_ERROR(LookAtPending());
  if (!has_sent_pieces_) CAIRN_RETURN_IF_ERROR(SendPieces(layout_.pieces));
  engine::AdoptedStream adopted(&waits_.device());
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, adopted.Adopt(wanted.stream));
  CAIRN_ASSIGN_OR_RETURN(const bool is_captured, waits_.device().IsCaptured(stream));
  if (is_captured) return Bad("the stream is captured into a graph, which takes Capture");
  Count(&engine::SparseCounters::fetches, 1);
  Count(&engine::SparseCounters::wanted, uint64_t{wanted.count} * layout_.heads);
  CAIRN_RETURN_IF_ERROR(Stage(wanted));
  if (layers_[wanted.layer].is_pending) NoteFaults(wanted.layer, /*is_last=*/true);
  return wanted.mode == SparseMode::kStrict ? FetchStaged(wanted, stream)
                                            : FetchSome(wanted, stream);
}

// Waits until the last fetch's pieces were copied from there.
Status SparseSessionState::AwaitStaging(const SparseWanted& wanted) {
  if (wanted.mode == SparseMode::kRelaxed) {
    CAIRN_ASSIGN_OR_RETURN(const bool has_ended, HasEnded(wanted.layer));
    if (!has_ended) {
      return Status(StatusCode::kBusy, "sparse: the layer's last fetch has not ended");
    }
    return Status::Ok();
  }
  return AwaitLayer(wanted.layer);
}

// Puts pieces from host memory where the device copies them from.
Status SparseSessionState::Stage(const SparseWanted& wanted) {
  CAIRN_RETURN_IF_ERROR(AwaitStaging(wanted));
  for (uint32_t head = 0; head < layout_.heads; ++head) {
    memory_->staged_counts(wanted.layer)[head] = wanted.count;
    if (wanted.count == 0 || wanted.on_device) continue;
    std::memcpy(memory_->staged(wanted.layer) + size_t{head} * layout_.wanted_max,
                wanted.pieces + size_t{head} * wanted.stride, wanted.count * sizeof(uint32_t));
  }
  return Status::Ok();
}

std::vector<gpu::CopyPiece> SparseSessionState::PiecesToDevice(const SparseWanted& wanted,
                                                               const uint32_t* counts) const {
  const uint32_t layer = wanted.layer;
  std::vector<gpu::CopyPiece> copies;
  copies.push_back({reinterpret_cast<std::byte*>(memory_->counts(layer)),
                    reinterpret_cast<const std::byte*>(counts), layout_.heads * sizeof(uint32_t)});
  for (uint32_t head = 0; head < layout_.heads && wanted.count != 0; ++head) {
    const size_t at = size_t{head} * layout_.wanted_max;
    const uint32_t* const from = wanted.on_device ? wanted.pieces + size_t{head} * wanted.stride
                                                  : memory_->staged(layer) + at;
    copies.push_back({reinterpret_cast<std::byte*>(memory_->wanted(layer) + at),
                      reinterpret_cast<const std::byte*>(from), wanted.count * sizeof(uint32_t)});
  }
  return copies;
}

// `with_pieces`: they are not on the device yet.
Status SparseSessionState::Enqueue(const SparseWanted& wanted, gpu::Stream stream,
                                   bool with_pieces) {
  std::vector<gpu::CopyPiece> copies;
  const uint32_t layer = wanted.layer;
  if (with_pieces) copies = PiecesToDevice(wanted, memory_->staged_counts(layer));
  const io::Turn::Holder turn(&enqueue_turn_);
  if (is_lost_) return Status(StatusCode::kIoError, "sparse: the device does not answer");
  Status enqueued = CatchBadAlloc([&] { return EnqueueKernels(wanted, stream, copies); });
  if (!enqueued.ok()) {
    layers_[layer].is_spoiled = true;
    is_lost_ = !waits_.Drain(stream, layers_[layer].ended);
  }
  return enqueued;
}

Status SparseSessionState::EnqueueKernels(const SparseWanted& wanted, gpu::Stream stream,
                                          std::span<const gpu::CopyPiece> copies) {
  gpu::Device& device = waits_.device();
  Layer& layer = layers_[wanted.layer];
  if (layer.is_spoiled) {
    CAIRN_RETURN_IF_ERROR(
        device.Fill(stream, memory_->pieces_in(wanted.layer), std::byte{0xff}));  // kNoPiece.
  }
  if (!copies.empty()) CAIRN_RETURN_IF_ERROR(device.Copy(stream, copies));
  CAIRN_RETURN_IF_ERROR(device.Launch(stream, memory_->Resolve(wanted.layer, wanted.count)));
  if (wanted.count != 0) {
    CAIRN_RETURN_IF_ERROR(device.Launch(stream, memory_->Gather(wanted.layer, wanted.count)));
  }
  CAIRN_RETURN_IF_ERROR(device.Record(stream, layer.ended));
  layer.is_spoiled = false;
  return Status::Ok();
}

SparseView SparseSessionState::ViewOf(uint32_t layer) const {
  SparseView view;
  for (uint32_t plane = 0; plane < layout_.plane_count; ++plane) {
    const uint64_t bytes = layout_.piece_bytes(plane);
    view.planes[plane] = {memory_->slots(layer, plane), layout_.slots * bytes, bytes};
  }
  view.slot_of = memory_->slot_of(layer);
  view.slot_of_stride = layout_.wanted_max;
  return view;
}

Status SparseSessionState::ReportWrong(uint32_t layer) const {
  const uint64_t wrong = std::exchange(*memory_->wrong(layer), gpu::kNothingWrong);
  if (wrong == gpu::kNothingWrong) return Status::Ok();
  const auto piece = static_cast<uint32_t>(wrong);
  return Bad("layer " + std::to_string(layer) + ", head " + std::to_string(wrong >> 32) +
             ": piece " + std::to_string(piece) +
             (piece >= layout_.pieces ? " is beyond the last, " + std::to_string(layout_.pieces - 1)
                                      : " is wanted twice"));
}

// Repeats until no page is missing: if the arena is small, with a part of the pieces at a time.
// Pieces that are in slots by then do not need their pages any more.
Result<SparseView> SparseSessionState::FetchStaged(const SparseWanted& wanted, gpu::Stream stream) {
  const uint64_t deadline_ns = arena_->deps().write->lifecycle->Deadline(wanted.timeout_ns);
  const uint32_t layer = wanted.layer;
  CAIRN_RETURN_IF_ERROR(ReportWrong(layer));  // Reports what an earlier relaxed fetch met.
  CAIRN_RETURN_IF_ERROR(Enqueue(wanted, stream, /*with_pieces=*/true));
  for (bool first = true;; first = false) {
    CAIRN_RETURN_IF_ERROR(waits_.For(layers_[layer].ended, deadline_ns));
    CAIRN_RETURN_IF_ERROR(ReportWrong(layer));
    uint64_t pieces = 0;
    const std::set<size_t> missing = FaultsOf(layer, &pieces);
    if (first) Count(&engine::SparseCounters::faults, pieces);
    if (missing.empty()) return ViewOf(layer);
    const std::vector<size_t> pages(missing.begin(), missing.end());
    // Held until kernels that need the pages are enqueued: an eviction waits for those.
    const io::Turn::Holder pool(arena_->pool().turn());
    const uint64_t now_ns = waits_.scheduler().MonotonicNs();
    CAIRN_RETURN_IF_ERROR(BringPages(pages, deadline_ns == io::kNoDeadline
                                                ? UINT64_MAX
                                                : deadline_ns - std::min(now_ns, deadline_ns)));
    CAIRN_RETURN_IF_ERROR(Enqueue(wanted, stream, /*with_pieces=*/false));
  }
}

Result<SparseView> SparseSessionState::FetchSome(const SparseWanted& wanted, gpu::Stream stream) {
  CAIRN_RETURN_IF_ERROR(Enqueue(wanted, stream, /*with_pieces=*/true));
  layers_[wanted.layer].is_pending = true;
  return ViewOf(wanted.layer);
}

Status SparseSessionState::Prefetch(const SparseWanted& wanted) {
  CAIRN_RETURN_IF_ERROR(arena_->deps().write->lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckWanted(wanted));
  if (wanted.on_device) return Bad("a prefetch takes pieces in host memory");
  const uint32_t end = pieces();
  std::set<size_t> pages;
  for (uint32_t head = 0; head < layout_.heads; ++head) {
    for (uint32_t i = 0; i < wanted.count; ++i) {
      const uint32_t piece = wanted.pieces[size_t{head} * wanted.stride + i];
      if (piece >= end) {
        return Bad("head " + std::to_string(head) + ": piece " + std::to_string(piece) +
                   " is beyond the last, " + std::to_string(end - 1));
      }
      const size_t index = IndexOf(wanted.layer, head, piece / layout_.pieces_of_page());
      if (!IsMapped(index)) pages.insert(index);
    }
  }
  const uint64_t deadline_ns = arena_->deps().write->lifecycle->Deadline(wanted.timeout_ns);
  if (reads_.Prefetch(pages, deadline_ns)) return Status::Ok();
  return Status(StatusCode::kBusy, "sparse: earlier pages are still to be read");
}

}  // namespace cairn
