// SPDX-License-Identifier: Apache-2.0
//
// Closing. What Close tells of is on the device; nothing depends on the rest but the time that the
// next opening takes.
#include "base/core/out_of_memory.h"
#include "base/io/no_cancel.h"
#include "engine/store_core.h"

namespace cairn {

StoreCore::~StoreCore() { static_cast<void>(Close()); }

// A child of fork() has a copy of everything, made at a moment when others held locks of it and
// were on their way to the disk; its threads do not exist. So it takes nothing apart.
void StoreCore::Destroy(StoreCore* core) {
  const io::NoCancel guard;
  if (!core->lifecycle_.IsInChild()) delete core;
}

// Nothing depends on it but the time that the next opening takes.
void StoreCore::DumpAtClose() {
  {
    std::lock_guard lock(committer_.mutex());
    const uint64_t records_max = options_.replay_records_max / engine::kReplayShareAtClose;
    const uint64_t last = log_->last_reserved_sequence();
    // Who writes behind what a salvage left out has given that up; else no opening but a salvage
    // would pass it. Until then another opening may have it, with the file that was damaged.
    const bool gives_up = left_out_ != 0 && last > left_out_upto_;
    if (left_out_ != 0 && !gives_up) return;
    // The last dump may have been stopped behind its first step.
    const bool names_hints = indexer_ != nullptr && indexer_->WantDump(/*at_close=*/true);
    if (!gives_up && !names_hints && !space_.flusher().IsDue(last, records_max) &&
        last - manifest_.Copy().index_sequence < records_max) {
      return;
    }
  }
  const Status dumped = Guarded([this] { return space_.flusher().Dump(); });
  if (!dumped.ok()) OnEventOf("closing: the index was not brought up to date: ", dumped);
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
  // Never opened: what Open started is taken down with the members. Or closed before.
  if (!lifecycle_.open()) return closed_;
  static_cast<void>(Guarded([this] { return space_.GiveBackAtClose(), Status::Ok(); }));
  lifecycle_.Close();
  space_.Stop();
  objects_.Stop();
  background_executor_.reset();
  if (indexer_ != nullptr) indexer_->Stop();
  if (!options_.read_only && log_->poisoned().ok()) DumpAtClose();
  timer_->Stop();
  // JoinedAppends accepts an append under the commit lock, and only while the store is open. Once
  // this thread has had the lock, no more are accepted, and EndAll flushes all that were.
  committer_.mutex().lock();
  committer_.mutex().unlock();
  Status status = joined_.EndAll();
  lifecycle_.AwaitUses();
  arrivals_.Stop();
  executor_->Stop();  // Finishes what was posted. Its jobs look for it here.
  reads_.Stop();
  const Status log_closed = Guarded([this] { return CloseLog(); });
  if (!log_closed.ok()) status = log_closed;
  // Whatever is still pending has been decided by now.
  tickets_.CutByClose();
  hints_.Close();
  gpu_sources_.Clear();
  reader_.LetGo();  // Handles may outlive this by far.
  arena_.Clear();
  lock_.reset();  // The log stays for calls that are under way; it refuses everything now.
  return closed_ = status;
}

}  // namespace cairn
