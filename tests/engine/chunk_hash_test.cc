// SPDX-License-Identifier: Apache-2.0
//
// Property: fingerprints are those of a naive implementation of what engine/find/FORMAT.md says,
// whatever the pieces in which ids come; and every run of 47 ids that two texts have in common, in
// whatever surroundings, has a fingerprint in common, at the same place of the run. They depend on
// all that they should: ids, spans with the place in them, and, sealed, store, model, namespace.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <random>
#include <set>

#include "engine/find/chunk_hash.h"
#include "tests/support/test_seed.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

using engine::ChunkKeyHash;
using engine::ChunkSeed;
using engine::ChunkSymbol;
using engine::Fingerprint;
using engine::kChunkIds;
using engine::kChunkRun;
using engine::kChunkWindow;
using engine::SeedOf;
using engine::Winnower;

constexpr StoreId kStore = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
constexpr uint64_t kModulus = (uint64_t{1} << 61) - 1;
constexpr uint64_t kBase = 0x0b3c5d9a71e2f486;
__extension__ using Wide = unsigned __int128;

using Spans = std::vector<ContentSpan>;
using Places = std::set<std::pair<uint64_t, uint64_t>>;  // Value and end.

uint64_t SymbolAt(std::span<const TokenId> ids, const Spans& spans, uint64_t at) {
  for (const ContentSpan& span : spans) {
    if (span.begin <= at && at < span.end) return ChunkSymbol(ids[at], span, at);
  }
  return ChunkSymbol(ids[at]);
}

// All hashes of all runs, then the least of each window, the last of equal ones.
Places Naive(std::span<const TokenId> ids, const Spans& spans = {}, uint64_t begin = 0) {
  std::vector<std::pair<uint64_t, uint64_t>> hashes;
  for (uint64_t at = begin; at + kChunkIds <= begin + ids.size(); ++at) {
    Wide hash = 0;
    for (uint64_t i = 0; i < kChunkIds; ++i) {
      hash = (hash * kBase + SymbolAt(ids, spans, at - begin + i)) % kModulus;
    }
    hashes.emplace_back(static_cast<uint64_t>(hash), at + kChunkIds);
  }
  Places chosen;
  for (size_t first = 0; first + kChunkWindow <= hashes.size(); ++first) {
    auto least = hashes[first];
    for (size_t i = first; i < first + kChunkWindow; ++i) {
      if (hashes[i].first <= least.first) least = hashes[i];
    }
    chosen.insert(least);
  }
  return chosen;
}

std::vector<Fingerprint> All(std::span<const TokenId> ids, const Spans& spans = {},
                             size_t piece = SIZE_MAX, uint64_t begin = 0) {
  Winnower winnower(begin);
  std::vector<Fingerprint> all;
  while (!ids.empty()) {
    const size_t count = std::min(piece, ids.size());
    winnower.Add(ids.first(count), spans, [&](const Fingerprint& one) { all.push_back(one); });
    ids = ids.subspan(count);
  }
  return all;
}

Places PlacesOf(const std::vector<Fingerprint>& all) {
  Places places;
  for (const Fingerprint& one : all) EXPECT_TRUE(places.emplace(one.value, one.end).second);
  return places;
}

// Texts that are hard on winnowing as well as ordinary ones.
std::vector<std::vector<TokenId>> Texts() {
  std::mt19937_64 random(TestSeed());
  std::vector<std::vector<TokenId>> texts;
  for (const uint32_t letters : {1u, 2u, 3u, 50'000u}) {
    for (const size_t size : {0, 31, 32, 46, 47, 48, 62, 63, 64, 500}) {
      auto& text = texts.emplace_back();
      for (size_t i = 0; i < size; ++i) text.push_back(static_cast<TokenId>(random() % letters));
    }
  }
  auto& morse = texts.emplace_back();  // Thue-Morse: no square of length 3, much of itself.
  for (uint32_t i = 0; i < 600; ++i) morse.push_back(std::popcount(i) & 1);
  auto& counting = texts.emplace_back();
  for (TokenId i = 0; i < 600; ++i) counting.push_back(i);
  auto& periodic = texts.emplace_back();
  for (TokenId i = 0; i < 600; ++i) periodic.push_back(i % 37);
  return texts;
}

TEST(ChunkHash, IsThatOfANaiveImplementation) {
  for (const auto& text : Texts()) {
    const Places naive = Naive(text);
    for (const size_t piece : {SIZE_MAX, size_t{1}, size_t{45}}) {
      EXPECT_EQ(naive, PlacesOf(All(text, {}, piece))) << text.size() << " ids by " << piece;
    }
  }
}

TEST(ChunkHash, OfContentSpansIsThatOfANaiveImplementation) {
  const std::vector<TokenId> ids = Tokens(300, 3);
  const Spans spans = {{.begin = 0, .end = 5, .hash = {7, 8}},
                       {.begin = 40, .end = 41, .hash = {7, 9}},
                       {.begin = 41, .end = 130, .hash = {1, 2}},
                       {.begin = 290, .end = 300, .hash = {5, 6}}};
  const Places naive = Naive(ids, spans);
  for (const size_t piece : {SIZE_MAX, size_t{1}, size_t{29}}) {
    EXPECT_EQ(naive, PlacesOf(All(ids, spans, piece)));
  }
  EXPECT_NE(naive, Naive(ids));
}

// Each window chooses one, so these windows are all there are, each once.
TEST(ChunkHash, SaysWhichWindowsChoseIt) {
  for (const auto& text : Texts()) {
    const std::vector<Fingerprint> all = All(text);
    EXPECT_EQ(text.size() >= kChunkRun, !all.empty());
    if (!all.empty()) {
      EXPECT_EQ(kChunkRun, all.front().window_end);
    }
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_LT(all[i - 1].window_end, all[i].window_end);
      EXPECT_LT(all[i - 1].end, all[i].end);
    }
    for (const Fingerprint& one : all) {
      EXPECT_GE(one.end, one.window_end - kChunkRun + kChunkIds);
      EXPECT_LE(one.end, one.window_end);
    }
  }
}

TEST(ChunkHash, EveryCommonRunOf47SharesOneAtTheSamePlace) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 2000; ++round) {
    const uint32_t letters = round % 3 == 0 ? 2 : 50'000;
    const auto draw = [&](size_t count) {
      std::vector<TokenId> ids;
      for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(random() % letters));
      return ids;
    };
    const std::vector<TokenId> common = draw(kChunkRun + random() % 20);
    std::vector<std::set<std::pair<uint64_t, int64_t>>> shared;  // Place within the run.
    for (int side = 0; side < 2; ++side) {
      std::vector<TokenId> text = draw(random() % 100);
      const auto before = static_cast<int64_t>(text.size());
      text.insert(text.end(), common.begin(), common.end());
      const auto after = draw(random() % 100);
      text.insert(text.end(), after.begin(), after.end());
      auto& places = shared.emplace_back();
      for (const Fingerprint& one : All(text)) {
        places.emplace(one.value, static_cast<int64_t>(one.end) - before);
      }
    }
    std::vector<std::pair<uint64_t, int64_t>> both;
    std::set_intersection(shared[0].begin(), shared[0].end(), shared[1].begin(), shared[1].end(),
                          std::back_inserter(both));
    std::erase_if(both, [&](const auto& one) {
      return one.second < static_cast<int64_t>(kChunkIds) ||
             one.second > static_cast<int64_t>(common.size());
    });
    ASSERT_FALSE(both.empty()) << "round " << round << ", " << common.size() << " ids in common";
  }
}

// The promise ends there: without the window's last hash another one may be the least.
TEST(ChunkHash, SomeCommonRunOf46SharesNone) {
  int without = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<TokenId> a = Tokens(200, 2 * seed), b = Tokens(200, 2 * seed + 1);
    std::copy(a.begin() + 80, a.begin() + 80 + kChunkRun - 1, b.begin() + 30);
    std::set<uint64_t> values;
    for (const Fingerprint& one : All(a)) values.insert(one.value);
    const auto b_all = All(b);
    without += std::none_of(b_all.begin(), b_all.end(),
                            [&](const Fingerprint& one) { return values.contains(one.value); });
  }
  EXPECT_GT(without, 0);
}

// The example of FORMAT.md, byte by byte and for ever.
TEST(ChunkHash, IsWhatTheFormatSays) {
  std::vector<TokenId> ids(70);
  std::iota(ids.begin(), ids.end(), 0);
  const uint64_t seed = ChunkSeed(kStore, 3, SeedOf("tenant"));
  EXPECT_EQ(0x7eaa899ccc211e0au, seed);
  std::vector<std::array<uint64_t, 3>> found;
  for (const Fingerprint& one : All(ids)) {
    found.push_back({one.end, one.value, ChunkKeyHash(one.value, seed)});
  }
  const std::vector<std::array<uint64_t, 3>> documented = {
      {40, 0x00056e701dcf1308, 0x0645d89b808e2ace},
      {53, 0x05786b28d2e42b34, 0xc347195303831780},
      {57, 0x02b3084284b3c640, 0x2520d76885050d4c},
      {70, 0x01443c478bba5964, 0x43210d320b9311f2}};
  EXPECT_EQ(documented, found);

  // A symbol within a span, put together by hand.
  std::array<uint64_t, 4> bytes = {5, 2, 7, 8};
  const ContentSpan span{.begin = 10, .end = 20, .hash = {7, 8}};
  EXPECT_EQ(Hash(std::as_bytes(std::span(bytes))) % kModulus, ChunkSymbol(5, span, 12));
}

// What the index does: it goes on one position before what the first new window needs.
TEST(ChunkHash, GoesOnBehindWhatItHasSeen) {
  const std::vector<TokenId> ids = Tokens(700, 9);
  const Places whole = Naive(ids);
  for (uint64_t from = 0; from < 700; from += 7) {
    Places places = Naive(std::span(ids).first(from));
    const uint64_t begin = from - std::min(from, kChunkRun);
    for (const Fingerprint& one : All(std::span(ids).subspan(begin), {}, 13, begin)) {
      if (one.window_end <= from) continue;
      EXPECT_TRUE(places.emplace(one.value, one.end).second) << from;
    }
    EXPECT_EQ(whole, places) << "from " << from;
  }
}

TEST(ChunkHash, OfRandomIdsOneOf8Point5IsChosen) {
  const double share = 1e6 / static_cast<double>(All(Tokens(1'000'000, 4)).size());
  EXPECT_NEAR(8.5, share, 0.1);
}

TEST(ChunkHash, DependsOnAllThatItShould) {
  const ContentSpan span{.begin = 10, .end = 20, .hash = {3, 4}};
  std::set<uint64_t> symbols = {ChunkSymbol(7), ChunkSymbol(8), ChunkSymbol(7, span, 12),
                                ChunkSymbol(8, span, 12), ChunkSymbol(7, span, 13)};
  for (const ContentSpan& other : {ContentSpan{.begin = 10, .end = 20, .hash = {3, 5}},
                                   ContentSpan{.begin = 10, .end = 20, .hash = {5, 4}}}) {
    symbols.insert(ChunkSymbol(7, other, 12));
  }
  EXPECT_EQ(7u, symbols.size());
  const ContentSpan moved{.begin = 110, .end = 120, .hash = {3, 4}};
  EXPECT_EQ(ChunkSymbol(7, span, 12), ChunkSymbol(7, moved, 112)) << "at another position";

  StoreId other = kStore;
  other.bytes[0] = 2;
  const std::set<uint64_t> keys = {
      ChunkKeyHash(9, ChunkSeed(kStore, 3, SeedOf("a"))),
      ChunkKeyHash(10, ChunkSeed(kStore, 3, SeedOf("a"))),
      ChunkKeyHash(9, ChunkSeed(kStore, 4, SeedOf("a"))),
      ChunkKeyHash(9, ChunkSeed(kStore, 3, SeedOf("b"))),
      ChunkKeyHash(9, ChunkSeed(other, 3, SeedOf("a"))),
  };
  EXPECT_EQ(5u, keys.size());
}

}  // namespace
}  // namespace cairn::testing
