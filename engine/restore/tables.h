// SPDX-License-Identifier: Apache-2.0
//
// Open snapshot tables, so that a restore does not open a file that the one before had open, nor
// read its list of fragments. Bounded by their number and by what these lists take; those not used
// for longest are closed.
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
  TableSet(size_t open_max, uint64_t bytes_max) : open_max_(open_max), bytes_max_(bytes_max) {}
  void SetContext(sstable::TableContext context) { context_ = std::move(context); }
  const sstable::TableContext& context() const { return context_; }

  // As SnapshotTable::Open. Whoever holds the pointer keeps the file open.
  Result<std::shared_ptr<sstable::SnapshotTable>> Open(uint64_t number);
  // The table is to be deleted: nobody gets it from here any more.
  void Forget(uint64_t number);
  // Closes what nobody else holds.
  void Clear();
  // What the lists take, read or not. The one used last counts and stays, however long it is.
  uint64_t bytes() const;

 private:
  struct Entry {
    std::shared_ptr<sstable::SnapshotTable> table;
    uint64_t used = 0;  // By the clock below.
  };
  static uint64_t ChargeOf(const sstable::SnapshotTable& table);
  const size_t open_max_;
  const uint64_t bytes_max_;
  sstable::TableContext context_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> open_;
  uint64_t bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace cairn::engine
