// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/sparse_layout.h"

#include <algorithm>
#include <string>

#include "engine/config/constants.h"
#include "gpu/kernels/copy_rows.h"

namespace cairn::engine {

namespace {

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "sparse: " + what);
}

std::string Is(const char* option, uint64_t value) {
  return std::string(option) + " is " + std::to_string(value);
}

}  // namespace

uint32_t SparseLayout::plane_bits() const {
  uint32_t bits = 0;
  for (uint32_t plane = 0; plane < plane_count; ++plane) bits |= 1u << planes[plane];
  return bits;
}

uint32_t SparseLayout::page_bytes() const {
  uint32_t bytes = 0;
  for (uint32_t plane = 0; plane < plane_count; ++plane) bytes += page_tokens * row_bytes[plane];
  return bytes;
}

Result<SparseLayout> SparseLayout::Of(const ModelSpec& model, const SparseOptions& options,
                                      uint64_t tokens) {
  if (options.group >= model.groups.size()) {
    return Bad(Is("group", options.group) + "; the model has " +
               std::to_string(model.groups.size()));
  }
  const LayerGroup& group = model.groups[options.group];
  if (group.retention.kind != Retention::kAll) return Bad("the group does not keep all positions");
  SparseLayout layout;
  layout.group = options.group;
  layout.layers = group.layers;
  for (const Plane& plane : group.planes) layout.group_row_bytes.push_back(plane.row_bytes);
  for (uint32_t plane = 0; plane < 32; ++plane) {
    if ((options.planes >> plane & 1) == 0) continue;
    if (plane >= group.planes.size() || layout.plane_count == gpu::kPiecePlanesMax) {
      return Bad(Is("planes", options.planes) + "; the group has " +
                 std::to_string(group.planes.size()) + ", and two may be chosen");
    }
    layout.planes[layout.plane_count] = plane;
    layout.row_bytes[layout.plane_count++] = group.planes[plane].row_bytes;
  }
  if (layout.plane_count == 0) return Bad("planes is 0");
  layout.heads = group.planes[layout.planes[0]].heads;
  if (group.planes[layout.planes[layout.plane_count - 1]].heads != layout.heads) {
    return Bad("planes of different numbers of heads");
  }
  const uint32_t largest = *std::max_element(layout.row_bytes.begin(), layout.row_bytes.end());
  if (options.piece_tokens == 0 || options.piece_tokens > kSparsePageBytesMax / largest) {
    return Bad(Is("piece_tokens", options.piece_tokens) + "; at least 1, and at most 64 KiB");
  }
  layout.piece_tokens = options.piece_tokens;
  for (uint32_t plane = 0; plane < layout.plane_count; ++plane) {
    if (layout.piece_bytes(plane) % gpu::kLargestUnit == 0) continue;
    return Bad(Is("piece_tokens", options.piece_tokens) + ": a piece has " +
               std::to_string(layout.piece_bytes(plane)) + " bytes, no multiple of 16");
  }
  layout.page_tokens = options.page_tokens;
  if (layout.page_tokens == 0) {
    layout.page_tokens = kSparsePageBytesMax / largest / layout.piece_tokens * layout.piece_tokens;
  }
  if (layout.page_tokens % layout.piece_tokens != 0 ||
      layout.page_tokens > kSparsePageBytesMax / largest) {
    return Bad(Is("page_tokens", options.page_tokens) +
               "; a multiple of piece_tokens, and at most 64 KiB of rows");
  }
  if (options.slots == 0 || options.slots > gpu::kSlotsMax) {
    return Bad(Is("slots", options.slots) + "; 1 to " + std::to_string(gpu::kSlotsMax));
  }
  if (options.wanted_max == 0 || options.wanted_max > std::min(options.slots, gpu::kWantedMax)) {
    return Bad(Is("wanted_max", options.wanted_max) + "; at least 1, at most slots, and " +
               std::to_string(gpu::kWantedMax));
  }
  layout.slots = options.slots;
  layout.wanted_max = options.wanted_max;
  const uint64_t pieces = tokens / layout.piece_tokens;
  if (pieces == 0 || pieces >= gpu::kNoPiece) {
    return Bad("of " + std::to_string(tokens) + " tokens there are " + std::to_string(pieces) +
               " whole pieces");
  }
  layout.pieces = static_cast<uint32_t>(pieces);
  const uint64_t most = std::max(tokens, options.tokens_max) / layout.piece_tokens;
  if (most >= gpu::kNoPiece)
    return Bad(Is("tokens_max", options.tokens_max) + ", which is too much");
  layout.pages = static_cast<uint32_t>((most - 1) / layout.pieces_of_page()) + 1;
  return layout;
}

}  // namespace cairn::engine
