// SPDX-License-Identifier: Apache-2.0
//
// Property: records of chunks come back as they were put, in the order in which a search wants
// them, the newest node first; and what is none is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/find/constants.h"
#include "engine/find/hint_records.h"

namespace cairn::testing {
namespace {

using engine::ChunkKey;
using engine::ChunkKeysOf;
using engine::GetChunk;
using engine::HintEntry;
using engine::HintKind;
using engine::KeyOf;
using engine::ValueOf;

HintEntry EntryOf(uint64_t hash, uint64_t node, uint64_t position) {
  return {.hash = hash, .node = node, .position = position, .kind = HintKind::kChunk};
}

TEST(ChunkRecords, AreWhatTheFormatSays) {
  const std::string key = {'\x57', '\x06', '\x45', '\xd8', '\x9b', '\x80', '\x8e',
                           '\x2a', '\xce', '\xfe', '\xf6', '\xfe', '\xd7'};
  EXPECT_EQ(key, ChunkKey(0x0645d89b808e2ace, 9, 40));
}

TEST(ChunkRecords, ComeBack) {
  for (const uint64_t hash : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX}) {
    for (const uint64_t node : {uint64_t{1}, uint64_t{255}, uint64_t{256}, uint64_t{1} << 62}) {
      for (const uint64_t position : {uint64_t{32}, uint64_t{65'536}, UINT64_MAX}) {
        const HintEntry entry = EntryOf(hash, node, position);
        EXPECT_EQ(entry, GetChunk(KeyOf(entry), ValueOf(entry)));
        EXPECT_TRUE(KeyOf(entry).starts_with(ChunkKeysOf(hash)));
        EXPECT_LT(KeyOf(entry), engine::kChunksEnd);
        EXPECT_GT(KeyOf(entry), engine::kPrefixesEnd);
      }
    }
  }
}

TEST(ChunkRecords, LieWithTheNewestNodeFirstAndItsLastPositionFirst) {
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const uint64_t node : {1, 2, 255, 256, 65'535, 65'536, 1 << 24}) {
    for (const uint64_t position : {32, 33, 255, 256, 1 << 20}) places.emplace_back(node, position);
  }
  std::vector<std::string> keys;
  for (const auto& [node, position] : places) keys.push_back(ChunkKey(7, node, position));
  EXPECT_TRUE(std::is_sorted(keys.rbegin(), keys.rend()));
}

TEST(ChunkRecords, WhatIsNoneIsRefused) {
  const std::string key = ChunkKey(7, 300, 400);
  ASSERT_TRUE(GetChunk(key, "").has_value());
  EXPECT_FALSE(GetChunk(key, "x").has_value()) << "a value";
  for (size_t bytes = 0; bytes < key.size(); ++bytes) {
    EXPECT_FALSE(GetChunk(key.substr(0, bytes), "").has_value()) << bytes;
  }
  EXPECT_FALSE(GetChunk(key + 'x', "").has_value());
  EXPECT_FALSE(GetChunk("P" + key.substr(1), "").has_value());
  EXPECT_FALSE(GetChunk(ChunkKey(7, 300, 31), "").has_value()) << "no run ends there";
  EXPECT_FALSE(GetChunk(ChunkKey(7, 0, 400), "").has_value()) << "no node";
  std::string longer = ChunkKeysOf(7);  // Node 1 in two bytes.
  longer += {'\xfd', '\xff', '\xfe'};
  longer += key.substr(key.size() - 3);
  EXPECT_FALSE(GetChunk(longer, "").has_value());
  std::string too_long = ChunkKeysOf(7);
  too_long += std::string(1, '\xf6') + std::string(9, '\0');
  EXPECT_FALSE(GetChunk(too_long + key.substr(key.size() - 3), "").has_value());
}

}  // namespace
}  // namespace cairn::testing
