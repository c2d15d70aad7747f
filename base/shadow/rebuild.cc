// SPDX-License-Identifier: Apache-2.0
#include "base/shadow/rebuild.h"

#include "base/core/check.h"
#include "base/shadow/block_quantizer.h"

namespace cairn::shadow {

void RebuildChunk(const BlockLayout& layout, bool fp16, std::span<const std::byte> blocks,
                  uint32_t chunk, uint32_t chunk_tokens, std::span<uint16_t> rows) {
  CAIRN_CHECK(rows.size() == size_t{chunk_tokens} * layout.channels);
  const uint64_t position = uint64_t{chunk} * chunk_tokens;
  const size_t bytes = layout.block_bytes();
  CAIRN_CHECK((position / kBlockRows + 1) * bytes <= blocks.size());
  // Chunks do not cross blocks.
  ReadBlock(layout, fp16, blocks.subspan(position / kBlockRows * bytes, bytes),
            static_cast<uint32_t>(position % kBlockRows), rows);
}

}  // namespace cairn::shadow
