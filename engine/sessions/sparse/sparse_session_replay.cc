// SPDX-License-Identifier: Apache-2.0
//
// Fetches that a graph of the caller repeats. A captured fetch has no event of its own: Replay
// records one behind the whole graph, and until then nobody may take a page (enqueue_turn_).
#include <deque>
#include <exception>
#include <utility>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/device/adopted_stream.h"
#include "engine/sessions/sparse/sparse_session.h"

namespace cairn {

Result<SparseView> SparseSessionState::Capture(const SparseWanted& wanted) {
  CAIRN_RETURN_IF_ERROR(arena_->deps().write->lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckWanted(wanted));
  if (wanted.mode != SparseMode::kRelaxed || !wanted.on_device) {
    return Bad("a captured fetch is relaxed, and its pieces lie on the device");
  }
  const io::Turn::Holder turn(&turn_);
  gpu::Device& device = waits_.device();
  engine::AdoptedStream adopted(&device);
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, adopted.Adopt(wanted.stream));
  CAIRN_ASSIGN_OR_RETURN(const bool is_captured, device.IsCaptured(stream));
  if (!is_captured) return Bad("the stream is not captured into a graph");
  Layer& layer = layers_[wanted.layer];
  if (layer.is_captured && layer.captured_count != wanted.count) {
    return Bad("count is " + std::to_string(wanted.count) + "; layer " +
               std::to_string(wanted.layer) + " was captured with " +
               std::to_string(layer.captured_count));
  }
  if (!has_replayed_event_) {
    CAIRN_ASSIGN_OR_RETURN(replayed_, device.NewEvent());
    has_replayed_event_ = true;
  }
  const io::Turn::Holder enqueue(&enqueue_turn_);
  if (is_lost_) return Status(StatusCode::kIoError, "sparse: the device does not answer");
  for (uint32_t head = 0; head < layout_.heads; ++head) {
    memory_->captured_counts(wanted.layer)[head] = wanted.count;
  }
  // One by one: copies in batches cannot be captured.
  for (const gpu::CopyPiece& copy :
       PiecesToDevice(wanted, memory_->captured_counts(wanted.layer))) {
    CAIRN_RETURN_IF_ERROR(device.Copy(stream, {&copy, 1}));
  }
  CAIRN_RETURN_IF_ERROR(device.Launch(stream, memory_->Resolve(wanted.layer, wanted.count)));
  if (wanted.count != 0) {
    CAIRN_RETURN_IF_ERROR(device.Launch(stream, memory_->Gather(wanted.layer, wanted.count)));
  }
  layer.captured_count = wanted.count;
  layer.is_captured = true;
  return ViewOf(wanted.layer);
}

Status SparseSessionState::Replay(std::span<SparseSessionState* const> sessions, uintptr_t handle,
                                  const std::function<Status()>& launch) {
  if (sessions.empty()) return Bad("no sessions are replayed");
  gpu::Device& device = sessions[0]->waits_.device();
  for (const SparseSessionState* session : sessions) {
    if (&session->waits_.device() != &device) return Bad("the sessions are of different GPUs");
  }
  std::deque<io::Turn::Holder> turns;
  for (SparseSessionState* session : sessions) turns.emplace_back(&session->turn_);
  for (SparseSessionState* session : sessions) CAIRN_RETURN_IF_ERROR(session->PrepareReplay());
  engine::AdoptedStream adopted(&device);
  CAIRN_ASSIGN_OR_RETURN(const gpu::Stream stream, adopted.Adopt(handle));
  CAIRN_ASSIGN_OR_RETURN(const bool is_captured, device.IsCaptured(stream));
  if (is_captured) return Bad("the stream is captured into another graph");
  std::deque<io::Turn::Holder> enqueue;
  for (SparseSessionState* session : sessions) enqueue.emplace_back(&session->enqueue_turn_);
  Status status;
  std::exception_ptr thrown;
  try {
    for (SparseSessionState* session : sessions) {
      if (status.ok()) status = session->BeginReplay(stream);
    }
    if (status.ok()) status = launch();
  } catch (...) {
    thrown = std::current_exception();  // What was enqueued before it runs all the same.
  }
  for (SparseSessionState* session : sessions) {
    Status ended = session->EndReplay(stream, status.ok() && thrown == nullptr);
    if (status.ok()) status = std::move(ended);
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return status;
}

// The last replay has ended, and what it lacked is being read.
Status SparseSessionState::PrepareReplay() {
  CAIRN_RETURN_IF_ERROR(arena_->deps().write->lifecycle->CheckUsable());
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    if (layers_[layer].is_captured) CAIRN_RETURN_IF_ERROR(AwaitLayer(layer));
  }
  CAIRN_RETURN_IF_ERROR(LookAtPending(/*is_replay=*/true));
  return has_sent_pieces_ ? Status::Ok() : SendPieces(layout_.pieces);
}

Status SparseSessionState::BeginReplay(gpu::Stream stream) {
  if (is_lost_) return Status(StatusCode::kIoError, "sparse: the device does not answer");
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    if (!layers_[layer].is_captured || !layers_[layer].is_spoiled) continue;
    CAIRN_RETURN_IF_ERROR(
        waits_.device().Fill(stream, memory_->pieces_in(layer), std::byte{0xff}));  // kNoPiece.
  }
  return Status::Ok();
}

// Part of a graph that was not launched may run all the same. Returns the error of the event. Never
// throws.
Status SparseSessionState::EndReplay(gpu::Stream stream, bool is_launched) {
  if (!has_replayed_event_) return Status::Ok();  // Nothing was captured.
  Status status;
  if (is_launched)
    status = CatchBadAlloc([&] { return waits_.device().Record(stream, replayed_); });
  const bool has_event = is_launched && status.ok();
  if (!has_event && !is_lost_) is_lost_ = !waits_.Drain(stream, replayed_);
  uint64_t fetches = 0, pieces = 0;
  for (Layer& layer : layers_) {
    if (!layer.is_captured) continue;
    layer.is_spoiled = !has_event;
    layer.is_pending = has_event;
    ++fetches;
    pieces += uint64_t{layer.captured_count} * layout_.heads;
  }
  if (!has_event) return status;
  Count(&engine::SparseCounters::fetches, fetches);
  Count(&engine::SparseCounters::wanted, pieces);
  return status;
}

}  // namespace cairn
