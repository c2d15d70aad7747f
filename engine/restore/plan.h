// SPDX-License-Identifier: Apache-2.0
//
// What a restore must read: records of the log, each with the pieces wanted of it, in log order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/tree/tree.h"

namespace cairn::engine {

struct RecordPiece {
  uint32_t lane = 0;
  uint32_t op_index = 0;
  uint64_t extent_begin = 0;    // As the record says.
  uint64_t begin = 0, end = 0;  // Positions wanted.
};

struct RecordJob {
  wal::Location location;
  uint32_t read_bytes = 0;  // From the record's start; all of it unless only tokens are wanted.
  std::vector<RecordPiece> pieces;
};

struct RestorePlan {
  std::shared_ptr<const ModelSpec> model;
  uint64_t begin = 0, end = 0;    // Tokens.
  std::vector<uint64_t> kv_ends;  // One a GroupView.
  std::vector<RecordJob> jobs;    // Sorted by location.
};

// Under the commit lock. kInvalidArgument for ranges beyond the branch or room that is missing.
Result<RestorePlan> PlanRestore(const Tree& tree, const Head& head, const RestoreRequest& request);

// Neighbouring records that are read at once.
struct ReadWindow {
  uint64_t segment = 0;
  uint64_t offset = 0, bytes = 0;  // Aligned to io::kBlockBytes.
  size_t first_job = 0, job_count = 0;
};
std::vector<ReadWindow> PlanWindows(std::span<const RecordJob> jobs);

}  // namespace cairn::engine
