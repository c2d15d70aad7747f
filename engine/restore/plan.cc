// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/io/world.h"
#include "engine/commit/constants.h"

namespace cairn::engine {

namespace {

uint64_t AlignDown(uint64_t value) { return value / io::kBlockBytes * io::kBlockBytes; }
uint64_t AlignUp(uint64_t value) { return AlignDown(value + io::kBlockBytes - 1); }

// One job a record; a record that holds several of the lanes wanted is read once.
std::vector<RecordJob> MergeJobs(std::vector<RecordJob> jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const RecordJob& a, const RecordJob& b) { return a.location < b.location; });
  std::vector<RecordJob> merged;
  for (RecordJob& job : jobs) {
    if (merged.empty() || merged.back().location != job.location) {
      merged.push_back(std::move(job));
      continue;
    }
    merged.back().read_bytes = std::max(merged.back().read_bytes, job.read_bytes);
    merged.back().pieces.insert(merged.back().pieces.end(), job.pieces.begin(), job.pieces.end());
  }
  return merged;
}

void AddLane(const Tree& tree, const Head& head, uint32_t lane, uint64_t begin, uint64_t end,
             std::vector<RecordJob>* jobs) {
  for (const LanePiece& piece : tree.CollectLane(head, lane, begin, end)) {
    RecordJob job;
    job.location = piece.extent.location;
    job.read_bytes = lane == kTokenLane ? piece.extent.prefix_bytes : piece.extent.location.bytes;
    job.pieces.push_back({lane, piece.extent.op_index, piece.extent.begin, piece.begin, piece.end});
    jobs->push_back(std::move(job));
  }
}

}  // namespace

Result<RestorePlan> PlanRestore(const Tree& tree, const Head& head, const RestoreRequest& request) {
  RestorePlan plan;
  plan.model = tree.FindModel(head.model);
  const uint64_t length = head.lengths[kTokenLane];
  plan.begin = request.begin;
  plan.end = request.end == UINT64_MAX ? length : request.end;
  if (plan.begin > plan.end || plan.end > length) {
    return Status(StatusCode::kInvalidArgument,
                  "restore of [" + std::to_string(plan.begin) + ", " + std::to_string(plan.end) +
                      ") from a branch of " + std::to_string(length) + " tokens");
  }
  std::vector<RecordJob> jobs;
  if (!request.tokens.empty()) {
    if (request.tokens.size() < plan.end - plan.begin) {
      return Status(StatusCode::kInvalidArgument,
                    "room for " + std::to_string(request.tokens.size()) + " token ids, " +
                        std::to_string(plan.end - plan.begin) + " are wanted");
    }
    AddLane(tree, head, kTokenLane, plan.begin, plan.end, &jobs);
  }
  if (request.into != nullptr) {
    CAIRN_RETURN_IF_ERROR(ValidateKvView(*plan.model, *request.into, KvUse::kRestore));
    for (const GroupView& view : request.into->groups) {
      const uint32_t lane = 1 + view.group;
      const uint64_t end = std::min({plan.end, head.lengths[lane], view.position + view.count});
      AddLane(tree, head, lane, std::max(plan.begin, view.position), end, &jobs);
      plan.kv_ends.push_back(std::max(end, std::min(plan.begin, head.lengths[lane])));
    }
  }
  plan.jobs = MergeJobs(std::move(jobs));
  return plan;
}

std::vector<ReadWindow> PlanWindows(std::span<const RecordJob> jobs) {
  std::vector<ReadWindow> windows;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const uint64_t begin = AlignDown(jobs[i].location.offset);
    const uint64_t end = AlignUp(jobs[i].location.offset + jobs[i].read_bytes);
    if (!windows.empty()) {
      ReadWindow& last = windows.back();
      const uint64_t last_end = last.offset + last.bytes;
      if (last.segment == jobs[i].location.segment && begin <= last_end + kReadGapBytes &&
          end - last.offset <= kReadWindowBytes) {
        last.bytes = std::max(last_end, end) - last.offset;
        ++last.job_count;
        continue;
      }
    }
    windows.push_back({jobs[i].location.segment, begin, end - begin, i, 1});
  }
  return windows;
}

}  // namespace cairn::engine
