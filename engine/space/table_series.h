// SPDX-License-Identifier: Apache-2.0
//
// Puts what is to be sealed into tables, one after the other:
//
//   write   durable                                              paced
//   prove   read back and compared                               paced
//   tell    an op of kind seal, and the tree names the table     commit lock
//
// While a table is written the one before is proved by another thread, where nobody else uses the
// device, or all wait for the background; and where there is room for both beside the reserve, and
// memory: the device reads and writes at once, and a core unpacks while another packs. Else one
// after the other. Dumps that are due are made all the while.
//
// The space thread's, for one stretch of sealing; no lock may be held around its calls. A crash
// costs tables that the tree was not told of; the next opening removes their files.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/space/dead_tables.h"
#include "engine/space/index_flusher.h"
#include "engine/space/seal_reader.h"
#include "engine/space/seal_table.h"
#include "engine/space/space_means.h"
#include "engine/space/used_nodes.h"
#include "engine/tree/seal_source.h"

namespace cairn::engine {

// What tables are made of. The nodes stay in memory until the tree is told of the last.
struct SealBatch {
  explicit SealBatch(Committer* committer) : used(committer) {}
  UsedNodes used;
  std::vector<SealSource> sources;
};

class TableSeries {
 public:
  TableSeries(const SpaceMeans& means, IndexFlusher* flusher, DeadTables* dead_tables);
  TableSeries(const TableSeries&) = delete;
  TableSeries& operator=(const TableSeries&) = delete;

  // Writes a table of these sources of the batch. Errors, which may be those of the table before
  // it: kNoSpace, kIoError, kOutOfMemory, kCorruption of what is read or read back, kCancelled once
  // stopped. May throw std::bad_alloc.
  Status Add(std::shared_ptr<SealBatch> batch, std::span<SealSource> sources);
  // Proves the last and tells of it. To be called at the end, whatever Add returned or threw: what
  // it had written is not lost then. Errors as of Add.
  Status Finish();

 private:
  struct Table {
    std::shared_ptr<SealBatch> batch;
    std::span<SealSource> sources;
    WrittenTable written;
  };
  // A proof that this thread or another makes, whichever begins first.
  class Proof;
  bool MayOverlap() const;
  Status Write(Table* table);
  Status WriteBeside(Table* next, Status* proved);
  Status ProveHere();
  Status Prove(const std::function<Status(uint64_t)>& take) const;
  Status Tell();

  const SpaceMeans& means_;
  IndexFlusher* const flusher_;
  DeadTables* const dead_tables_;
  StoreSealReader reader_;
  StageMemory stages_;
  Table last_;  // Is written, and the tree was not told. No batch: there is none.
};

}  // namespace cairn::engine
