// SPDX-License-Identifier: Apache-2.0
//
// How the space of tables comes back, on the space thread. A dead table is deleted; one of which
// enough is dead is written anew without that, the emptiest first; and small ones are written into
// one. How much must be dead follows from who would like the device:
//
//   others are writing            half of it: a byte is then rewritten at most for one that died
//   the log rests                 a seventh, a little at a time
//   Compact, or there is no room  a tenth
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "engine/store_core.h"

namespace cairn {

namespace {

Status TableLied(uint64_t number) {
  return Status(StatusCode::kCorruption, "the index: table " + std::to_string(number) +
                                             ": more of it is needed than its record says");
}

}  // namespace

// ---------------------------------------------------------------- dead tables

// Of which the tree names nothing, if it knows the table at all. What a crash brings back of it is
// removed by the next opening, or deleted as a dead table again.
Status StoreCore::DeleteTable(uint64_t number, uint64_t bytes) {
  CAIRN_RETURN_IF_ERROR(log_->CheckLock());
  reader_.tables().Forget(number);
  const std::string& directory = reader_.tables().context().directory;
  CAIRN_RETURN_IF_ERROR(
      io::RemoveIfExists(*world_.files, sstable::SnapshotTablePath(directory, number)));
  {
    // First: what the tree still knows is deleted again, and its bytes may be returned once only.
    std::lock_guard lock(mutex_);
    if (const auto known = tree_.tables().find(number); known != tree_.tables().end()) {
      // Undone was what let it die: only where the index lied about what was live.
      if (known->second.live_bytes != 0) return TableLied(number);
      tree_.ForgetTable(number);
    }
  }
  ledger_.Return(bytes);
  return FreeRemoved(directory);
}

// A file system may keep the blocks of a removed file until that is durable.
Status StoreCore::FreeRemoved(const std::string& directory) {
  if (!ledger_.DiskIsShort()) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(world_.files->SyncDirectory(directory));
  ledger_.LookAtDisk();
  return Status::Ok();
}

// A table that nothing in the tree needs is deleted when that is durable and nobody reads it. One
// whose file would not go is tried again the next time.
Status StoreCore::DeleteDeadTables() {
  std::vector<std::pair<uint64_t, uint64_t>> dead;
  uint64_t sequence = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, use] : tree_.tables()) {
      if (use.live_bytes != 0) continue;
      const bool held = reader_.pins().HoldTable(number);
      round_.NoteHeld(held);
      if (!held) dead.emplace_back(number, use.bytes);
    }
    sequence = log_->last_reserved_sequence();
  }
  if (dead.empty()) return Status::Ok();
  if (CAIRN_KEPT(kLogBeforeTableDies)) {
    CAIRN_RETURN_IF_ERROR(log_->Wait(sequence, /*durable=*/true, io::kNoDeadline));
  }
  PublishHint();  // First: a follower that misses a table finds out why.
  for (const auto& [number, bytes] : dead) round_.KeepGoing(DeleteTable(number, bytes));
  return Status::Ok();
}

// ---------------------------------------------------------------- written anew

// A table of which less is needed than this is written anew.
double StoreCore::LiveShareMin(Round round) {
  if (round == Round::kAll || gauge_.DataIsShort() || RoomIsShort())
    return engine::kLiveShareMinAtCap;
  return round == Round::kIdle ? engine::kLiveShareMinIdle : engine::kLiveShareMin;
}

// An idle round is short: somebody may come.
bool StoreCore::HasDoneEnough(Round round) const {
  return round == Round::kIdle && round_.reclaimed_bytes() >= engine::kIdleStepBytes;
}

// A table of which little enough is needed is written anew without the rest; the old one is dead
// then. Of several the emptiest is first, which gives most for what is written, if there is room
// for it beside the old one and it is not damaged. kNoSpace, kCorruption: of those that were passed
// over.
Status StoreCore::RewriteEmptiest(double share, bool* rewritten) {
  Status passed_over;
  while (true) {
    uint64_t emptiest = 0;
    const Status status = RewriteEmptiestWhole(share, &emptiest, rewritten);
    if (status.code() != StatusCode::kCorruption) return status.ok() ? passed_over : status;
    if (emptiest == 0) return status;
    round_.PassOver(emptiest);
    passed_over = status;
  }
}

Status StoreCore::RewriteEmptiestWhole(double share, uint64_t* table, bool* rewritten) {
  *rewritten = false;
  uint64_t emptiest = 0, live_before = 0, too_large = 0;
  bool lied = false;
  const uint64_t room = ledger_.room(wal::Purpose::kReclaim);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, use] : tree_.tables()) {
      const double live =
          static_cast<double>(use.live_bytes) / static_cast<double>(use.sealed_bytes);
      if (use.live_bytes == 0 || live >= share || round_.IsPassedOver(number)) continue;
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
  space_counters_.rewritten_tables.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  const auto left = tree_.tables().find(emptiest);
  *rewritten = left == tree_.tables().end() || left->second.live_bytes < live_before;
  if (*rewritten) round_.NoteReclaimed(live_before);
  return Status::Ok();
}

// What is needed of these goes into new tables.
Status StoreCore::RewriteTables(const std::set<uint64_t>& tables) {
  std::vector<uint64_t> nodes;
  for (const uint64_t number : tables) {
    const auto opened = reader_.tables().Open(number);
    if (!opened.ok()) return io::GoneIsDamage(opened.status());
    CAIRN_ASSIGN_OR_RETURN(const auto fragments, (*opened)->Fragments());
    for (const sstable::FragmentEntry& fragment : fragments) {
      if (nodes.empty() || nodes.back() != fragment.node) nodes.push_back(fragment.node);
    }
    CAIRN_RETURN_IF_ERROR(engine::TreeRecords::ReadJoined(*means_.index, number, &nodes));
  }
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, node] : tree_.joined()) {
      if (tables.contains(number)) nodes.push_back(node);
    }
  }
  return SealPlaces(nodes, [&](const engine::Place& place) {
    return place.in_table() && tables.contains(place.table);
  });
}

// When there are many small tables, those of a size are written into one, the oldest first: each is
// a file that each restore opens, and a footer. There are two sizes, so that a byte is
// written again for this twice at most. It needs no room that others might: it can wait. Tables
// that cannot be merged, damaged ones among them, are left alone from then on.
Status StoreCore::MergeSmallTables(bool* merged) {
  *merged = false;
  std::array<std::set<uint64_t>, 2> by_size;
  std::set<uint64_t> wanted;
  uint64_t bytes = 0;
  const uint64_t room = ledger_.room(wal::Purpose::kData);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, use] : tree_.tables()) {
      if (use.live_bytes == 0 || use.bytes >= engine::kSmallTableBytes) continue;
      if (unmerged_tables_.contains(number)) continue;
      by_size[use.bytes < engine::kSmallTableBytes / engine::kSmallTablesMax ? 0 : 1].insert(
          number);
    }
    for (const std::set<uint64_t>& small : by_size) {
      if (small.size() <= engine::kSmallTablesMax) continue;
      for (const uint64_t number : small) {
        bytes += tree_.tables().at(number).bytes;
        if (bytes > std::min(room, engine::kTableRawBytes)) break;
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
  space_counters_.merged_tables.fetch_add(wanted.size() - left, std::memory_order_relaxed);
  *merged = left < wanted.size();
  if (*merged) round_.NoteReclaimed(bytes);
  return status;
}

// ---------------------------------------------------------------- idle time

// Under the commit lock: so much since it last said so that a round may be worth it.
bool StoreCore::ThereIsMoreToReclaim() {
  if (tree_.dead_noted_bytes() - dead_seen_bytes_ >= engine::kDeadLookBytes) {
    dead_seen_bytes_ = tree_.dead_noted_bytes();
    return true;
  }
  return tree_.joinable().size() >= engine::kJoinChainMin && !std::exchange(joins_noted_, true);
}

// Whether an idle round would do more than one that is not.
bool StoreCore::IdleWorkIsDue() {
  std::lock_guard lock(mutex_);
  if (tree_.joinable().size() >= engine::kJoinChainMin) return true;
  return std::any_of(tree_.tables().begin(), tree_.tables().end(), [](const auto& entry) {
    const engine::TableUse& use = entry.second;
    return use.live_bytes != 0 &&
           static_cast<double>(use.live_bytes) <
               engine::kLiveShareMinIdle * static_cast<double>(use.sealed_bytes);
  });
}

// Until somebody wakes the thread, or something expires. True: `idle_work` is to be done, and the
// log got little for a while.
bool StoreCore::AwaitWork(uint32_t seen, bool idle_work) {
  const uint64_t expiry_ns = NextExpiry();
  while (true) {
    const uint64_t written = log_->counters().bytes_written;
    const uint64_t rested_ns = world_.scheduler->MonotonicNs() + engine::kIdleNs;
    const bool rests = idle_work && rested_ns < expiry_ns;
    if (signals_.AwaitKick(seen, rests ? rested_ns : expiry_ns)) return false;
    if (!rests) return false;
    if (log_->counters().bytes_written - written < engine::kIdleLogBytes) return true;
  }
}

}  // namespace cairn
