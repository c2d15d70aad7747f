// SPDX-License-Identifier: Apache-2.0
//
// Blocks of index tables: a walk over any bytes ends, at the end or at what is damaged, with keys
// that ascend; a seek ends, and not before what it looks for.
#include <string>
#include <vector>

#include "base/core/align.h"
#include "base/core/check.h"
#include "fuzz/input.h"
#include "sstable/constants.h"
#include "sstable/index_block.h"

using namespace cairn;
using namespace cairn::sstable;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const uint8_t how = input.Take<uint8_t>();
  const auto kind = static_cast<BlockKind>(1 + how % 3);
  std::vector<std::byte> block;
  if (how < 128) {
    block.assign(input.rest().begin(), input.rest().end());
    block.resize(AlignUp(block.size(), kTableAlignment));
  } else {
    // A whole block, of which some bytes are changed.
    BlockBuilder builder;
    for (int i = 0; i < 40; ++i) {
      const std::string key = "key" + std::to_string(1000 + i * 7);
      builder.Add(key, i % 5 == 0 ? MaybeValue() : MaybeValue(key));
    }
    const std::string built =
        builder.Finish(kind, kind == BlockKind::kPartition ? "0123456789abcdef" : "");
    const auto* begin = reinterpret_cast<const std::byte*>(built.data());
    block.assign(begin, begin + built.size());
    while (!input.empty()) {
      const uint64_t at = input.Take<uint16_t>() % block.size();
      block[at] ^= input.Take<std::byte>();
    }
  }
  const auto view = BlockView::Parse(block, kind);
  if (!view.ok()) return 0;
  BlockIterator walk(*view);
  std::string last;
  std::vector<std::string> keys;
  for (walk.SeekToFirst(); walk.valid(); walk.Next()) {
    CAIRN_CHECK(keys.empty() || last < walk.key());
    last = walk.key();
    keys.push_back(last);
    if (walk.value().has_value()) CAIRN_CHECK(walk.value()->size() <= block.size());
  }
  // Restarts may point anywhere, so it need not be what the walk shows.
  for (size_t i = 0; i < keys.size(); i += 1 + keys.size() / 8) {
    BlockIterator seek(*view);
    seek.Seek(keys[i]);
    CAIRN_CHECK(!seek.valid() || seek.key() >= keys[i]);
  }
  return 0;
}
