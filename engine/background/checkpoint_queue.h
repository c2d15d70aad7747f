// SPDX-License-Identifier: Apache-2.0
//
// Copies of the store (background/checkpoint.h) that callers have asked for. The space thread makes
// them: it alone deletes tables, recycles segments and replaces the manifest, so none of that
// happens during a copy. Thread-safe, except where marked; no lock may be held around any
// call.
#pragma once

#include <deque>
#include <string>

#include "base/core/mutex.h"
#include "cairn/store_types.h"
#include "engine/background/checkpoint.h"
#include "engine/background/space_deps.h"

namespace cairn::engine {

class CheckpointQueue {
 public:
  explicit CheckpointQueue(const SpaceDeps& deps) : deps_(deps) {}
  CheckpointQueue(const CheckpointQueue&) = delete;
  CheckpointQueue& operator=(const CheckpointQueue&) = delete;

  // Store::Checkpoint. Sleeps until the copy is made or refused.
  Result<CheckpointInfo> Make(const std::string& target, const CheckpointProgress& progress);

  // --- For the space thread.
  // Makes all copies that wait.
  void RunAll() { AnswerAll(Status::Ok()); }
  // Refuses those that wait and all later ones. Needs no memory.
  void End();

 private:
  struct Job;
  void AnswerAll(const Status& why_not);
  Result<CheckpointInfo> Copy(const Job& job);

  const SpaceDeps& deps_;
  const Status closed_{StatusCode::kInvalidState, "the store is closed"};

  Mutex mutex_;                                     // Guards the results, too.
  std::deque<Job*> jobs_ CAIRN_GUARDED_BY(mutex_);  // Owned by the threads that wait.
  bool ended_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::engine
