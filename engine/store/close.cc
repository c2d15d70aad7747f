// SPDX-License-Identifier: Apache-2.0
//
// Closing. Everything that Close acknowledges is on the device; the rest only affects the time of
// the next opening.
#include "base/core/out_of_memory.h"
#include "base/io/no_cancel.h"
#include "engine/store/store_core.h"

namespace cairn {

StoreCore::~StoreCore() { static_cast<void>(Close()); }

// A child of fork() has a copy of everything, made while other threads held locks of it and wrote
// to the disk; those threads do not exist in it. So it takes nothing apart.
void StoreCore::Destroy(StoreCore* core) {
  const io::NoCancel guard;
  if (!core->lifecycle_.IsInChild()) delete core;
}

// Only the time of the next opening depends on it.
void StoreCore::FlushTreeAtClose() {
  {
    std::lock_guard lock(committer_.mutex());
    const uint64_t records_max = options_.replay_records_max / engine::kReplayShareAtClose;
    const uint64_t last = log_->last_reserved_sequence();
    // Writing behind records that a salvage left out gives them up; otherwise only a salvage could
    // open the store. Until then another opening may recover them, with the damaged file.
    const bool gives_up = left_out_ != 0 && last > left_out_upto_;
    if (left_out_ != 0 && !gives_up) return;
    // The last tree flush may have stopped after its first step.
    const bool names_hints = indexer_ != nullptr && indexer_->WantTreeFlush(/*at_close=*/true);
    if (!gives_up && !names_hints && !space_.flusher().IsDue(last, records_max) &&
        last - manifest_.Copy().index_sequence < records_max) {
      return;
    }
  }
  const Status flushed = CatchBadAlloc([this] { return space_.flusher().FlushTree(); });
  if (!flushed.ok()) OnEventOf("closing: the index was not brought up to date: ", flushed);
}

Status StoreCore::CloseLog() {
  if (options_.read_only) return lifecycle_.PoisonStatus();
  CAIRN_RETURN_IF_ERROR(log_->Close());
  CAIRN_RETURN_IF_ERROR(lifecycle_.PoisonStatus());
  CAIRN_RETURN_IF_ERROR(manifest_.Edit([this](engine::Manifest* next) {
    std::lock_guard lock(committer_.mutex());
    next->next_id = committer_.tree().next_id();
    next->last_sequence = log_->durable_sequence();
  }));
  hints_.Publish();
  return Status::Ok();
}

Status StoreCore::Close() {
  const io::Turn::Holder turn(&close_turn_);
  // Never opened: members take down what Open started. Or closed before.
  if (!lifecycle_.open()) return closed_;
  static_cast<void>(CatchBadAlloc([this] { return space_.ReclaimAtClose(), Status::Ok(); }));
  lifecycle_.Close();
  space_.Stop();
  objects_.Stop();
  background_executor_.reset();
  if (indexer_ != nullptr) indexer_->Stop();
  if (!options_.read_only && log_->poisoned().ok()) FlushTreeAtClose();
  timer_->Stop();
  // CoalescedAppends accepts an append under the commit lock, and only while the store is open.
  // Once this thread has had the lock, no more are accepted, and EndAll flushes all that were.
  committer_.mutex().lock();
  committer_.mutex().unlock();
  Status status = coalesced_.EndAll();
  lifecycle_.AwaitCalls();
  ready_poller_.Stop();
  executor_->Stop();  // Finishes posted jobs. They look for it here.
  reads_.Stop();
  const Status log_closed = CatchBadAlloc([this] { return CloseLog(); });
  if (!log_closed.ok()) status = log_closed;
  // All tickets that could end have ended.
  tickets_.EndByClose();
  hints_.Close();
  gpu_sources_.Clear();
  reader_.ReleaseCaches();  // Handles may outlive this by far.
  arena_.Clear();
  lock_.reset();  // The log stays for calls under way; it refuses new ones.
  return closed_ = status;
}

}  // namespace cairn
