// SPDX-License-Identifier: Apache-2.0
#include "engine/background/checkpoint_queue.h"

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
  CAIRN_RETURN_IF_ERROR(deps_.callbacks->CheckWritable());
  CAIRN_RETURN_IF_ERROR(io::CheckPath(target));
  if (target == ":memory:") {
    return Status(StatusCode::kInvalidArgument, "path: \":memory:\" is no directory");
  }
  if (target.starts_with(deps_.directory + "/")) {
    return Status(StatusCode::kInvalidArgument, target + ": lies within the store itself");
  }
  if (deps_.rate_limiter->paused()) {
    return Status(StatusCode::kInvalidState, "the background is paused; ResumeBackground first");
  }
  deps_.callbacks->ApplyAllCoalesced();
  Job job{target, progress, {}};
  {
    const MutexLock lock(&mutex_);
    if (ended_) return closed_;
    jobs_.push_back(&job);
  }
  deps_.signals->Wake();
  while (true) {
    const uint32_t seen = deps_.signals->rounds();
    {
      const MutexLock lock(&mutex_);
      if (job.result.has_value()) return std::move(*job.result);
    }
    deps_.signals->AwaitRound(seen, io::kNoDeadline);
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
    Result<CheckpointInfo> result = CatchBadAlloc([&]() -> Result<CheckpointInfo> {
      CAIRN_RETURN_IF_ERROR(why_not);
      deps_.gate->Open();  // A copy may take long, and nothing is given back meanwhile.
      return Copy(*job);
    });
    deps_.gate->Shut();
    {
      const MutexLock lock(&mutex_);
      job->result = std::move(result);
    }
    deps_.signals->EndRound();
  }
}

Result<CheckpointInfo> CheckpointQueue::Copy(const Job& job) {
  CopyPlan plan;
  uint64_t sequence = 0;
  plan.manifest = deps_.manifest->Copy();
  std::set<uint64_t> dead;  // Read before anything that the copy may contain.
  {
    std::lock_guard lock(deps_.mutex());
    sequence = deps_.log->last_reserved_sequence();
    plan.manifest.next_id = deps_.tree().next_id();
    for (const auto& [number, use] : deps_.tree().tables()) {
      if (use.live_bytes == 0) dead.insert(number);
    }
  }
  CAIRN_RETURN_IF_ERROR(deps_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
  plan.last_sequence = deps_.log->durable_sequence();
  if (CAIRN_KEPT(kNumberAfterSequence)) {
    // Tables that the log names up to there got their numbers earlier.
    plan.manifest.next_file_number = deps_.manifest->Copy().next_file_number;
  }
  // What was committed meanwhile may be in the copy, and name a derived table; and tables that have
  // died since are needed where the copy ends. Only this thread deletes tables.
  {
    std::lock_guard lock(deps_.mutex());
    for (const auto& [number, use] : deps_.tree().tables()) {
      if (!dead.contains(number)) (use.derived() ? plan.derived : plan.snapshots).push_back(number);
    }
  }
  plan.manifest.history.GoOn(DrawHistory(*deps_.world.scheduler),
                             plan.manifest.At(plan.last_sequence));
  plan.source = deps_.directory;
  plan.options = *deps_.options_file;
  plan.allocator = deps_.options->allocator;
  plan.progress = job.progress;
  plan.go_on = [this] {
    if (!deps_.rate_limiter->stopped()) return Status::Ok();
    return Status(StatusCode::kCancelled, "the store is closing");
  };
  io::World world = deps_.world;
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
