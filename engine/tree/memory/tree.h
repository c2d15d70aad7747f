// SPDX-License-Identifier: Apache-2.0
//
// The conversation tree: models, nodes, branches, and where the content of every position lies. No
// locks and no I/O; the commit lock of the store guards it.
//
// All of it is in the index (tree_records.h). In memory is what is in use, and what the index does
// not have yet:
//   - models and tables, always;
//   - some branches, and with each of them every node of its path;
//   - everything that changed since the last tree flush, also what was removed since then.
// So decisions about a branch in memory need no read. tree_loader.h loads whatever is missing
// before the lock is held for good.
//
// A change goes two ways in:
//   live    Resolve*() (decisions.h) checks the arguments and decides (which node, in place or not)
//           -> Op
//   replay  the Op comes out of the log
// and both end in TreeChanges::Apply, so that memory and log cannot drift apart.
//
// Tree owns the parts, each with a contract of its own, and answers the most frequent questions.
// Only TreeChanges, and liveness.h for what dies of a change, modify branches and nodes; only
// tree_intake.h and TreeRecords bring them in from the index.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tree/memory/dirty_records.h"
#include "engine/tree/memory/lease_table.h"
#include "engine/tree/memory/leftovers.h"
#include "engine/tree/memory/logged_nodes.h"
#include "engine/tree/memory/node.h"
#include "engine/tree/memory/op.h"
#include "engine/tree/memory/residency.h"
#include "engine/tree/memory/seal_queue.h"
#include "engine/tree/memory/segment_usages.h"
#include "engine/tree/memory/table_usages.h"
#include "engine/tree/memory/tree_sums.h"

namespace cairn::sstable {
class LsmIndex;
}

namespace cairn::engine {

// Payload of a large append that is already in the log, before the record that makes it count.
struct Part {
  wal::Location location;
  std::vector<LaneRange> lanes;
  std::vector<uint32_t> prefix_bytes;  // One a lane range.
};

// Errors that several parts of the tree return.
Status NoBranch(uint64_t branch);  // kNotFound.
Status DoesNotApply(const Op& op,
                    const std::string& what);  // kCorruption: only a bad log can bring it.

class Tree {
 public:
  // --- Looking, at what is in memory
  const Head* FindHead(uint64_t branch) const { return residency_.FindHead(branch); }
  const Head* FindHead(std::string_view ns, std::string_view name) const {
    return residency_.FindHead(ns, name);
  }
  const Node* FindNode(uint64_t node) const { return residency_.FindNode(node); }
  // A node on the path of a branch that is in memory, so the node is as well. Null for 0.
  const Node* OnPath(uint64_t node) const;
  bool KnowsHead(uint64_t branch) const { return residency_.KnowsHead(branch); }
  bool KnowsNode(uint64_t node) const { return residency_.KnowsNode(node); }
  using NameKey = Residency::NameKey;
  void VisitNames(const NameKey& from, const std::function<bool(const NameKey&)>& visit) const {
    residency_.VisitNames(from, visit);
  }
  using Models = std::map<uint64_t, std::shared_ptr<const ModelSpec>>;
  const Models& models() const { return models_; }
  std::shared_ptr<const ModelSpec> FindModel(uint64_t model) const;
  const ModelSpec& ModelOf(const Node& node) const { return *models_.at(node.model); }
  const std::map<uint64_t, TableUsage>& tables() const { return table_usages_.all(); }
  const TreeCounts& counts() const { return sums_.counts(); }
  using Namespaces = TreeSums::Namespaces;
  const Namespaces& namespaces() const { return sums_.namespaces(); }
  const NamespaceUsage* FindNamespace(std::string_view ns) const { return sums_.FindNamespace(ns); }
  // Bytes that died in tables and in segments that rest (TableUsages::died_bytes, SegmentUsages),
  // and those that untrimmed nodes will lose when they are trimmed.
  uint64_t dead_noted_bytes() const {
    return table_usages_.died_bytes() + segment_usages_.died_bytes() + leftovers_.untrimmed_bytes();
  }

  // --- The parts
  const Residency& residency() const { return residency_; }
  const DirtyRecords& dirty() const { return dirty_; }
  const TreeSums& sums() const { return sums_; }
  const TableUsages& table_usages() const { return table_usages_; }
  const SegmentUsages& segment_usages() const { return segment_usages_; }
  const LoggedNodes& logged() const { return logged_; }
  const SealQueue& seal_queue() const { return seal_queue_; }
  const Leftovers& leftovers() const { return leftovers_; }
  const LeaseTable& leases() const { return leases_; }
  Residency& residency() { return residency_; }
  DirtyRecords& dirty() { return dirty_; }
  TreeSums& sums() { return sums_; }
  TableUsages& table_usages() { return table_usages_; }
  SegmentUsages& segment_usages() { return segment_usages_; }
  LoggedNodes& logged() { return logged_; }
  SealQueue& seal_queue() { return seal_queue_; }
  Leftovers& leftovers() { return leftovers_; }
  LeaseTable& leases() { return leases_; }  // Content that must stay though no branch needs it.

  // Has everything that is not in memory; null: there is none.
  const std::shared_ptr<sstable::LsmIndex>& index() const { return index_; }
  void SetIndex(std::shared_ptr<sstable::LsmIndex> index) { index_ = std::move(index); }
  // Changes with every write to the index: what was read from it before may be out of date.
  uint64_t generation() const { return generation_; }
  void SetGeneration(uint64_t generation) { generation_ = generation; }

  // --- Changes that concern several parts
  void SetModel(uint64_t model, std::shared_ptr<const ModelSpec> spec);  // Or another description.
  void RemoveModel(uint64_t model) { models_.erase(model); }
  // Models, branches and nodes share one counter; ids are never reused.
  uint64_t next_id() const { return next_id_; }
  void SetNextId(uint64_t id) { next_id_ = id; }
  // An id for a node that a kAppend will make. Unused if no append does.
  uint64_t TakeId() { return next_id_++; }
  // Positions of a lane are needed (1) or not any more (-1), within a Recount of the node. Cannot
  // fail.
  void CountExtent(Node* node, size_t lane, const Extent& extent, int sign);
  // The same for a state, of which the node's lanes know nothing.
  void CountMark(const Place& place, int sign);
  // The branch was read, or forked. Logged nowhere; may throw.
  void MarkUsed(uint64_t branch, uint64_t now_ns);
  // The same for a branch whose recorded use lies in the future.
  void MarkUsedBefore(uint64_t branch, uint64_t now_ns);
  // The table's file is gone. REQUIRES: nothing in it is live.
  void ForgetTable(uint64_t table);

 private:
  Models models_;
  uint64_t next_id_ = 1;
  std::shared_ptr<sstable::LsmIndex> index_;
  uint64_t generation_ = 0;
  Residency residency_;
  DirtyRecords dirty_;
  TreeSums sums_;
  TableUsages table_usages_;
  SegmentUsages segment_usages_;
  LoggedNodes logged_;
  SealQueue seal_queue_;
  Leftovers leftovers_;
  LeaseTable leases_;
};

// Lives around every change of a node's lanes and keeps the sums right.
class Recount {
 public:
  Recount(Tree* tree, const Node& node) : tree_(tree), node_(node) { Count(-1); }
  ~Recount() { Count(1); }
  Recount(const Recount&) = delete;
  Recount& operator=(const Recount&) = delete;

 private:
  void Count(int sign) { tree_->sums().CountLanes(node_, tree_->ModelOf(node_), sign); }

  Tree* const tree_;
  const Node& node_;
};

}  // namespace cairn::engine
