// SPDX-License-Identifier: Apache-2.0
//
// Token blocks: token ids packed for sealed tables. Ids are split into a plane of low halves and,
// if any id needs it, a plane of high halves. Both go through zstd together, or are stored raw if
// that does not make them smaller. Text repeats, so a dictionary coder finds much here; it finds
// less in 32-bit ids, and nothing in bit-packed ones, which lose their alignment. Layout:
// base/codec/FORMAT.md.
//
// Pure functions, safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/status.h"

namespace cairn {

inline constexpr size_t kTokenBlockHeaderBytes = 12;
// Decoders take blocks up to this; writers are expected to cut at 4096 (base/codec/FORMAT.md).
inline constexpr size_t kMaxBlockTokens = size_t{1} << 24;
inline constexpr int kDefaultTokenLevel = 3;

// The block of up to kMaxBlockTokens tokens, at most kTokenBlockHeaderBytes + 4 bytes per token
// long. `level` is zstd's; kInvalidArgument if zstd has no such level.
Result<std::vector<std::byte>> EncodeTokens(std::span<const uint32_t> tokens,
                                            int level = kDefaultTokenLevel);

// Unpacks a block of exactly tokens.size() tokens. Safe on any bytes: kCorruption names what is
// wrong, and `tokens` then holds anything.
Status DecodeTokens(std::span<const std::byte> block, std::span<uint32_t> tokens);

}  // namespace cairn
