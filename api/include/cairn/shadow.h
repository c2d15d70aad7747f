// SPDX-License-Identifier: Apache-2.0
//
// The settings of a shadow. A shadow is a small stand-in for the keys of a long context: it shows a
// step of generation which few chunks of tokens its queries need, and gives their keys. The
// arithmetic is in docs/shadow.md. A shadow is derived from stored KV; losing it loses nothing.
//
// An example, by the default spec, of one kv head of one layer and a context of 100,032 tokens. Of
// these 99,968 are covered, the most that is a multiple of 64 and leaves a local window of 32; the
// 64 behind them are always attended to. The covered tokens are 24,992 chunks of 4: 2 are sinks, 75
// outliers (0.003 of all, rounded up), and a step selects 512 of the others, 2048 tokens. So it
// attends to 64 + 4 * (2 + 75 + 512) = 2,420 tokens.
#pragma once

#include <cstdint>

namespace [[gnu::visibility("default")]] cairn {

// Where the keys of chunks that were selected come from. On disk; never change.
enum class ShadowKeys : uint8_t {
  kExact = 1,    // Fetched as they were stored, with the values.
  kInt8 = 2,     // 8 bits per element: a scale and an offset for each channel of 64 tokens.
  kInt4 = 3,     // 4 bits per element, likewise.
  kLowRank = 4,  // A few coefficients per token, in a basis that the heads of a layer share.
};
// "exact", "int8", "int4", "low_rank"; "unknown" for another value. The text is static.
const char* ShadowKeysName(ShadowKeys keys);

// All counts are by kv head and layer. A value that cannot be is kInvalidArgument, naming the
// field, in the calls that take a spec; so is a budget of more tokens than the context has. One
// spec has one table: the budget alone may change without another one being made.
struct ShadowSpec {
  uint32_t chunk_tokens = 4;  // 1, 2, 4, 8 or 16: what is selected and fetched as one.
  ShadowKeys keys = ShadowKeys::kInt4;
  uint32_t landmark_bits = 4;  // 16, 8 or 4 bits per element of a landmark.
  // The newest tokens, always attended to; a multiple of chunk_tokens.
  uint32_t local_tokens = 32;
  // The first tokens, always attended to; rounded up to whole chunks.
  uint32_t sink_tokens = 8;
  // Chunks whose keys differ most from their landmark are always attended to: this fraction of all
  // chunks, from 0 to 1, rounded up.
  double outlier_share = 0.003;
  // Their number; overrides outlier_share if it is not 0.
  uint32_t outlier_chunks = 0;
  // Tokens that a step selects besides those; a multiple of chunk_tokens. 0: 2048, or an eighth of
  // the context if that is less.
  uint32_t budget_tokens = 0;
  // kLowRank alone, and just one of the two. `rank`: the number of directions. `rank_energy`: the
  // fewest directions that keep this share (above 0, up to 1) of the sum of squares of a layer's
  // keys.
  uint32_t rank = 0;
  double rank_energy = 0;

  // The setting that ShadowKV was published with. Its rank is 160 of the 1024 channels that the
  // keys of a layer have over all heads of Llama 3 8B; of fewer channels the same share.
  // `key_channels`: kv heads times elements of a row. Cannot fail.
  static ShadowSpec Published(uint32_t key_channels = 1024);
  bool operator==(const ShadowSpec&) const = default;
};

}  // namespace cairn
