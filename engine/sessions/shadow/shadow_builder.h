// SPDX-License-Identifier: Apache-2.0
//
// Makes the shadow of a context from its stored keys, or from the shadow of a shorter part of it
// and the keys behind: the bytes are the same.
//
//   parts      keys of 1024 tokens of some layers at a time   read, worked on, written
//   outliers   by the cosines of all parts
//   always     rows of single chunks, keys and values         read, written
//   named      by DerivedTables, of the position `covered`
#pragma once

#include <cstdint>

#include "cairn/shadow_session.h"
#include "engine/restore/derived_tables.h"
#include "engine/sessions/shadow/shadow_shape.h"
#include "engine/sessions/sparse/sparse_arena.h"

namespace cairn::engine {

using ShadowDeps = SparseArenaState::Deps;

// The shape for the branch's tokens before `end`, all by default. kNotFound; kInvalidArgument names
// the field.
Result<ShadowShape> ShapeOfBranch(const ShadowDeps& deps, BranchId branch, uint32_t group,
                                  const ShadowSpec& spec, uint64_t end);

ShadowInfo InfoOf(const ShadowShape& shape);  // Without what a table says.

// The one that covers just what the shape says. kNotFound. REQUIRES: not dense.
Result<DerivedTables::Found> FindShadowTable(const ShadowDeps& deps, BranchId branch,
                                             const ShadowShape& shape);
// The result: of how many tokens keys were read. Errors: those of BuildShadow.
// REQUIRES: not dense.
Result<uint64_t> MakeShadowTable(const ShadowDeps& deps, BranchId branch, const ShadowShape& shape);

}  // namespace cairn::engine
