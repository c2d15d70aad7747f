// SPDX-License-Identifier: Apache-2.0
#include "base/codec/hash.h"

#include <atomic>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/codec/hash_paths.h"
#include "base/core/cpu.h"

namespace cairn {
namespace {

using HashFunction = uint64_t (*)(const void*, size_t);

struct HashPath {
  const char* name;
  HashFunction function;
};

uint64_t HashPortable(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

HashPath ChoosePath() {
#if defined(__x86_64__)
  if (CpuHasAvx512()) return {"avx512", internal::HashAvx512};
  if (CpuHasAvx2()) return {"avx2", internal::HashAvx2};
#endif
#if XXH_VECTOR == XXH_NEON
  return {"neon", HashPortable};
#elif XXH_VECTOR == XXH_SSE2
  return {"sse2", HashPortable};
#else
  return {"scalar", HashPortable};
#endif
}

uint64_t HashFirstCall(const void* data, size_t bytes);

// Starts at the chooser, which replaces itself: no constructor runs before the first hash.
constinit std::atomic<HashFunction> long_hash{HashFirstCall};

uint64_t HashFirstCall(const void* data, size_t bytes) {
  const HashFunction chosen = ChoosePath().function;
  long_hash.store(chosen, std::memory_order_relaxed);
  return chosen(data, bytes);
}

}  // namespace

uint64_t Hash(std::span<const std::byte> bytes) {
  // Up to this length XXH3 uses no vector loop, so the nearest copy is the fastest.
  constexpr size_t kShortBytes = 240;
  if (bytes.size() <= kShortBytes) return HashPortable(bytes.data(), bytes.size());
  return long_hash.load(std::memory_order_relaxed)(bytes.data(), bytes.size());
}

Digest HashWide(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

uint64_t PlaceSeed(const StoreId& store, uint64_t file_number, uint64_t epoch, uint64_t offset) {
  uint64_t place[5];
  std::memcpy(place, store.bytes.data(), 16);
  place[2] = file_number;
  place[3] = epoch;
  place[4] = offset;
  return HashPortable(place, sizeof(place));
}

uint64_t SealHash(uint64_t content_hash, uint64_t place_seed) {
  // The finaliser of XXH3. A bijection of the content hash for every seed and of the seed for every
  // content hash: sealing adds no collisions.
  uint64_t mixed = content_hash ^ place_seed;
  mixed ^= mixed >> 37;
  mixed *= 0x165667919E3779F9u;
  return mixed ^ (mixed >> 32);
}

const char* HashPathName() { return ChoosePath().name; }

}  // namespace cairn
