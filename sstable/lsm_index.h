// SPDX-License-Identifier: Apache-2.0
//
// A log-structured merge index (P. O'Neil et al., Acta Informatica 33, 1996): keys to small values,
// written blindly, kept sorted. It does not know what the records mean.
//
// The way of a record:
//   Apply       into the memtable                               memory only, cannot fail
//   Freeze      the memtable is closed, a new one opened        memory only
//   Flush       the oldest frozen memtable becomes a table of level 0
//   CompactOnce tables of a level are merged into the next, deletions vanish at the bottom
//
// Durability belongs to the caller. Memory is lost in a crash: the caller's log has the records
// until a flush covers them. A flush or merge leaves its new tables durable on disk and returns an
// edit; the index uses it at once, because the contents are the same before and after. The caller
// then logs the edit, and when that record is durable
//   - may release the log up to the mark of a flush,
//   - calls Release with the files that a merge replaced; they are deleted when no reader holds
//     them any more. Until Release no file is ever deleted.
// After a crash Open gets the files that the log names; others are orphans (RemoveTableOrphans).
//
// Thread-safe. A short lock is held for the memtable's insertions and for taking a view; none
// across I/O. One flush and one merge run at a time, each on its caller's thread, concurrently with
// each other and with reads and writes.
//
// Memory: memtable_bytes(), which the caller bounds by Freeze and Flush; 4 to 8 KiB and a file
// handle for each table of 32 MiB; the block cache; about 0.3 MiB for a flush or merge, and 0.3 MiB
// for each input of level 0 and for two more inputs. Four million records of 60 bytes, measured: 9
// tables of 216 MB, 40 KB resident, 3 ms to open, and 6 MB of partitions that the cache holds as
// far as they are in use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/queue_pool.h"
#include "sstable/lookup_rounds.h"
#include "sstable/memtable.h"
#include "sstable/merge_job.h"
#include "sstable/merge_plan.h"
#include "sstable/merging_iterator.h"
#include "sstable/table_files.h"
#include "sstable/tombstone_ranges.h"

namespace cairn::sstable {

struct LsmOptions {
  TableContext tables;
  MergeShape shape;
};

// A file of the index, as a log record or MANIFEST names it.
struct LiveTable {
  uint64_t number = 0;
  uint32_t level = 0;
  uint64_t bytes = 0;
  bool operator==(const LiveTable&) const = default;
};

// Log all of it in one record.
struct IndexEdit {
  std::vector<LiveTable> added;
  std::vector<uint64_t> removed;
};

struct FlushResult {
  uint64_t mark = 0;  // The last Freeze that is covered.
  IndexEdit edit;     // No file when every record of the memtable was a needless deletion.
};

struct ScanOptions {
  std::string end;  // The scan ends before this key; empty: at the last one.
  ReadOptions read;
};

struct LsmStats {
  size_t memtable_bytes = 0;  // Frozen ones included.
  size_t frozen_memtables = 0;
  size_t table_memory_bytes = 0;
  std::array<size_t, kLevels> tables{};
  std::array<uint64_t, kLevels> bytes{};
  uint64_t records = 0;  // In tables; the same key in two of them is two.
  uint64_t tombstones = 0;
  size_t removed_tables = 0;  // On disk still: not released, or held by a reader.
  uint64_t removed_bytes = 0;
};

class LsmIndex {
 public:
  // Reads only the end of each table. kNotFound, kCorruption or kUnsupportedFormat naming the file;
  // kInvalidArgument when the list is impossible (a level beyond kLevels, a number twice).
  static Result<std::unique_ptr<LsmIndex>> Open(const LsmOptions& options,
                                                std::span<const LiveTable> live);
  // REQUIRES: no call is running and no scan is left.
  ~LsmIndex();

  // --- Writing ---
  WriteBatch NewBatch() const { return WriteBatch(options_.tables.allocator); }
  // Makes the records visible, one after the other. Allocates nothing. All of a batch go into the
  // same memtable. REQUIRES: made by NewBatch.
  void Apply(WriteBatch&& batch);

  // --- Reading ---
  // Nothing when the key is absent or deleted. kCorruption, kIoError, kOutOfMemory; kBusy with
  // memory_only when the answer is not in memory.
  LookupResult Get(std::string_view key, const ReadOptions& options = {}) const;
  // The answer of Get for each of the keys, in any order, repeats allowed. All from one state of
  // the tables; records applied meanwhile may or may not show. An error fails only the keys that
  // need the failed block. Blocks that are not in memory are read in rounds, usually two, each with
  // up to kLookupReads blocks in flight: sstable/lookup_rounds.h, which also lists its allocations.
  std::vector<LookupResult> MultiGet(std::span<const std::string_view> keys,
                                     const ReadOptions& options = {}) const;
  // Loads the blocks where scans from these keys begin into the cache, in two rounds like those.
  // Errors are not reported: the scans meet them.
  void ReadAhead(std::span<const std::string_view> keys) const;
  // Live records in order. Each Seek sees the records as of then; later ones may or may not show.
  // The index outlives the scan; while the scan lives it pins the files it reads.
  std::unique_ptr<RecordIterator> NewScan(ScanOptions options = {});

  // --- Keeping it in shape ---
  // Everything applied so far is in tables once a flush has returned this mark or a later one.
  // False when it is already: nothing before the mark needs the log. Marks only grow. After
  // kOutOfMemory nothing has changed.
  Result<bool> Freeze(uint64_t mark);
  // Writes the oldest frozen memtable; nothing when there is none. kBusy while another flush runs.
  // After an error the memtable is still there: try again.
  Result<std::optional<FlushResult>> Flush();
  // Runs one merge if the tables are out of shape. kBusy while another one runs. After an error
  // nothing has changed.
  Result<std::optional<IndexEdit>> CompactOnce();

  // The edit that removed these tables is durable.
  void Release(std::span<const uint64_t> removed);
  // Deletes the released tables that no reader holds, and appends them to `deleted`, if given. Call
  // it now and then. Returns the first error (kIoError); a table that was not deleted is tried
  // again the next time.
  Status DeleteReleased(std::vector<LiveTable>* deleted = nullptr);

  // --- Looking ---
  std::vector<LiveTable> live() const;  // By level, then by number.
  size_t memtable_bytes() const;        // Size of the one being written.
  LsmStats stats() const;
  Status Verify() const;  // Reads every table; the first damage found.

 private:
  class Scan;
  struct Frozen {
    std::shared_ptr<Memtable> memtable;
    uint64_t mark = 0;
  };
  // The state that a reader holds. Immutable.
  struct View {
    std::shared_ptr<Memtable> active;
    std::vector<Frozen> frozen;  // Oldest first.
    std::shared_ptr<const Levels> levels;
  };
  struct Removed {
    LiveTable file;
    std::shared_ptr<const IndexTable> table;  // Null once it was closed.
    bool released = false;
  };

  explicit LsmIndex(const LsmOptions& options)
      : options_(options), queues_(options.tables.files, kLookupReads, kLookupQueuesKept) {}
  std::shared_ptr<const View> view() const;
  void SetViewLocked(View view) CAIRN_REQUIRES(mutex_) {
    view_ = std::make_shared<const View>(std::move(view));
  }
  Result<TableList> Merge(const MergePlan& plan, const std::shared_ptr<const Levels>& levels) const;
  IndexEdit InstallMerge(const MergePlan& plan, const TableList& outputs);

  const LsmOptions options_;
  mutable io::QueuePool queues_;  // For MultiGet.
  mutable Mutex mutex_;
  std::shared_ptr<const View> view_ CAIRN_GUARDED_BY(mutex_);
  TombstoneRanges tombstone_ranges_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Removed> removed_ CAIRN_GUARDED_BY(mutex_);
  uint64_t last_mark_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool flushing_ CAIRN_GUARDED_BY(mutex_) = false;
  bool merging_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::sstable
