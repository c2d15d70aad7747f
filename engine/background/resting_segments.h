// SPDX-License-Identifier: Apache-2.0
//
// Segments that have left the log and rest: content stays where it was written. This decides what
// rests, and when content moves to tables after all.
//
//   a segment that leaves the log      then
//   -----------------------------      ----
//   is not full                        sealed: it is small, and so is a table of it
//   was not counted                    sealed: nobody knows when its file may go
//   is needed by less than a half      sealed: moving what lives frees more than it writes
//   holds KV in small pieces           sealed: a restore would read them one by one
//   would lack room, or Compact        sealed, if it gets smaller by that (pack_trial.h)
//   else                               rests
//
//   a segment that rests               then
//   --------------------               ----
//   is not needed                      its file goes
//   is needed by less than a half      sealed, the emptiest first
//   lies in the way of room, Compact   sealed, the emptiest first, if it gets smaller by that, or a
//                                      tenth of it is dead
//   and nobody writes                  sealed, if that makes its content smaller, or a seventh is
//                                      dead; so is a full segment that is still in the log
//   else                               rests
//
// For the space thread. No lock may be held around calls, except where marked.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine/background/dead_tables.h"
#include "engine/background/index_flusher.h"
#include "engine/background/pack_trial.h"
#include "engine/background/sealer.h"
#include "engine/background/space_deps.h"
#include "engine/background/space_requests.h"

namespace cairn::engine {

class RestingSegments {
 public:
  RestingSegments(const SpaceDeps& deps, Sealer* sealer, IndexFlusher* flusher,
                  DeadTables* dead_tables, SpaceRequests* requests)
      : deps_(deps),
        mutex_(deps.mutex()),
        tree_(deps.tree()),
        sealer_(sealer),
        flusher_(flusher),
        dead_tables_(dead_tables),
        requests_(requests),
        trial_(deps, sealer) {}
  RestingSegments(const RestingSegments&) = delete;
  RestingSegments& operator=(const RestingSegments&) = delete;

  // Those of them that are to rest, ascending. They are about to leave the log.
  std::vector<wal::RestingSegment> Choose(SpaceRound::Kind kind,
                                          std::span<const wal::SegmentInfo> leaving);
  // Full segments, resting or not yet, whose content would not get smaller in tables.
  std::vector<uint64_t> WellPacked();
  // Removes the files that nothing in the tree needs, once that is durable and nobody reads them. A
  // file that cannot be removed is tried again the next time.
  Status GiveBackDead();
  // Seals the content of one segment that should not go on resting in such a round, if there is
  // one. kNoSpace; kCorruption: of a segment that was left alone, and is from then on.
  Status PackEmptiest(SpaceRound::Kind kind, bool* packed);
  // Whether an idle round would do more than a normal one. Takes the commit lock.
  bool IdleWorkIsDue() const;

 private:
  bool IsShort() const { return deps_.gauge->DataIsShort() || requests_->RoomIsShort(); }
  bool MayRest(const wal::SegmentInfo& segment) const;
  bool IsInLargePieces(const SegmentUsage& use) const;
  bool GetsNoSmaller(uint64_t segment, const SegmentUsage& use) const;
  void TryAll(std::span<const uint64_t> segments);
  Status ForgetInManifest(std::span<const uint64_t> dead, uint64_t sequence);
  struct ShareMin {
    double unpacked = 0, packed = 0;
  };
  ShareMin LiveShareMin(SpaceRound::Kind kind) const;  // Takes the commit lock.
  double LiveShare(const SegmentUsage& use) const;
  bool IsPacked(const SegmentUsage& use) const;
  // Segments that are packed when nobody writes, though they do not rest.
  std::vector<uint64_t> FullInLog() const;
  uint64_t EmptiestBelow(const ShareMin& share, std::span<const uint64_t> more,
                         SegmentUsage* found) const;

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  Sealer* const sealer_;
  IndexFlusher* const flusher_;
  DeadTables* const dead_tables_;
  SpaceRequests* const requests_;
  std::vector<uint64_t> unremoved_;  // The manifest does not name them any more.
  std::set<uint64_t> damaged_;
  const PackTrial trial_;
  std::map<uint64_t, bool> gets_smaller_;  // Outcomes of trials, of segments that are there.
};

}  // namespace cairn::engine
