// SPDX-License-Identifier: Apache-2.0
//
// Reclaims the space of tables. A table of which enough is dead is rewritten without that, the
// emptiest first; and small ones are merged. (Dead tables: dead_tables.h.) How much must be dead
// depends on who else wants the device:
//
//   others are writing            half of it: a byte is then rewritten at most for one that died
//   the log is idle               a seventh, a little at a time
//   Compact, or there is no room  a tenth
//
// For the space thread, except where marked. No lock may be held around calls.
#pragma once

#include <cstdint>
#include <set>

#include "engine/background/joiner.h"
#include "engine/background/sealer.h"
#include "engine/background/space_deps.h"
#include "engine/background/space_requests.h"

namespace cairn::engine {

class TableReclaimer {
 public:
  TableReclaimer(const SpaceDeps& deps, Sealer* sealer, Joiner* joiner, SpaceRequests* requests)
      : deps_(deps),
        mutex_(deps.mutex()),
        tree_(deps.tree()),
        sealer_(sealer),
        joiner_(joiner),
        requests_(requests) {}
  TableReclaimer(const TableReclaimer&) = delete;
  TableReclaimer& operator=(const TableReclaimer&) = delete;

  // Rewrites one table of which less is needed than such a round wants, if there is one. kNoSpace,
  // kCorruption: of tables that were passed over.
  Status RewriteEmptiest(SpaceRound::Kind kind, bool* rewritten);
  // When there are many small tables, merges those of similar size into one.
  Status MergeSmallTables(bool* merged);
  // An idle round is short: others may want the device soon.
  bool HasDoneEnough(SpaceRound::Kind kind) const;
  // Whether an idle round would do more than a normal one. Takes the commit lock.
  bool IdleWorkIsDue() const;

  // Any thread, under the commit lock: whether enough died since this was last true to make a round
  // worth it.
  bool BecomesDue();

 private:
  double LiveShareMin(SpaceRound::Kind kind) const;
  Status RewriteEmptiestWhole(double share, uint64_t* table, bool* rewritten);
  Status RewriteTables(const std::set<uint64_t>& tables);

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  Sealer* const sealer_;
  Joiner* const joiner_;
  SpaceRequests* const requests_;
  std::set<uint64_t> unmerged_tables_;  // Small ones that could not be merged.
  // How much of Tree::dead_noted_bytes was seen; under the commit lock.
  uint64_t dead_seen_bytes_ = 0;
};

}  // namespace cairn::engine
