// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/fragment_layout.h"

#include <algorithm>
#include <bit>

#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

FragmentLayout::FragmentLayout(const ModelSpec& model, uint32_t lane) {
  if (lane == kSamplerLane || lane == kMetadataLane) return;
  if (lane == kTokenLane) {
    page_rows_ = kTokensPerPage;
    position_bytes_ = sizeof(TokenId);
    return;
  }
  CAIRN_CHECK(lane <= model.groups.size());
  group_ = &model.groups[lane - 1];
  position_bytes_ = group_->token_bytes();
  uint32_t largest_row = 1;
  uint64_t largest_position = 1;  // In one layer of a plane.
  for (uint32_t plane = 0; plane < group_->planes.size(); ++plane) {
    for (uint32_t head = 0; head < group_->planes[plane].heads; ++head) {
      heads_.push_back({0, plane, head});
    }
    const Plane& one = group_->planes[plane];
    lossy_ |= one.sealed_as != SealedAs::kLossless;
    largest_row = std::max(largest_row, one.row_bytes);
    largest_position = std::max(largest_position, uint64_t{one.heads} * one.row_bytes);
  }
  slices_ = group_->layers * static_cast<uint32_t>(heads_.size());
  uint64_t extent = model.extent_tokens;
  if (extent == 0) {
    extent = std::clamp<uint64_t>(std::bit_ceil(kPageBytes / largest_position), kMinExtentTokens,
                                  kMaxExtentTokens);
  }
  page_rows_ = static_cast<uint32_t>(std::clamp<uint64_t>(kFrameBytesMax / largest_row, 1, extent));
}

HeadSlice FragmentLayout::At(uint32_t slice) const {
  HeadSlice found = heads_[slice % heads_.size()];
  found.layer = slice / static_cast<uint32_t>(heads_.size());
  return found;
}

uint32_t FragmentLayout::SliceOf(const HeadSlice& at) const {
  uint32_t slice = at.layer * slices_per_layer() + at.head;
  for (uint32_t plane = 0; plane < at.plane; ++plane) slice += group_->planes[plane].heads;
  return slice;
}

FrameShape FragmentLayout::Shape(uint32_t slice, uint32_t rows) const {
  const Plane& plane = group_->planes[At(slice).plane];
  return {.rows = rows,
          .channels = plane.row_bytes / static_cast<uint32_t>(DtypeBytes(plane.dtype)),
          .dtype = plane.dtype};
}

FrameScales FragmentLayout::Scales(uint32_t slice) const {
  const Plane& plane = group_->planes[At(slice).plane];
  if (plane.sealed_as == SealedAs::kLossless) return FrameScales::kNone;
  return plane.role == PlaneRole::kKey ? FrameScales::kChannel : FrameScales::kRow;
}

}  // namespace cairn::engine
