// SPDX-License-Identifier: Apache-2.0
//
// The layout of the pieces of a sparse session: in tables by position, in a page
//
//   [plane][piece][token][row]      of one head of one layer, consecutive pieces
//
// and on the device in slots, plane by plane.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cairn/model.h"
#include "cairn/sparse.h"
#include "gpu/kernels/gather_pieces.h"

namespace cairn::engine {

struct SparseLayout {
  // kInvalidArgument names the option.
  static Result<SparseLayout> Of(const ModelSpec& model, const SparseOptions& options,
                                 uint64_t tokens);

  uint32_t group = 0;
  uint32_t layers = 0, heads = 0;
  uint32_t plane_count = 0;
  std::array<uint32_t, gpu::kPiecePlanesMax> planes{};     // Indexes in the group.
  std::array<uint32_t, gpu::kPiecePlanesMax> row_bytes{};  // By index in `planes`.
  std::vector<uint32_t> group_row_bytes{};                 // All planes of the group.
  uint32_t piece_tokens = 0, page_tokens = 0;
  uint32_t slots = 0, wanted_max = 0;
  uint32_t pieces = 0;  // Whole ones.
  uint32_t pages = 0;   // The most that a head may have.

  uint32_t plane_bits() const;  // As SparseOptions::planes.
  uint32_t pieces_of_page() const { return page_tokens / piece_tokens; }
  uint32_t piece_bytes(uint32_t plane) const { return piece_tokens * row_bytes[plane]; }
  uint32_t page_bytes() const;
  // Where the plane begins in a page.
  uint32_t page_offset(uint32_t plane) const { return plane == 0 ? 0 : page_tokens * row_bytes[0]; }
};

}  // namespace cairn::engine
