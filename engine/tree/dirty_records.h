// SPDX-License-Identifier: Apache-2.0
//
// Which part of the tree the index does not have as it is: ids of all that changed since the last
// dump, also of what is gone. A dump (tree_records.h) writes that and nothing else, then clears it.
// Part of a Tree: the commit lock guards it. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/tree/node.h"

namespace cairn::engine {

class DirtyRecords {
 public:
  // Each is in it once. The id is noted before the record is marked: what is marked and not noted
  // would never reach the index. May throw, unless ReserveNodes made room.
  void Touch(Node* node);
  void Touch(Head* head);
  void TouchModel(uint64_t model);
  void NoteGoneTable(uint64_t table) { gone_tables_.push_back(table); }
  // Room for all nodes in memory, which are so many: they may die where nothing can fail.
  void ReserveNodes(size_t in_memory);

  std::span<const uint64_t> heads() const { return heads_; }
  std::span<const uint64_t> nodes() const { return nodes_; }
  std::span<const uint64_t> models() const { return models_; }
  // Tables that were forgotten since the last dump.
  std::span<const uint64_t> gone_tables() const { return gone_tables_; }
  size_t count() const { return heads_.size() + nodes_.size(); }  // Branches and nodes.
  // All of it is dumped. The marks of heads and nodes are the caller's. Cannot fail.
  void Clear();

  // Branches and nodes that a replay of what changed since ForgetReplayReads would read from the
  // index, about: not those that were made since then.
  size_t replay_reads() const { return replay_reads_; }
  void NoteReplayRead() { ++replay_reads_; }
  void ForgetReplayReads() { replay_reads_ = 0; }

 private:
  std::vector<uint64_t> heads_, nodes_, models_, gone_tables_;
  size_t replay_reads_ = 0;
};

}  // namespace cairn::engine
