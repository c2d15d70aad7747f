// SPDX-License-Identifier: Apache-2.0
//
// The tree as records of the index, so that the log need not hold it for ever:
//
//   H <branch>                   a head
//   M <model>                    a registered model
//   N <node>                     a node: parent, owner, lanes; how many chunks it has
//   N <node> <lane> <chunk>      up to kChunkEntries extents, states or spans, in order
//   T <table>                    a snapshot table
//
// Keys are the letter and big-endian numbers (u64, u16, u32), so that a node's records lie
// together. Edges, heads on nodes and names follow from these and are made when they are loaded.
//
// What changed since the last dump is known to the tree (Tree::Dirty*); a dump writes that and
// nothing else, and of a long lane only the chunks from the first change on.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tree/tree.h"
#include "sstable/lsm_index.h"

namespace cairn::engine {

class TreeRecords {
 public:
  // Under the commit lock: puts all that changed, and notes nodes that are gone, whose records
  // DeleteGone finds. An error leaves the tree as it was, else it counts as dumped.
  static Status Dump(Tree* tree, sstable::WriteBatch* batch, std::vector<uint64_t>* gone);
  // Deletes the records of nodes that were dumped once and are gone. Reads the index, so without
  // the lock.
  static Status DeleteGone(sstable::LsmIndex& index, std::span<const uint64_t> gone,
                           sstable::WriteBatch* batch);
  // Fills an empty tree. kCorruption when the records do not fit each other.
  static Status Load(sstable::LsmIndex& index, Tree* tree);

 private:
  static Status LoadRecord(std::string_view key, std::string_view value, Tree* tree);
  static Status LoadChunk(std::string_view key, std::string_view value, Node* node);
  static Status Link(Tree* tree);
};

}  // namespace cairn::engine
