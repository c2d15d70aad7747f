// SPDX-License-Identifier: Apache-2.0
//
// Property: the hash of a prefix is what engine/find/FORMAT.md says, byte by byte and for ever,
// and depends on all that it should: ids, their order, content spans with their offsets, the model,
// the store, the namespace; and on nothing that comes behind. Records come back as they were put,
// and what is none is refused. The filter never forgets.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "engine/find/hint_records.h"
#include "engine/find/prefix_filter.h"
#include "engine/find/prefix_hash.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

using engine::ExtendPrefix;
using engine::HintEntry;
using engine::KeyHash;
using engine::PrefixHasher;
using engine::PrefixRoot;
using engine::SeedOf;

constexpr StoreId kStore = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

Digest HashOf(std::span<const TokenId> ids, std::span<const ContentSpan> spans = {},
              uint64_t model = 3) {
  PrefixHasher hasher(PrefixRoot(kStore, model), 0, spans);
  hasher.Add(ids, [](uint64_t, const Digest&) {});
  return hasher.At();
}

std::vector<TokenId> Counting(uint64_t count) {
  std::vector<TokenId> ids;
  for (uint64_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(i));
  return ids;
}

// The bytes as FORMAT.md lists them, put together by hand.
TEST(FindHash, IsWhatTheFormatSays) {
  std::vector<uint8_t> root(kStore.bytes.begin(), kStore.bytes.end());
  const auto put = [](std::vector<uint8_t>* bytes, uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes->push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  put(&root, 1, 8);
  put(&root, 3, 8);
  const Digest begin = HashWide(std::as_bytes(std::span(root)));
  EXPECT_EQ(begin, PrefixRoot(kStore, 3));

  const std::vector<TokenId> ids = Counting(70);
  const std::vector<ContentSpan> spans = {{.begin = 60, .end = 66, .hash = {7, 8}}};
  std::vector<uint8_t> block;
  put(&block, begin.low, 8);
  put(&block, begin.high, 8);
  for (uint64_t i = 0; i < 64; ++i) put(&block, i, 4);
  for (const uint64_t field : {60, 4, 0, 7, 8}) put(&block, field, 8);
  const Digest first = HashWide(std::as_bytes(std::span(block)));
  EXPECT_EQ(first, HashOf(std::span(ids).first(64), spans));

  block.clear();
  put(&block, first.low, 8);
  put(&block, first.high, 8);
  for (uint64_t i = 64; i < 70; ++i) put(&block, i, 4);
  for (const uint64_t field : {0, 2, 4, 7, 8}) put(&block, field, 8);
  EXPECT_EQ(HashWide(std::as_bytes(std::span(block))), HashOf(ids, spans));
}

TEST(FindHash, Golden) {
  EXPECT_EQ((Digest{0x7bcce310fee305cc, 0x9d7f4fece9e43d5d}), PrefixRoot(kStore, 3));
  EXPECT_EQ((Digest{0xd63c9573c7e612a9, 0x35a7e53eb074d97d}), HashOf(Counting(64)));
  EXPECT_EQ((Digest{0x7f78b393eb941ff4, 0xcd0bcbb04cf2a86d}), HashOf(Counting(70)));
  EXPECT_EQ(0x736b03d167d4d741u, KeyHash(HashOf(Counting(64)), SeedOf("tenant")));
}

TEST(FindHash, DependsOnAllThatItShould) {
  std::set<uint64_t> seen;
  const auto is_new = [&](const Digest& digest, std::string_view ns = "") {
    return seen.insert(KeyHash(digest, SeedOf(ns))).second;
  };
  std::vector<TokenId> ids = Counting(200);
  EXPECT_TRUE(is_new(HashOf(ids)));
  EXPECT_FALSE(is_new(HashOf(ids)));
  EXPECT_TRUE(is_new(HashOf(ids), "a"));
  EXPECT_TRUE(is_new(HashOf(ids), "b"));
  EXPECT_TRUE(is_new(HashOf(ids, {}, 4)));
  EXPECT_TRUE(is_new(HashOf(std::span(ids).first(199))));
  ContentSpan span{.begin = 10, .end = 100, .hash = {1, 2}};
  EXPECT_TRUE(is_new(HashOf(ids, {{span}})));
  // A span counts where the hashed positions are, and no further.
  EXPECT_EQ(HashOf(std::span(ids).first(10), {{span}}), HashOf(std::span(ids).first(10)));
  span.hash[1] = 3;
  EXPECT_TRUE(is_new(HashOf(ids, {{span}})));
  span.end = 99;
  EXPECT_TRUE(is_new(HashOf(ids, {{span}})));
  span.begin = 11;
  EXPECT_TRUE(is_new(HashOf(ids, {{span}})));
  std::swap(ids[3], ids[4]);
  EXPECT_TRUE(is_new(HashOf(ids)));
  std::swap(ids[63], ids[64]);
  EXPECT_TRUE(is_new(HashOf(ids)));
  PrefixHasher other(PrefixRoot({}, 3), 0, {});
  other.Add(ids, [](uint64_t, const Digest&) {});
  EXPECT_TRUE(is_new(other.At()));
}

// However it is cut into calls, every block ends with the same hash.
TEST(FindHash, ByBlocks) {
  const std::vector<TokenId> ids = Tokens(1000);
  for (const size_t step : {1, 7, 63, 64, 65, 128, 1000}) {
    PrefixHasher hasher(PrefixRoot(kStore, 3), 0, {});
    uint64_t ends = 0;
    for (size_t at = 0; at < ids.size(); at += step) {
      hasher.Add(std::span(ids).subspan(at, std::min(step, ids.size() - at)),
                 [&](uint64_t end, const Digest& digest) {
                   EXPECT_EQ(ends += 64, end);
                   EXPECT_EQ(HashOf(std::span(ids).first(end)), digest);
                 });
    }
    EXPECT_EQ(960u, ends);
    EXPECT_EQ(1000u, hasher.end());
    EXPECT_EQ(HashOf(ids), hasher.At());
  }
}

TEST(HintRecords, ComeBack) {
  for (const uint64_t position : {1ull, 127ull, 128ull, 16384ull, 1ull << 40, ~0ull}) {
    const HintEntry entry{0x0123456789abcdef, 77, position};
    const auto got =
        engine::GetPrefix(engine::PrefixKey(entry.hash, entry.node), engine::PrefixValue(position));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(entry, *got);
  }
  // Newest first, those of one hash together.
  EXPECT_LT(engine::PrefixKey(5, 9), engine::PrefixKey(5, 8));
  EXPECT_LT(engine::PrefixKey(5, 1), engine::PrefixKey(6, 9));
  EXPECT_TRUE(engine::PrefixKey(5, 9).starts_with(engine::PrefixKeysOf(5)));
  EXPECT_LT(engine::PrefixKey(~0ull, 0), engine::kPrefixesEnd);
}

TEST(HintRecords, WhatIsNoneIsRefused) {
  const std::string key = engine::PrefixKey(5, 9);
  const auto get = [](std::string_view of_key, std::string_view value) {
    return engine::GetPrefix(of_key, value).has_value();
  };
  EXPECT_TRUE(get(key, "\x40"));
  EXPECT_FALSE(get(key, ""));
  EXPECT_FALSE(get(key, std::string_view("\0", 1)));      // No position.
  EXPECT_FALSE(get(key, "\xc0"));                         // It goes on.
  EXPECT_FALSE(get(key, "\x40\x40"));                     // It ended.
  EXPECT_FALSE(get(key, std::string_view("\xc0\0", 2)));  // Not the shortest form.
  EXPECT_FALSE(get(key, std::string(10, '\xff')));
  EXPECT_FALSE(get(key, std::string(9, '\xff') + '\x02'));  // Beyond 64 bits.
  EXPECT_TRUE(get(key, std::string(9, '\xff') + '\x01'));
  EXPECT_FALSE(get(key.substr(1), "\x40"));
  EXPECT_FALSE(get(key + "0", "\x40"));
  EXPECT_FALSE(get("W" + key.substr(1), "\x40"));
}

TEST(PrefixFilter, NeverForgets) {
  constexpr uint64_t kEntries = 32768;  // At 16 bits each.
  engine::PrefixFilter filter(kEntries * 2);
  EXPECT_EQ(kEntries * 2, filter.bytes());
  const auto hash = [](uint64_t i) { return Hash(std::as_bytes(std::span(&i, 1))); };
  uint64_t maybe = 0;
  for (uint64_t i = 0; i < kEntries; ++i) filter.Add(hash(i));
  for (uint64_t i = 0; i < kEntries; ++i) ASSERT_TRUE(filter.MayHave(hash(i)));
  for (uint64_t i = kEntries; i < 2 * kEntries; ++i) maybe += filter.MayHave(hash(i)) ? 1 : 0;
  EXPECT_LT(maybe, kEntries / 100) << "of " << kEntries << " that were not added";
}

}  // namespace
}  // namespace cairn::testing
