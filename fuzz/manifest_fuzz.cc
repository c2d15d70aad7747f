// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint: any bytes are read or refused, with a hash that fits, so that what lies behind it
// is reached.
#include <cstring>
#include <vector>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "engine/commit/manifest.h"
#include "fuzz/input.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  std::vector<std::byte> file;
  if (input.Take<uint8_t>() % 2 == 0) {
    file.assign(input.rest().begin(), input.rest().end());
  } else {
    engine::Manifest whole;
    whole.number = 3;
    whole.segment_bytes = 1 << 20;
    whole.last_sequence = whole.index_sequence = 77;
    for (uint64_t table = 1; table < 4; ++table) {
      whole.index.push_back({.number = table, .level = 1, .bytes = table << 12});
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
  const auto manifest = engine::DecodeManifest("MANIFEST-3", file);
  if (!manifest.ok()) return 0;
  const std::vector<std::byte> written = engine::EncodeManifest(*manifest);
  const auto again = engine::DecodeManifest("MANIFEST-3", written);
  CAIRN_CHECK(again.ok());
  CAIRN_CHECK(engine::EncodeManifest(*again) == written);
  return 0;
}
