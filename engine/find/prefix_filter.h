// SPDX-License-Identifier: Apache-2.0
//
// Which hashes the hints may have: a Bloom filter whose bits for one hash lie in one line of the
// cache (F. Putze, P. Sanders, J. Singler, Cache-, Hash- and Space-Efficient Bloom Filters, 2007).
// Its size is given; with more entries than it is made for it says "maybe" more often.
//
// Adds may run beside each other and beside questions. A hash that was added is always there.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "engine/find/constants.h"

namespace cairn::engine {

class PrefixFilter {
 public:
  // Pages of it take memory when something is added there, and an opening does not wait for that.
  explicit PrefixFilter(uint64_t bytes)
      : lines_(std::bit_floor(bytes / sizeof(Line))),
        line_(static_cast<Line*>(std::calloc(lines_, sizeof(Line)))) {
    if (line_ == nullptr) throw std::bad_alloc();
  }

  void Add(uint64_t hash) {
    Line& line = LineOf(hash);
    ForBits(hash, [&](size_t word, uint64_t bit) {
      line[word].fetch_or(bit, std::memory_order_relaxed);
      return true;
    });
  }
  bool MayHave(uint64_t hash) const {
    const Line& line = LineOf(hash);
    return ForBits(hash, [&](size_t word, uint64_t bit) {
      return (line[word].load(std::memory_order_relaxed) & bit) != 0;
    });
  }
  uint64_t bytes() const { return lines_ * sizeof(Line); }

 private:
  using Line = std::array<std::atomic<uint64_t>, 8>;
  static_assert(sizeof(Line) == 64);

  // Low bits of the hash choose the line, high ones the bits in it, nine for each.
  Line& LineOf(uint64_t hash) const { return line_[hash & (lines_ - 1)]; }
  template <typename OnBit>
  static bool ForBits(uint64_t hash, const OnBit& on_bit) {
    for (int i = 0; i < kFilterProbes; ++i) {
      const uint64_t bit = hash >> (64 - 9 * (i + 1)) & 511;
      if (!on_bit(bit / 64, uint64_t{1} << (bit % 64))) return false;
    }
    return true;
  }

  const uint64_t lines_;
  struct Free {
    void operator()(Line* line) const { std::free(line); }
  };
  const std::unique_ptr<Line[], Free> line_;
};

}  // namespace cairn::engine
