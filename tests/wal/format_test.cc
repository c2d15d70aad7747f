// SPDX-License-Identifier: Apache-2.0
//
// Property: the bytes on disk are those of wal/FORMAT.md, for ever; and no damage to a record, a
// group header, a segment header or a footer trailer passes their checks.
// Method: the worked example is compared with the document byte by byte; every single bit of each
// structure is flipped and each is cut at every length, on exact heap allocations.
#include "wal/format.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "base/codec/fields.h"
#include "tests/support/log_fixture.h"
#include "tests/support/source_dir.h"
#include "tests/support/status.h"

namespace cairn::wal {
namespace {

// The example of FORMAT.md: segment 1 of a new store with one record, the first 4352 bytes.
std::vector<std::byte> ExampleSegment() {
  std::vector<std::byte> bytes(kBlock + 256);
  FieldWriter fields;
  fields.U64(1, 5);
  const Strip strip{7, 5};
  const RecordSpec spec{3, false, 0, fields.bytes(), {&strip, 1}};
  const uint32_t record_offset = kFirstGroupOffset + sizeof(GroupHeader);
  std::byte* record = bytes.data() + record_offset;
  EncodeRecord(spec, 1, record);
  std::memcpy(record + 128, "hello", 5);
  const uint64_t strip_hash = Hash({record + 128, 5});
  const uint32_t record_bytes = static_cast<uint32_t>(RecordBytes(16, spec.strips));
  SealRecord({1, 1, record_offset, record_bytes}, kTestStore, {&strip_hash, 1}, record);

  GroupHeader group{};
  group.record_count = 1;
  group.epoch = 1;
  group.segment = 1;
  group.first_sequence = 1;
  group.length = sizeof(GroupHeader) + record_bytes;
  group.records_hash = FoldRecordHash(0, LoadAs<uint64_t>(record));

  SegmentHeader header{};
  header.first_group_hash =
      EncodeGroupHeader(group, kFirstGroupOffset, kTestStore, bytes.data() + kFirstGroupOffset);
  header.store = kTestStore;
  header.segment = 1;
  header.epoch = 1;
  header.first_sequence = 1;
  header.segment_bytes = 64 << 20;
  header.created_wall_ns = 1'700'000'000'000'000'000;
  EncodeSegmentHeader(header, bytes.data());
  return bytes;
}

// Lines "xxxxxx  16 hex bytes" of the document, by offset.
std::map<uint64_t, std::vector<uint8_t>> DumpInDocument() {
  std::ifstream document(testing::SourcePath("/wal/FORMAT.md"));
  std::map<uint64_t, std::vector<uint8_t>> dump;
  bool inside = false;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("```")) inside = line == "```hex";
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

TEST(Format, TheWorkedExampleOfTheDocument) {
  const std::vector<std::byte> bytes = ExampleSegment();
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
  EXPECT_GE(documented, 16u);
}

TEST(Format, TheWorkedExampleParses) {
  const std::vector<std::byte> bytes = ExampleSegment();
  const auto header = ParseSegmentHeader(bytes, 1, kTestStore);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  const auto group = ParseGroupHeader(std::span(bytes).subspan(kFirstGroupOffset), 1,
                                      kFirstGroupOffset, kTestStore);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->hash, header->first_group_hash);
  const uint32_t offset = kFirstGroupOffset + sizeof(GroupHeader);
  const auto whole = std::span(bytes).subspan(offset);
  const auto record = ParseRecord(whole, {1, 1, offset, 0}, kTestStore);
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_EQ(record->kind, 3);
  EXPECT_EQ(record->sequence, 1u);
  EXPECT_EQ(record->unit, 1u);
  EXPECT_FALSE(record->more);
  EXPECT_EQ(record->location.bytes, 192u);
  EXPECT_EQ(FieldReader::Parse(record->fields)->U64(1), 5u);
  ASSERT_EQ(record->strip_count(), 1u);
  EXPECT_EQ(record->strip(0).tag, 7u);
  EXPECT_EQ(record->strip_offset(0), 128u);
  EXPECT_TRUE(record->VerifyStrip(whole, 0, kTestStore).ok());
}

// `accepts` is called with copies of the bytes; it must refuse all but the original.
void EveryBitAndEveryCut(std::span<const std::byte> original,
                         const std::function<bool(std::span<const std::byte>)>& accepts) {
  const auto copy = [](std::span<const std::byte> from) {
    auto memory = std::make_unique<std::byte[]>(std::max<size_t>(from.size(), 1));
    std::copy(from.begin(), from.end(), memory.get());
    return memory;
  };
  {
    const auto memory = copy(original);
    ASSERT_TRUE(accepts({memory.get(), original.size()}));
  }
  for (size_t bit = 0; bit < original.size() * 8; ++bit) {
    const auto memory = copy(original);
    memory[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_FALSE(accepts({memory.get(), original.size()})) << "bit " << bit;
  }
  for (size_t length = 0; length < original.size(); ++length) {
    const auto memory = copy(original.first(length));
    ASSERT_FALSE(accepts({memory.get(), length})) << "cut at " << length;
  }
}

TEST(Format, DamageToARecordHeader) {
  const std::vector<std::byte> bytes = ExampleSegment();
  const uint32_t offset = kFirstGroupOffset + sizeof(GroupHeader);
  const auto header = std::span(bytes).subspan(offset, RecordHeaderBytes(16, 1));
  EveryBitAndEveryCut(header, [&](std::span<const std::byte> damaged) {
    const auto parsed = ParseRecord(damaged, {1, 1, offset, 0}, kTestStore);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.status().code(), StatusCode::kCorruption);
      EXPECT_NE(parsed.status().message().find("0000000000000001.log: offset 4160"),
                std::string_view::npos);
    }
    return parsed.ok();
  });
}

TEST(Format, DamageToAStrip) {
  const std::vector<std::byte> bytes = ExampleSegment();
  const uint32_t offset = kFirstGroupOffset + sizeof(GroupHeader);
  const auto record = std::span(bytes).subspan(offset, 192);
  const auto view = ParseRecord(record, {1, 1, offset, 0}, kTestStore);
  for (size_t bit = 128 * 8; bit < (128 + 5) * 8; ++bit) {
    std::vector<std::byte> damaged(record.begin(), record.end());
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const Status status = view->VerifyStrip(damaged, 0, kTestStore);
    ASSERT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_NE(status.message().find("offset 4288: strip 0 of record 1"), std::string_view::npos)
        << status.ToString();
  }
}

TEST(Format, DamageToAGroupHeader) {
  const std::vector<std::byte> bytes = ExampleSegment();
  const auto header = std::span(bytes).subspan(kFirstGroupOffset, sizeof(GroupHeader));
  EveryBitAndEveryCut(header, [](std::span<const std::byte> damaged) {
    return ParseGroupHeader(damaged, 1, kFirstGroupOffset, kTestStore).has_value();
  });
}

TEST(Format, DamageToASegmentHeader) {
  const std::vector<std::byte> bytes = ExampleSegment();
  EveryBitAndEveryCut(std::span(bytes).first(kBlock), [](std::span<const std::byte> damaged) {
    return ParseSegmentHeader(damaged, 1, kTestStore).ok();
  });
}

TEST(Format, DamageToAFooterTrailer) {
  FooterTrailer trailer{};
  trailer.magic = kFooterMagic;
  trailer.group_count = 2;
  trailer.segment = 4;
  trailer.epoch = 2;
  trailer.first_sequence = 10;
  trailer.last_sequence = 20;
  trailer.footer_offset = 8192;
  trailer.entries_bytes = 1000;
  trailer.entries_hash = 77;
  std::vector<std::byte> bytes(sizeof(trailer));
  EncodeFooterTrailer(trailer, 256 << 10, kTestStore, bytes.data());
  EveryBitAndEveryCut(bytes, [](std::span<const std::byte> damaged) {
    return ParseFooterTrailer(damaged, 4, 2, 256 << 10, kTestStore).has_value();
  });
}

// The writer sealed them like this.
TEST(Format, ASegmentHeaderThatCannotBe) {
  const auto original = LoadAs<SegmentHeader>(ExampleSegment().data());
  const auto parse = [&](const std::function<void(SegmentHeader&)>& change) {
    SegmentHeader header = original;
    change(header);
    std::vector<std::byte> block(kBlock);
    EncodeSegmentHeader(header, block.data());
    return ParseSegmentHeader(block, 1, kTestStore).status();
  };
  EXPECT_OK(parse([](SegmentHeader&) {}));
  const std::vector<std::function<void(SegmentHeader&)>> sizes = {
      [](SegmentHeader& header) { header.segment_bytes = kMinSegmentBytes - kBlock; },
      [](SegmentHeader& header) { header.segment_bytes = kMaxSegmentBytes + kBlock; },
      [](SegmentHeader& header) { header.segment_bytes += 1; },
      [](SegmentHeader& header) { header.first_sequence = 0; },
  };
  for (const auto& change : sizes) {
    EXPECT_FAILS(parse(change), StatusCode::kCorruption, "segment header: impossible sizes");
  }
  EXPECT_FAILS(parse([](SegmentHeader& header) { header.flags = 1; }), StatusCode::kCorruption,
               "unknown version or flags");
}

TEST(Format, AFooterTrailerThatCannotBe) {
  constexpr uint64_t kBytes = 256 << 10;
  FooterTrailer original{};
  original.magic = kFooterMagic;
  original.group_count = 2;
  original.segment = 4;
  original.epoch = 2;
  original.footer_offset = 8192;
  original.entries_bytes = 1000;
  const auto accepted = [&](const std::function<void(FooterTrailer&)>& change) {
    FooterTrailer trailer = original;
    change(trailer);
    std::vector<std::byte> bytes(sizeof(trailer));
    EncodeFooterTrailer(trailer, kBytes, kTestStore, bytes.data());
    return ParseFooterTrailer(bytes, 4, 2, kBytes, kTestStore).has_value();
  };
  EXPECT_TRUE(accepted([](FooterTrailer&) {}));
  EXPECT_FALSE(accepted([](FooterTrailer& trailer) { trailer.footer_offset = 0; }));
  EXPECT_FALSE(accepted([](FooterTrailer& trailer) { trailer.footer_offset += 64; }));
  EXPECT_FALSE(accepted([](FooterTrailer& trailer) { trailer.entries_bytes = kBytes - 8192; }));
  EXPECT_FALSE(accepted([](FooterTrailer& trailer) { trailer.entries_bytes = UINT32_MAX; }));
  EXPECT_FALSE(accepted([](FooterTrailer& trailer) { trailer.group_count = 0; }));
}

TEST(Format, RightBytesInTheWrongPlaceAreRefused) {
  const std::vector<std::byte> bytes = ExampleSegment();
  const auto group = std::span(bytes).subspan(kFirstGroupOffset);
  const auto record = group.subspan(sizeof(GroupHeader));
  const uint32_t offset = kFirstGroupOffset + sizeof(GroupHeader);
  StoreId other = kTestStore;
  other.bytes[0] ^= 1;
  EXPECT_FALSE(ParseSegmentHeader(bytes, 2, kTestStore).ok());
  EXPECT_FALSE(ParseSegmentHeader(bytes, 1, other).ok());
  EXPECT_FALSE(ParseGroupHeader(group, 2, kFirstGroupOffset, kTestStore));
  EXPECT_FALSE(ParseGroupHeader(group, 1, kFirstGroupOffset + kBlock, kTestStore));
  EXPECT_FALSE(ParseGroupHeader(group, 1, kFirstGroupOffset, other));
  EXPECT_FALSE(ParseRecord(record, {2, 1, offset, 0}, kTestStore).ok());
  EXPECT_FALSE(ParseRecord(record, {1, 2, offset, 0}, kTestStore).ok());
  EXPECT_FALSE(ParseRecord(record, {1, 1, offset + 64, 0}, kTestStore).ok());
  EXPECT_FALSE(ParseRecord(record, {1, 1, offset, 0}, other).ok());
  EXPECT_FALSE(ParseRecord(record, {1, 1, offset, 128}, kTestStore).ok());  // Not the length known.
}

TEST(Format, RecordSizes) {
  EXPECT_EQ(RecordBytes(0, {}), 64u);
  EXPECT_EQ(RecordBytes(1, {}), 128u);
  const Strip strips[] = {{0, 1}, {0, 64}, {0, 65}, {0, 0}};
  EXPECT_EQ(RecordBytes(0, strips), 128u + 64 + 64 + 128);
}

}  // namespace
}  // namespace cairn::wal
