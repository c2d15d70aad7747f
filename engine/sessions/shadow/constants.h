// SPDX-License-Identifier: Apache-2.0
//
// Numbers of shadows, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/shadow/shadow_math.h"

namespace cairn::engine {

// The kind under which DerivedTables keeps shadows: this bit, with bits of their spec below it.
// Sparse sessions have kSparseWarmthKind.
inline constexpr uint32_t kShadowKind = 1u << 24;
inline constexpr uint32_t kShadowKindMask = kShadowKind - 1;

// Tokens per part: with chunks of 16 tokens they still fill a whole block of landmarks, so that a
// complete part never changes; and frames of about 100 KB.
inline constexpr uint32_t kShadowPartTokens = 16 * shadow::kBlockRows;
// Chunks of a frame with rows that are always attended to: about 100 KB.
inline constexpr uint32_t kShadowAlwaysChunks = 64;
// Keys that are read and worked on at a time. Enough reads in flight for a disk, and little beside
// what a store has.
inline constexpr size_t kShadowReadBytes = 16u << 20;
// Reads of the rows of single chunks that are planned together.
inline constexpr size_t kShadowReadsAtOnce = 1024;
// Vectors are found again once they lose too large a share of the squares of newer keys: more than
// this factor times the share they lost when they were made, plus the second figure.
inline constexpr double kStaleBasisLoss = 2.0;
inline constexpr double kStaleBasisLossMin = 0.01;
// Size of each of two pinned buffers through which a shadow goes to the device: while one is copied
// the other is filled.
inline constexpr size_t kShadowStagingBytes = 4u << 20;

}  // namespace cairn::engine
