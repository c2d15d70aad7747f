// SPDX-License-Identifier: Apache-2.0
//
// The loops of base/codec/rotary_table.h, once for each kind of processor. Each is in a file that
// is compiled for its instruction set, and may be called only after checking that the processor has
// it. All give the bits of base/codec/rotary.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cairn/model.h"

namespace cairn::internal {

// A turn that gives a NaN gives this one, as fp32.
inline constexpr uint32_t kRotaryNan = 0x7FC00000;

// How many pairs of a token do not turn (cosine 1, sine 0).
enum class RotaryStays : uint8_t { kNone, kSome, kAll };

// The order of a token's cosines, and of its sines, that suits a loop.
struct RotaryLayout {
  // Within blocks of so many pairs, a power of two, even numbers stand before odd ones; 0: all
  // are in order.
  uint32_t block = 0;
  // Each stands twice, for x and for y; the sine for x has its sign changed.
  bool twice = false;

  // Where the table has pair i; the first of two.
  constexpr uint32_t At(uint32_t i) const {
    if (twice) return 2 * i;
    if (block == 0) return i;
    const uint32_t in_block = i & (block - 1);
    return i - in_block + in_block % 2 * (block / 2) + in_block / 2;
  }
};

// Where rows are: strides in bytes.
template <typename Byte>
struct RowsAt {
  Byte* window = nullptr;  // The window's first element, of the first token's first head.
  ptrdiff_t token_stride = 0, head_stride = 0, element_stride = 0;
};

// Rows to turn, all heads of one token after the other.
struct RotaryJob {
  Dtype dtype{};  // f32, f16 or bf16.
  bool adjacent = false;
  uint32_t pairs = 0;
  RotaryLayout layout{};
  size_t padded = 0;             // Cosines of a token with their padding; as many sines follow.
  const float* turns = nullptr;  // Those of the first token, at a multiple of 64 bytes.
  const RotaryStays* stays = nullptr;  // By token.
  size_t tokens = 0, heads = 0;
  RowsAt<const std::byte> from{};
  RowsAt<std::byte> into{};  // The same memory with the same strides, or none of it.
};

void TurnRowsScalar(const RotaryJob& job);
// Need elements that lie densely on both sides. AVX2 and F16C; AVX-512 F, BW, VL and DQ.
void TurnRowsAvx2(const RotaryJob& job);
void TurnRowsAvx512(const RotaryJob& job);
// fp32 numbers of a vector. The layout of bf16 halves has blocks of two vectors, that of adjacent
// f16 has each turn twice.
inline constexpr uint32_t kRotaryLanesAvx2 = 8, kRotaryLanesAvx512 = 16;

// Pairs [begin, pairs) of one row, whatever its elements' stride.
void TurnPairs(const RotaryJob& job, const float* cos, const float* sin, const std::byte* from,
               std::byte* into, uint32_t begin);
// Copies the window of one row.
void CopyWindow(const RotaryJob& job, const std::byte* from, std::byte* into);

// Calls turn(cosines, sines, some stay, from, into) for each row with a pair that turns, and copies
// the windows of the others. Row by row: with turns that stay in registers over all heads of a
// token, rows in a cache were turned by a tenth faster, but those in memory at half the speed,
// since the processor foresees fewer of the reads. A template, called with lambdas alone: so no
// instance that is compiled for one processor is shared with a file that is compiled for another.
template <typename Turn>
void EachRow(const RotaryJob& job, const Turn& turn) {
  const float* cos = job.turns;
  for (size_t t = 0; t < job.tokens; ++t, cos += 2 * job.padded) {
    const auto token = static_cast<ptrdiff_t>(t);
    const std::byte* from = job.from.window + token * job.from.token_stride;
    std::byte* into = job.into.window + token * job.into.token_stride;
    const RotaryStays stays = job.stays[t];
    for (size_t h = 0; h < job.heads; ++h) {
      if (stays != RotaryStays::kAll) {
        turn(cos, cos + job.padded, stays == RotaryStays::kSome, from, into);
      } else if (from != into) {
        CopyWindow(job, from, into);
      }
      from += job.from.head_stride;
      into += job.into.head_stride;
    }
  }
}

}  // namespace cairn::internal
