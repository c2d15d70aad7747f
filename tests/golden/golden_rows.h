// SPDX-License-Identifier: Apache-2.0
//
// KV memory of the golden stores. Every byte follows from a seed and its place, by a formula that
// must never change: a golden store was written with it.
//
//   bf16        whole numbers in [-127, 127]: they compress, and 8-bit integers hold them exactly
//   f32         planes of scales: 0.5 everywhere
//   all others  noise
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::golden {

// Positions [begin, begin + count) of a group.
struct RowRange {
  uint64_t begin = 0, count = 0;
  uint64_t end() const { return begin + count; }
};

// One range a group of the model; a group without positions is not in the view. Memory that nobody
// wrote to is alike everywhere.
class Rows {
 public:
  Rows(const ModelSpec& spec, const std::vector<RowRange>& ranges);
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  void Write(size_t group, uint64_t position, uint64_t seed);
  const KvView* view() const { return &view_; }
  bool operator==(const Rows& other) const { return bytes_ == other.bytes_; }

 private:
  struct Group {
    RowRange range;
    uint64_t offset = 0;                         // In bytes_.
    std::vector<std::vector<std::byte*>> bases;  // By plane, one a layer.
    std::vector<PlaneView> planes;
  };
  const ModelSpec spec_;
  std::vector<std::byte> bytes_;  // [group][position][layer][plane][head][row]
  std::vector<Group> groups_;
  std::vector<GroupView> views_;
  KvView view_;
};

// The number that the formula draws for a place; also what ids, states and spans are made of.
uint64_t Draw(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0);

}  // namespace cairn::golden
