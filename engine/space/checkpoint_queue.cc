// SPDX-License-Identifier: Apache-2.0
#include "engine/space/checkpoint_queue.h"

#include <optional>
#include <set>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/path.h"

namespace cairn::engine {

struct CheckpointQueue::Job {
  std::string target;
  CheckpointProgress progress;
  std::optional<Result<CheckpointInfo>> result;
};

Result<CheckpointInfo> CheckpointQueue::Make(const std::string& target,
                                             const CheckpointProgress& progress) {
  CAIRN_RETURN_IF_ERROR(means_.host->CheckWritable());
  CAIRN_RETURN_IF_ERROR(io::CheckPath(target));
  if (target == ":memory:") {
    return Status(StatusCode::kInvalidArgument, "path: \":memory:\" is no directory");
  }
  if (target.starts_with(means_.directory + "/")) {
    return Status(StatusCode::kInvalidArgument, target + ": lies within the store itself");
  }
  if (means_.rate_limiter->paused()) {
    return Status(StatusCode::kInvalidState, "the background is paused; ResumeBackground first");
  }
  means_.host->ApplyAllCoalesced();
  Job job{target, progress, {}};
  {
    const MutexLock lock(&mutex_);
    if (ended_) return closed_;
    jobs_.push_back(&job);
  }
  means_.signals->Wake();
  while (true) {
    const uint32_t seen = means_.signals->rounds();
    {
      const MutexLock lock(&mutex_);
      if (job.result.has_value()) return std::move(*job.result);
    }
    means_.signals->AwaitRound(seen, io::kNoDeadline);
  }
}

// Answers all callers that wait; `why_not`, if not Ok, refuses them.
void CheckpointQueue::AnswerAll(const Status& why_not) {
  while (true) {
    Job* job = nullptr;
    {
      const MutexLock lock(&mutex_);
      if (jobs_.empty()) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    Result<CheckpointInfo> result = Guarded([&]() -> Result<CheckpointInfo> {
      CAIRN_RETURN_IF_ERROR(why_not);
      means_.gate->Open();  // A copy may take long, and nothing is given back meanwhile.
      return Copy(*job);
    });
    means_.gate->Shut();
    {
      const MutexLock lock(&mutex_);
      job->result = std::move(result);
    }
    means_.signals->EndRound();
  }
}

Result<CheckpointInfo> CheckpointQueue::Copy(const Job& job) {
  CopyPlan plan;
  uint64_t sequence = 0;
  plan.manifest = means_.manifest->Copy();
  std::set<uint64_t> dead;  // Read before anything that the copy may contain.
  {
    std::lock_guard lock(means_.mutex());
    sequence = means_.log->last_reserved_sequence();
    plan.manifest.next_id = means_.tree().next_id();
    for (const auto& [number, use] : means_.tree().tables()) {
      if (use.live_bytes == 0) dead.insert(number);
    }
  }
  CAIRN_RETURN_IF_ERROR(means_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
  plan.last_sequence = means_.log->durable_sequence();
  if (CAIRN_KEPT(kNumberAfterSequence)) {
    // Tables that the log names up to there got their numbers earlier.
    plan.manifest.next_file_number = means_.manifest->Copy().next_file_number;
  }
  // Appends made meanwhile may be in the copy, and name tables of their own; and tables that have
  // died since are needed where the copy ends. Only this thread deletes tables.
  {
    std::lock_guard lock(means_.mutex());
    for (const auto& [number, use] : means_.tree().tables()) {
      if (!dead.contains(number)) (use.derived() ? plan.derived : plan.snapshots).push_back(number);
    }
  }
  plan.manifest.history.GoOn(DrawHistory(*means_.world.scheduler),
                             plan.manifest.At(plan.last_sequence));
  plan.source = means_.directory;
  plan.options = *means_.options_file;
  plan.allocator = means_.options->allocator;
  plan.progress = job.progress;
  plan.go_on = [this] {
    if (!means_.rate_limiter->stopped()) return Status::Ok();
    return Status(StatusCode::kCancelled, "the store is closing");
  };
  io::World world = means_.world;
  return WriteCheckpointDirectory(world, plan, job.target);
}

void CheckpointQueue::End() {
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
  }
  AnswerAll(closed_);
}

}  // namespace cairn::engine
