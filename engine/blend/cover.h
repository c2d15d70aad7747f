// SPDX-License-Identifier: Apache-2.0
//
// Chooses where each part of a prompt comes from, of all runs that were found. The longest run
// first, so that a chunk comes with its true left neighbours where any branch has them; of equally
// long ones one that stood behind something before one at position 0, whose first token acted as an
// attention sink there; then the newest node. What a chosen run leaves of others takes part again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/blend/piece.h"
#include "engine/find/chunk_search.h"

namespace cairn::engine {

// Pieces that do not overlap, in order, none before `from`, none shorter than kMinBlendTokens.
std::vector<Piece> Cover(std::span<const ChunkMatch> matches, uint64_t from);

}  // namespace cairn::engine
