// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/restore_item.h"

#include <string>

#include "base/core/out_of_memory.h"

namespace cairn::engine {

void ItemOutcome::Fail(const Status& status, uint64_t restorable) {
  const MutexLock lock(&mutex_);
  if (ended_.load(std::memory_order_relaxed)) return;
  if (!status_.ok() && restorable >= restorable_.load(std::memory_order_relaxed)) return;
  restorable_.store(restorable, std::memory_order_relaxed);
  status_ = status;
  if (!has_positions) return;
  static_cast<void>(CatchBadAlloc([&] {  // If there is no memory the plain status must do.
    mutex_.AssertHeld();
    status_ = Status(
        status.code(),
        std::string(status.message()) + "; restorable up to position " + std::to_string(restorable),
        status.reason());
  }));
}

void ItemOutcome::End(Status status) {
  const MutexLock lock(&mutex_);
  if (!ended_.load(std::memory_order_relaxed) && status_.ok()) status_ = std::move(status);
  ended_.store(true, std::memory_order_release);
}

void ItemOutcome::Stop(Status status) {
  if (left_.load(std::memory_order_acquire) != 0) End(std::move(status));
}

bool ItemOutcome::Cancelled() {
  if (ticket == nullptr || !ticket->cancel_requested()) return false;
  if (!ended()) {
    Stop(CatchBadAlloc([] { return Status(StatusCode::kCancelled, "the restore was cancelled"); }));
  }
  return true;
}

Status ItemOutcome::status() const {
  const MutexLock lock(&mutex_);
  return status_;
}

}  // namespace cairn::engine
