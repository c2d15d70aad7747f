// SPDX-License-Identifier: Apache-2.0
#include "engine/background/table_reclaimer.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/config/constants.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

// A table of which less than this share is needed is rewritten.
double TableReclaimer::LiveShareMin(SpaceRound::Kind kind) const {
  if (kind == SpaceRound::Kind::kAll || deps_.gauge->DataIsShort() || requests_->RoomIsShort())
    return kLiveShareMinAtCap;
  return kind == SpaceRound::Kind::kIdle ? kLiveShareMinIdle : kLiveShareMin;
}

bool TableReclaimer::HasDoneEnough(SpaceRound::Kind kind) const {
  return kind == SpaceRound::Kind::kIdle && deps_.round->reclaimed_bytes() >= kIdleStepBytes;
}

// Rewrites a table of which little enough is needed; the old one is dead then. The emptiest comes
// first, since it frees most per byte written, if there is room for the new table beside the old
// one and it is not damaged.
Status TableReclaimer::RewriteEmptiest(SpaceRound::Kind kind, bool* rewritten) {
  const double share = LiveShareMin(kind);
  Status passed_over;
  while (true) {
    uint64_t emptiest = 0;
    const Status status = RewriteEmptiestWhole(share, &emptiest, rewritten);
    if (status.code() != StatusCode::kCorruption) return status.ok() ? passed_over : status;
    if (emptiest == 0) return status;
    deps_.round->PassOver(emptiest);
    passed_over = status;
  }
}

Status TableReclaimer::RewriteEmptiestWhole(double share, uint64_t* table, bool* rewritten) {
  *rewritten = false;
  uint64_t emptiest = 0, live_before = 0, too_large = 0;
  bool lied = false;
  const uint64_t room = deps_.ledger->room(wal::Purpose::kReclaim);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, use] : tree_.tables()) {
      const double live =
          static_cast<double>(use.live_bytes) / static_cast<double>(use.sealed_bytes);
      if (use.live_bytes == 0 || use.derived() || live >= share) continue;
      if (deps_.round->IsPassedOver(number)) continue;
      if (static_cast<double>(use.bytes) * live > static_cast<double>(room)) {
        too_large = number;
        continue;
      }
      emptiest = number;
      live_before = use.live_bytes;
      lied = use.lied;
      share = live;
    }
  }
  if (emptiest == 0) {
    if (too_large == 0) return Status::Ok();
    return Status(StatusCode::kNoSpace, "no room to write table " + std::to_string(too_large) +
                                            " anew without what is dead of it: " +
                                            std::to_string(room) + " bytes are left");
  }
  *table = emptiest;
  if (lied) return TableLied(emptiest);
  CAIRN_RETURN_IF_ERROR(RewriteTables({emptiest}));
  deps_.counters->rewritten_tables.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  const auto left = tree_.tables().find(emptiest);
  *rewritten = left == tree_.tables().end() || left->second.live_bytes < live_before;
  if (*rewritten) deps_.round->CountReclaimed(live_before);
  return Status::Ok();
}

// Moves the needed content of these tables into new ones.
Status TableReclaimer::RewriteTables(const std::set<uint64_t>& tables) {
  std::vector<uint64_t> nodes;
  for (const uint64_t number : tables) {
    const auto opened = deps_.reader->tables().Open(number);
    if (!opened.ok()) return io::MissingIsCorruption(opened.status());
    CAIRN_ASSIGN_OR_RETURN(const auto fragments, (*opened)->Fragments());
    for (const sstable::FragmentEntry& fragment : fragments) {
      if (nodes.empty() || nodes.back() != fragment.node) nodes.push_back(fragment.node);
    }
    CAIRN_RETURN_IF_ERROR(TreeRecords::ReadJoined(*deps_.index, number, &nodes));
  }
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, node] : tree_.table_usages().joined()) {
      if (tables.contains(number)) nodes.push_back(node);
    }
  }
  return sealer_->SealPlaces(
      nodes, [&](const Place& place) { return place.in_table() && tables.contains(place.table); });
}

// The oldest first: each is a file that each restore opens, and a footer. There are two sizes, so
// that this rewrites a byte at most twice. It uses no room that others might need: it can wait.
// Tables that cannot be merged, damaged ones among them, are left alone from then on.
Status TableReclaimer::MergeSmallTables(bool* merged) {
  *merged = false;
  std::array<std::set<uint64_t>, 2> by_size;
  std::set<uint64_t> wanted;
  uint64_t bytes = 0;
  const uint64_t room = deps_.ledger->room(wal::Purpose::kData);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, use] : tree_.tables()) {
      if (use.live_bytes == 0 || use.derived() || use.bytes >= kSmallTableBytes) continue;
      if (unmerged_tables_.contains(number)) continue;
      by_size[use.bytes < kSmallTableBytes / kSmallTablesMax ? 0 : 1].insert(number);
    }
    for (const std::set<uint64_t>& small : by_size) {
      if (small.size() <= kSmallTablesMax) continue;
      for (const uint64_t number : small) {
        bytes += tree_.tables().at(number).bytes;
        if (bytes > std::min(room, kTableRawBytes)) break;
        wanted.insert(number);
      }
      break;
    }
  }
  if (wanted.size() < 2) return Status::Ok();
  const Status status = RewriteTables(wanted);
  const bool done = status.ok();
  size_t left = 0;
  {
    std::lock_guard lock(mutex_);
    for (const uint64_t number : wanted) {
      const auto use = tree_.tables().find(number);
      if (use == tree_.tables().end() || use->second.live_bytes == 0) continue;
      ++left;
      if (done || status.code() == StatusCode::kCorruption) unmerged_tables_.insert(number);
    }
  }
  deps_.counters->merged_tables.fetch_add(wanted.size() - left, std::memory_order_relaxed);
  *merged = left < wanted.size();
  if (*merged) deps_.round->CountReclaimed(bytes);
  return status;
}

bool TableReclaimer::BecomesDue() {
  if (tree_.dead_noted_bytes() - dead_seen_bytes_ >= kDeadLookBytes) {
    dead_seen_bytes_ = tree_.dead_noted_bytes();
    return true;
  }
  return joiner_->BecomesDue();
}

bool TableReclaimer::IdleWorkIsDue() const {
  std::lock_guard lock(mutex_);
  if (joiner_->IsDue()) return true;
  return std::any_of(tree_.tables().begin(), tree_.tables().end(), [](const auto& entry) {
    const TableUsage& use = entry.second;
    return use.live_bytes != 0 && !use.derived() &&
           static_cast<double>(use.live_bytes) <
               kLiveShareMinIdle * static_cast<double>(use.sealed_bytes);
  });
}

}  // namespace cairn::engine
