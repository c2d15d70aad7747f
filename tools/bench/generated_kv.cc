// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/generated_kv.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/core/check.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

uint64_t Finalise(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Calls `use(offset, word, bytes)` for the words of a position's KV until one gives false.
template <typename Use>
bool ForEachWord(uint64_t seed, size_t bytes, Use use) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    seed += kGamma;
    if (!use(at, Finalise(seed), std::min(sizeof(uint64_t), bytes - at))) return false;
  }
  return true;
}

}  // namespace

Result<ModelSpec> GeneratedModel(uint64_t token_bytes) {
  constexpr uint32_t kHeadDim = 128, kMaxLayers = 32;
  constexpr uint64_t kHeadBytes = 2 * 2 * kHeadDim;  // K and V of one head and layer.
  ModelSpec model;
  model.identity.name = "generated-" + std::to_string(token_bytes);
  if (token_bytes % kHeadBytes == 0) {
    const uint64_t pairs = token_bytes / kHeadBytes;
    uint32_t layers = kMaxLayers;
    while (pairs % layers != 0) layers /= 2;
    model.groups = {LayerGroup::FullAttention(layers, static_cast<uint32_t>(pairs / layers),
                                              kHeadDim, Dtype::kBf16)};
  } else {
    LayerGroup group;
    group.layers = 1;
    group.planes = {{.name = "kv", .row_bytes = static_cast<uint32_t>(token_bytes)}};
    model.groups = {group};
  }
  if (const Status status = model.Validate(); !status.ok()) {
    return status.WithContext("KV bytes of a token: " + std::to_string(token_bytes));
  }
  CAIRN_CHECK(model.token_bytes() == token_bytes);
  return model;
}

uint64_t MixSeeds(uint64_t a, uint64_t b) { return Finalise(Finalise(a + kGamma) + b + kGamma); }

TokenId GeneratedToken(uint64_t seed) {
  constexpr uint64_t kVocabulary = 128'000;
  return static_cast<TokenId>(Finalise(seed) % kVocabulary);
}

void GenerateKv(uint64_t seed, std::span<std::byte> token_kv) {
  ForEachWord(seed, token_kv.size(), [&](size_t at, uint64_t word, size_t bytes) {
    std::memcpy(token_kv.data() + at, &word, bytes);
    return true;
  });
}

bool IsGeneratedKv(uint64_t seed, std::span<const std::byte> token_kv) {
  return ForEachWord(seed, token_kv.size(), [&](size_t at, uint64_t word, size_t bytes) {
    return std::memcmp(token_kv.data() + at, &word, bytes) == 0;
  });
}

Result<std::unique_ptr<FlatKv>> FlatKv::Create(const ModelSpec& model, uint64_t tokens) {
  const uint64_t bytes = tokens * model.token_bytes();
  AlignedBuffer memory = AlignedBuffer::TryAllocate(Allocator::Default(), bytes, 4096);
  if (memory.empty()) {
    return Status(StatusCode::kOutOfMemory, std::to_string(bytes >> 20) + " MiB for KV");
  }
  std::memset(memory.data(), 0, memory.size());
  return std::unique_ptr<FlatKv>(new FlatKv(model, std::move(memory)));
}

FlatKv::FlatKv(const ModelSpec& model, AlignedBuffer memory)
    : token_bytes_(model.token_bytes()), memory_(std::move(memory)) {
  const LayerGroup& group = model.groups[0];
  bases_.resize(group.planes.size());
  std::byte* base = memory_.data();
  for (uint32_t layer = 0; layer < group.layers; ++layer) {
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      bases_[plane].push_back(base);
      base += uint64_t{group.planes[plane].heads} * group.planes[plane].row_bytes;
    }
  }
  for (size_t plane = 0; plane < group.planes.size(); ++plane) {
    planes_.push_back({.layer_bases = bases_[plane],
                       .token_stride = static_cast<int64_t>(token_bytes_),
                       .head_stride = static_cast<int64_t>(group.planes[plane].row_bytes)});
  }
  group_.planes = planes_;
  view_.groups = {&group_, 1};
}

const KvView& FlatKv::At(uint64_t position, uint64_t count) {
  CAIRN_CHECK(count <= tokens());
  group_.position = position;
  group_.count = count;
  return view_;
}

}  // namespace cairn::bench
