// SPDX-License-Identifier: Apache-2.0
//
// Makes the parts of a shadow from stored rows: for tables, and for sessions whose branch has
// grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/shadow/shadow_plan.h"
#include "engine/restore/branch_reads.h"
#include "engine/sessions/shadow/shadow_shape.h"
#include "engine/sessions/shadow/shadow_table.h"

namespace cairn::engine {

// The path that ends with the last position of the node.
struct ShadowRowsOf {
  BranchReads* reads = nullptr;
  NodeId node{};
};

// The parts from token `first` on, which begins one, head by head of layer. kInvalidArgument says
// where a key is out of range; else the errors of ReadHeadRows, and what `on_part` says.
Status MakeParts(const ShadowRowsOf& from, const ShadowShape& shape, uint64_t first,
                 const OnShadowPart& on_part);
// Reads the rows of these chunks for one head of one layer: keys of all, then values.
Result<std::vector<std::byte>> ReadChunks(const ShadowRowsOf& from, const ShadowShape& shape,
                                          size_t row, std::span<const uint32_t> chunks);

// Which chunks are always attended to, by head of layer, and where the rows of each lie among
// those: they stay there when others come.
class AlwaysChunks {
 public:
  explicit AlwaysChunks(size_t rows) : rows_(rows) {}

  // Adds the cosines of a part's chunks. REQUIRES: the parts before it were added.
  void TakePart(const ShadowPartLayout& part, size_t row, std::span<const std::byte> frame);
  struct Place {
    uint32_t at = 0, chunk = 0;
  };
  // Becomes the sinks and outliers of the first plan.chunks chunks; returns where new ones come.
  // REQUIRES: the cosines of all.
  std::vector<Place> Reset(const shadow::ShadowPlan& plan, size_t row);
  // The next Reset returns all as new.
  void ForgetPlaces() {
    for (Row& row : rows_) row.chunks.clear();
  }
  std::span<const uint32_t> of(size_t row) const { return rows_[row].chunks; }

 private:
  struct Row {
    std::vector<float> cosines{};
    std::vector<uint32_t> chunks{};  // By place.
  };
  std::vector<Row> rows_;
};

}  // namespace cairn::engine
