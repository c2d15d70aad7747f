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

// Without the mixing, ids that grow by one would have hashes that do, and each would be chosen.
constexpr uint64_t SymbolOf(TokenId id) {
  uint64_t mixed = (static_cast<uint32_t>(id) + uint64_t{1}) * 0x9E3779B97F4A7C15;
  mixed ^= mixed >> 32;
  return Reduce(mixed * 0x165667919E3779F9);
}

// A span's symbol is the hash of this.
struct SymbolBytes {
  uint64_t id, offset, hash[2];
};
static_assert(sizeof(SymbolBytes) == 32);

}  // namespace

uint64_t ChunkSymbol(TokenId id) { return SymbolOf(id); }

uint64_t ChunkSymbol(TokenId id, const ContentSpan& span, uint64_t position) {
  const SymbolBytes bytes{.id = static_cast<uint32_t>(id),
                          .offset = position - span.begin,
                          .hash = {span.hash[0], span.hash[1]}};
  return Reduce(Hash(std::as_bytes(std::span(&bytes, 1))));
}

// What depends on the last hash is as short as can be: it takes half of the time.
size_t Winnower::AddUntilChosen(std::span<const TokenId> ids, std::span<const ContentSpan>* spans,
                                bool* is_chosen) {
  uint64_t hash = hash_, at = at_;
  size_t added = 0;
  for (; added < ids.size() && !*is_chosen; ++added) {
    while (!spans->empty() && spans->front().end <= at) *spans = spans->subspan(1);
    const bool in_span = !spans->empty() && spans->front().begin <= at;
    const uint64_t symbol =
        in_span ? ChunkSymbol(ids[added], spans->front(), at) : SymbolOf(ids[added]);
    uint64_t& place = symbols_[at % kChunkIds];
    // The oldest is 0 in the first run.
    const uint64_t change = Reduce(symbol + kChunkModulus - Multiply(place, kOldest));
    place = symbol;
    hash = Reduce(Multiply(hash, kChunkBase) + change);
    ++at;
    if (at - begin_ >= kChunkIds) *is_chosen = Choose(hash, at);
  }
  hash_ = hash;
  at_ = at;
  return added;
}

bool Winnower::Choose(uint64_t hash, uint64_t end) {
  hashes_[end % kChunkWindow] = hash;
  if (chosen_.end == 0 || hash <= chosen_.value) {
    chosen_ = {.value = hash, .end = end, .window_end = end};
  } else if (chosen_.end + kChunkWindow == end) {  // It has left the window.
    chosen_ = {.value = hash, .end = end, .window_end = end};
    for (uint64_t older = end - 1; older + kChunkWindow > end; --older) {
      const uint64_t value = hashes_[older % kChunkWindow];
      if (value < chosen_.value) chosen_ = {.value = value, .end = older, .window_end = end};
    }
  } else if (end - begin_ != kChunkRun) {
    return false;
  }
  chosen_.window_end = end;
  return end - begin_ >= kChunkRun;  // Before that no window is whole.
}

}  // namespace cairn::engine
