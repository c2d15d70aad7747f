// SPDX-License-Identifier: Apache-2.0
//
// Chooses the tokens of a prompt that the engine computes: those that were found nowhere, and some
// whose KV could be loaded. The choice follows from the pieces and the options alone.
//
//   pieces     [prefix][ A      ][ B        ]      [ C  ]  question
//   computed            ..     .... ...   ........  .   ............
//                       |      |    |     |
//                       |      |    |     nothing was found here
//                       |      |    ids differ here, and recompute_boundary on both sides
//                       |      recompute_boundary before a seam, recompute_first behind it
//                       recompute_first behind the prefix, which itself is exact
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/blend.h"
#include "engine/blend/piece.h"

namespace cairn::engine {

// The tokens that are computed, in order, apart by kJoinedRuns at least. The last token is among
// them. `pieces` are in order and do not overlap; a prefix is the first one. REQUIRES: there is a
// token.
std::vector<PromptRange> RecomputedOf(std::span<const TokenId> tokens,
                                      std::span<const Piece> pieces, const BlendOptions& options);

// Joins ranges that are less than kJoinedRuns apart. `ranges` may come in any order and overlap.
std::vector<PromptRange> Joined(std::vector<PromptRange> ranges);

}  // namespace cairn::engine
