// SPDX-License-Identifier: Apache-2.0
//
// KV memory in many layouts, with content that follows from what and where it is: every row is a
// function of (seed, group, layer, plane, head, position). Addresses are computed here a second
// time, element by element, straight from the formula in cairn/kv_view.h.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::testing {

enum class Layout {
  kContiguous,      // [layer][plane][head][token][row], no table.
  kTokenMajor,      // [token][layer][plane][head][row], no table.
  kNhd,             // Blocks of 4 tokens [slot][head][row], int32 block table, shuffled.
  kHnd,             // Blocks of 4 tokens [head][slot][row], int64 block table, shuffled.
  kFused,           // A block holds all planes: [plane][slot][head][row], int32 block table.
  kBlocksNoTable,   // Blocks of 4 tokens in order, no table.
  kSlots32,         // A slot per token in a pool of tokens, int32.
  kSlots64,         // The same in blocks of 4 tokens, int64.
  kReversedTokens,  // Negative token stride.
  kReversedHeads,   // Negative head stride.
  kElementStride,   // Elements two apart.
};
const std::vector<Layout>& AllLayouts();
std::string LayoutName(Layout layout);

// In a seed: the content gets smaller when it is packed. Other content never does.
inline constexpr uint64_t kPackable = uint64_t{1} << 63;

using SeedOf = std::function<uint64_t(uint64_t position)>;

// Memory of one layer group for positions [first, first + count).
class KvPool {
 public:
  KvPool(const LayerGroup& group, uint32_t group_index, Layout layout, uint64_t first,
         uint64_t count);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // Valid as long as the pool. `layers` 0: all from `layer_begin` on.
  GroupView View(uint64_t position, uint64_t count, uint32_t layer_begin = 0, uint32_t layers = 0);
  // Puts the content of positions [begin, end) in place.
  void Write(const SeedOf& seed_of, uint64_t begin, uint64_t end, uint32_t layer_begin = 0,
             uint32_t layers = 0);
  void Write(uint64_t seed, uint64_t begin, uint64_t end) {
    Write([seed](uint64_t) { return seed; }, begin, end);
  }
  // All bytes, those that no position owns included.
  const std::vector<std::byte>& memory() const { return memory_; }
  uint64_t first() const { return first_; }
  uint64_t count() const { return count_; }

 private:
  std::byte* Address(uint32_t plane, uint32_t layer, uint64_t position, uint32_t head,
                     uint64_t element);
  struct PlaneShape {
    std::vector<int64_t> base;  // Offset in the memory, by layer.
    int64_t block_stride, token_stride, head_stride, element_stride;
  };

  const LayerGroup group_;
  const uint32_t index_;
  const uint64_t first_, count_;
  uint32_t tokens_per_block_ = 0;
  std::vector<PlaneShape> planes_;
  std::vector<int32_t> table32_;
  std::vector<int64_t> table64_;
  BlockTable table_;
  std::vector<std::byte> memory_;
  std::deque<std::vector<std::byte*>> bases_;  // Plane bases of views handed out.
  std::deque<std::vector<PlaneView>> views_;
};

// Pools for all groups of a model, and views on them.
class KvSet {
 public:
  KvSet(const ModelSpec& model, Layout layout, uint64_t first, uint64_t count);
  KvPool& pool(uint32_t group) { return *pools_[group]; }
  void Write(const SeedOf& seed_of, uint64_t begin, uint64_t end);
  void Write(uint64_t seed, uint64_t begin, uint64_t end) {
    Write([seed](uint64_t) { return seed; }, begin, end);
  }
  // All groups over the same positions; or each over its own. Valid as long as the set.
  const KvView* View(uint64_t position, uint64_t count);
  const KvView* View(const std::vector<std::pair<uint64_t, uint64_t>>& position_and_count);
  bool operator==(const KvSet& other) const;

 private:
  std::vector<std::unique_ptr<KvPool>> pools_;
  std::deque<std::vector<GroupView>> groups_;
  std::deque<KvView> views_;
};

}  // namespace cairn::testing
