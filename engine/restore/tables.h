// SPDX-License-Identifier: Apache-2.0
//
// Open snapshot tables, so that a restore need not read a footer and a list of fragments
// again. Bounded by the size of these lists; the least recently used go first. io::FileCache
// decides which of their files stay open. Thread-safe; no lock is held while a file is
// opened.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/core/mutex.h"
#include "sstable/snapshot_table.h"

namespace cairn::engine {

// How many files of tables may stay open.
size_t OpenFilesKept(io::FileSystem& files);

class TableSet {
 public:
  explicit TableSet(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  void SetContext(sstable::TableContext context) { context_ = std::move(context); }
  const sstable::TableContext& context() const { return context_; }

  // As SnapshotTable::Open.
  Result<std::shared_ptr<sstable::SnapshotTable>> Open(uint64_t number);
  // The table is to be deleted: nobody gets it, or its file, from here any more. Needs no memory.
  void Forget(uint64_t number);
  void Clear();
  // Size of the lists, read or not. The most recently used one counts and stays, however long it
  // is.
  uint64_t bytes() const;

 private:
  struct Entry {
    uint64_t number = 0;
    std::shared_ptr<sstable::SnapshotTable> table;
  };
  using Entries = std::list<Entry>;  // Most recently used first.
  static uint64_t ChargeOf(const sstable::SnapshotTable& table);
  const uint64_t bytes_max_;
  sstable::TableContext context_;
  mutable Mutex mutex_;
  Entries entries_ CAIRN_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Entries::iterator> places_ CAIRN_GUARDED_BY(mutex_);
  uint64_t bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::engine
