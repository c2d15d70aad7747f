// SPDX-License-Identifier: Apache-2.0
//
// Kernels of shadows against base/shadow, a drawn case at a time. A round says what differs, or
// nothing.
#pragma once

#include <cstdint>
#include <string>

#include "tests/gpu/kernel_machine.h"

namespace cairn::testing {

// score_chunks, then select_chunks: landmarks of each kind, several pairs of different lengths, of
// each group and width of rows; all scores, sums of tiles and chunks bit for bit, and nothing else
// is touched.
std::string ScoreChunksRound(KernelMachine& machine, uint64_t seed);
// select_chunks alone: scores with many ties, infinities, and few that can be selected.
std::string SelectChunksRound(KernelMachine& machine, uint64_t seed);
// rebuild_keys: chunks into slots, some of which are left out; nothing else is touched.
std::string RebuildKeysRound(KernelMachine& machine, uint64_t seed);
// rebuild_low_rank: the same from coefficients, turned, of either pairing and any window.
std::string RebuildLowRankRound(KernelMachine& machine, uint64_t seed);

}  // namespace cairn::testing
