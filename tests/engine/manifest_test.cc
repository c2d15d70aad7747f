// SPDX-License-Identifier: Apache-2.0
//
// Property: a MANIFEST comes back as it was written; one that cannot be right is refused by its
// name and by what is wrong, whether its checksum fits or not.
// Method: the bytes of a small one, changed and given their checksum again.
#include "engine/commit/manifest.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/codec/fields.h"
#include "base/io/sim_disk.h"
#include "tests/support/status.h"

namespace cairn::engine {
namespace {

const std::string kPath = "store/MANIFEST-3";
constexpr size_t kHeadBytes = 16, kHashBytes = 8;

Manifest Some() {
  Manifest manifest;
  manifest.store.bytes[3] = 7;
  manifest.segment_bytes = 1 << 20;
  manifest.log_start_segment = 4;
  manifest.last_sequence = 99;
  manifest.index = {{.number = 12, .level = 1, .bytes = 8192}};
  manifest.replay_from = {4, 2, 8192, 90, 77};
  manifest.epoch = 3;
  return manifest;
}

Status Decode(std::span<const std::byte> bytes) { return DecodeManifest(kPath, bytes).status(); }

// With the hash of what stands before it.
std::vector<std::byte> Seal(std::vector<std::byte> bytes) {
  const uint64_t hash = Hash(std::span(bytes).first(bytes.size() - kHashBytes));
  std::memcpy(bytes.data() + bytes.size() - kHashBytes, &hash, kHashBytes);
  return bytes;
}

// A MANIFEST of these fields.
std::vector<std::byte> With(const FieldWriter& fields) {
  std::vector<std::byte> bytes = EncodeManifest(Some());
  bytes.resize(kHeadBytes);
  const auto table_bytes = static_cast<uint32_t>(fields.bytes().size());
  std::memcpy(bytes.data() + 12, &table_bytes, 4);
  bytes.insert(bytes.end(), fields.bytes().begin(), fields.bytes().end());
  bytes.resize(bytes.size() + kHashBytes);
  return Seal(std::move(bytes));
}

FieldWriter SmallestFields() {
  const StoreId store = Some().store;
  FieldWriter fields;
  fields.Bytes(1, std::as_bytes(std::span(store.bytes)));
  fields.U64(2, 1 << 20);
  fields.U64(3, 4);
  return fields;
}

TEST(Manifest, ComesBack) {
  const std::vector<std::byte> bytes = EncodeManifest(Some());
  ASSERT_OK_ASSIGN(const Manifest manifest, DecodeManifest(kPath, bytes));
  EXPECT_EQ(manifest.store, Some().store);
  EXPECT_EQ(manifest.log_start_segment, 4u);
  EXPECT_EQ(manifest.last_sequence, 99u);
  ASSERT_EQ(manifest.index.size(), 1u);
  EXPECT_EQ(manifest.index[0].bytes, 8192u);
  EXPECT_EQ(manifest.replay_from.last_hash, 77u);
  EXPECT_EQ(manifest.epoch, 3u);
  EXPECT_OK(Decode(With(SmallestFields())));
}

// Longer or shorter than what it lists.
TEST(Manifest, FilesWithOtherNamesAreNone) {
  io::SimDisk disk;
  ASSERT_OK(disk.CreateDirectory("store"));
  Manifest manifest = Some();
  manifest.number = 5;
  ASSERT_OK(WriteManifest(disk, "store", manifest));
  for (const char* name : {"MANIFEST-007", "MANIFEST-8x", "MANIFEST--9", "MANIFEST-"}) {
    ASSERT_OK(disk.Open(std::string("store/") + name, {.write = true, .create = true}));
  }
  ASSERT_OK_ASSIGN(const Manifest read, ReadManifest(disk, "store"));
  EXPECT_EQ(read.number, 5u);
}

TEST(Manifest, OfAnotherLength) {
  const std::vector<std::byte> bytes = EncodeManifest(Some());
  const uint32_t table = static_cast<uint32_t>(bytes.size() - kHeadBytes - kHashBytes);
  for (const size_t more : {1, 8, 4096}) {
    std::vector<std::byte> longer = bytes;
    longer.resize(bytes.size() + more);
    EXPECT_FAILS(Decode(Seal(longer)), StatusCode::kCorruption,
                 kPath + ": offset 12: table of " + std::to_string(table) + " bytes in a file of " +
                     std::to_string(longer.size()));
  }
  for (const uint32_t said : {uint32_t{0}, table - 8, table + 1, UINT32_MAX}) {
    std::vector<std::byte> other = bytes;
    std::memcpy(other.data() + 12, &said, 4);
    EXPECT_FAILS(Decode(Seal(other)), StatusCode::kCorruption,
                 kPath + ": offset 12: table of " + std::to_string(said) + " bytes in a file of " +
                     std::to_string(other.size()));
  }
  EXPECT_FAILS(Decode(std::span(bytes).first(23)), StatusCode::kCorruption,
               kPath + ": only 23 bytes long");
}

TEST(Manifest, WithAnotherHead) {
  std::vector<std::byte> bytes = EncodeManifest(Some());
  bytes[0] ^= std::byte{1};
  EXPECT_FAILS(Decode(Seal(bytes)), StatusCode::kCorruption, kPath + ": offset 0: bad magic");
  bytes[0] ^= std::byte{1};
  bytes[8] = std::byte{0};
  EXPECT_FAILS(Decode(bytes), StatusCode::kCorruption, kPath + ": checksum mismatch");
  EXPECT_FAILS(Decode(Seal(bytes)), StatusCode::kCorruption,
               kPath + ": offset 8: format version 0");
  bytes[8] = std::byte{2};
  EXPECT_FAILS(Decode(Seal(bytes)), StatusCode::kUnsupportedFormat, kPath + ": format version 2;");
  EXPECT_FAILS(Decode(bytes), StatusCode::kUnsupportedFormat, "(its checksum fails, too)");
}

TEST(Manifest, WithFieldsThatCannotBe) {
  const std::byte few[5] = {};
  FieldWriter no_store;
  no_store.U64(2, 1 << 20);
  no_store.U64(3, 4);
  EXPECT_FAILS(Decode(With(no_store)), StatusCode::kCorruption, kPath + ": no store id");
  FieldWriter table = SmallestFields();
  table.Bytes(8, few);
  EXPECT_FAILS(Decode(With(table)), StatusCode::kCorruption, kPath + ": bad table of the index");
  FieldWriter place = SmallestFields();
  place.Bytes(10, few);
  EXPECT_FAILS(Decode(With(place)), StatusCode::kCorruption, kPath + ": bad place in the log");
  FieldWriter unknown = SmallestFields();
  unknown.U64(99, 1);
  EXPECT_FAILS(Decode(With(unknown)), StatusCode::kUnsupportedFormat, kPath);
  Manifest nowhere = Some();
  nowhere.log_start_segment = 0;
  EXPECT_FAILS(Decode(EncodeManifest(nowhere)), StatusCode::kCorruption, kPath + ": no log start");
  nowhere = Some();
  nowhere.segment_bytes = 0;
  EXPECT_FAILS(Decode(EncodeManifest(nowhere)), StatusCode::kCorruption, kPath + ": no log start");
}

}  // namespace
}  // namespace cairn::engine
