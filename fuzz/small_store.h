// SPDX-License-Identifier: Apache-2.0
//
// A small store whose tokens and KV follow from branch and position, for the targets that damage
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "cairn/store.h"

namespace cairn::fuzz {

inline constexpr uint32_t kRowBytes = 8;
inline constexpr char kPath[] = "store";

inline ModelSpec Model() {
  ModelSpec model;
  model.identity.name = "fuzz";
  model.groups.push_back(LayerGroup::FullAttention(1, 1, kRowBytes / 2, Dtype::kBf16));
  return model;
}

inline TokenId TokenAt(uint64_t branch, uint64_t position) {
  return static_cast<TokenId>(branch * 1000 + position);
}
inline std::byte ByteAt(uint64_t branch, uint64_t position, size_t plane, size_t byte) {
  return static_cast<std::byte>(branch * 31 + position * 7 + plane * 3 + byte);
}

// KV of positions [0, count), one plane behind the other.
struct Kv {
  explicit Kv(uint64_t in_count) : count(in_count), bytes(2 * in_count * kRowBytes) {
    for (size_t plane = 0; plane < 2; ++plane) {
      bases[plane] = bytes.data() + plane * count * kRowBytes;
      planes[plane] = {
          .layer_bases = {&bases[plane], 1}, .token_stride = kRowBytes, .head_stride = kRowBytes};
    }
  }
  std::byte& At(uint64_t position, size_t plane, size_t byte) {
    return bytes[(plane * count + position) * kRowBytes + byte];
  }
  template <typename Visit>
  void ForEach(uint64_t branch, const Visit& visit) {
    for (uint64_t position = 0; position < count; ++position) {
      for (size_t i = 0; i < 2 * kRowBytes; ++i) {
        visit(At(position, i / kRowBytes, i % kRowBytes),
              ByteAt(branch, position, i / kRowBytes, i % kRowBytes));
      }
    }
  }
  KvView View(uint64_t position) {
    group = {.position = position, .count = count - position, .planes = planes};
    for (size_t plane = 0; plane < 2; ++plane) {
      bases[plane] = bytes.data() + (plane * count + position) * kRowBytes;
    }
    return {.groups = {&group, 1}};
  }

  uint64_t count;
  std::vector<std::byte> bytes;
  std::byte* bases[2] = {};
  PlaneView planes[2] = {};
  GroupView group{};
};

inline Options StoreOptions() {
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = 256 << 10;
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 1 << 20;
  options.executor_threads = 1;
  return options;
}

inline void Grow(Store& store, ModelId model, uint64_t id, uint64_t end) {
  auto branch = store.FindBranch(std::to_string(id));
  if (!branch.ok()) branch = store.CreateBranch(model, {.name = std::to_string(id)});
  CAIRN_CHECK(branch.ok());
  const uint64_t begin = *branch->length();
  std::vector<TokenId> tokens;
  for (uint64_t position = begin; position < end; ++position) {
    tokens.push_back(TokenAt(id, position));
  }
  Kv kv(end);
  kv.ForEach(id, [](std::byte& at, std::byte value) { at = value; });
  const KvView view = kv.View(begin);
  Delta delta;
  delta.tokens = tokens;
  delta.kv = &view;
  delta.exact = id != 2;
  CAIRN_CHECK(branch->AppendSync(delta, {.durability = Durability::kPower}).ok());
}

}  // namespace cairn::fuzz
