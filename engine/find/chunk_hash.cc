// SPDX-License-Identifier: Apache-2.0
#include "engine/find/chunk_hash.h"

namespace cairn::engine {

namespace {

// A prime; a number of 61 bits, so that remainders need no division.
constexpr uint64_t kChunkModulus = (uint64_t{1} << 61) - 1;
// Random, below the modulus: what each symbol is multiplied by for each symbol behind it.
constexpr uint64_t kChunkBase = 0x0b3c5d9a71e2f486;
__extension__ using Wide = unsigned __int128;

constexpr uint64_t Reduce(uint64_t value) {
  value = (value & kChunkModulus) + (value >> 61);
  return value >= kChunkModulus ? value - kChunkModulus : value;
}
constexpr uint64_t Multiply(uint64_t a, uint64_t b) {
  const Wide product = Wide{a} * b;
  const uint64_t sum =
      (static_cast<uint64_t>(product) & kChunkModulus) + static_cast<uint64_t>(product >> 61);
  return sum >= kChunkModulus ? sum - kChunkModulus : sum;
}
constexpr uint64_t Power(uint64_t base, uint64_t exponent) {
  uint64_t power = 1;
  for (uint64_t i = 0; i < exponent; ++i) power = Multiply(power, base);
  return power;
}
// What the oldest symbol of a run is multiplied by when the next one comes.
constexpr uint64_t kOldest = Power(kChunkBase, kChunkIds);

// A span's symbol is the hash of this.
struct SymbolBytes {
  uint64_t id, offset, hash[2];
};
static_assert(sizeof(SymbolBytes) == 32);

}  // namespace

// Without the mixing, ids that grow by one would have hashes that do, and each would be chosen.
uint64_t ChunkSymbol(TokenId id) {
  uint64_t mixed = (static_cast<uint32_t>(id) + uint64_t{1}) * 0x9E3779B97F4A7C15;
  mixed ^= mixed >> 32;
  return Reduce(mixed * 0x165667919E3779F9);
}

uint64_t ChunkSymbol(TokenId id, const ContentSpan& span, uint64_t position) {
  const SymbolBytes bytes{.id = static_cast<uint32_t>(id),
                          .offset = position - span.begin,
                          .hash = {span.hash[0], span.hash[1]}};
  return Reduce(Hash(std::as_bytes(std::span(&bytes, 1))));
}

bool Winnower::AddSymbol(uint64_t symbol) {
  uint64_t& place = symbols_[at_ % kChunkIds];
  const uint64_t oldest = place;  // 0 in the first run.
  place = symbol;
  const uint64_t gone = kChunkModulus - Multiply(oldest, kOldest);
  hash_ = Reduce(Multiply(hash_, kChunkBase) + symbol + gone);
  ++at_;
  return at_ - begin_ >= kChunkIds && Choose(hash_);
}

bool Winnower::Choose(uint64_t hash) {
  hashes_[at_ % kChunkWindow] = hash;
  const bool first = chosen_.end == 0;
  if (first || hash <= chosen_.value) {
    chosen_ = {.value = hash, .end = at_, .window_end = 0};
  } else if (chosen_.end + kChunkWindow == at_) {  // It has left the window.
    chosen_ = {.value = hash, .end = at_, .window_end = 0};
    for (uint64_t end = at_ - 1; end + kChunkWindow > at_; --end) {
      const uint64_t older = hashes_[end % kChunkWindow];
      if (older < chosen_.value) chosen_ = {.value = older, .end = end, .window_end = 0};
    }
  } else if (at_ - begin_ != kChunkRun) {
    return false;
  }
  chosen_.window_end = at_;
  return at_ - begin_ >= kChunkRun;  // Before that no window is whole.
}

}  // namespace cairn::engine
