// SPDX-License-Identifier: Apache-2.0
//
// Property: all vector paths of the checksum give the value of the reference library, and a seal
// changes with every bit of the content, the store, the file, the epoch and the offset.
// Method: lengths around every internal border of XXH3, compared with libxxhash; single-bit flips.
#include "base/codec/hash.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <random>
#include <set>
#include <vector>

#include "base/codec/hash_paths.h"
#include "base/core/cpu.h"

namespace cairn {
namespace {

std::vector<std::byte> RandomBytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Hash, EveryPathMatchesTheLibraryAtEveryLength) {
  const std::vector<std::byte> bytes = RandomBytes(70'000, 1);
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 1100; ++n) lengths.push_back(n);
  for (size_t n : {2047, 2048, 4096, 4097, 65'535, 65'536, 70'000}) lengths.push_back(n);
  for (size_t n : lengths) {
    const uint64_t expected = XXH3_64bits(bytes.data(), n);
    ASSERT_EQ(Hash({bytes.data(), n}), expected) << n;
#if defined(__x86_64__)
    if (CpuHasAvx2()) {
      ASSERT_EQ(internal::HashAvx2(bytes.data(), n), expected) << n;
    }
    if (std::string_view(HashPathName()) == "avx512") {
      ASSERT_EQ(internal::HashAvx512(bytes.data(), n), expected) << n;
    }
#endif
  }
}

TEST(Hash, UnalignedDataGivesTheSameValue) {
  const std::vector<std::byte> bytes = RandomBytes(5000, 2);
  for (size_t shift = 1; shift < 64; ++shift) {
    std::vector<std::byte> moved(bytes.size() + shift);
    std::copy(bytes.begin(), bytes.end(), moved.begin() + static_cast<ptrdiff_t>(shift));
    EXPECT_EQ(Hash({moved.data() + shift, bytes.size()}), Hash(bytes));
  }
}

// Stored hashes depend on these values for ever.
TEST(Hash, GoldenValues) {
  StoreId store;
  for (size_t i = 0; i < 16; ++i) store.bytes[i] = static_cast<uint8_t>(i + 1);
  EXPECT_EQ(Hash({}), 0x2d06800538d394c2u);
  const uint64_t place = PlaceSeed(store, 7, 3, 4096);
  EXPECT_EQ(place, 0x64e495222ea869a9u);
  EXPECT_EQ(SealHash(Hash({}), place), 0xab93c68ed71a353cu);
}

TEST(Hash, SealDependsOnEveryPartOfThePlace) {
  StoreId store;
  std::set<uint64_t> seals;
  const auto add = [&](const StoreId& id, uint64_t file, uint64_t epoch, uint64_t offset) {
    seals.insert(SealHash(42, PlaceSeed(id, file, epoch, offset)));
  };
  add(store, 0, 0, 0);
  size_t places = 1;
  for (int bit = 0; bit < 64; ++bit) {
    add(store, uint64_t{1} << bit, 0, 0);
    add(store, 0, uint64_t{1} << bit, 0);
    add(store, 0, 0, uint64_t{1} << bit);
    places += 3;
  }
  for (int bit = 0; bit < 128; ++bit) {
    StoreId other = store;
    other.bytes[static_cast<size_t>(bit / 8)] ^= static_cast<uint8_t>(1 << (bit % 8));
    add(other, 0, 0, 0);
    ++places;
  }
  EXPECT_EQ(seals.size(), places);
}

TEST(Hash, SealIsABijectionOfTheContent) {
  std::set<uint64_t> seals;
  for (uint64_t content = 0; content < 100'000; ++content) seals.insert(SealHash(content, 99));
  EXPECT_EQ(seals.size(), 100'000u);
}

}  // namespace
}  // namespace cairn
