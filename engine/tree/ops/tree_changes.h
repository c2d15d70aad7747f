// SPDX-License-Identifier: Apache-2.0
//
// Applies ops to the tree within a transaction, live and in a replay alike.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "engine/tree/memory/tree.h"
#include "engine/tree/ops/transaction.h"

namespace cairn::engine {

class TreeChanges final : public Transaction::Participant {
 public:
  TreeChanges(Tree* tree, Transaction* transaction)
      : Participant(transaction), tree_(tree), transaction_(transaction) {}

  // kCorruption when the op does not fit the tree (only possible when replaying a bad log); then
  // the caller must roll the transaction back. `parts`: payload that earlier records of the unit
  // hold.
  Status Apply(const Op& op, std::span<const Part> parts = {});

 private:
  // The record's first `token_prefix_bytes` hold header and token ids.
  void OnCommit(const wal::Location& location, uint32_t token_prefix_bytes) override;
  void OnRollback() override { Clear(); }

  Status ApplyModel(const Op& op);
  Status ApplyKnownModel(const Op& op, ModelSpec spec);
  Status ApplyCreate(const Op& op);
  Status ApplyFork(const Op& op);
  Status ApplyAppend(const Op& op, std::span<const Part> parts);
  Status ApplyRewind(const Op& op);
  Status ApplyRename(const Op& op);
  Status ApplyDrop(const Op& op);
  Status ApplySeal(const Op& op);
  Status ApplyEvict(const Op& op);
  Status ApplyFill(const Op& op);
  Status ApplyKeep(const Op& op);
  Status ApplyNamespace(const Op& op);
  Status ApplyJoin(const Op& op);
  Status ApplyTrim(const Op& op);
  Status ApplyDerive(const Op& op);
  void DropDerived(Node* node, uint64_t beyond);
  void ReplaceDerived(Node* node, size_t first, size_t last, std::vector<Mark> now);
  void RecordMoved(const Node& parent, uint64_t to);
  void RelinkAbove(const Node& parent, uint64_t to);
  void TakeIn(Node* node, Node* parent, const std::vector<uint64_t>& ends);
  void EvictRange(Node* node, uint32_t lane, uint64_t begin);
  void NeedKv(Node* node);
  void ReplaceExtents(Node* node, size_t lane, size_t first, size_t last,
                      std::vector<Extent> extents);
  void NameTable(const TableRef& table, uint64_t stored_bytes);
  Status SealLane(Node* node, const SealedRange& range, const Place& place);
  Status SealMark(Node* node, const SealedRange& range, const Place& place);

  Status AddExtents(Node* node, Head* head, const Op& op, std::span<const Part> parts);
  // `as`: where it lies, how much of that must be read, and whether it is exact.
  Status AddRange(Node* node, Head* head, const LaneRange& range, const Extent& as);
  Node* MakeNode(const Op& op, const Head& head);
  void MoveHead(Head* head, Node* to, std::vector<uint64_t> lengths);
  void TrimNode(Node* node, const std::vector<uint64_t>& lengths);
  void TakeId(uint64_t id);
  void RecordLogged(uint64_t segment, uint64_t node);

  void Clear();

  Tree* const tree_;
  Transaction* const transaction_;
  uint32_t op_index_ = 0;
  std::vector<uint64_t> touched_;  // Nodes with new extents or marks.
  struct Filled {
    uint64_t node = 0;
    uint32_t lane = 0;
    uint64_t begin = 0;
  };
  std::vector<std::pair<uint64_t, uint64_t>> unsealed_;  // {node, tokens with new KV}
  std::vector<Filled> filled_;  // Extents beside gaps or between others; placed at commit.
  std::vector<uint64_t> left_;  // Nodes that lost a head or an edge.
};

}  // namespace cairn::engine
