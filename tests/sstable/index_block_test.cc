// SPDX-License-Identifier: Apache-2.0
//
// Property: a block gives back the entries that were put in, finds every key from every side, and
// on any bytes at all neither reads outside itself nor hands out keys that do not ascend.
#include "sstable/index_block.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

#include "sstable/bloom.h"
#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

std::string Build(const Records& records) {
  BlockBuilder builder;
  for (const auto& [key, value] : records) {
    const MaybeValue maybe = value ? MaybeValue(*value) : std::nullopt;
    const size_t most = builder.BytesWith(key, maybe);
    builder.Add(key, maybe);
    EXPECT_LE(builder.bytes(), most);
  }
  return builder.Finish(BlockKind::kData, {});
}

BlockView MustParse(const std::string& block, BlockKind kind = BlockKind::kData) {
  const auto view = BlockView::Parse(std::as_bytes(std::span(block)), kind);
  EXPECT_OK(view);
  return *view;
}

RecordList WalkBlock(BlockIterator entry) {
  RecordList list;
  for (; entry.valid(); entry.Next()) {
    list.emplace_back(entry.key(),
                      entry.value() ? std::optional<std::string>(*entry.value()) : std::nullopt);
  }
  return list;
}

void ExpectAllFound(const Records& records) {
  const std::string block = Build(records);
  EXPECT_EQ(block.size() % kTableAlignment, 0u);
  BlockIterator entry(MustParse(block));
  entry.SeekToFirst();
  EXPECT_EQ(WalkBlock(entry), ListOf(records));
  for (const auto& [key, value] : records) {
    entry.Seek(key);
    ASSERT_TRUE(entry.valid()) << key;
    EXPECT_EQ(entry.key(), key);
    EXPECT_EQ(entry.value().has_value(), value.has_value());
    entry.Seek(key + '\0');  // The next one.
    const auto behind = records.upper_bound(key);
    ASSERT_EQ(entry.valid(), behind != records.end());
    if (entry.valid()) {
      EXPECT_EQ(entry.key(), behind->first);
    }
  }
  entry.Seek("");
  EXPECT_EQ(WalkBlock(entry), ListOf(records));
}

TEST(IndexBlock, EntriesAroundTheRestarts) {
  for (const uint64_t count : {1, 2, 15, 16, 17, 31, 32, 33, 100, 300}) {
    ExpectAllFound(MakeRecords(count, 5, 3));
  }
}

TEST(IndexBlock, KeysOfEveryShape) {
  const std::string zeros("\0\0", 2);
  const std::string high("\xff\xff", 2);
  ExpectAllFound({{"", "empty key"}, {zeros, std::nullopt}, {"a", ""}, {"ab", "x"}, {"b", "y"}});
  ExpectAllFound({{"", std::nullopt}});
  ExpectAllFound({{"\x7f", "signed?"}, {"\x80", "unsigned"}, {high, "last"}, {high + high, ""}});
  ExpectAllFound({{std::string(kMaxKeyBytes, 'k'), std::string(100, 'v')},
                  {std::string(kMaxKeyBytes - 1, 'k') + 'l', "next"}});
}

TEST(IndexBlock, PrefixesAreShared) {
  Records records;
  const std::string prefix(200, 'p');
  for (uint64_t i = 0; i < 64; ++i) records[prefix + KeyOf(i)] = "v";
  // Four whole keys, and 60 that differ in one or two bytes.
  const std::string block = Build(records);
  EXPECT_EQ(block.size(), kTableAlignment);
  const auto header = LoadAs<BlockHeader>(block.data());
  EXPECT_LT(header.bytes, 4 * 220 + 60 * 8 + 100);
}

TEST(IndexBlock, AFilterBelongsToPartitionsAlone) {
  const uint64_t hash = FilterHash("a");
  BlockBuilder builder;
  builder.Add("a", "handle");
  const std::string block = builder.Finish(BlockKind::kPartition, BuildFilter({&hash, 1}));
  EXPECT_EQ(MustParse(block, BlockKind::kPartition).filter().size(), FilterBytes(1));
  EXPECT_FAILS(BlockView::Parse(std::as_bytes(std::span(block)), BlockKind::kData),
               StatusCode::kCorruption, "of kind 2, expected 1");
  EXPECT_TRUE(builder.empty());
}

// Whatever the bytes say, keys ascend and all views lie inside the block. On an exact heap copy, so
// that a checked build sees a step outside.
void ExpectHarmless(const std::string& bytes) {
  const auto memory = std::make_unique<std::byte[]>(std::max<size_t>(bytes.size(), 1));
  std::memcpy(memory.get(), bytes.data(), bytes.size());
  const auto view = BlockView::Parse({memory.get(), bytes.size()}, BlockKind::kData);
  if (!view.ok()) {
    EXPECT_EQ(view.status().code(), StatusCode::kCorruption);
    return;
  }
  BlockIterator entry(*view);
  std::string last;
  size_t sum = 0;
  bool any = false;
  for (entry.SeekToFirst(); entry.valid(); entry.Next()) {
    ASSERT_TRUE(!any || last < entry.key());
    any = true;
    last = entry.key();
    if (entry.value()) {
      for (const char c : *entry.value()) sum += static_cast<uint8_t>(c);
    }
  }
  EXPECT_LE(sum, bytes.size() * 255);
  for (const std::string target : {"", "key00000010", "key00000033", "zzz"}) entry.Seek(target);
}

TEST(IndexBlock, EveryBitOfABlockWithoutItsHash) {
  const std::string block = Build(MakeRecords(40, 4, 5));
  const auto used = LoadAs<BlockHeader>(block.data()).bytes;
  for (size_t bit = 64; bit < used * 8; ++bit) {
    std::string damaged = block;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ExpectHarmless(damaged);
    if (HasFatalFailure()) FAIL() << "bit " << bit;
  }
}

TEST(IndexBlock, CutsAndRandomBytes) {
  const std::string block = Build(MakeRecords(40, 4, 5));
  for (size_t length = 0; length < 600; ++length) ExpectHarmless(block.substr(0, length));
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = block;
    for (uint64_t n = random() % 8 + 1; n > 0; --n) {
      damaged[8 + random() % 700] = static_cast<char>(random());
    }
    ExpectHarmless(damaged);
  }
}

TEST(IndexBlock, RestartsThatCannotBe) {
  const std::string block = Build(MakeRecords(40, 4));
  const auto header = LoadAs<BlockHeader>(block.data());
  const size_t restarts = header.bytes - header.restart_count * sizeof(uint32_t);
  const auto with = [&](size_t at, uint32_t value) {
    std::string damaged = block;
    std::memcpy(damaged.data() + at, &value, sizeof(value));
    return BlockView::Parse(std::as_bytes(std::span(damaged)), BlockKind::kData).status();
  };
  EXPECT_FAILS(with(restarts, 25), StatusCode::kCorruption, "restart 0");
  EXPECT_FAILS(with(restarts + 4, 24), StatusCode::kCorruption, "restart 1");
  EXPECT_FAILS(with(restarts + 4, header.bytes), StatusCode::kCorruption, "restart 1");
  EXPECT_FAILS(with(16, kTableAlignment + 1), StatusCode::kCorruption, "impossible sizes");
  EXPECT_FAILS(with(20, 8), StatusCode::kCorruption, "impossible sizes");
  EXPECT_FAILS(with(8, 0), StatusCode::kCorruption, "no magic");
}

TEST(IndexBlock, AKeyThatDoesNotAscendIsDamage) {
  // Two entries "b", "b": the second one shares nothing and says the same.
  std::string block = Build({{"b", ""}, {"c", ""}});
  const size_t second = sizeof(BlockHeader) + 4;
  ASSERT_EQ(block[second + 3], 'c');
  for (const char key : {'b', 'a'}) {
    block[second + 3] = key;
    BlockIterator entry(MustParse(block));
    entry.SeekToFirst();
    ASSERT_TRUE(entry.valid());
    entry.Next();
    EXPECT_FALSE(entry.valid());
    EXPECT_TRUE(entry.damaged());
    EXPECT_EQ(entry.offset(), second);
  }
}

}  // namespace
}  // namespace cairn::sstable
