// SPDX-License-Identifier: Apache-2.0
//
// Makes a whole tree of an index that lost tables: what is certain stays, exactly as it was, and
// everything else goes.
//
// A branch stays if its record, and the records of all nodes of its path with all their chunks, are
// certain (sstable/index_rescue.h). Nodes stay that such a path needs. All other records follow
// from these and are made again: references, orders, sums, and what is used of which table. Two are
// taken as they are found, certain or not: the description of a model, to which a change only adds,
// and the policy of a namespace. The record of a table, if it is lost, is made from the table
// itself.
//
// Why branches cannot be made from snapshot tables: a table names its fragments by node, lane and
// position. It does not say which model a node has, which node comes before it, which branch ends
// on it, nor whether a rewind has replaced the content since.
#pragma once

#include <cstdint>
#include <string>

#include "engine/tree/records/tree_records.h"
#include "sstable/index_rescue.h"

namespace cairn::engine {

struct TreeRescueReport {
  uint64_t kept = 0;       // Branches.
  uint64_t lost = 0;       // Branches of which something can still be read...
  std::string first_lost;  // ...and the name of one.
  uint64_t had = 0;        // Branches that there were; 0: not known.
};

// Brings `index`, which has the whole tables alone, to that state, in its memory. `next_id`: a
// lower bound of the next id. Segments of the log are counted from `counted_from` on. Walks over
// all records twice, and holds about 300 bytes for each branch and 100 for each node meanwhile.
// Errors: those of reads, kOutOfMemory.
Result<TreeRescueReport> RescueTree(const sstable::IndexRescue& read,
                                    const sstable::TableContext& tables, uint64_t next_id,
                                    uint64_t counted_from, sstable::LsmIndex* index);

}  // namespace cairn::engine
