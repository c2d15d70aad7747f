// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/ingest_kv.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "tools/bench/kv_pages.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokensMin = 32;
// Computed by the own model. More take seconds, and change little.
constexpr uint64_t kModelTokensMin = kPageTokens, kModelTokensMax = 1024;
// From one use of a channel to the next: no divisor of a number of positions.
constexpr uint64_t kShiftTokens = 97;

// The channels of one plane, in order: where each begins, for position 0, and how many uses of all
// channels lie before it.
struct Channel {
  size_t offset = 0;
  uint64_t use = 0;
};

std::vector<Channel> ChannelsOf(const KvPlane& plane, size_t count) {
  const uint32_t first_layer = plane.layers > 1 ? 1 : 0;
  std::vector<Channel> all;
  for (uint64_t use = 0; all.size() < count; ++use) {
    for (uint32_t layer = first_layer; layer < plane.layers; ++layer) {
      for (uint32_t head = 0; head < plane.heads; ++head) {
        const size_t begin =
            (layer * size_t{plane.heads} + head) * plane.tokens * size_t{plane.channels};
        for (uint32_t i = 0; i < plane.channels; ++i) all.push_back({begin + i, use});
      }
    }
  }
  all.resize(count);
  return all;
}

void FillWithModel(const KvPages& pages, const KvPool& pool) {
  const LayerGroup& group = pool.model().groups[0];
  const size_t row = group.planes[0].row_bytes / sizeof(uint16_t);
  const size_t slice = row * group.planes[0].heads;  // One layer and plane.
  std::vector<std::vector<Channel>> channels;
  for (const KvPlane& plane : pages.planes) {
    channels.push_back(ChannelsOf(plane, slice * group.layers));
  }
  std::vector<uint16_t> token(pool.model().token_bytes() / sizeof(uint16_t));
  std::vector<Piece> pieces;
  KvCursor cursor(pool, 0);
  for (uint64_t position = 0; position < pool.tokens(); ++position) {
    uint16_t* to = token.data();
    for (size_t layer = 0; layer < group.layers; ++layer) {
      for (size_t p = 0; p < group.planes.size(); ++p) {
        const KvPlane& plane = pages.planes[p];
        const auto* from = reinterpret_cast<const uint16_t*>(plane.bytes.data());
        for (size_t i = 0; i < slice; ++i) {
          const Channel& channel = channels[p][layer * slice + i];
          const uint64_t at = (position + channel.use * kShiftTokens) % plane.tokens;
          *to++ = from[channel.offset + at * plane.channels];
        }
      }
    }
    ListPieces(pool.model(), cursor.At(position, 1), &pieces);
    Scatter(reinterpret_cast<const std::byte*>(token.data()), pieces);
  }
}

void FillWithRandom(const KvPool& pool) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i < pool.bytes().size(); i += sizeof(uint64_t)) {
    const uint64_t draw = random();
    std::memcpy(pool.bytes().data() + i, &draw, sizeof draw);
  }
}

}  // namespace

Result<KvPool> MakeIngestPool(IngestKv kind, Layout layout, uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOfTokenBytes(kIngestTokenBytes));
  const uint64_t tokens = std::bit_floor(std::max(bytes / kIngestTokenBytes, kTokensMin));
  KvPool pool(model, layout, tokens, /*seed=*/1);
  if (kind == IngestKv::kRandom) {
    FillWithRandom(pool);
    return pool;
  }
  const uint64_t computed = std::clamp(tokens, kModelTokensMin, kModelTokensMax);
  CAIRN_ASSIGN_OR_RETURN(const KvPages pages, KvOfOwnModel(static_cast<uint32_t>(computed)));
  FillWithModel(pages, pool);
  return pool;
}

}  // namespace cairn::bench
