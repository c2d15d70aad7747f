// SPDX-License-Identifier: Apache-2.0
//
// A model for the example: its KV follows from the tokens, and its next token from all of the KV.
// So a row that is missing or wrong shows in the tokens behind it.
#pragma once

#include <cairn/branch_types.h>
#include <cairn/kv_buffer.h>

#include <cstring>
#include <vector>

namespace processes {

constexpr uint32_t kLayers = 2, kHeads = 4, kHeadDim = 8;
constexpr uint32_t kRowBytes = kHeadDim * 2;
constexpr uint64_t kTokensMax = 384;  // The most of a conversation, and so of a slot.
constexpr uint32_t kVocabulary = 32'000;

inline cairn::ModelSpec Spec() {
  return cairn::ModelSpec::FullAttention("toy", kLayers, kHeads, kHeadDim, cairn::Dtype::kBf16);
}

inline uint64_t Mix(uint64_t value) {  // The finalizer of SplitMix64.
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// The model in the middle of a conversation: its tokens, and their KV in a cache of blocks, as
// engines have it: one tensor for each layer, [plane][block][token][head][element].
class ToyModel {
 public:
  explicit ToyModel(uint64_t conversation) : conversation_(conversation) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      cache_.emplace_back(2 * kBlocks * kBlockTokens * kHeads * kRowBytes);
      tensors_.push_back(cache_.back().data());
    }
    // Blocks of a request lie anywhere.
    for (uint32_t i = 0; i < kBlocks; ++i) {
      table_.push_back(static_cast<int32_t>((i * 7 + conversation) % kBlocks));
    }
  }

  const std::vector<cairn::TokenId>& tokens() const { return tokens_; }

  // Positions [begin, end) of the cache.
  cairn::OwnedKvView View(uint64_t begin, uint64_t end) {
    return cairn::OwnedKvView::Make(spec_,
                                    {{.layout = cairn::TensorLayout::kVllmNhd,
                                      .tensors = tensors_,
                                      .blocks = kBlocks,
                                      .tokens_per_block = kBlockTokens,
                                      .position = begin,
                                      .count = end - begin,
                                      .table = {.kind = cairn::TableKind::kBlocks,
                                                .entries = table_.data(),
                                                .count = table_.size()}}},
                                    cairn::KvUse::kRestore)
        .value();
  }

  // Goes on behind these tokens, whose KV is in the cache already.
  void Resume(std::vector<cairn::TokenId> tokens) { tokens_ = std::move(tokens); }

  // Draws the next token, and computes its KV.
  void Step() {
    tokens_.push_back(Next());
    uint64_t state = conversation_;
    for (const cairn::TokenId token : tokens_) state = Mix(state + token);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t plane = 0; plane < 2; ++plane) {
        for (uint32_t head = 0; head < kHeads; ++head) {
          for (uint32_t word = 0; word < kRowBytes / 8; ++word) {
            const uint64_t bits = Mix(state + (layer * 8 + plane * 4 + head) * 16 + word);
            std::memcpy(Row(layer, plane, head, tokens_.size() - 1) + word * 8, &bits, 8);
          }
        }
      }
    }
  }

  std::byte* Row(uint32_t layer, uint32_t plane, uint32_t head, uint64_t position) {
    const uint64_t block = static_cast<uint64_t>(table_[position / kBlockTokens]);
    const uint64_t token = (plane * kBlocks + block) * kBlockTokens + position % kBlockTokens;
    return cache_[layer].data() + (token * kHeads + head) * kRowBytes;
  }

 private:
  static constexpr uint32_t kBlockTokens = 16, kBlocks = kTokensMax / kBlockTokens;

  cairn::TokenId Next() {
    uint64_t sum = conversation_;
    for (uint64_t at = 0; at < tokens_.size(); ++at) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        for (uint32_t plane = 0; plane < 2; ++plane) {
          for (uint32_t head = 0; head < kHeads; ++head) {
            uint64_t words[kRowBytes / 8];
            std::memcpy(words, Row(layer, plane, head, at), sizeof words);
            for (const uint64_t word : words) sum = Mix(sum ^ word);
          }
        }
      }
    }
    return static_cast<cairn::TokenId>(Mix(sum) % kVocabulary);
  }

  const cairn::ModelSpec spec_ = Spec();
  const uint64_t conversation_;
  std::vector<cairn::TokenId> tokens_;
  std::vector<std::vector<std::byte>> cache_;
  std::vector<std::byte*> tensors_;
  std::vector<int32_t> table_;
};

}  // namespace processes
