// SPDX-License-Identifier: Apache-2.0
//
// KV memory in one plain layout, [group][position][layer][plane][head][row], and quick: a model
// test does a million operations with it. Every row follows from a seed. (tests/support/kv_pool.h
// has all the layouts.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::testing {

struct RowRange {
  uint64_t begin = 0, count = 0;
};

class KvRows {
 public:
  KvRows(const ModelSpec& spec, const std::vector<RowRange>& ranges);  // One range a group.
  KvRows(const KvRows&) = delete;
  KvRows& operator=(const KvRows&) = delete;
  KvRows(KvRows&&) = default;  // Views stay valid.

  void Write(size_t group, uint64_t position, uint64_t seed);
  // Shows the groups that have positions, some of them in two views; valid as long as this.
  const KvView* view() const { return &view_; }
  // One layer of all the positions of a group; valid until the next call.
  GroupView LayerView(size_t group, uint32_t layer);
  uint64_t Hash() const;
  bool operator==(const KvRows& other) const { return bytes_ == other.bytes_; }

 private:
  struct Group {
    RowRange range;
    uint64_t position_bytes = 0, offset = 0;
    std::vector<std::vector<std::byte*>> bases;  // By plane, layer.
    std::vector<PlaneView> planes;
    std::vector<std::vector<std::byte*>> second_bases;  // The second view's, if there are two.
    std::vector<PlaneView> second_planes;
  };
  std::vector<std::byte> bytes_;
  std::vector<Group> groups_;
  std::vector<GroupView> views_;
  std::vector<PlaneView> layer_planes_;
  KvView view_;
};

}  // namespace cairn::testing
