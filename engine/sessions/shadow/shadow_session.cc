// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/shadow_session.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/io/no_cancel.h"
#include "engine/device/adopted_stream.h"
#include "engine/sessions/shadow/constants.h"
#include "engine/sessions/sparse/head_rows.h"

namespace cairn {

namespace {

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "shadow: " + what);
}

}  // namespace

// ---------------------------------------------------------------- opening and closing

Result<std::shared_ptr<ShadowSessionState>> ShadowSessionState::Make(
    std::shared_ptr<SparseArenaState> arena, BranchId branch, const ShadowOptions& options) {
  const std::shared_ptr<ShadowSessionState> state(new ShadowSessionState(std::move(arena), options),
                                                  Destroy);
  CAIRN_RETURN_IF_ERROR(state->Open(branch));
  return state;
}

Status ShadowSessionState::Open(BranchId branch) {
  const SparseArenaState::Deps& deps = arena_->deps();
  CAIRN_ASSIGN_OR_RETURN(
      source_, engine::SparseSource::Take(*deps.write, deps.coalesced, branch, options_.end));
  const auto shape_of = [&](uint64_t tokens) {
    return engine::ShadowShape::Of(source_->model(), options_.group, options_.spec, tokens);
  };
  CAIRN_ASSIGN_OR_RETURN(shape_, shape_of(source_->tokens()));
  CAIRN_ASSIGN_OR_RETURN(most_, shape_of(std::max(source_->tokens(), options_.tokens_max)));
  info_ = engine::InfoOf(shape_);
  if (options_.query_heads == 0 || options_.query_heads % shape_.heads != 0) {
    return Bad("query_heads is " + std::to_string(options_.query_heads) +
               ", not a multiple of the kv heads, " + std::to_string(shape_.heads));
  }
  // Behind a shadow there are fewer tokens than a block and the window have.
  const uint64_t resident = uint64_t{most_.always_chunks()} * most_.spec.chunk_tokens +
                            most_.spec.local_tokens + shadow::kBlockRows + options_.append_tokens;
  if (resident > UINT32_MAX) {
    return Bad("of spec, append_tokens and tokens_max there are " + std::to_string(resident) +
               " tokens that are always attended to; at most 2^32 - 1");
  }
  if (most_.plan.budget_chunks != 0) {
    CAIRN_RETURN_IF_ERROR(
        engine::SparseLayout::Of(source_->model(), FetchOptions(), most_.tokens).status());
  }
  engine::ShadowCapacity room{.most = most_,
                              .query_heads = options_.query_heads,
                              .resident_tokens = static_cast<uint32_t>(resident)};
  if (shape_.is_low_rank()) CAIRN_RETURN_IF_ERROR(OpenLowRank(&room));
  memory_ = std::make_unique<engine::ShadowMemory>(&waits_, room);
  CAIRN_RETURN_IF_ERROR(OpenFetches());
  CAIRN_RETURN_IF_ERROR(arena_->TakeDeviceBytes(memory_->device_bytes()));
  taken_bytes_ = memory_->device_bytes();
  layers_.resize(shape_.layers);
  for (Layer& layer : layers_) {
    CAIRN_ASSIGN_OR_RETURN(layer.ended, waits_.device().NewEvent());
    layer.has_event = true;
  }
  CAIRN_RETURN_IF_ERROR(memory_->Allocate());
  return Load();
}

// Takes memory for vectors and turns. Without a rank, for as many vectors as there are now: a
// longer context may need more.
Status ShadowSessionState::OpenLowRank(engine::ShadowCapacity* room) {
  CAIRN_ASSIGN_OR_RETURN(low_rank_, engine::SessionVectors::Of(*shape_.of));
  rank_ = shape_.spec.rank;
  if (rank_ == 0 && !shape_.is_dense()) {  // The table says how many keep rank_energy.
    const auto find_rank = [this](sstable::SnapshotTable* table) -> Status {
      CAIRN_ASSIGN_OR_RETURN(rank_, engine::MostRank(shape_, table));
      return Status::Ok();
    };
    CAIRN_RETURN_IF_ERROR(WithTable(find_rank, [] { return Status::Ok(); }));
  }
  room->rank = rank_;
  room->turned = low_rank_->keys().pairs();
  return Status::Ok();
}

// None as long as all chunks are always attended to.
Status ShadowSessionState::OpenFetches() {
  if (shape_.plan.budget_chunks == 0) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(fetches_, SparseSessionState::Make(arena_, source_, FetchOptions()));
  return Status::Ok();
}

SparseOptions ShadowSessionState::FetchOptions() const {
  const uint32_t budget = most_.plan.budget_chunks;
  return {.group = options_.group,
          .planes = most_.spec.keys == ShadowKeys::kExact ? 3U : 2U,
          .piece_tokens = most_.spec.chunk_tokens,
          .slots = options_.slots != 0 ? options_.slots : std::min(2 * budget, most_.plan.chunks),
          .wanted_max = budget,
          .tokens_max = most_.tokens};
}

Status ShadowSessionState::Load() {
  const Status loaded = Upload([this](engine::DeviceUpload* upload) { return LoadAll(upload); });
  CAIRN_RETURN_IF_ERROR(loaded);
  if (low_rank_.has_value() && !shape_.is_dense()) low_rank_->Commit();
  is_whole_ = true;
  return Status::Ok();
}

Status ShadowSessionState::LoadAll(engine::DeviceUpload* upload) {
  always_.emplace(shape_.rows());
  CAIRN_RETURN_IF_ERROR(memory_->Reset(shape_, upload));
  if (!shape_.is_dense()) CAIRN_RETURN_IF_ERROR(LoadTable(upload));
  return LoadNewest(upload);
}

// Returns when the device has all that `put` adds.
Status ShadowSessionState::Upload(const Put& put) {
  CAIRN_ASSIGN_OR_RETURN(const auto upload, engine::DeviceUpload::Make(&waits_));
  const Status done = CatchBadAlloc([&]() -> Status {
    CAIRN_RETURN_IF_ERROR(put(upload.get()));
    return upload->Finish();
  });
  is_lost_ |= upload->is_lost();
  return done;
}

// ---------------------------------------------------------------- from a table

// Finds one for the content that the session has on lease: the branch may have been rewound
// meanwhile, and have other tokens there.
Status ShadowSessionState::FindTable(engine::DerivedTables::Found* found) {
  const engine::ShadowDeps& deps = arena_->deps();
  auto there = engine::FindShadowTable(deps, source_->branch(), shape_);
  if (there.status().code() == StatusCode::kNotFound && options_.build) {
    CAIRN_ASSIGN_OR_RETURN(info_.tokens_read,
                           engine::MakeShadowTable(deps, source_->branch(), shape_));
    there = engine::FindShadowTable(deps, source_->branch(), shape_);
  }
  CAIRN_RETURN_IF_ERROR(there.status());
  *found = std::move(*there);
  info_.table_bytes = found->table->info().bytes;
  if (static_cast<uint64_t>(found->owner.node) == source_->NodeBefore(shape_.plan.covered)) {
    return Status::Ok();
  }
  return Status(StatusCode::kConflict, "shadow: the branch was rewound while its shadow was made");
}

// One that is damaged is of no use to anybody: it is dropped, and made again. `undo` comes before a
// second try.
Status ShadowSessionState::WithTable(const TableWork& work, const Undo& undo) {
  engine::DerivedTables::Found found;
  CAIRN_RETURN_IF_ERROR(FindTable(&found));
  const Status used = work(found.table.get());
  if (used.code() != StatusCode::kCorruption && used.code() != StatusCode::kNotFound) return used;
  static_cast<void>(arena_->deps().derived->Drop(found.owner));
  found = {};
  CAIRN_RETURN_IF_ERROR(undo());
  CAIRN_RETURN_IF_ERROR(FindTable(&found));
  return work(found.table.get());
}

Status ShadowSessionState::LoadTable(engine::DeviceUpload* upload) {
  const auto load = [&](sstable::SnapshotTable* table) { return LoadFrames(table, upload); };
  return WithTable(load, [&] {
    always_.emplace(shape_.rows());
    return upload->Finish();  // Before the same places are written again.
  });
}

Status ShadowSessionState::LoadFrames(sstable::SnapshotTable* table, engine::DeviceUpload* upload) {
  const auto on_part = [&](const engine::ShadowPartLayout& part, size_t row,
                           std::span<const std::byte> frame) {
    always_->TakePart(part, row, frame);
    return memory_->PutPart(part, row, frame, upload);
  };
  size_t taken = 0;
  const auto on_always = [&](uint32_t first, uint32_t chunks, size_t row,
                             std::span<const std::byte> frame) -> Status {
    if (first == 0) static_cast<void>(always_->Reset(shape_.plan, row));
    const auto which = std::as_bytes(always_->of(row).subspan(first, chunks));
    if (!std::equal(which.begin(), which.end(), frame.begin())) {
      return Status(StatusCode::kCorruption, "a shadow always attends to other chunks");
    }
    taken += chunks;
    const auto layer = static_cast<uint32_t>(row / shape_.heads);
    const auto head = static_cast<uint32_t>(row % shape_.heads);
    const uint64_t token = uint64_t{first} * shape_.spec.chunk_tokens;
    const size_t keys = size_t{chunks} * shape_.spec.chunk_tokens * shape_.key_bytes;
    frame = frame.subspan(which.size());
    CAIRN_RETURN_IF_ERROR(
        upload->Add(memory_->resident_keys(layer, head, token), frame.first(keys)));
    return upload->Add(memory_->resident_values(layer, head, token), frame.subspan(keys));
  };
  if (low_rank_.has_value()) low_rank_->Forget();
  std::vector<engine::LayerBasis> bases;
  const auto on_basis = [&](uint32_t layer, const engine::LayerBasis& one) -> Status {
    if (one.basis.rank > rank_) return Status(StatusCode::kCorruption, "a shadow of another rank");
    bases.push_back(one);
    return memory_->PutBasis(layer, one.basis, upload);
  };
  const auto on_rows = [&](const engine::ShadowPartLayout& part, size_t layer,
                           std::span<const std::byte> frame) {
    return memory_->PutRows(part, static_cast<uint32_t>(layer), frame, upload);
  };
  CAIRN_RETURN_IF_ERROR(
      ReadShadow(shape_, shape_.plan.covered, table, {on_part, on_always, on_basis, on_rows}));
  if (taken != shape_.always_chunks() * shape_.rows()) {
    return Status(StatusCode::kCorruption, "a shadow lacks rows that are always attended to");
  }
  for (size_t row = 0; row < shape_.rows(); ++row) {
    CAIRN_RETURN_IF_ERROR(memory_->PutAlways(row, always_->of(row), upload));
  }
  if (!low_rank_.has_value()) return Status::Ok();
  for (const engine::ShadowPartLayout& part : PartsOf(shape_)) {
    CAIRN_RETURN_IF_ERROR(low_rank_->PutTurns(part, memory_.get(), upload));
  }
  low_rank_->Reset(std::move(bases), shape_.plan.covered);
  return Status::Ok();
}

// The tokens behind the shadow: fewer than a block and the local window.
Status ShadowSessionState::LoadNewest(engine::DeviceUpload* upload) const {
  const auto tokens = static_cast<uint32_t>(shape_.tokens - shape_.plan.covered);
  if (tokens == 0) return Status::Ok();
  const size_t keys = size_t{tokens} * shape_.key_bytes;
  const size_t values = size_t{tokens} * shape_.value_bytes;
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    std::vector<std::byte> rows(shape_.heads * (keys + values));
    std::vector<engine::HeadRows> reads;
    for (uint32_t head = 0; head < shape_.heads; ++head) {
      for (const uint32_t plane : {0U, 1U}) {
        reads.push_back({.layer = layer,
                         .plane = plane,
                         .head = head,
                         .first = shape_.plan.covered,
                         .tokens = tokens,
                         .into = &rows[head * (keys + values) + plane * keys]});
      }
    }
    const auto row_bytes = shape_.row_bytes();
    CAIRN_RETURN_IF_ERROR(engine::ReadHeadRows(arena_->deps().reads, source_->node(), shape_.group,
                                               row_bytes, reads, UINT64_MAX));
    for (uint32_t head = 0; head < shape_.heads; ++head) {
      const auto of = std::span<const std::byte>(rows).subspan(head * (keys + values));
      CAIRN_RETURN_IF_ERROR(
          upload->Add(memory_->resident_keys(layer, head, always_tokens()), of.first(keys)));
      CAIRN_RETURN_IF_ERROR(upload->Add(memory_->resident_values(layer, head, always_tokens()),
                                        of.subspan(keys, values)));
    }
  }
  return Status::Ok();
}

// In a child of fork() the memory, and the device, are the parent's.
void ShadowSessionState::Destroy(ShadowSessionState* state) {
  const io::NoCancel guard;
  if (state->waits_.scheduler().ProcessId() == state->process_id_) delete state;
}

ShadowSessionState::~ShadowSessionState() {
  // Steps that are enqueued read the selection.
  if (fetches_ != nullptr) is_lost_ |= !fetches_->AwaitEnqueued().ok();
  fetches_ = nullptr;
  for (const Layer& layer : layers_) {
    if (layer.has_event) is_lost_ |= !waits_.For(layer.ended, io::kNoDeadline).ok();
  }
  for (const Layer& layer : layers_) {
    if (layer.has_event) waits_.device().Return(layer.ended);
  }
  // Kernels may still use this memory: it is never given to others.
  if (is_lost_ && memory_ != nullptr) memory_->Leak();
  memory_ = nullptr;
  arena_->ReturnDeviceBytes(taken_bytes_);
}

ShadowInfo ShadowSessionState::info() const {
  const io::Turn::Holder turn(&turn_);
  return info_;
}
uint64_t ShadowSessionState::device_bytes() const {
  const io::Turn::Holder turn(&turn_);
  return memory_->device_bytes() + (fetches_ == nullptr ? 0 : fetches_->device_bytes());
}
SparseStats ShadowSessionState::stats() const {
  const io::Turn::Holder turn(&turn_);
  return fetches_ == nullptr ? SparseStats() : fetches_->stats();
}

// ---------------------------------------------------------------- steps

Status ShadowSessionState::CheckLayer(uint32_t layer) const {
  // most_ never changes; another thread's Extend may be changing shape_.
  if (layer < most_.layers) return Status::Ok();
  return Bad("layer is " + std::to_string(layer) + "; there are " + std::to_string(most_.layers));
}

Status ShadowSessionState::CheckWhole() const {
  if (is_whole_) return Status::Ok();
  return Status(StatusCode::kInvalidState, "shadow: Extend failed half way; call it again");
}

// Enqueues in the caller's stream, and then what the layer's event waits for.
template <typename Enqueue>
Status ShadowSessionState::OnStream(uint32_t layer, uintptr_t handle, const Enqueue& enqueue) {
  if (is_lost_) return Status(StatusCode::kIoError, "shadow: the device does not answer");
  gpu::Device& device = waits_.device();
  engine::AdoptedStream adopted(&device);
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, adopted.Adopt(handle));
  CAIRN_ASSIGN_OR_RETURN(const bool is_captured, device.IsCaptured(stream));
  if (is_captured)
    return Bad("the stream is captured into a graph, which a step cannot be part of");
  // So that the event stands for all streams that the layer was worked on in.
  Status enqueued = device.StreamWait(stream, layers_[layer].ended);
  if (enqueued.ok()) enqueued = enqueue(stream);
  if (enqueued.ok()) enqueued = device.Record(stream, layers_[layer].ended);
  if (!enqueued.ok()) is_lost_ = !waits_.Drain(stream, layers_[layer].ended);
  return enqueued;
}

Status ShadowSessionState::Select(const ShadowQuery& query) {
  CAIRN_RETURN_IF_ERROR(CheckLayer(query.layer));
  if (query.queries == nullptr) return Bad("queries is null");
  const io::Turn::Holder turn(&turn_);
  CAIRN_RETURN_IF_ERROR(CheckWhole());
  for (Layer& layer : layers_) layer.step = Step::kNone;
  if (shape_.plan.budget_chunks != 0) {
    gpu::ScoreChunks score = memory_->Score(query.layer);
    score.queries = query.queries;
    score.fp32_queries = query.is_fp32;
    score.query_head_stride = query.head_stride != 0 ? query.head_stride : shape_.channels;
    score.query_pair_stride = score.group * score.query_head_stride;
    score.scale =
        query.scale != 0 ? query.scale : 1.0F / std::sqrt(static_cast<float>(shape_.channels));
    const gpu::SelectChunks select = memory_->Select(query.layer);
    const Status enqueued = OnStream(query.layer, query.stream, [&](gpu::Stream stream) {
      const Status scored = waits_.device().Launch(stream, score);
      return scored.ok() ? waits_.device().Launch(stream, select) : scored;
    });
    CAIRN_RETURN_IF_ERROR(enqueued);
  }
  layers_[query.layer].step = Step::kSelected;
  return Status::Ok();
}

Status ShadowSessionState::Fetch(const ShadowFetch& fetch) {
  CAIRN_RETURN_IF_ERROR(CheckLayer(fetch.layer));
  const io::Turn::Holder turn(&turn_);
  Layer& layer = layers_[fetch.layer];
  if (layer.step == Step::kNone) {
    return Status(StatusCode::kInvalidState, "shadow: nothing is selected for this layer");
  }
  const uint32_t budget = shape_.plan.budget_chunks;
  if (fetches_ != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(layer.values, fetches_->Fetch({.layer = fetch.layer,
                                                          .pieces = memory_->chunks(),
                                                          .count = budget,
                                                          .stride = memory_->budget_stride(),
                                                          .on_device = true,
                                                          .stream = fetch.stream,
                                                          .mode = fetch.mode,
                                                          .timeout_ns = fetch.timeout_ns}));
  }
  if (fetches_ == nullptr && fetch.mode == SparseMode::kStrict) {
    CAIRN_RETURN_IF_ERROR(
        OnStream(fetch.layer, fetch.stream, [](gpu::Stream) { return Status::Ok(); }));
    const auto& lifecycle = *arena_->deps().write->lifecycle;
    CAIRN_RETURN_IF_ERROR(waits_.For(layer.ended, lifecycle.Deadline(fetch.timeout_ns)));
  }
  layer.step = Step::kFetched;
  return Status::Ok();
}

Status ShadowSessionState::Rebuild(uint32_t layer, uintptr_t stream) {
  CAIRN_RETURN_IF_ERROR(CheckLayer(layer));
  const io::Turn::Holder turn(&turn_);
  if (layers_[layer].step == Step::kNone) {
    return Status(StatusCode::kInvalidState, "shadow: nothing is selected for this layer");
  }
  if (shape_.plan.budget_chunks == 0 || shape_.spec.keys == ShadowKeys::kExact) {
    return Status::Ok();
  }
  if (low_rank_.has_value()) {
    const gpu::RebuildLowRank low_rank = memory_->RebuildLowRank(layer, low_rank_->keys());
    return OnStream(layer, stream,
                    [&](gpu::Stream on) { return waits_.device().Launch(on, low_rank); });
  }
  const gpu::RebuildKeys rebuild = memory_->Rebuild(layer);
  return OnStream(layer, stream,
                  [&](gpu::Stream on) { return waits_.device().Launch(on, rebuild); });
}

Result<ShadowView> ShadowSessionState::View(uint32_t layer) const {
  CAIRN_RETURN_IF_ERROR(CheckLayer(layer));
  const io::Turn::Holder turn(&turn_);
  const Layer& of = layers_[layer];
  if (of.step != Step::kFetched) {
    return Status(StatusCode::kInvalidState, "shadow: nothing was fetched for this layer");
  }
  ShadowView view;
  view.resident_keys = memory_->resident_keys(layer, 0, 0);
  view.resident_values = memory_->resident_values(layer, 0, 0);
  view.resident_key_stride = memory_->resident_key_stride();
  view.resident_value_stride = memory_->resident_value_stride();
  view.resident_tokens =
      static_cast<uint32_t>(always_tokens() + (shape_.tokens - shape_.plan.covered) + of.appended);
  if (fetches_ == nullptr) return view;
  view.count = shape_.plan.budget_chunks;
  view.stride = memory_->budget_stride();
  view.chunks = memory_->chunks();
  view.value_slot_of = of.values.slot_of;
  CAIRN_CHECK(of.values.slot_of_stride == view.stride);
  if (shape_.spec.keys != ShadowKeys::kExact) {
    view.key_slot_of = memory_->in_order();
    view.keys = {memory_->rebuilt(), memory_->rebuilt_stride(),
                 uint64_t{shape_.spec.chunk_tokens} * shape_.key_bytes};
    view.values = of.values.planes[0];
  } else {
    view.key_slot_of = of.values.slot_of;
    view.keys = of.values.planes[0];
    view.values = of.values.planes[1];
  }
  return view;
}

Status ShadowSessionState::Append(const ShadowRows& rows) {
  CAIRN_RETURN_IF_ERROR(CheckLayer(rows.layer));
  if (rows.keys == nullptr || rows.values == nullptr) return Bad("keys or values is null");
  const io::Turn::Holder turn(&turn_);
  CAIRN_RETURN_IF_ERROR(CheckWhole());
  Layer& layer = layers_[rows.layer];
  if (layer.appended == options_.append_tokens) {
    return Status(StatusCode::kBusy, "shadow: append_tokens, " +
                                         std::to_string(options_.append_tokens) +
                                         ", are there; Extend makes room");
  }
  const uint64_t at = always_tokens() + (shape_.tokens - shape_.plan.covered) + layer.appended;
  const uint64_t key_stride = rows.key_stride != 0 ? rows.key_stride : shape_.key_bytes;
  const uint64_t value_stride = rows.value_stride != 0 ? rows.value_stride : shape_.value_bytes;
  std::vector<gpu::CopyPiece> copies;
  for (uint32_t head = 0; head < shape_.heads; ++head) {
    copies.push_back({memory_->resident_keys(rows.layer, head, at), rows.keys + head * key_stride,
                      shape_.key_bytes});
    copies.push_back({memory_->resident_values(rows.layer, head, at),
                      rows.values + head * value_stride, shape_.value_bytes});
  }
  CAIRN_RETURN_IF_ERROR(OnStream(rows.layer, rows.stream, [&](gpu::Stream stream) {
    return waits_.device().Copy(stream, copies);
  }));
  ++layer.appended;
  return Status::Ok();
}

Status ShadowSessionState::Prefetch(uint32_t layer, const uint32_t* chunks, uint32_t count,
                                    uint32_t stride) {
  CAIRN_RETURN_IF_ERROR(CheckLayer(layer));
  const io::Turn::Holder turn(&turn_);
  if (fetches_ == nullptr) return Status::Ok();
  return fetches_->Prefetch({.layer = layer, .pieces = chunks, .count = count, .stride = stride});
}

Status ShadowSessionState::Save() {
  const io::Turn::Holder turn(&turn_);
  return fetches_ == nullptr ? Status::Ok() : fetches_->Save();
}

}  // namespace cairn
