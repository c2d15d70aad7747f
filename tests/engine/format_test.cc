// SPDX-License-Identifier: Apache-2.0
//
// Property: the bytes that the engine writes are those of engine/FORMAT.md, for ever.
// Method: the worked examples are compared with the document byte by byte, zeros left out there.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/codec/fields.h"
#include "base/core/memory_budget.h"
#include "engine/commit/packed_lane.h"
#include "engine/manifest/manifest.h"
#include "engine/tree/memory/op.h"
#include "sim/world.h"
#include "tests/support/source_dir.h"
#include "tests/support/status.h"

namespace cairn::engine {
namespace {

using Lines = std::map<uint64_t, std::vector<uint8_t>>;  // By offset.

// Lines "xxxxxx  16 hex bytes" of the example of that name.
Lines InDocument(const std::string& example) {
  std::ifstream document(testing::SourcePath("/engine/FORMAT.md"));
  Lines lines;
  bool inside = false;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("```")) inside = line == "```hex " + example;
    if (!inside || line.starts_with("```")) continue;
    std::istringstream words(line);
    std::string word;
    words >> word;
    std::vector<uint8_t>& bytes = lines[std::stoull(word, nullptr, 16)];
    while (bytes.size() < 16 && words >> word && word.size() == 2) {
      bytes.push_back(static_cast<uint8_t>(std::stoul(word, nullptr, 16)));
    }
  }
  return lines;
}

void ExpectDocumented(const std::string& example, std::span<const std::byte> bytes) {
  const Lines documented = InDocument(example);
  Lines found;
  std::string text;
  for (uint64_t offset = 0; offset < bytes.size(); offset += 16) {
    std::vector<uint8_t> line;
    for (uint64_t i = offset; i < std::min<uint64_t>(offset + 16, bytes.size()); ++i) {
      line.push_back(static_cast<uint8_t>(bytes[i]));
    }
    if (line == std::vector<uint8_t>(line.size())) continue;
    char word[16];
    std::snprintf(word, sizeof(word), "%06x ", static_cast<unsigned>(offset));
    text += word;
    for (const uint8_t byte : line) {
      std::snprintf(word, sizeof(word), " %02x", byte);
      text += word;
    }
    text += "\n";
    found[offset] = std::move(line);
  }
  EXPECT_EQ(documented, found) << "the document should say:\n" << text;
}

TEST(EngineFormat, Manifest) {
  Manifest manifest;
  for (size_t i = 0; i < manifest.store.bytes.size(); ++i) {
    manifest.store.bytes[i] = static_cast<uint8_t>(i + 1);
  }
  manifest.segment_bytes = 64 << 20;
  manifest.next_file_number = 9;
  manifest.next_id = 5;
  manifest.last_sequence = 9;
  manifest.created_at_ns = 1'700'000'000'000'000'000;
  manifest.index = {{.number = 7, .level = 1, .bytes = 8192}};
  manifest.index_sequence = 5;
  manifest.replay_from = {
      .segment = 1, .epoch = 1, .offset = 8192, .last_sequence = 5, .last_hash = 0x1122};
  manifest.epoch = 1;
  manifest.named = {
      {.name = "hints", .derived = true, .tables = {{.number = 8, .level = 0, .bytes = 4096}}}};
  const std::vector<std::byte> bytes = EncodeManifest(manifest);
  ExpectDocumented("manifest", bytes);
  EXPECT_OK(DecodeManifest("MANIFEST-1", bytes));
}

TEST(EngineFormat, SegmentsThatRest) {
  Manifest manifest;
  manifest.segment_bytes = 64 << 20;
  manifest.log_start_segment = 9;
  manifest.counted_from = 3;
  manifest.resting = {{.number = 4, .end_offset = 0x3fe0000},
                      {.number = 7, .end_offset = 0x3ff0000}};
  const std::vector<std::byte> bytes = EncodeManifest(manifest);
  constexpr size_t kHeadBytes = 16, kHashBytes = 8;
  const auto fields = FieldReader::Parse(
      std::span(bytes).subspan(kHeadBytes, bytes.size() - kHeadBytes - kHashBytes));
  ASSERT_OK(fields);
  ExpectDocumented("segments", fields->BytesOr(17, {}));
}

TEST(EngineFormat, AnApproximateAppend) {
  Op op;
  op.kind = OpKind::kAppend;
  op.branch = 3;
  op.node = 4;
  op.position = 10;
  op.time_ns = 1'700'000'000'000'000'000;
  op.lanes = {{.lane = kTokenLane, .strip = 0, .begin = 10, .count = 1},
              {.lane = 1, .strip = 1, .begin = 10, .count = 1}};
  op.exact = false;
  FieldWriter fields;
  EncodeOp(op, &fields);
  ExpectDocumented("append", fields.bytes());
}

TEST(EngineFormat, ATableOfWhatIsDerived) {
  Op op;
  op.kind = OpKind::kDerive;
  op.node = 4;
  op.other = 3;
  op.position = 4096;
  op.table = {77, 1 << 20};
  FieldWriter fields;
  EncodeOp(op, &fields);
  ExpectDocumented("derive", fields.bytes());
}

TEST(EngineFormat, APlaneThatIsDescribed) {
  ModelSpec model;
  model.identity.name = "m";
  model.groups = {LayerGroup::FullAttention(1, 1, 128, Dtype::kBf16)};
  model.groups[0].planes.resize(1);
  model.groups[0].planes[0].rotary.width = 64;
  const std::vector<std::byte> bytes = EncodeModel(model);
  const auto find = [](std::span<const std::byte> in, uint16_t id) {
    const auto reader = FieldReader::Parse(in);
    EXPECT_OK(reader);
    const Field* const field = reader->Find(id, FieldType::kTable);
    EXPECT_NE(nullptr, field);
    return field->value;
  };
  ExpectDocumented("plane", find(find(bytes, 18), 10));
}

TEST(EngineFormat, APackedStrip) {
  if (BestCodecPath() == CodecPath::kScalar) GTEST_SKIP() << "this processor packs slowly";
  const LayerGroup group = LayerGroup::FullAttention(1, 2, 128, Dtype::kBf16);
  const std::vector<uint16_t> ones(size_t{2} * 16 * 128, 0x3F80);
  auto* base = reinterpret_cast<std::byte*>(const_cast<uint16_t*>(ones.data()));
  PlaneView plane;
  plane.layer_bases = {&base, 1};
  plane.token_stride = 256;
  plane.head_stride = 16 * 256;
  const std::vector<PlaneView> planes(2, plane);
  GroupView view;
  view.count = 16;
  view.planes = planes;
  const io::SimWorld machine = io::MakeSimWorld(1);
  MemoryBudget budget(1 << 20);
  StagingPool staging(Allocator::Default(), 1 << 20, &budget);
  const KvLayout layout(group, 16);
  const PositionMap map(view, 0, 16);
  const auto packed =
      PackedLane::Make({.staging = &staging, .scheduler = machine.scheduler.get()},
                       {.view = view, .group = group, .layout = layout, .map = map, .count = 16});
  ASSERT_NE(nullptr, packed);
  ASSERT_EQ(2u, layout.strip_bytes().size()) << "keys in one, values in the other";
  ExpectDocumented("packed", packed->strip(0));
  ExpectDocumented("packed", packed->strip(1));
}

}  // namespace
}  // namespace cairn::engine
