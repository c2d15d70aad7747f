// SPDX-License-Identifier: Apache-2.0
//
// Property: the bytes on disk are those of sstable/FORMAT.md, for ever; no damage to a footer
// passes its checks; a newer version is distinguished from damage. Method: the worked example is
// written by the writer and compared with the document byte by byte; every single bit of the footer
// is flipped, on an exact heap allocation.
#include "sstable/index_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "base/codec/fields.h"
#include "tests/sstable/table_fixture.h"
#include "tests/support/source_dir.h"

namespace cairn::sstable {
namespace {

// The example of FORMAT.md: table 1 with a put, a tombstone and another put.
std::vector<std::byte> ExampleTable() {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  const Records records{{"branch/1", "hello"}, {"branch/17", std::nullopt}, {"node/2", "x"}};
  EXPECT_OK(WriteTable(tables.context, 1, records));
  return *disk->ReadRaw(tables.Path(1));
}

// Lines "xxxxxx  16 hex bytes" of the document's example, by offset.
std::map<uint64_t, std::vector<uint8_t>> DumpInDocument() {
  std::ifstream document(testing::SourcePath("/sstable/FORMAT.md"));
  std::map<uint64_t, std::vector<uint8_t>> dump;
  bool inside = false;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("```")) inside = line == "```hex index table";
    if (!inside || line.starts_with("```")) continue;
    std::istringstream words(line);
    std::string word;
    words >> word;
    std::vector<uint8_t>& bytes = dump[std::stoull(word, nullptr, 16)];
    while (bytes.size() < 16 && words >> word) {
      bytes.push_back(static_cast<uint8_t>(std::stoul(word, nullptr, 16)));
    }
  }
  return dump;
}

std::string HexLine(const std::vector<std::byte>& bytes, uint64_t offset) {
  char text[80];
  int length = std::snprintf(text, sizeof(text), "%06x ", static_cast<unsigned>(offset));
  std::string line(text, static_cast<size_t>(length));
  for (uint64_t i = offset; i < offset + 16; ++i) {
    length = std::snprintf(text, sizeof(text), " %02x", static_cast<unsigned>(bytes[i]));
    line.append(text, static_cast<size_t>(length));
  }
  return line;
}

TEST(IndexFormat, TheWorkedExampleOfTheDocument) {
  const std::vector<std::byte> bytes = ExampleTable();
  ASSERT_EQ(bytes.size(), 4 * kTableAlignment);
  const auto dump = DumpInDocument();
  size_t documented = 0;
  for (uint64_t offset = 0; offset < bytes.size(); offset += 16) {
    const auto line = dump.find(offset);
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(offset);
    if (line == dump.end()) {
      // Only zeros may be left out.
      EXPECT_TRUE(std::all_of(begin, begin + 16, [](std::byte b) { return b == std::byte{0}; }))
          << HexLine(bytes, offset);
      continue;
    }
    ++documented;
    ASSERT_EQ(line->second.size(), 16u);
    EXPECT_TRUE(std::equal(begin, begin + 16, line->second.begin(), [](std::byte a, uint8_t b) {
      return a == std::byte{b};
    })) << HexLine(bytes, offset);
  }
  EXPECT_EQ(documented, dump.size());
  EXPECT_GE(documented, 20u);
}

TEST(IndexFormat, TheWorkedExampleParses) {
  const std::vector<std::byte> bytes = ExampleTable();
  const auto footer =
      ParseFooter(std::span(bytes).last(kTableAlignment), kTestStore, 1, bytes.size());
  ASSERT_OK(footer);
  EXPECT_EQ(footer->root, (BlockHandle{2 * kTableAlignment, kTableAlignment}));
  EXPECT_EQ(footer->filter_probes, kFilterProbes);
  EXPECT_EQ(footer->info.records, 3u);
  EXPECT_EQ(footer->info.tombstones, 1u);
  EXPECT_EQ(footer->info.smallest, "branch/1");
  EXPECT_EQ(footer->info.largest, "node/2");
}

// The result for the example's footer after `change`, with its hash made right again.
Status ParseChanged(const std::function<void(std::string&)>& change) {
  const std::vector<std::byte> bytes = ExampleTable();
  const auto* from = reinterpret_cast<const char*>(bytes.data()) + bytes.size() - kTableAlignment;
  std::string footer(from, kTableAlignment);
  change(footer);
  SealBlock(footer, kTestStore, 1, bytes.size() - kTableAlignment);
  return ParseFooter(std::as_bytes(std::span(footer)), kTestStore, 1, bytes.size()).status();
}

template <typename T>
Status ParseWith(size_t offset, T value) {
  return ParseChanged(
      [&](std::string& footer) { std::memcpy(footer.data() + offset, &value, sizeof(value)); });
}

TEST(IndexFormat, WhatAWriterCannotHaveWritten) {
  EXPECT_OK(ParseChanged([](std::string&) {}));
  EXPECT_FAILS(ParseWith<uint32_t>(16, 2), StatusCode::kUnsupportedFormat, "format version 2");
  EXPECT_FAILS(ParseWith<uint32_t>(16, 0), StatusCode::kCorruption, "unknown version or flags");
  EXPECT_FAILS(ParseWith<uint32_t>(20, 1), StatusCode::kCorruption, "unknown version or flags");
  EXPECT_FAILS(ParseWith<uint8_t>(24, 99), StatusCode::kCorruption, "another store or table");
  EXPECT_FAILS(ParseWith<uint64_t>(40, 2), StatusCode::kCorruption, "another store or table");
  EXPECT_FAILS(ParseWith<uint64_t>(8, 1), StatusCode::kCorruption, "no magic");
  for (const uint64_t root : {uint64_t{0}, uint64_t{4095}, uint64_t{4096}, UINT64_MAX - 4095}) {
    EXPECT_FAILS(ParseWith<uint64_t>(48, root), StatusCode::kCorruption, "impossible properties");
  }
  EXPECT_FAILS(ParseWith<uint32_t>(56, 0), StatusCode::kCorruption, "impossible properties");
  EXPECT_FAILS(ParseWith<uint32_t>(60, kTableAlignment), StatusCode::kCorruption, "sizes");
  EXPECT_FAILS(ParseWith<uint32_t>(60, 12), StatusCode::kCorruption, "field table: at byte 0");
  EXPECT_FAILS(ParseWith<uint32_t>(60, 0), StatusCode::kCorruption, "impossible properties");
  EXPECT_FAILS(ParseWith<uint16_t>(64, 77), StatusCode::kUnsupportedFormat, "critical field 77");
  EXPECT_FAILS(ParseWith<uint64_t>(72, 0), StatusCode::kCorruption, "impossible properties");
  EXPECT_FAILS(ParseWith<uint64_t>(88, 4), StatusCode::kCorruption, "impossible properties");
}

TEST(IndexFormat, AFieldThatIsNotCriticalMayBeUnknown) {
  EXPECT_OK(ParseChanged([](std::string& text) {
    auto footer = LoadAs<IndexFooter>(text.data());
    FieldWriter fields;
    fields.U64(1000, 5, /*critical=*/false);
    std::memcpy(text.data() + sizeof(footer) + footer.fields_bytes, fields.bytes().data(),
                fields.bytes().size());
    footer.fields_bytes += static_cast<uint32_t>(fields.bytes().size());
    std::memcpy(text.data(), &footer, sizeof(footer));
  }));
}

TEST(IndexFormat, EveryBitOfAFooterInEveryPlace) {
  const std::vector<std::byte> bytes = ExampleTable();
  const auto memory = std::make_unique<std::byte[]>(kTableAlignment);
  const std::span<std::byte> footer(memory.get(), kTableAlignment);
  std::copy(bytes.end() - kTableAlignment, bytes.end(), footer.begin());
  for (size_t bit = 0; bit < footer.size() * 8; ++bit) {
    footer[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_FAILS(ParseFooter(footer, kTestStore, 1, bytes.size()), StatusCode::kCorruption);
    footer[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_OK(ParseFooter(footer, kTestStore, 1, bytes.size()));
  EXPECT_FAILS(ParseFooter(footer, kTestStore, 2, bytes.size()), StatusCode::kCorruption, "hash");
  EXPECT_FAILS(ParseFooter(footer, kTestStore, 1, bytes.size() + kTableAlignment),
               StatusCode::kCorruption, "hash");
  StoreId other = kTestStore;
  other.bytes[15] ^= 1;
  EXPECT_FAILS(ParseFooter(footer, other, 1, bytes.size()), StatusCode::kCorruption, "hash");
  EXPECT_FAILS(ParseFooter(footer.first(100), kTestStore, 1, bytes.size()), StatusCode::kCorruption,
               "which no table has");
}

TEST(IndexFormat, Varints) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128},
                               uint64_t{16383}, uint64_t{16384}, uint64_t{1} << 35, UINT64_MAX}) {
    std::string bytes;
    PutVarint(bytes, value);
    const char* end = bytes.data() + bytes.size();
    uint64_t read = ~value;
    EXPECT_EQ(GetVarint(bytes.data(), end, &read), end);
    EXPECT_EQ(read, value);
    EXPECT_EQ(GetVarint(bytes.data(), end - 1, &read), nullptr);
  }
  const auto refused = [](std::string bytes) {
    uint64_t value = 0;
    return GetVarint(bytes.data(), bytes.data() + bytes.size(), &value) == nullptr;
  };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused(std::string("\x80\x00", 2)));        // 0 in two bytes.
  EXPECT_TRUE(refused(std::string(9, '\xff') + '\x02'));   // 65 bits.
  EXPECT_TRUE(refused(std::string(10, '\x80') + '\x01'));  // Eleven bytes.
  EXPECT_FALSE(refused(std::string(9, '\xff') + '\x01'));
}

TEST(IndexFormat, Handles) {
  for (const BlockHandle handle : {BlockHandle{0, 4096}, BlockHandle{uint64_t{1} << 45, 1 << 20}}) {
    BlockHandle read;
    EXPECT_TRUE(DecodeHandle(EncodeHandle(handle), &read));
    EXPECT_EQ(read, handle);
  }
  BlockHandle read;
  const auto text = [](uint64_t offset, uint64_t length) {
    std::string bytes;
    PutVarint(bytes, offset);
    PutVarint(bytes, length);
    return bytes;
  };
  EXPECT_TRUE(DecodeHandle(text(1, 1), &read));
  EXPECT_FALSE(DecodeHandle(text(1, 0), &read));
  EXPECT_FALSE(DecodeHandle(text(1, 1) + "x", &read));
  EXPECT_FALSE(DecodeHandle(text(1, 1).substr(0, 1), &read));
  EXPECT_FALSE(DecodeHandle("", &read));
  EXPECT_FALSE(DecodeHandle(text(UINT64_MAX, 1), &read));
  EXPECT_FALSE(DecodeHandle(text(1, uint64_t{1} << 32), &read));
}

}  // namespace
}  // namespace cairn::sstable
