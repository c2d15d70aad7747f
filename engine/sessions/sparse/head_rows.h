// SPDX-License-Identifier: Apache-2.0
//
// Reads the rows of one head in one plane of a layer, and no others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/branch_types.h"
#include "engine/restore/branch_reads.h"

namespace cairn::engine {

struct HeadRows {
  uint32_t layer = 0, plane = 0, head = 0;
  uint64_t first = 0;  // Position.
  uint32_t tokens = 0;
  std::byte* into = nullptr;  // One row behind the other.
};

// From the path that ends with the last position of the node, with one plan and one deadline.
// `row_bytes`: of each plane of the group. Errors: those of Branch::Restore with require_kv; the
// first of several.
Status ReadHeadRows(BranchReads* reads, NodeId node, uint32_t group,
                    std::span<const uint32_t> row_bytes, std::span<const HeadRows> rows,
                    uint64_t timeout_ns);

}  // namespace cairn::engine
