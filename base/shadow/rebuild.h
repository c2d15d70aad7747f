// SPDX-License-Identifier: Apache-2.0
//
// Keys of chunks from their codes (ShadowKeys::kInt8 and kInt4), for one kv head of a layer: the
// host version of the kernel rebuild_keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/shadow/shadow_math.h"

namespace cairn::shadow {

// Blocks of the covered keys into the rows of one chunk.
// REQUIRES: a chunk of the blocks; room for just chunk_tokens rows.
void RebuildChunk(const BlockLayout& layout, bool fp16, std::span<const std::byte> blocks,
                  uint32_t chunk, uint32_t chunk_tokens, std::span<uint16_t> rows);

}  // namespace cairn::shadow
