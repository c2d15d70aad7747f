// SPDX-License-Identifier: Apache-2.0
//
// What happens when the log gets on, and when it cannot.
#include <new>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/store_core.h"

namespace cairn {

void StoreCore::OnProgress(uint64_t written_sequence, uint64_t durable_sequence) {
  tickets_.Finish(written_sequence, durable_sequence);
  hints_.PublishSoon(durable_sequence);
}

// By whichever thread found out, the log's as well: what fails here for want of memory must leave
// nobody waiting.
void StoreCore::OnPoison(const Status& cause, uint64_t acknowledged) {
  OnProgress(acknowledged, log_ == nullptr ? 0 : log_->durable_sequence());
  tickets_.CutByPoison(cause);
  space_.gate().Wake();
  {
    std::lock_guard lock(poison_mutex_);
    if (poison_told_) return;
    poison_told_ = true;
  }
  // While the store is being opened nothing was applied that the log does not have.
  if (open_.load()) {
    const Status reloaded = Guarded([&] { ReloadTree(acknowledged); });
    if (!reloaded.ok()) OnEventOf("reads show what was applied before the log failed: ", reloaded);
  }
  if (options_.listener != nullptr && options_.listener->on_poisoned) {
    options_.listener->on_poisoned(cause);
  }
  CAIRN_CHECK(options_.on_fatal != FatalAction::kAbort);
}

// Memory is ahead of what was acknowledged. The log itself knows how it was at that point, so the
// tree is simply replayed up to there; reads go on from it.
void StoreCore::ReloadTree(uint64_t acknowledged) {
  engine::Tree tree;
  wal::RecoveredLog recovered;
  wal::RecoveryOptions recovery;
  recovery.read_only = true;            // The device has just failed a write: nothing is synced.
  recovery.salvage = options_.salvage;  // What was left out when opening is so again.
  recovery.stop_after = acknowledged;
  // What space management was about to give back must stay while it is read, and the tables of the
  // index for good: they are the new tree's.
  space_.flusher().HoldTables();
  std::unique_ptr<engine::Pins::Pin> pin;
  engine::Manifest manifest;
  {
    std::lock_guard lock(mutex_);
    pin = reader_.pins().Take(engine::Pins::Of::kReader, space_.retirer().log_start());
    manifest = manifest_.Copy();
    manifest.log_start_segment =
        space_.retirer().log_start();  // What lies below may be gone already.
  }
  Status status = OpenTree(manifest, &tree);
  if (status.ok()) {
    const auto left_out = Replay(manifest, recovery, &tree, &recovered);
    status = left_out.status();
    if (left_out.ok() && *left_out > left_out_) {
      status = Status(StatusCode::kCorruption, recovered.repaired_detail);
    }
  }
  if (status.ok() && recovered.last_sequence < acknowledged) {
    status = Status(StatusCode::kCorruption,
                    "the log ends with sequence " + std::to_string(recovered.last_sequence) +
                        ", but " + std::to_string(acknowledged) + " was acknowledged");
  }
  if (!status.ok()) {
    OnEvent("the tree could not be replayed after the log failed, reads show what was applied: " +
            status.ToString());
    return;
  }
  std::lock_guard lock(mutex_);
  committer_.RollBack(std::move(tree));
}

void StoreCore::OnEvent(const std::string& line) {
  if (options_.listener != nullptr && options_.listener->on_event)
    options_.listener->on_event(line);
}

void StoreCore::OnEventOf(const char* what, const Status& status) {
  if (options_.listener == nullptr || !options_.listener->on_event) return;
  try {
    options_.listener->on_event(what + status.ToString());
  } catch (const std::bad_alloc&) {  // It is told to the next who asks, too.
  }
}

Status StoreCore::Flush() {
  CAIRN_RETURN_IF_ERROR(CheckWritable());
  FlushAllJoined();
  CAIRN_RETURN_IF_ERROR(log_->Flush(io::kNoDeadline));
  hints_.Publish();
  return Status::Ok();
}

Result<CompletionQueue> StoreCore::NewCompletionQueue() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  return CompletionQueue(std::make_shared<CompletionQueueState>(world_));
}

}  // namespace cairn
