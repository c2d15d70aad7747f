// SPDX-License-Identifier: Apache-2.0
//
// A plane of one layer in paged memory, drawn: dtype, rows, blocks, table, strides, and the range
// of positions. Named layouts as engines have them, and any other that a KvView can describe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/core/seeded_random.h"
#include "cairn/kv_view.h"
#include "gpu/describe.h"
#include "tests/gpu/kernel_machine.h"

namespace cairn::testing {

class PagedCase {
 public:
  explicit PagedCase(SeededRandom& random);

  const Plane& plane() const { return plane_; }
  const GroupView& group() const { return group_; }
  uint64_t entries_end() const { return entries_end_; }
  // Filled with what is drawn; a view of it, of one layer.
  std::vector<std::byte>& memory() { return memory_; }
  PlaneView PlaneIn(std::byte* memory);  // Its span is good until the next call.
  std::byte* BaseIn(std::byte* memory, uint32_t head) const;
  // Where `memory` lies beyond a multiple of 64.
  size_t skew() const { return skew_; }

  // The view for kernels, with its table on the machine.
  gpu::PagedView OnMachine(KernelMachine& machine);
  // An entry of the table leads out of the view on the machine alone, as when somebody writes there
  // after it was checked. The positions that are lost so; none without a table.
  struct Positions {
    uint64_t begin = 0, end = 0;
  };
  Positions LoseEntry(SeededRandom& random);

  std::string Describe() const;

 private:
  void DrawPlane(SeededRandom& random);
  void DrawTable(SeededRandom& random);
  void DrawStrides(SeededRandom& random);

  Plane plane_;
  PlaneView view_{};
  GroupView group_{};
  uint64_t slots_in_block_ = 0, blocks_ = 1, entries_end_ = 0;
  std::vector<int32_t> entries32_;
  std::vector<int64_t> entries64_;
  std::vector<int32_t> lost32_;  // As they are on the machine.
  std::vector<int64_t> lost64_;
  std::vector<std::byte> memory_;
  size_t base_ = 0;
  size_t skew_ = 0;
  std::byte* layer_ = nullptr;
  std::string layout_;
};

}  // namespace cairn::testing
