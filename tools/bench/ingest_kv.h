// SPDX-License-Identifier: Apache-2.0
//
// What `load ingest` appends: KV of a real model, and bytes that nothing makes smaller.
#pragma once

#include <cstdint>

#include "tools/bench/kv_source.h"

namespace cairn::bench {

// A position of the shape of Llama 3 8B.
inline constexpr uint64_t kIngestTokenBytes = 128 << 10;

enum class IngestKv {
  kModel,   // K and V that the own model computed of its held-out text.
  kRandom,  // Bytes drawn evenly.
};

// A pool of `bytes`, or of 32 positions if that is more; a power of two, so that appends of such
// sizes never cross its end. The own model has fewer channels than the shape and fewer positions
// than the pool. So its channels, save those of its first layer, which repeat with the token, fill
// the shape again and again, each time some positions later: a channel stays a channel along the
// positions, which is what the codec works on. kIoError if the model's files are missing.
Result<KvPool> MakeIngestPool(IngestKv kind, Layout layout, uint64_t bytes);

}  // namespace cairn::bench
