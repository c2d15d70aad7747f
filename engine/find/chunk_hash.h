// SPDX-License-Identifier: Apache-2.0
//
// Fingerprints of runs of ids, wherever they stand (S. Schleimer, D. Wilkerson, A. Aiken,
// Winnowing: Local Algorithms for Document Fingerprinting, 2003). Each kChunkIds ids in a row have
// a hash, and of each kChunkWindow hashes in a row the least one is chosen, of equal ones the last.
// What is chosen depends on the ids of that window alone: two texts that have a run of kChunkRun
// ids in common choose the same there. Of random ids one of 8.5 hashes is chosen. FORMAT.md has
// the hash byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/codec/hash.h"
#include "cairn/branch_types.h"
#include "engine/find/constants.h"
#include "engine/find/prefix_hash.h"

namespace cairn::engine {

// The part of a fingerprint's key that store, model and namespace are in.
inline uint64_t ChunkSeed(const StoreId& store, uint64_t model, uint64_t ns_seed) {
  return KeyHash(PrefixRoot(store, model), ns_seed);
}
// What the key of the index holds of a fingerprint.
inline uint64_t ChunkKeyHash(uint64_t fingerprint, uint64_t seed) {
  return SealHash(fingerprint, seed);
}

// What the hash of a run is made of: one number below kChunkModulus for each id. Within a content
// span it is of the span's hash and of the place in it as well.
uint64_t ChunkSymbol(TokenId id);
uint64_t ChunkSymbol(TokenId id, const ContentSpan& span, uint64_t position);

// One chosen hash.
struct Fingerprint {
  uint64_t value = 0;       // Not sealed.
  uint64_t end = 0;         // It is of the ids [end - kChunkIds, end).
  uint64_t window_end = 0;  // Where the first window that chose it ends.
};

// Symbol after symbol, of positions without a gap.
class Winnower {
 public:
  // The next symbol is that of position `begin`. No window reaches before it.
  explicit Winnower(uint64_t begin) : begin_(begin), at_(begin) {}
  uint64_t at() const { return at_; }

  // Adds the ids of [at, at + ids.size()). `spans` are in order; those elsewhere do not matter.
  // Calls on_chosen(fingerprint) where a window chooses another one than the window before.
  template <typename OnChosen>
  void Add(std::span<const TokenId> ids, std::span<const ContentSpan> spans,
           const OnChosen& on_chosen);

 private:
  // Adds ids until one of them makes a window choose another hash, chosen_. The result: how many.
  size_t AddUntilChosen(std::span<const TokenId> ids, std::span<const ContentSpan>* spans,
                        bool* is_chosen);
  bool Choose(uint64_t hash, uint64_t end);

  const uint64_t begin_;
  uint64_t at_;
  uint64_t hash_ = 0;
  // By position, modulo their sizes: the symbols of the run, and the hashes of the window by the
  // position at which their run ends.
  std::array<uint64_t, kChunkIds> symbols_{};
  std::array<uint64_t, kChunkWindow> hashes_{};
  Fingerprint chosen_;
};

template <typename OnChosen>
void Winnower::Add(std::span<const TokenId> ids, std::span<const ContentSpan> spans,
                   const OnChosen& on_chosen) {
  while (!ids.empty()) {
    bool is_chosen = false;
    ids = ids.subspan(AddUntilChosen(ids, &spans, &is_chosen));
    if (is_chosen) on_chosen(chosen_);
  }
}

}  // namespace cairn::engine
