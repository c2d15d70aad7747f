// SPDX-License-Identifier: Apache-2.0
//
// Puts the content to be sealed into tables, one after the other:
//
//   write   durable                                              paced
//   verify  read back and compared                               paced
//   add     an op of kind seal, and the tree names the table     commit lock
//
// While a table is written another thread reads the one before back. That needs room for both
// beside the reserve, memory, and that nobody else uses the device or all wait for the background:
// then the device reads and writes at once, and one core unpacks while another packs. Otherwise a
// table is verified before the next is written. Tree flushes that are due are made all the while.
//
// For the space thread, for one stretch of sealing; no lock may be held around calls. A crash costs
// the tables that the tree does not name yet; the next opening removes their files.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/background/dead_tables.h"
#include "engine/background/index_flusher.h"
#include "engine/background/seal_reader.h"
#include "engine/background/seal_table.h"
#include "engine/background/space_deps.h"
#include "engine/background/used_nodes.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn::engine {

// The content of tables. The nodes stay in memory until the tree names the last table.
struct SealBatch {
  explicit SealBatch(Committer* committer) : used(committer) {}
  UsedNodes used;
  std::vector<SealSource> sources;
};

class TableSeries {
 public:
  TableSeries(const SpaceDeps& deps, IndexFlusher* flusher, DeadTables* dead_tables);
  TableSeries(const TableSeries&) = delete;
  TableSeries& operator=(const TableSeries&) = delete;

  // Writes a table of these sources of the batch. Errors, which may be those of the table before
  // it: kNoSpace, kIoError, kOutOfMemory, kCorruption of what is read or read back, kCancelled once
  // stopped. May throw std::bad_alloc.
  Status Add(std::shared_ptr<SealBatch> batch, std::span<SealSource> sources);
  // Reads back the last table and adds it to the tree. Call it at the end, whatever Add returned or
  // threw: otherwise the table written last is lost. Errors as of Add.
  Status Finish();

 private:
  struct Table {
    std::shared_ptr<SealBatch> batch;
    std::span<SealSource> sources;
    WrittenTable written;
  };
  // A read-back, made by this thread or another, whichever begins first.
  class ReadBackJob;
  bool MayOverlap() const;
  Status Write(Table* table);
  Status WriteBeside(Table* next, Status* verified);
  Status ReadBackHere();
  Status ReadBack(const std::function<Status(uint64_t)>& take) const;
  Status Report();

  const SpaceDeps& deps_;
  IndexFlusher* const flusher_;
  DeadTables* const dead_tables_;
  StoreSealReader reader_;
  StageMemory stages_;
  Table last_;  // Written, but not in the tree yet. No batch: none.
};

}  // namespace cairn::engine
