// SPDX-License-Identifier: Apache-2.0
//
// Which pieces a session has in slots, by use, as a derived table of the branch: the next session
// begins with them. A table that is lost, or damaged, or of other options costs the beginning, and
// nothing else.
//
//   fragment   of the KV lane of the group, at the position that the session reads up to; a slice
//              for each head of each layer
//   frame      a field table (base/codec/fields.h): 1 group, 2 planes, 3 piece_tokens, 4 the
//              pieces, u32 each, the one that was wanted longest ago first
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/branch.h"
#include "engine/restore/derived_tables.h"
#include "engine/sparse/sparse_layout.h"

namespace cairn::engine {

// By layer and head.
using PiecesByUse = std::vector<std::vector<uint32_t>>;

// Errors: those of DerivedTables::Make.
Status WriteWarmth(DerivedTables* derived, BranchId branch, uint64_t position,
                   const SparseLayout& layout, const PiecesByUse& pieces);
// The newest of at most that position. kNotFound: there is none that these options can use.
Result<PiecesByUse> ReadWarmth(DerivedTables* derived, BranchId branch, uint64_t at_most,
                               const SparseLayout& layout);

}  // namespace cairn::engine
