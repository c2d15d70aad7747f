// SPDX-License-Identifier: Apache-2.0
//
// The part of the tree in which the index is out of date: ids of everything that changed since the
// last tree flush, also of what is gone. A tree flush (tree_records.h) writes exactly that, then
// clears it. Part of a Tree: the commit lock guards it. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/tree/memory/node.h"

namespace cairn::engine {

class DirtyRecords {
 public:
  // Each id is in it once. The id is noted before the record is marked: a marked record without an
  // id would never reach the index. May throw, unless ReserveNodes made room.
  void Touch(Node* node);
  void Touch(Head* head);
  void TouchModel(uint64_t model);
  void AddGoneTable(uint64_t table) { gone_tables_.push_back(table); }
  // Makes room for all `in_memory` nodes: they may die where nothing can fail.
  void ReserveNodes(size_t in_memory);

  std::span<const uint64_t> heads() const { return heads_; }
  std::span<const uint64_t> nodes() const { return nodes_; }
  std::span<const uint64_t> models() const { return models_; }
  // Tables that were forgotten since the last tree flush.
  std::span<const uint64_t> gone_tables() const { return gone_tables_; }
  size_t count() const { return heads_.size() + nodes_.size(); }  // Branches and nodes.
  // All of it is flushed. The marks of heads and nodes are cleared by the caller. Cannot fail.
  void Clear();

  // About how many branches and nodes a replay of the changes since ForgetReplayReads would read
  // from the index. Those that were made since then are not counted.
  size_t replay_reads() const { return replay_reads_; }
  void CountReplayRead() { ++replay_reads_; }
  void ForgetReplayReads() { replay_reads_ = 0; }

 private:
  std::vector<uint64_t> heads_, nodes_, models_, gone_tables_;
  size_t replay_reads_ = 0;
};

}  // namespace cairn::engine
