// SPDX-License-Identifier: Apache-2.0
//
// KV and token ids that follow from a seed, so that restored content can be checked without keeping
// a copy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "cairn/branch.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::bench {

// One full-attention group of bf16 K and V with heads of 128 elements, up to 32 layers, where
// `token_bytes` is a multiple of 512 (131072: the shape of Llama-3-8B); else one opaque row.
// kInvalidArgument for 0.
Result<ModelSpec> GeneratedModel(uint64_t token_bytes);

// Mixes two words into one that depends on every bit of both (the finaliser of splitmix64).
uint64_t MixSeeds(uint64_t a, uint64_t b);

// The state of one position.
TokenId GeneratedToken(uint64_t seed);
void GenerateKv(uint64_t seed, std::span<std::byte> token_kv);
bool IsGeneratedKv(uint64_t seed, std::span<const std::byte> token_kv);

// Plain memory for up to `tokens` positions, [token][layer][plane][head][row], and views on it.
class FlatKv {
 public:
  // Touches its memory. kOutOfMemory.
  static Result<std::unique_ptr<FlatKv>> Create(const ModelSpec& model, uint64_t tokens);
  FlatKv(const FlatKv&) = delete;
  FlatKv& operator=(const FlatKv&) = delete;

  uint64_t tokens() const { return memory_.size() / token_bytes_; }
  std::span<std::byte> token(uint64_t index) {
    return memory_.span().subspan(index * token_bytes_, token_bytes_);
  }
  // The first `count` tokens as positions [position, position + count); valid until the next call.
  const KvView& At(uint64_t position, uint64_t count);

 private:
  FlatKv(const ModelSpec& model, AlignedBuffer memory);

  const uint64_t token_bytes_;
  AlignedBuffer memory_;
  std::vector<std::vector<std::byte*>> bases_{};  // By plane, then by layer.
  std::vector<PlaneView> planes_{};
  GroupView group_{};
  KvView view_{};
};

}  // namespace cairn::bench
