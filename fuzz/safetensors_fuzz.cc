// SPDX-License-Identifier: Apache-2.0
//
// The header of an exported branch, and the records of states and forests: any bytes are read or
// refused. A header that is believed is written again as one that says the same.
#include <algorithm>
#include <string>

#include "base/core/check.h"
#include "engine/exchange/branch_file.h"
#include "engine/exchange/kv_chunk.h"
#include "engine/exchange/pack.h"
#include "engine/exchange/state_records.h"
#include "fuzz/input.h"

using namespace cairn;

namespace {

enum Kind : uint8_t { kHeader, kMetadata, kRecords, kKinds };

// A description of our own; the input changes one text of it.
engine::BranchFile Example() {
  engine::BranchFile file;
  file.model.identity.name = "toy";
  file.model.groups = {LayerGroup::FullAttention(2, 2, 4, Dtype::kBf16),
                       LayerGroup::Recurrent(1, 8)};
  file.begin = 4;
  file.end = 40;
  file.name = "chat";
  file.base_snapshot_id = file.snapshot_id = std::string(32, '7');
  file.spans = {{5, 9, {1, 2}, true}};
  file.groups.resize(2);
  file.groups[0].runs = {{3, 39}};
  file.groups[0].approximate = {{7, 8}};
  file.groups[0].digest_positions = 16;
  file.groups[1].runs = {{9, 10}, {38, 39}};
  file.states = {.bytes = 9, .offset = 0, .digest = std::string(32, '8')};
  file.sampler.emplace();
  engine::PlaceTensors(&file);
  return file;
}

uint64_t DataBytes(const engine::SafetensorsHeader& header) {
  uint64_t end = 0;
  for (const auto& [name, tensor] : header.tensors) end = std::max(end, tensor.end);
  return end;
}

void TryHeader(const engine::SafetensorsHeader& header) {
  const auto file = engine::BranchFileOf(header);
  if (!file.ok()) return;
  // It can be cut into pieces that lie within the data.
  const uint64_t data_bytes = DataBytes(header);
  for (const engine::KvPiece& piece : engine::CutKv(*file, 1 << 10)) {
    std::vector<std::byte> memory(piece.bytes);
    for (const engine::KvStrip& strip : engine::StripsOf(*file, piece, memory)) {
      CAIRN_CHECK(strip.offset + strip.bytes.size() <= data_bytes);
    }
  }
  engine::SafetensorsHeader again = engine::HeaderOf(*file);
  const auto read = engine::BranchFileOf(again);
  CAIRN_CHECK(read.ok());
  CAIRN_CHECK(engine::EncodeHeader(engine::HeaderOf(*read)) == engine::EncodeHeader(again));
}

void TryRecords(fuzz::Input& input) {
  const std::span<const std::byte> bytes = input.rest();
  size_t used = 0;
  engine::PackReader reader(
      [&](std::span<std::byte> into) {
        std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(used), into.size(), into.begin());
        used += into.size();
        return Status::Ok();
      },
      bytes.size());
  while (reader.left() > 0) {
    const auto record = reader.Next();
    if (!record.ok()) return;
    // Written again and read it is the same.
    const std::vector<std::byte> encoded = record->Encode();
    size_t at = 0;
    engine::PackReader second(
        [&](std::span<std::byte> into) {
          std::copy_n(encoded.begin() + static_cast<ptrdiff_t>(at), into.size(), into.begin());
          at += into.size();
          return Status::Ok();
        },
        encoded.size());
    const auto same = second.Next();
    CAIRN_CHECK(same.ok() && same->Encode() == encoded);
    const auto state = engine::StateFromRecord(*record);
    if (state.ok()) CAIRN_CHECK(engine::StateToRecord(*state).size() != 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const uint8_t kind = input.Take<uint8_t>() % kKinds;
  if (kind == kRecords) {
    TryRecords(input);
    return 0;
  }
  if (kind == kHeader) {
    const auto data_bytes = input.Take<uint16_t>();
    const std::string text(reinterpret_cast<const char*>(input.rest().data()), input.rest().size());
    const auto header = engine::ParseHeader(text, data_bytes);
    if (header.ok()) TryHeader(*header);
    return 0;
  }
  engine::SafetensorsHeader header = engine::HeaderOf(Example());
  TryHeader(header);
  auto field = header.metadata.begin();
  std::advance(field, input.Take<uint8_t>() % header.metadata.size());
  if (input.Take<uint8_t>() % 2 == 0) {
    const std::span<const std::byte> text = input.rest();
    field->second.assign(reinterpret_cast<const char*>(text.data()), text.size());
  } else {
    while (!input.empty() && !field->second.empty()) {
      field->second[input.Take<uint16_t>() % field->second.size()] = input.Take<char>();
    }
  }
  TryHeader(header);
  return 0;
}
