// SPDX-License-Identifier: Apache-2.0
//
// Property: a MANIFEST comes back as it was written; one that cannot be right is refused by its
// name and by what is wrong, whether its checksum fits or not.
// Method: the bytes of a small one, changed and given their checksum again.
#include "engine/manifest/manifest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/codec/fields.h"
#include "sim/disk.h"
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
  manifest.counted_from = 2;
  manifest.resting = {{.number = 2, .end_offset = 1 << 20}, {.number = 3, .end_offset = 8192}};
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
  EXPECT_EQ(manifest.counted_from, 2u);
  EXPECT_EQ(manifest.resting, Some().resting);
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
  FieldWriter segments = SmallestFields();
  segments.Bytes(17, few);
  EXPECT_FAILS(Decode(With(segments)), StatusCode::kCorruption, kPath + ": bad list of segments");
  const std::byte none[8] = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                             std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};
  FieldWriter uncounted = SmallestFields();
  uncounted.Bytes(17, none);
  EXPECT_FAILS(Decode(With(uncounted)), StatusCode::kCorruption, kPath + ": no segment to count");
  FieldWriter unknown = SmallestFields();
  unknown.U64(99, 1);
  EXPECT_FAILS(Decode(With(unknown)), StatusCode::kUnsupportedFormat, kPath);
  Manifest nowhere = Some();
  nowhere.log_start_segment = 0;
  EXPECT_FAILS(Decode(EncodeManifest(nowhere)), StatusCode::kCorruption, kPath + ": no log start");
  // Each number at values that no store comes to: counters, sizes, tables.
  const auto refused = [](const std::string& what, const std::function<void(Manifest*)>& change) {
    Manifest manifest = Some();
    change(&manifest);
    EXPECT_FAILS(Decode(EncodeManifest(manifest)), StatusCode::kCorruption, kPath + ": " + what);
  };
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{4096}, (uint64_t{1} << 20) + 1, UINT64_MAX}) {
    refused("segments of " + std::to_string(bytes) + " bytes",
            [&](Manifest* m) { m->segment_bytes = bytes; });
  }
  for (const uint64_t number : {uint64_t{1} << 62, UINT64_MAX}) {
    refused("impossible log start", [&](Manifest* m) { m->log_start_segment = number; });
    refused("impossible next file", [&](Manifest* m) { m->next_file_number = number; });
    refused("impossible next id", [&](Manifest* m) { m->next_id = number; });
    refused("impossible last sequence", [&](Manifest* m) { m->last_sequence = number; });
    refused("impossible index sequence", [&](Manifest* m) { m->index_sequence = number; });
    refused("impossible epoch", [&](Manifest* m) { m->epoch = number; });
    refused("impossible segment", [&](Manifest* m) { m->replay_from.segment = number; });
    refused("impossible epoch to", [&](Manifest* m) { m->replay_from.epoch = number; });
    refused("impossible sequence", [&](Manifest* m) { m->replay_from.last_sequence = number; });
    refused("impossible table", [&](Manifest* m) { m->index[0].number = number; });
  }
  refused("no next number", [](Manifest* m) { m->next_file_number = 0; });
  refused("no next number", [](Manifest* m) { m->next_id = 0; });
  refused("impossible table", [](Manifest* m) { m->index[0].number = 0; });
  refused("impossible table", [](Manifest* m) { m->index[0].level = 7; });
  refused("table 12 of the index is named twice",
          [](Manifest* m) { m->index.push_back({.number = 12, .level = 2, .bytes = 4096}); });
  refused("impossible segment to count", [](Manifest* m) { m->counted_from = 0; });
  refused("impossible segment to count", [](Manifest* m) { m->counted_from = uint64_t{1} << 62; });
  refused("segment 2 of the log is named as", [](Manifest* m) { m->counted_from = 3; });
  refused("segment 3 of the log is named as", [](Manifest* m) { m->resting[0] = m->resting[1]; });
  refused("impossible segment 4 of the log", [](Manifest* m) { m->resting[1].number = 4; });
  for (const uint64_t end : {uint64_t{0}, uint64_t{4096}, uint64_t{8193}, uint64_t{2} << 20}) {
    refused("impossible segment 3", [end](Manifest* m) { m->resting[1].end_offset = end; });
  }
  refused("the index has sequence 100", [](Manifest* m) { m->index_sequence = 100; });
}

// A store without counted segments has the bytes that an earlier library wrote; with them it is
// refused by that.
TEST(Manifest, CountedSegmentsAreCritical) {
  Manifest manifest = Some();
  const auto fields = [](const std::vector<std::byte>& bytes) {
    return FieldReader::Parse(
        std::span(bytes).subspan(kHeadBytes, bytes.size() - kHeadBytes - kHashBytes));
  };
  const auto knows = [](uint16_t id) { return id < 17; };
  const auto counted = fields(EncodeManifest(manifest));
  ASSERT_OK(counted);
  bool critical = false;
  for (const Field& field : counted->fields()) critical |= !knows(field.id) && field.critical;
  EXPECT_TRUE(critical);
  manifest.counted_from = kCountsNone;
  manifest.resting.clear();
  const auto without = fields(EncodeManifest(manifest));
  ASSERT_OK(without);
  for (const Field& field : without->fields()) EXPECT_TRUE(knows(field.id)) << field.id;
}

// Indexes beside the tree's. Derived ones may be skipped; the others must be known.
TEST(Manifest, NamesIndexes) {
  const NamedIndex hints{
      .name = "hints", .derived = true, .tables = {{.number = 13, .level = 0, .bytes = 4096}}};
  const NamedIndex objects{
      .name = "objects", .derived = false, .tables = {{.number = 14, .level = 2, .bytes = 8192}}};
  constexpr std::string_view kHints[] = {"hints"}, kBoth[] = {"objects", "hints"};
  Manifest manifest = Some();
  EXPECT_TRUE(DecodeManifest(kPath, EncodeManifest(manifest))->named.empty());
  manifest.named = {hints};
  const std::vector<std::byte> derived = EncodeManifest(manifest);
  ASSERT_OK_ASSIGN(Manifest read, DecodeManifest(kPath, derived));
  EXPECT_TRUE(read.named.empty());
  EXPECT_EQ(manifest.index, read.index);
  ASSERT_OK_ASSIGN(read, DecodeManifest(kPath, derived, kHints));
  EXPECT_EQ(manifest.named, read.named);
  manifest.named = {hints, objects};
  const std::vector<std::byte> both = EncodeManifest(manifest);
  ASSERT_OK_ASSIGN(read, DecodeManifest(kPath, both, kBoth));
  EXPECT_EQ(manifest.named, read.named);
  EXPECT_FAILS(Decode(both), StatusCode::kUnsupportedFormat, kPath + ": the store has an index");
  EXPECT_FAILS(DecodeManifest(kPath, both, kHints), StatusCode::kUnsupportedFormat, "\"objects\"");
  // A library from before there was the field skips the one, and refuses the other.
  const auto critical = [](std::span<const std::byte> bytes) {
    const auto fields =
        FieldReader::Parse(bytes.subspan(kHeadBytes, bytes.size() - kHeadBytes - kHashBytes));
    EXPECT_OK(fields);
    bool any = false;
    for (const Field& field : fields->fields()) any |= field.id == 15 && field.critical;
    return any;
  };
  EXPECT_FALSE(critical(derived));
  EXPECT_TRUE(critical(both));
}

TEST(Manifest, WithIndexesThatCannotBe) {
  constexpr std::string_view kKnown[] = {"hints", ""};
  const auto refused = [&](const std::string& what, const std::vector<NamedIndex>& named) {
    Manifest manifest = Some();
    manifest.named = named;
    EXPECT_FAILS(DecodeManifest(kPath, EncodeManifest(manifest), kKnown), StatusCode::kCorruption,
                 kPath + ": " + what);
  };
  const NamedIndex hints{.name = "hints", .derived = true, .tables = {{.number = 13}}};
  refused("an index with a name of 0 bytes", {{.name = "", .derived = true, .tables = {}}});
  refused("an index with a name of 65 bytes",
          {{.name = std::string(65, 'x'), .derived = true, .tables = {}}});
  refused("the index \"hints\" is named twice",
          {hints, {.name = "hints", .derived = true, .tables = {}}});
  refused("table 12 of the index is named twice",
          {{.name = "hints", .derived = true, .tables = {{.number = 12}}}});
  refused("impossible table of the index \"hints\"",
          {{.name = "hints", .derived = true, .tables = {{.number = 0}}}});
  FieldWriter table, fields = SmallestFields();
  const std::byte few[5] = {};
  table.Text(1, "hints");
  table.Bytes(3, few);
  fields.Table(15, table);
  EXPECT_FAILS(DecodeManifest(kPath, With(fields), kKnown), StatusCode::kCorruption,
               kPath + ": bad table of the index");
}

TEST(Manifest, OfAnImpossibleNumber) {
  io::SimDisk disk;
  ASSERT_OK(disk.CreateDirectory("store"));
  Manifest manifest = Some();
  manifest.number = UINT64_MAX;
  ASSERT_OK(WriteManifest(disk, "store", manifest));
  EXPECT_FAILS(ReadManifest(disk, "store"), StatusCode::kCorruption,
               "MANIFEST-18446744073709551615: an impossible number");
}

}  // namespace
}  // namespace cairn::engine
