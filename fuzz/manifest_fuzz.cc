// SPDX-License-Identifier: Apache-2.0
//
// The manifest, and HINT: any bytes are read or refused, with a hash that fits, so that what lies
// behind it is reached.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "base/io/memory_file_system.h"
#include "engine/follow/hint.h"
#include "engine/manifest/manifest.h"
#include "fuzz/input.h"

using namespace cairn;

namespace {

constexpr uint8_t kWithIndexes = 253;  // The first byte of an input.
constexpr std::string_view kIndexes[] = {"hints", "objects"};

// HINT that says anything: what is believed was said, and what says nothing is not.
void TryHint(fuzz::Input& input) {
  constexpr StoreId kStore{{1, 2, 3}};
  constexpr uint64_t kHashesAt[] = {48, 72, 96};
  io::MemoryFileSystem files;
  engine::HintWriter writer(files, "");
  const engine::Hint hint{.epoch = 3, .durable = 0x1234, .manifest = 7};
  CAIRN_CHECK(writer.Write(hint, kStore).ok());
  const auto file = files.Open(engine::kHintFile, {.write = true});
  CAIRN_CHECK(file.ok());
  std::vector<std::byte> block(*(*file)->Size());
  CAIRN_CHECK((*file)->Read(0, block).ok());
  const std::vector<std::byte> whole = block;
  while (!input.empty()) {
    std::byte& at = block[input.Take<uint8_t>() % kHashesAt[2]];
    at ^= input.Take<std::byte>();
  }
  for (const uint64_t at : kHashesAt) {
    const uint64_t hash = Hash(std::span(block).first(at));
    std::memcpy(block.data() + at, &hash, sizeof(hash));
  }
  CAIRN_CHECK((*file)->Write(0, block, /*durable=*/false).ok());
  const auto read = engine::ReadHint(files, "", kStore);
  constexpr uint64_t kNumbersAt = 24;  // Behind magic and store.
  uint64_t numbers[3];
  std::memcpy(numbers, block.data() + kNumbersAt, sizeof(numbers));
  engine::HistoryId history;
  std::memcpy(&history, block.data() + kHashesAt[0] + sizeof(uint64_t), sizeof(history));
  engine::Indexing indexing;
  uint64_t max_bytes = 0;
  const std::byte* const writer_at = block.data() + kHashesAt[1] + sizeof(uint64_t);
  std::memcpy(&indexing, writer_at, sizeof(indexing));
  std::memcpy(&max_bytes, writer_at + sizeof(indexing), sizeof(max_bytes));
  const bool ours = std::equal(block.begin(), block.begin() + kNumbersAt, whole.begin());
  CAIRN_CHECK(read.has_value() == ours);
  const engine::Hint said{numbers[0], numbers[1], numbers[2], history, indexing, max_bytes};
  CAIRN_CHECK(!ours || *read == said);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  std::vector<std::byte> file;
  const uint8_t how = input.Take<uint8_t>();
  if (how == 255) {
    TryHint(input);
    return 0;
  }
  if (how % 2 == 0) {
    file.assign(input.rest().begin(), input.rest().end());
  } else {
    engine::Manifest whole;
    whole.number = 3;
    whole.segment_bytes = 1 << 20;
    whole.last_sequence = whole.index_sequence = 77;
    for (uint64_t table = 1; table < 4; ++table) {
      whole.index.push_back({.number = table, .level = 1, .bytes = table << 12});
    }
    whole.history.GoOn({{std::byte{1}}}, whole.At(77));
    whole.written.Add(uint64_t{500'000} * 3'600'000'000'000, 12345);
    if (how == kWithIndexes) {
      whole.named = {{.name = "hints", .derived = true, .tables = {{.number = 4}, {.number = 5}}},
                     {.name = "objects", .derived = false, .tables = {{.number = 6}}}};
    }
    file = engine::EncodeManifest(whole);
    while (!input.empty()) {
      const uint64_t at = input.Take<uint16_t>() % file.size();
      file[at] ^= input.Take<std::byte>();
    }
  }
  if (file.size() >= sizeof(uint64_t)) {
    const uint64_t hash = Hash(std::span(file).first(file.size() - sizeof(uint64_t)));
    std::memcpy(file.data() + file.size() - sizeof(hash), &hash, sizeof(hash));
  }
  static_cast<void>(engine::DecodeManifest("MANIFEST-3", file));
  const auto manifest = engine::DecodeManifest("MANIFEST-3", file, kIndexes);
  if (!manifest.ok()) return 0;
  const std::vector<std::byte> written = engine::EncodeManifest(*manifest);
  const auto again = engine::DecodeManifest("MANIFEST-3", written, kIndexes);
  CAIRN_CHECK(again.ok());
  CAIRN_CHECK(engine::EncodeManifest(*again) == written);
  return 0;
}
