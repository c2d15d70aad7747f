// SPDX-License-Identifier: Apache-2.0
//
// The names by which the page cache knows the frames, and the slices of records, of a restore.
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

// What is cached of a record: its slices, one plane of one layer of a range each, and its strips of
// ids, all as they are unpacked. Segments are named apart from tables. A place in the log is
// written once in an epoch.
class RecordPages {
 public:
  explicit RecordPages(const wal::Location& record) : record_(record) {}
  uint64_t seal() const { return record_.epoch; }
  PageName Ids(const LaneRange& range) const { return Name(range, kIds); }
  PageName Slice(const LaneRange& range, size_t slice) const { return Name(range, slice); }

 private:
  static constexpr uint64_t kOfSegment = uint64_t{1} << 63;
  static constexpr uint64_t kIds = UINT32_MAX;
  PageName Name(const LaneRange& range, uint64_t slice) const {
    return {kOfSegment | record_.segment, record_.epoch << 32 ^ record_.offset,
            uint64_t{range.strip} << 32 | slice};
  }

  const wal::Location& record_;
};

}  // namespace cairn::engine
