// SPDX-License-Identifier: Apache-2.0
//
// Copies of the store (space/checkpoint.h) that callers have asked for. They are made by the space
// thread: it alone deletes tables, recycles segments and replaces the manifest, so while it makes a
// copy nothing of that happens. Thread-safe, but for what is marked; no lock may be held around any
// of it.
#pragma once

#include <deque>
#include <string>

#include "base/core/mutex.h"
#include "cairn/store.h"
#include "engine/space/checkpoint.h"
#include "engine/space/space_means.h"

namespace cairn::engine {

class CheckpointQueue {
 public:
  explicit CheckpointQueue(const SpaceMeans& means) : means_(means) {}
  CheckpointQueue(const CheckpointQueue&) = delete;
  CheckpointQueue& operator=(const CheckpointQueue&) = delete;

  // Store::Checkpoint. Sleeps until it is made, or will not be.
  Result<CheckpointInfo> Make(const std::string& target, const CheckpointProgress& progress);

  // --- The space thread's.
  // Makes all that wait.
  void RunAll() { AnswerAll(Status::Ok()); }
  // Refuses all that wait, and those that come. Needs no memory.
  void End();

 private:
  struct Job;
  void AnswerAll(const Status& why_not);
  Result<CheckpointInfo> Copy(const Job& job);

  const SpaceMeans& means_;
  const Status closed_{StatusCode::kInvalidState, "the store is closed"};

  Mutex mutex_;                                     // Guards the results, too.
  std::deque<Job*> jobs_ CAIRN_GUARDED_BY(mutex_);  // Who waits for one owns it.
  bool ended_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::engine
