// SPDX-License-Identifier: Apache-2.0
//
// The names by which the page cache knows the frames of a restore.
#pragma once

#include "engine/restore/plan/page_cache.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

inline PageName NameOfFrame(const OpenPiece& open, uint32_t slice, uint32_t page) {
  return {open.piece.table, open.fragment.offset, uint64_t{slice} * open.fragment.pages + page};
}

inline PageName NameOfFragment(const OpenPiece& small) {
  return {small.piece.table, small.fragment.offset, PageName::kAllFrames};
}

}  // namespace cairn::engine
