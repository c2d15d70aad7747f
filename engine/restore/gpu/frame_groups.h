// SPDX-License-Identifier: Apache-2.0
//
// Which frames of a fragment lie together in pinned memory: those of one page, for as many layers
// as make copying them worth a transfer of its own (kPinnedGroupBytes). In the file the pages of a
// head lie together; but a branch wants or does not want a page as a whole, so here it comes as a
// whole. All frames of a small fragment, which is read at once, are one group. The groups follow
// from the fragment alone, so that the next restore finds what this one has kept.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/config/constants.h"
#include "engine/restore/gpu/pinned_cache.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

// Frames of slices [first_slice, end_slice) and pages [first_page, end_page).
struct FrameGroup {
  PinnedName name;
  uint32_t first_slice = 0, end_slice = 0;
  uint32_t first_page = 0, end_page = 0;
  uint64_t end = 0;  // Behind its last wanted position.
  size_t frames() const { return size_t{end_slice - first_slice} * (end_page - first_page); }
  size_t IndexOf(uint32_t slice, uint32_t page) const {
    return size_t{slice - first_slice} * (end_page - first_page) + (page - first_page);
  }
  // Calls `visit` with slice and page of every wanted frame.
  template <typename Visit>
  void ForEachWanted(const OpenPiece& open, const Visit& visit) const {
    const uint32_t slices_end = std::min(end_slice, open.end_slice);
    const uint32_t pages_end = std::min(end_page, open.end_page);
    for (uint32_t slice = std::max(first_slice, open.first_slice); slice < slices_end; ++slice) {
      for (uint32_t page = std::max(first_page, open.first_page); page < pages_end; ++page) {
        visit(slice, page);
      }
    }
  }
  size_t WantedFrames(const OpenPiece& open) const {
    size_t count = 0;
    ForEachWanted(open, [&](uint32_t /*slice*/, uint32_t /*page*/) { ++count; });
    return count;
  }
};

// For a fragment with KV.
class FrameGroups {
 public:
  explicit FrameGroups(const OpenPiece& open)
      : open_(open), slices_(open.fragment.slices), pages_(open.fragment.pages) {
    if (open.small()) return;
    const uint32_t layer_slices = open.layout.slices_per_layer();
    const uint32_t layers = open.fragment.slices / layer_slices;
    const uint64_t frames_bytes = open.fragment.entries_offset - open.fragment.offset;
    const uint64_t layer_bytes = frames_bytes / layers / open.fragment.pages + 1;
    slices_ = layer_slices * static_cast<uint32_t>(std::clamp<uint64_t>(
                                 (kPinnedGroupBytes + layer_bytes - 1) / layer_bytes, 1, layers));
    pages_ = 1;
  }

  FrameGroup Of(uint32_t slice, uint32_t page) const {
    FrameGroup group;
    group.first_slice = slice / slices_ * slices_;
    group.end_slice = std::min(group.first_slice + slices_, open_.fragment.slices);
    group.first_page = page / pages_ * pages_;
    group.end_page = std::min(group.first_page + pages_, open_.fragment.pages);
    group.name = {open_.piece.table, open_.fragment.offset,
                  uint64_t{group.first_slice} * open_.fragment.pages + group.first_page};
    group.end = std::min(open_.piece.end, open_.fragment.begin +
                                              uint64_t{group.end_page} * open_.fragment.page_rows);
    return group;
  }
  // Calls `visit` for every group that has wanted frames.
  template <typename Visit>
  void ForEachWanted(const Visit& visit) const {
    for (uint32_t slice = open_.first_slice; slice < open_.end_slice;) {
      uint32_t end_slice = 0;
      for (uint32_t page = open_.first_page; page < open_.end_page;) {
        const FrameGroup group = Of(slice, page);
        visit(group);
        page = group.end_page;
        end_slice = group.end_slice;
      }
      slice = end_slice;
    }
  }

 private:
  const OpenPiece& open_;
  uint32_t slices_, pages_;  // Per group.
};

}  // namespace cairn::engine
