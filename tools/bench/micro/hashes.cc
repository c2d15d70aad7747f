// SPDX-License-Identifier: Apache-2.0
//
// Checksums: the hash of content, out of the cache but for the largest, and what binds it to its
// place.
#include "base/codec/hash.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

void HashBytes(::benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<size_t>(state.range(0)), std::byte{7});
  const Meter meter(&state, 1, bytes.size());
  for (auto _ : state) DoNotOptimize(Hash(bytes));
}

void Seal(::benchmark::State& state) {
  const StoreId store{{1, 2, 3}};
  uint64_t hash = 1;
  const Meter meter(&state, 1, 0);
  for (auto _ : state) hash = SealHash(hash, PlaceSeed(store, 3, 1, hash & 0xFFFFFF));
  DoNotOptimize(hash);
}

}  // namespace

void RegisterHashes() {
  ::benchmark::RegisterBenchmark("hash/content", HashBytes)
      ->ArgName("bytes")
      ->Arg(64)
      ->Arg(4 << 10)
      ->Arg(64 << 10)
      ->Arg(2 << 20);
  ::benchmark::RegisterBenchmark("hash/seal_for_place", Seal);
}

}  // namespace cairn::bench::micro
