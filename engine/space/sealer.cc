// SPDX-License-Identifier: Apache-2.0
#include "engine/space/sealer.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/constants.h"
#include "engine/space/seal_table.h"
#include "engine/space/used_nodes.h"
#include "engine/tree/decisions.h"
#include "engine/tree/fragment_layout.h"
#include "engine/tree/tree_records.h"

namespace cairn::engine {

using Lock = Committer::Lock;

namespace {

uint64_t RawBytes(const SealSource& source) {
  return FragmentLayout(*source.model, source.lane).position_bytes() * source.count;
}

}  // namespace

// What has to be sealed is known by L records
// of the index and by what the tree logged since its last dump. Others append meanwhile, into the
// same segments, and dumps come between the steps: at the end it must be known for each L record
// whether it only stands for what was sealed. It is not kept track of: the next dump deletes all of
// them up to `segment` and then puts what the tree still has, which is whatever was logged since we
// looked (LoggedNodes::Keep), dumped meanwhile or not.
Status Sealer::SealUpTo(uint64_t segment) {
  std::vector<uint64_t> nodes;
  CAIRN_RETURN_IF_ERROR(TreeRecords::ReadLogged(*means_.index, segment, &nodes));
  struct Kept {
    Sealer* sealer;
    ~Kept() {
      std::lock_guard lock(sealer->mutex_);
      sealer->tree_.logged().Release();
    }
  };
  {
    std::lock_guard lock(mutex_);
    for (const auto& [at, node] : tree_.logged().entries()) {
      if (at <= segment) nodes.push_back(node);
    }
    tree_.logged().Keep();  // What is logged from here on is not looked at.
  }
  const Kept kept{this};
  CAIRN_RETURN_IF_ERROR(SealPlaces(nodes, [segment](const Place& place) {
    return place.log.segment != 0 && place.log.segment <= segment;
  }));
  CAIRN_RETURN_IF_ERROR(means_.log->Flush(io::kNoDeadline));
  const std::lock_guard lock(mutex_);  // Given back before what is kept is released.
  tree_.logged().Forget(segment);
  flusher_->NoteSealed(segment);
  return Status::Ok();
}

// Appends that are held at the log's limit wait for its oldest part, so this ends when the log is
// long: LogRetirer seals that part. What is left of the nodes is taken up by a later round.
Status Sealer::SealDue() {
  wanted_ = false;
  const auto log_is_long = [this] { return means_.gauge->LogIsLong(); };
  if (log_is_long()) return Status::Ok();
  std::vector<uint64_t> nodes;
  {
    std::lock_guard lock(mutex_);
    const bool due = tree_.seal_queue().bytes() >= kSealDueBytes;
    if (!due && postponed_.empty()) return Status::Ok();
    if (due) nodes = tree_.seal_queue().Take(&tree_.residency());
  }
  nodes.insert(nodes.end(), postponed_.begin(), postponed_.end());
  postponed_.clear();
  bool stopped = false;
  const Status sealed = SealPlaces(
      nodes, [](const Place& place) { return place.log.segment != 0; },
      [&] { return stopped = log_is_long(); });
  if (stopped) postponed_ = std::move(nodes);
  return sealed;
}

// Where nothing but one child is left of a node, as that child's. Ascending, as the fragments of a
// table are: a child's number is greater than its parent's.
Status Sealer::SealPlaces(std::span<const uint64_t> nodes,
                          const std::function<bool(const Place&)>& wanted,
                          const std::function<bool()>& enough) {
  UsedNodes used(
      means_.committer);  // From where they are looked at to where they are told of their table.
  std::vector<SealSource> sources;
  const uint64_t table_bytes_max = means_.gauge->TableRawBytesMax();
  uint64_t bytes = 0;
  std::set<uint64_t> left(nodes.begin(), nodes.end());
  while (!left.empty()) {
    const uint64_t node = left.extract(left.begin()).value();
    CAIRN_RETURN_IF_ERROR(flusher_->DumpIfDue());
    CAIRN_ASSIGN_OR_RETURN(const uint64_t child, joiner_->JoinAround(node));
    if (child != 0) {
      left.insert(child);
      continue;
    }
    const size_t first = sources.size();
    {
      Lock lock(mutex_);
      CAIRN_RETURN_IF_ERROR(
          means_.access->LoadToChange({.branches = {}, .nodes = {node}, .names = {}}, &lock));
      if (tree_.FindNode(node) != nullptr) {
        used.Add(node);
        CollectSealSources(tree_, node, wanted, std::min(kSealSourceBytes, table_bytes_max),
                           &sources);
      }
    }
    for (size_t s = first; s < sources.size(); ++s) bytes += RawBytes(sources[s]);
    if (!left.empty() && bytes < table_bytes_max && sources.size() < kTableSourcesMax) {
      continue;
    }
    CAIRN_RETURN_IF_ERROR(SealAll(sources, enough));
    if (enough()) return Status::Ok();
    used.End();
    sources.clear();
    bytes = 0;
  }
  return Status::Ok();
}

// A long conversation alone may be worth several tables.
Status Sealer::SealAll(std::span<SealSource> sources, const std::function<bool()>& enough) {
  StoreSealReader reader(means_.reader,
                         [this](uint64_t read_bytes, uint64_t written_bytes) -> Status {
                           CAIRN_RETURN_IF_ERROR(means_.pacer->Take(read_bytes, written_bytes));
                           CAIRN_RETURN_IF_ERROR(means_.log->poisoned());
                           return flusher_->DumpIfDue();
                         });
  const uint64_t table_bytes_max = means_.gauge->TableRawBytesMax();
  for (size_t begin = 0; begin < sources.size();) {
    size_t end = begin;
    for (uint64_t bytes = 0;
         end < sources.size() && bytes < table_bytes_max && end - begin < kTableSourcesMax; ++end) {
      bytes += RawBytes(sources[end]);
    }
    CAIRN_RETURN_IF_ERROR(SealInto(sources.subspan(begin, end - begin), &reader));
    if (enough()) break;
    begin = end;
  }
  return Status::Ok();
}

// One table, and the log records that make the tree use it.
Status Sealer::SealInto(std::span<SealSource> sources, StoreSealReader* reader) {
  reader->Expect(sources);
  means_.reader->Hurry(means_.gauge->LogIsLong());
  CAIRN_ASSIGN_OR_RETURN(
      const sstable::SnapshotInfo info,
      WriteSealTable(&means_.reader->tables(), means_.options->allocator, sources, reader,
                     means_.parallel_for, means_.options->max_memory_bytes / kKeptShare));
  bool used = false;
  for (size_t begin = 0; begin < sources.size(); begin += kSealedRangesAtOnce) {
    const auto some = sources.subspan(begin, std::min(kSealedRangesAtOnce, sources.size() - begin));
    const auto sealed = Guarded([&] {
      return means_.host->Change(
          {.branches = {}, .nodes = {}, .names = {}, .decided = true},  // They are in memory.
          [&](const Tree& tree) -> Result<Op> {
            Op op = ResolveSeal(tree, info.number, info.bytes, some);
            if (op.sealed.empty()) return Status(StatusCode::kNotFound, "dropped meanwhile");
            return op;
          },
          wal::Log::Purpose::kReclaim);
    });
    if (!sealed.ok() && sealed.status().code() != StatusCode::kNotFound) {
      if (!used)
        CAIRN_RETURN_IF_ERROR(dead_tables_->Delete(info.number, info.bytes));  // Nothing names it.
      return sealed.status();
    }
    used |= sealed.ok();
  }
  means_.counters->seals.fetch_add(1, std::memory_order_relaxed);
  means_.counters->sealed_bytes.fetch_add(info.raw_bytes, std::memory_order_relaxed);
  return used ? Status::Ok() : dead_tables_->Delete(info.number, info.bytes);
}

bool Sealer::BecomesDue() {
  return tree_.seal_queue().bytes() >= kSealDueBytes && !wanted_.exchange(true);
}

}  // namespace cairn::engine
