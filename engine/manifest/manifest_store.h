// SPDX-License-Identifier: Apache-2.0
//
// Owns the manifest of an open store: the current MANIFEST-n, the table numbers that it makes
// durable, and the counter of bytes written that it carries. Replacing it means a write and a
// rename, so callers that do it take turns, and no lock is held meanwhile.
//
// A read-only store shows a manifest of the writer's instead, with the point of its history up to
// which it was seen (Show).
//
// Thread-safe, except where marked. Calls that replace the manifest wait for I/O, so no lock may
// be held around them. Errors: those of WriteManifest, and of wal::Log::CheckLock before it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/executor.h"
#include "base/io/world.h"
#include "engine/manifest/manifest.h"
#include "sstable/table_files.h"
#include "wal/log.h"

namespace cairn::engine {

class ManifestStore {
 public:
  // `now_ns`: the wall clock, from any thread. `tables` counts bytes written to tables.
  ManifestStore(const io::World& world, std::string directory, std::function<uint64_t()> now_ns,
                const sstable::TableCounters* tables);
  ManifestStore(const ManifestStore&) = delete;
  ManifestStore& operator=(const ManifestStore&) = delete;

  // --- For the opening, by one thread, before other threads know this.
  // The manifest that was read, or the first of a new store.
  void Begin(Manifest manifest);
  const Manifest& at_opening() const { return manifest_; }
  // The log, which outlives all other calls, and the epoch in which this store writes it.
  void SetLog(wal::Log* log, uint64_t epoch);
  Status WriteFirst();
  // Begins a new history that continues from `last_sequence`. `truncated_epoch`, if it is not 0,
  // was used in a part of the log that is about to be truncated. If no segment of the log is
  // counted yet, those from `next_segment` on are. A full disk does not keep the
  // store from being opened, if nothing is lost by it: then Ok, and `unwritten` says why the
  // history did not change.
  Status BeginHistory(const HistoryId& id, uint64_t last_sequence, uint64_t truncated_epoch,
                      uint64_t next_segment, Status* unwritten);
  // Removes older files than the one that was read.
  Status RemoveOld();
  // This table exists: its number and those below are not given again.
  void NameTable(uint64_t number);

  // --- A store that writes.
  // See sstable::TableCallbacks.
  Result<uint64_t> NewTableNumber();
  Status Edit(const std::function<void(Manifest*)>& edit);
  // In the last 24 hours. Bytes written since the last call count as written now.
  HourlyWriteCounter CountWritten();

  // --- A store that reads.
  // From here on this manifest is shown, seen up to `sequence`.
  void Show(Manifest manifest, uint64_t sequence);
  // Whether everything that was shown is so in that one, too.
  bool IsContinuedBy(const Manifest& other) const;

  // --- For any store.
  Manifest Copy() const;
  uint64_t number() const;  // 0: there is none yet.
  HistoryId history() const;
  StoreId store() const;
  uint64_t IndexBytes() const;
  std::vector<wal::RestingSegment> resting() const;
  uint64_t epoch() const { return epoch_; }

 private:
  Status Replace(Manifest next);

  const io::World world_;
  const std::string directory_;
  const std::function<uint64_t()> now_ns_;
  const sstable::TableCounters* const tables_;
  wal::Log* log_ = nullptr;
  uint64_t epoch_ = 0;

  // The holder of the turn writes manifest_ and next_table_, and may read them without the mutex.
  io::Turn turn_{*world_.scheduler};
  uint64_t next_table_ = 1;
  mutable Mutex mutex_;  // Held to change the next two, or to copy them without the turn.
  Manifest manifest_;
  HistoryPoint seen_;  // What a reader shows.

  Mutex written_mutex_;  // Nothing else is taken under it.
  HourlyWriteCounter written_ CAIRN_GUARDED_BY(written_mutex_);
  // Bytes written by the log and the tables, and manifest_bytes_, at the last count.
  uint64_t counted_bytes_ CAIRN_GUARDED_BY(written_mutex_) = 0;
  uint64_t manifest_bytes_ CAIRN_GUARDED_BY(written_mutex_) = 0;  // Written.
};

}  // namespace cairn::engine
