// SPDX-License-Identifier: Apache-2.0
//
// Chooses which tokens of a prompt are computed although their KV could be loaded, and makes steps
// of that. A pure function of the pieces.
//
//   pieces     [prefix][ A      ][ B        ]      [ C  ]  question
//   computed            ..      ... ..  .. .      ....  ..........
//              exact    | first     | differs     | nothing was found
//                       of a seam   around
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
