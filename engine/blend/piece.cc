// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/piece.h"

namespace cairn::engine {

void SetDigest(std::span<const TokenId> ids, const PathRun& run, uint64_t ns_seed, ModelId model,
               BlendSegment* segment) {
  const Digest digest = DigestOf(ids, run.begin, run.spans);
  segment->digest[0] = SealHash(digest.low, SealHash(ns_seed, static_cast<uint64_t>(model)));
  segment->digest[1] = digest.high;
}

}  // namespace cairn::engine
