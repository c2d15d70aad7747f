// SPDX-License-Identifier: Apache-2.0
//
// The thread that turns deltas into tables and gives space back. It alone writes the index, deletes
// what the tree named once and moves the start of the log, so none of that needs a lock; it takes
// the commit lock only to look and to log. Large appends write tables beside it
// (commit/ingest_table.h): numbers of tables, and the checkpoints that make them durable, are given
// in turns.
#include <algorithm>
#include <new>
#include <set>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/space/seal_reader.h"
#include "engine/space/seal_table.h"
#include "engine/space/used_nodes.h"
#include "engine/store_core.h"

namespace cairn {

using engine::Tree;

namespace {

uint64_t RawBytes(const Tree::SealSource& source) {
  return engine::FragmentLayout(*source.model, source.lane).position_bytes() * source.count;
}

}  // namespace

// ---------------------------------------------------------------- what tables ask for

Status StoreCore::TakeSpace(uint64_t bytes) { return ledger_.Take(bytes, wal::Purpose::kReclaim); }
void StoreCore::ReturnSpace(uint64_t bytes) { ledger_.Return(bytes); }

// ---------------------------------------------------------------- opening

void StoreCore::SetTableContext() {
  sstable::TableContext context;
  context.files = world_.files.get();
  context.directory = io::JoinPath(path_, engine::kTableDirectory);
  context.store = manifest_.at_opening().store;
  context.allocator = options_.allocator;
  context.cache = &block_cache_;
  context.open_files = &reader_.open_files();
  context.host = this;
  context.counters = &table_counters_;
  reader_.tables().SetContext(context);
  MakeHosts();
  options_.segment_bytes = manifest_.at_opening().segment_bytes;
  log_start_ = manifest_.at_opening().log_start_segment;
}

// The tree as the checkpoint has it, from which the log goes on.
Status StoreCore::OpenTree(const engine::Manifest& manifest, engine::Tree* tree) {
  const sstable::MergeShape shape{.table_bytes = engine::kIndexTableBytes,
                                  .level1_bytes = engine::kIndexLevel1Bytes};
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<sstable::LsmIndex> index,
                         sstable::LsmIndex::Open({IndexContext(), shape}, manifest.index));
  tree->SetIndex(std::move(index));
  tree->SetSealLimits(options_.snapshot_interval_tokens, options_.max_delta_chain);
  return engine::TreeRecords::LoadRoots(tree);
}

// For a store that writes, after replay: what is there is counted, what nothing names goes. No
// number of a table that is named is given again, whatever the manifest says.
Status StoreCore::ClaimTables() {
  const sstable::TableContext& context = reader_.tables().context();
  CAIRN_RETURN_IF_ERROR(io::CreateDirectoryIfMissing(*world_.files, context.directory));
  CAIRN_RETURN_IF_ERROR(manifest_.RemoveOld());
  means_.index = tree_.index();
  flusher_.SetDumped(manifest_.at_opening().index_sequence);
  std::vector<uint64_t> live;
  for (const sstable::LiveTable& table : manifest_.at_opening().index) {
    live.push_back(table.number);
    manifest_.NameTable(table.number);
    ledger_.TakeAnyway(table.bytes);
  }
  std::vector<uint64_t> deleted;  // Tables that were dead, before the index knew.
  for (const auto& [number, use] : tree_.tables()) {
    manifest_.NameTable(number);
    const std::string path = sstable::SnapshotTablePath(context.directory, number);
    if (use.live_bytes == 0 && world_.files->Info(path).status().code() == StatusCode::kNotFound) {
      deleted.push_back(number);
      continue;
    }
    live.push_back(number);
    ledger_.TakeAnyway(use.bytes);
  }
  for (const uint64_t number : deleted) tree_.ForgetTable(number);
  if (!CAIRN_KEPT(kLiveOrphans)) return Status::Ok();
  return sstable::RemoveTableOrphans(*world_.files, context.directory, live);
}

// ---------------------------------------------------------------- sealing

// Everything in log segments up to `segment` goes into tables. What has to be is known by L records
// of the index and by what the tree logged since its last dump. Others append meanwhile, into the
// same segments, and dumps come between the steps: at the end it must be known for each L record
// whether it only stands for what was sealed. It is not kept track of: the next dump deletes all of
// them up to `segment` and then puts what the tree still has, which is whatever was logged since we
// looked (Tree::KeepLogged), dumped meanwhile or not.
Status StoreCore::SealUpTo(uint64_t segment) {
  std::vector<uint64_t> nodes;
  CAIRN_RETURN_IF_ERROR(engine::TreeRecords::ReadLogged(*means_.index, segment, &nodes));
  struct Kept {
    StoreCore* core;
    ~Kept() {
      std::lock_guard lock(core->mutex_);
      core->tree_.ReleaseLogged();
    }
  };
  {
    std::lock_guard lock(mutex_);
    for (const auto& [at, node] : tree_.logged()) {
      if (at <= segment) nodes.push_back(node);
    }
    tree_.KeepLogged();  // What is logged from here on is not looked at.
  }
  const Kept kept{this};
  CAIRN_RETURN_IF_ERROR(SealPlaces(nodes, [segment](const engine::Place& place) {
    return place.log.segment != 0 && place.log.segment <= segment;
  }));
  CAIRN_RETURN_IF_ERROR(log_->Flush(io::kNoDeadline));
  const std::lock_guard lock(mutex_);  // Given back before what is kept is released.
  tree_.ForgetLogged(segment);
  flusher_.NoteSealed(segment);
  return Status::Ok();
}

// Conversations whose chains have become long, when they are worth a table.
Status StoreCore::SealDue() {
  seal_wanted_ = false;
  std::vector<uint64_t> nodes;
  {
    std::lock_guard lock(mutex_);
    if (tree_.seal_due_bytes() < engine::kSealDueBytes) return Status::Ok();
    nodes = tree_.TakeSealDue();
  }
  return SealPlaces(nodes, [](const engine::Place& place) { return place.log.segment != 0; });
}

// What of these nodes lies at a wanted place moves into new tables; where nothing but one child is
// left of a node, as that child's. Ascending, as the fragments of a table are: a child's number is
// greater than its parent's.
Status StoreCore::SealPlaces(std::span<const uint64_t> nodes,
                             const std::function<bool(const engine::Place&)>& wanted) {
  engine::UsedNodes used(
      &committer_);  // From where they are looked at to where they are told of their table.
  std::vector<Tree::SealSource> sources;
  const uint64_t table_bytes_max = gauge_.TableRawBytesMax();
  uint64_t bytes = 0;
  std::set<uint64_t> left(nodes.begin(), nodes.end());
  while (!left.empty()) {
    const uint64_t node = left.extract(left.begin()).value();
    CAIRN_RETURN_IF_ERROR(flusher_.DumpIfDue());
    CAIRN_ASSIGN_OR_RETURN(const uint64_t child, JoinAround(node));
    if (child != 0) {
      left.insert(child);
      continue;
    }
    const size_t first = sources.size();
    {
      Lock lock(mutex_);
      CAIRN_RETURN_IF_ERROR(
          access_.LoadToChange({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      if (tree_.FindNode(node) != nullptr) {
        used.Add(node);
        tree_.Collect(node, wanted, std::min(engine::kSealSourceBytes, table_bytes_max), &sources);
      }
    }
    for (size_t s = first; s < sources.size(); ++s) bytes += RawBytes(sources[s]);
    if (!left.empty() && bytes < table_bytes_max && sources.size() < engine::kTableSourcesMax) {
      continue;
    }
    CAIRN_RETURN_IF_ERROR(SealAll(sources));
    used.End();
    sources.clear();
    bytes = 0;
  }
  return Status::Ok();
}

// A long conversation alone may be worth several tables.
Status StoreCore::SealAll(std::span<Tree::SealSource> sources) {
  StoreSealReader reader(&reader_, [this](uint64_t read_bytes, uint64_t written_bytes) -> Status {
    CAIRN_RETURN_IF_ERROR(pacer_.Take(read_bytes, written_bytes));
    CAIRN_RETURN_IF_ERROR(log_->poisoned());
    return flusher_.DumpIfDue();
  });
  const uint64_t table_bytes_max = gauge_.TableRawBytesMax();
  for (size_t begin = 0; begin < sources.size();) {
    size_t end = begin;
    for (uint64_t bytes = 0;
         end < sources.size() && bytes < table_bytes_max && end - begin < engine::kTableSourcesMax;
         ++end) {
      bytes += RawBytes(sources[end]);
    }
    CAIRN_RETURN_IF_ERROR(SealInto(sources.subspan(begin, end - begin), &reader));
    begin = end;
  }
  return Status::Ok();
}

// One table, and the log records that make the tree use it.
Status StoreCore::SealInto(std::span<Tree::SealSource> sources, StoreSealReader* reader) {
  reader->Expect(sources);
  CAIRN_ASSIGN_OR_RETURN(const sstable::SnapshotInfo info,
                         engine::WriteSealTable(&reader_.tables(), options_.allocator, sources,
                                                reader, parallel_for_.get()));
  bool used = false;
  for (size_t begin = 0; begin < sources.size(); begin += engine::kSealedRangesAtOnce) {
    const auto some =
        sources.subspan(begin, std::min(engine::kSealedRangesAtOnce, sources.size() - begin));
    const auto sealed = Guarded([&] {
      return Change(
          {.branches = {}, .nodes = {}, .names = {}, .decided = true},  // They are in memory.
          [&](const Tree& tree) -> Result<engine::Op> {
            engine::Op op = tree.ResolveSeal(info.number, info.bytes, some);
            if (op.sealed.empty()) return Status(StatusCode::kNotFound, "dropped meanwhile");
            return op;
          },
          Durability::kMemory, wal::Log::Purpose::kReclaim);
    });
    if (!sealed.ok() && sealed.status().code() != StatusCode::kNotFound) {
      if (!used) CAIRN_RETURN_IF_ERROR(DeleteTable(info.number, info.bytes));  // Nothing names it.
      return sealed.status();
    }
    used |= sealed.ok();
  }
  space_counters_.seals.fetch_add(1, std::memory_order_relaxed);
  space_counters_.sealed_bytes.fetch_add(info.raw_bytes, std::memory_order_relaxed);
  return used ? Status::Ok() : DeleteTable(info.number, info.bytes);
}

// Under the commit lock.
void StoreCore::OnLogged(const wal::Log::Slot& slot) {
  if (newest_segment_.load(std::memory_order_relaxed) < slot.location.segment) {
    newest_segment_.store(slot.location.segment, std::memory_order_relaxed);
    KickSpace();
  }
  if (flusher_.BecomesDue(slot.sequence)) KickSpace();
  if (tree_.seal_due_bytes() >= engine::kSealDueBytes && !seal_wanted_.exchange(true)) KickSpace();
  if (ThereIsMoreToReclaim()) KickSpace();
  // A time to live that ends before what the thread waits for.
  const uint64_t expires_ns = tree_.expires_from_ns();
  if (expires_ns != 0 && (expiry_seen_ns_ == 0 || expires_ns < expiry_seen_ns_)) {
    expiry_seen_ns_ = expires_ns;
    KickSpace();
  }
}

// ---------------------------------------------------------------- the thread

Status StoreCore::Compact() {
  CAIRN_RETURN_IF_ERROR(CheckWritable());
  if (pacer_.paused()) {
    return Status(StatusCode::kInvalidState, "the background is paused; ResumeBackground first");
  }
  FlushAllJoined();
  const uint64_t wanted = compactions_wanted_.fetch_add(1) + 1;
  KickSpace();
  while (true) {
    const uint32_t seen = signals_.rounds();
    {
      std::lock_guard lock(space_mutex_);
      if (compactions_done_ >= wanted) return compaction_status_;
    }
    CAIRN_RETURN_IF_ERROR(CheckWritable());
    signals_.AwaitRound(seen, io::kNoDeadline);
  }
}

// What there is no room for may be possible when something else was given back; what is damaged
// stops the rest from nothing, and may be evicted or dropped.
static bool Goes(const Status& status) {
  return status.ok() || status.code() == StatusCode::kNoSpace ||
         status.code() == StatusCode::kCorruption;
}

// One round of everything that makes tables of the log and gives space back. What there is no room
// for is left, and the rest done; so the round may give back what was lacking. kNoSpace,
// kCorruption: something was left. Where evicting gives more room at once, one step is a round, and
// there is `more`.
Status StoreCore::GiveBack(Round round, bool* more) {
  const bool all = round == Round::kAll;
  const auto enough = [&](bool stepped) {
    *more = stepped && !all && RoomIsShort();
    return *more;
  };
  Status left, damaged;
  const auto leave = [&](Status status) {
    if (status.ok() || !Goes(status)) return status;
    (status.code() == StatusCode::kCorruption ? damaged : left) = std::move(status);
    return Status::Ok();
  };
  const auto outcome = [&] { return damaged.ok() ? left : damaged; };
  round_.BeginGivingBack();
  const Status cut = CutLoose();  // Nothing else waits for it.
  CAIRN_RETURN_IF_ERROR(DeleteDeadTables());
  // Tables beside the log that they are made of: not out of the reserve, which is for one segment
  // after the other.
  const bool at_once = log_->counters().segment_bytes_live <= ledger_.room(wal::Purpose::kData);
  if (at_once) CAIRN_RETURN_IF_ERROR(leave(all ? SealUpTo(UINT64_MAX) : SealDue()));
  const bool sealed = at_once && outcome().ok();
  CAIRN_RETURN_IF_ERROR(leave(all && sealed ? flusher_.Dump() : flusher_.DumpIfDue()));
  log_gate_.BeginGivingBack();
  while (true) {
    bool retired = true, rewritten = true, rewrote = false;
    while (retired && (all || gauge_.LogIsLong() || RoomIsShort())) {
      CAIRN_RETURN_IF_ERROR(leave(RetireOldest(&retired)));
      CAIRN_RETURN_IF_ERROR(DeleteDeadTables());
      RunCheckpoints(Status::Ok());  // While others write this may go on for long.
      CAIRN_RETURN_IF_ERROR(pacer_.GoOn());
      if (enough(retired)) return outcome();
    }
    // Last: a damaged table must not keep the log from being given back.
    while (rewritten && !HasDoneEnough(round)) {
      CAIRN_RETURN_IF_ERROR(leave(RewriteEmptiest(LiveShareMin(round), &rewritten)));
      if (!rewritten && !RoomIsShort()) CAIRN_RETURN_IF_ERROR(leave(MergeSmallTables(&rewritten)));
      if (rewritten) CAIRN_RETURN_IF_ERROR(DeleteDeadTables());
      rewrote |= rewritten;
      RunCheckpoints(Status::Ok());
      CAIRN_RETURN_IF_ERROR(pacer_.GoOn());
      if (enough(rewritten)) return outcome();
      if (rewritten && LogIsFull()) break;
    }
    if (rewritten) continue;  // Appends wait for the log, nobody for a table.
    if (left.ok() || !rewrote) break;
    left = Status::Ok();
  }
  if (all && !sealed) {
    left = Status::Ok();
    CAIRN_RETURN_IF_ERROR(leave(SealUpTo(UINT64_MAX)));
    CAIRN_RETURN_IF_ERROR(leave(flusher_.Dump()));
  }
  if (round == Round::kIdle) CAIRN_RETURN_IF_ERROR(leave(JoinChains()));
  CAIRN_RETURN_IF_ERROR(DeleteDeadTables());  // Joins may have ended the last use of some.
  round_.KeepGoing(log_->ReleaseBelow(0));    // What would not go before.
  return outcome().ok() ? cut : outcome();
}

void StoreCore::RunSpace() {
  bool idle = false;
  while (true) {
    const uint32_t seen = signals_.kicks();
    if (!pacer_.Begin().ok()) break;  // After the word: what is kicked from here on is seen.
    RunCheckpoints(Status::Ok());
    const uint64_t wanted = compactions_wanted_.load();
    RoomAsks room_in;
    uint64_t room_wanted = 0;
    {
      std::lock_guard lock(space_mutex_);
      room_in.swap(room_in_);
      room_wanted = room_passes_wanted_;
    }
    const uint64_t used_before = ledger_.used_bytes();
    bool evicted = false, made_room = false, more = false;
    Status status;
    round_.Begin();
    try {
      ledger_.LookAtDisk();
      (void)manifest_.CountWritten();  // Each segment of the log begins a round.
      {
        Lock lock(mutex_);
        status = engine::DecideAll(&tree_, &lock);
      }
      if (status.ok()) status = CountFutureAsNow();
      if (status.ok()) status = DropExpired();
      if (Goes(status)) {
        const bool all = wanted > compactions_done_;
        status = GiveBack(all ? Round::kAll : idle ? Round::kIdle : Round::kBusy, &more);
      }
      if (Goes(status)) {
        const Status evict =
            EvictAsNeeded(room_in, /*stuck=*/!more && !round_.held(), &evicted, &made_room);
        if (status.ok() || !Goes(evict)) status = evict;
      }
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();
    }
    pacer_.End();
    const bool goes = Goes(status);
    if (!goes) log_gate_.Open();
    space_waits_ = status.code() == StatusCode::kNoSpace;
    if ((status.ok() || space_waits_) && !round_.would_not_go().ok()) {
      status = round_.would_not_go();
    }
    if (!pacer_.stopped()) {
      background_fails_ = !status.ok() && status.code() != StatusCode::kNoSpace;
    }
    // Who waits for room goes on waiting: a reader that ends wakes this thread.
    const bool waits_for_readers = round_.held() && goes && !made_room && !more;
    {
      std::lock_guard lock(space_mutex_);
      // Whoever waits may not have looked when the next round ends.
      if (wanted > compactions_done_) compaction_status_ = status;
      compactions_done_ = wanted;
      if (waits_for_readers) {
        for (auto& [ns, asks] : room_in) room_in_[ns].merge(asks);
      } else {
        room_passes_done_ = room_wanted;
        if (made_room || more) room_made_for_ = room_wanted;
        if (room_passes_wanted_ == room_wanted) room_is_wanted_.store(false);
      }
    }
    // Also where nobody waits: the log was refused when there was less room.
    ledger_.LookAtDisk();
    const bool freed = ledger_.used_bytes() < used_before &&
                       ledger_.room(wal::Purpose::kData) >= options_.segment_bytes;
    if (evicted || more || freed) log_->SpaceWasFreed();
    signals_.EndRound();
    if (!status.ok() && !pacer_.stopped()) OnEventOf("space: ", status);
    // Until it is enough, or nothing is left to take.
    if ((evicted || more) && goes) {
      idle = false;
      continue;
    }
    // What was tried in vain is tried again after something else happened.
    const bool tried = idle && round_.reclaimed_bytes() == 0;
    idle = AwaitWork(seen, /*idle_work=*/goes && !tried && IdleWorkIsDue());
  }
  {
    std::lock_guard lock(space_mutex_);
    space_ended_ = true;
  }
  RunCheckpoints(store_is_closed_);
  signals_.EndRound();
}

void StoreCore::StopSpace() {
  pacer_.Stop();
  log_gate_.End();
  KickSpace();
  space_thread_.reset();
  background_executor_.reset();
}

}  // namespace cairn
