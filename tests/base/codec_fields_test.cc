// SPDX-License-Identifier: Apache-2.0
//
// Property: what a FieldWriter wrote, a FieldReader reads back; any other bytes are refused without
// reading out of bounds; unknown critical fields are refused and unknown optional ones are not.
// Method: fixed tables byte by byte, every truncation and bit flip of a table, random bytes.
#include "base/codec/fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

namespace cairn {
namespace {

FieldWriter Example() {
  FieldWriter inner;
  inner.U64(1, 5);
  FieldWriter table;
  table.U64(1, 0x1122334455667788);
  table.F64(2, 1.5);
  table.Text(3, "chat-42", /*critical=*/false);
  table.Bytes(3, {}, /*critical=*/false);
  table.Table(4, inner);
  return table;
}

// On exact heap allocations, so that a sanitizer sees any read beyond them.
Result<FieldReader> ParseCopy(std::span<const std::byte> bytes,
                              std::unique_ptr<std::byte[]>& keep) {
  keep = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(keep.get(), bytes.data(), bytes.size());
  return FieldReader::Parse({keep.get(), bytes.size()});
}

TEST(Fields, RoundTrip) {
  const FieldWriter table = Example();
  const Result<FieldReader> parsed = FieldReader::Parse(table.bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const FieldReader& reader = *parsed;
  EXPECT_EQ(reader.fields().size(), 5u);
  EXPECT_EQ(reader.U64(1), 0x1122334455667788u);
  EXPECT_EQ(reader.U64(2), std::nullopt);  // Another type.
  EXPECT_EQ(reader.U64Or(9, 7), 7u);
  EXPECT_EQ(reader.Find(2, FieldType::kF64)->f64(), 1.5);
  EXPECT_EQ(reader.Find(2, FieldType::kF64)->u64(), 0u);
  EXPECT_EQ(reader.TextOr(3, ""), "chat-42");
  EXPECT_EQ(reader.TextOr(5, "none"), "none");
  EXPECT_FALSE(reader.Find(3, FieldType::kBytes)->critical);
  const Field* inner = reader.Find(4, FieldType::kTable);
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(FieldReader::Parse(inner->value)->U64Or(1, 0), 5u);
}

TEST(Fields, GoldenBytes) {
  FieldWriter table;
  table.U64(0x0102, 3);
  table.Text(7, "ab", false);
  const uint8_t expected[] = {0x02, 0x01, 1, 1, 8, 0, 0, 0, 3,   0,   0, 0, 0, 0, 0, 0,
                              7,    0,    4, 0, 2, 0, 0, 0, 'a', 'b', 0, 0, 0, 0, 0, 0};
  ASSERT_EQ(table.bytes().size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(table.bytes().data(), expected, sizeof(expected)), 0);
}

TEST(Fields, UnknownCriticalFieldIsRefusedByItsNumber) {
  const FieldWriter table = Example();
  const FieldReader reader = *FieldReader::Parse(table.bytes());
  const uint16_t all[] = {1, 2, 4};  // 3 is optional.
  EXPECT_TRUE(reader.CheckCritical(all).ok());
  const uint16_t some[] = {1, 4};
  const Status refused = reader.CheckCritical(some);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupportedFormat);
  EXPECT_NE(refused.message().find("field 2"), std::string_view::npos);
}

TEST(Fields, TruncationIsRefusedExceptBetweenFields) {
  const FieldWriter table = Example();
  const std::vector<size_t> borders = {0, 16, 32, 48, 56};
  for (size_t n = 0; n < table.bytes().size(); ++n) {
    std::unique_ptr<std::byte[]> keep;
    const bool border = std::find(borders.begin(), borders.end(), n) != borders.end();
    const Result<FieldReader> parsed = ParseCopy(table.bytes().first(n), keep);
    EXPECT_EQ(parsed.ok(), border) << n;
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.status().code(), StatusCode::kCorruption);
    }
  }
}

TEST(Fields, StructuralDamageIsNamed) {
  const auto patched = [](size_t at, uint8_t value) {
    FieldWriter table;
    table.U64(1, 2);
    table.Text(2, "abc");
    std::vector<std::byte> bytes = std::move(table).Take();
    bytes[at] = static_cast<std::byte>(value);
    const Result<FieldReader> parsed = FieldReader::Parse(bytes);
    return parsed.ok() ? std::string("accepted") : std::string(parsed.status().message());
  };
  EXPECT_NE(patched(2, 0).find("type 0"), std::string::npos);
  EXPECT_NE(patched(3, 2).find("unknown flags 2"), std::string::npos);
  EXPECT_NE(patched(4, 7).find("7 bytes"), std::string::npos);
  EXPECT_NE(patched(7, 255).find("passes the end"), std::string::npos);
  EXPECT_NE(patched(30, 1).find("padding"), std::string::npos);
  EXPECT_EQ(patched(2, 200), "accepted");  // A type of a later version, judged by CheckCritical.
}

TEST(Fields, AnyBytesAreSafe) {
  std::mt19937_64 random(7);
  const FieldWriter table = Example();
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(table.bytes().begin(), table.bytes().end());
    const size_t changes = random() % 4;
    for (size_t c = 0; c < changes; ++c) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    std::unique_ptr<std::byte[]> keep;
    const Result<FieldReader> parsed = ParseCopy(bytes, keep);
    if (!parsed.ok()) continue;
    for (const Field& field : parsed->fields()) {
      const uint64_t touched = field.u64() + field.text().size() + field.value.size();
      EXPECT_LE(field.value.size(), bytes.size()) << touched;
    }
  }
}

}  // namespace
}  // namespace cairn
