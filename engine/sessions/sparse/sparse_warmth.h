// SPDX-License-Identifier: Apache-2.0
//
// The pieces that a session has in slots, by use, as a derived table of the branch: the next
// session begins with them. If the table is lost, damaged, or of other options, that session begins
// empty, and nothing else is lost.
//
//   fragment   of the KV lane of the group, at the position that the session reads up to; a slice
//              for each head of each layer
//   frame      a field table (base/codec/fields.h): 1 group, 2 planes, 3 piece_tokens, 4 the
//              pieces, u32 each, the one that was wanted longest ago first
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/branch_types.h"
#include "engine/restore/derived_tables.h"
#include "engine/sessions/sparse/sparse_layout.h"

namespace cairn::engine {

// By layer and head.
using PiecesByUse = std::vector<std::vector<uint32_t>>;

// False: the branch has other content before that position than on that node. Errors: those of
// DerivedTables::Make.
Result<bool> WriteWarmth(DerivedTables* derived, BranchId branch, NodeId node, uint64_t position,
                         const SparseLayout& layout, const PiecesByUse& pieces);
// The newest that is not beyond that position. kNotFound: there is none that these options can use.
Result<PiecesByUse> ReadWarmth(DerivedTables* derived, BranchId branch, uint64_t at_most,
                               const SparseLayout& layout);

}  // namespace cairn::engine
