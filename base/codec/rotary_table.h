// SPDX-License-Identifier: Apache-2.0
//
// Rotates many rows of keys: base/codec/rotary.h says how, bit for bit. A table holds the turns of
// a stretch of tokens, and serves all layers and heads of the stretch: the cosines and sines of a
// token take as long as turning about ten of its rows.
//
//   RotaryTable table(rotation, 256);
//   table.SetBetween(from, to);
//   for (layer ...) table.Turn(0, table.tokens(), heads, {rows, ...}, {into, ...});
//
// Rows of dense elements are turned by AVX-512 or AVX2 where the processor has them. Elements with
// gaps are turned one by one: gathers would load each of them by an operation of its own as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/codec/rotary.h"
#include "base/codec/rotary_loops.h"

namespace cairn {

// The code path. Asking for one that the processor lacks is a programmer's error.
enum class RotaryPath : uint8_t { kScalar, kAvx2, kAvx512 };
bool RotaryPathSupported(RotaryPath path);
RotaryPath BestRotaryPath();
const char* RotaryPathName(RotaryPath path);  // "scalar", "avx2" or "avx512".

// Rows in memory: that of head h of token t begins at data + t * token_stride + h * head_stride.
// Strides in bytes; elements need no alignment.
template <typename Byte>
struct RotaryRows {
  Byte* data = nullptr;
  ptrdiff_t token_stride = 0, head_stride = 0, element_stride = 0;
};

class RotaryTable {
 public:
  // Room for the turns of so many tokens. Nothing is allocated later.
  RotaryTable(const Rotation& rotation, size_t max_tokens, RotaryPath path = BestRotaryPath());

  // Sets the turns of rows that were rotated at `from` and are wanted at `to`; of each token
  // rotation.positions() numbers, one token behind the other.
  // REQUIRES: as many of both, of no more than max_tokens.
  void SetBetween(std::span<const uint64_t> from, std::span<const uint64_t> to);
  // The same for rows that were stored before rotation.
  void SetAt(std::span<const uint64_t> at);

  size_t tokens() const { return tokens_; }  // Those whose turns were set.

  // Turns `heads` rows of each of the tokens [first, first + count) of the table: row 0 of `from`
  // and `into` belongs to token `first`. All elements of a row are written. `into` is `from`, with
  // the same strides, or shares no memory with it.
  void Turn(size_t first, size_t count, size_t heads, const RotaryRows<const std::byte>& from,
            const RotaryRows<std::byte>& into) const;

 private:
  static constexpr size_t kLineTurns = 16;
  struct alignas(64) Line {  // A vector of AVX-512.
    float lane[kLineTurns];
  };

  // Takes turns_ as those of a token.
  void Put(size_t token);
  size_t token_lines() const { return 2 * padded_ / kLineTurns; }

  const Rotation rotation_;
  const RotaryPath path_;
  const internal::RotaryLayout layout_;
  const size_t padded_;  // RotaryJob::padded
  size_t tokens_ = 0;
  std::vector<Line> lines_;
  std::vector<internal::RotaryStays> stays_;
  std::vector<RotaryTurn> turns_;
};

}  // namespace cairn
