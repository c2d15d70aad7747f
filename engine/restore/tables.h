// SPDX-License-Identifier: Apache-2.0
//
// Open snapshot tables, so that a restore does not open a file that the one before had open.
// Thread-safe; no lock is held while a file is opened.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "sstable/snapshot_table.h"

namespace cairn::engine {

class TableSet {
 public:
  explicit TableSet(size_t open_max) : open_max_(open_max) {}
  void SetContext(sstable::TableContext context) { context_ = std::move(context); }
  const sstable::TableContext& context() const { return context_; }

  // As SnapshotTable::Open. Whoever holds the pointer keeps the file open.
  Result<std::shared_ptr<sstable::SnapshotTable>> Open(uint64_t number);
  // The table is to be deleted: nobody gets it from here any more.
  void Forget(uint64_t number);
  // Closes what nobody else holds.
  void Clear();

 private:
  struct Entry {
    std::shared_ptr<sstable::SnapshotTable> table;
    uint64_t used = 0;  // By the clock below.
  };
  const size_t open_max_;
  sstable::TableContext context_;
  std::mutex mutex_;
  std::map<uint64_t, Entry> open_;
  uint64_t clock_ = 0;
};

}  // namespace cairn::engine
