// SPDX-License-Identifier: Apache-2.0
//
// The content that sparse sessions of a small model must show.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cairn/sparse.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {

// Pieces of 4 tokens have 128 bytes of each plane.
inline ModelSpec SparseModel() {
  ModelSpec model;
  model.identity.name = "sparse";
  model.groups = {
      LayerGroup::FullAttention(/*layers=*/3, /*kv_heads=*/2, /*head_dim=*/16, Dtype::kBf16)};
  return model;
}

// The KV of a branch by the seed that it was appended with, from each position on.
using Content = std::map<uint64_t, uint64_t>;

class StoredKv {
 public:
  // Rows of one head, one behind the other.
  std::vector<std::byte> Rows(const Content& content, uint32_t layer, uint32_t plane, uint32_t head,
                              uint64_t begin, uint64_t count) {
    const uint64_t row_bytes = model_.groups[0].planes[plane].row_bytes;
    std::vector<std::byte> rows;
    for (uint64_t position = begin; position < begin + count; ++position) {
      const GroupView& group = Of(std::prev(content.upper_bound(position))->second);
      const PlaneView& view = group.planes[plane];
      const std::byte* const row = view.layer_bases[layer] +
                                   static_cast<int64_t>(position) * view.token_stride +
                                   static_cast<int64_t>(head) * view.head_stride;
      rows.insert(rows.end(), row, row + row_bytes);
    }
    return rows;
  }
  // Compares the pieces that a view of this memory has, which the host can read. Returns the
  // difference, or nothing.
  std::string Compare(const SparseView& view, const SparseWanted& wanted,
                      const SparseOptions& options, const Content& content, uint64_t* left_out) {
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t i = 0; i < wanted.count; ++i) {
        const int32_t slot = view.slot_of[head * view.slot_of_stride + i];
        const uint32_t piece = wanted.pieces[head * wanted.stride + i];
        *left_out += slot < 0 ? 1 : 0;
        for (uint32_t plane = 0, at = 0; plane < 2 && slot >= 0; ++plane) {
          if ((options.planes >> plane & 1) == 0) continue;
          const SparseView::PlaneSlots& slots = view.planes[at++];
          const std::byte* const got = slots.base + head * slots.head_stride +
                                       static_cast<uint64_t>(slot) * slots.piece_bytes;
          const std::vector<std::byte> want =
              Rows(content, wanted.layer, plane, head, uint64_t{piece} * options.piece_tokens,
                   options.piece_tokens);
          if (want.size() == slots.piece_bytes && std::equal(want.begin(), want.end(), got)) {
            continue;
          }
          return "layer " + std::to_string(wanted.layer) + ", head " + std::to_string(head) +
                 ", piece " + std::to_string(piece) + ", plane " + std::to_string(plane);
        }
      }
    }
    return "";
  }

 private:
  static constexpr uint64_t kTokensMax = 1024;

  const GroupView& Of(uint64_t seed) {
    auto& set = sets_[seed];
    if (set.first == nullptr) {
      set.first = std::make_unique<KvSet>(model_, Layout::kContiguous, 0, kTokensMax);
      set.first->Write(seed, 0, kTokensMax);
      set.second = set.first->View(0, kTokensMax);
    }
    return set.second->groups[0];
  }
  const ModelSpec model_ = SparseModel();
  std::map<uint64_t, std::pair<std::unique_ptr<KvSet>, const KvView*>> sets_;
};

}  // namespace cairn::testing
