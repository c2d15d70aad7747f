// SPDX-License-Identifier: Apache-2.0
//
// Flushes the tree: writes its changes into the index.
#include <span>
#include <string>

#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"

namespace cairn::engine {

namespace {

Status FlushHeads(Tree* tree, sstable::WriteBatch* batch) {
  Residency& memory = tree->residency();
  // Deletions first: another branch may have the name now.
  for (const uint64_t id : tree->dirty().heads()) {
    const Head* const head = memory.HeadOrGone(id);
    if (head == nullptr) continue;
    if (head->gone) {
      CAIRN_RETURN_IF_ERROR(DeleteHead(*head, batch));
    } else if (IsRenamed(*head)) {
      CAIRN_RETURN_IF_ERROR(DeleteName(*head, batch));
    }
  }
  for (const uint64_t id : tree->dirty().heads()) {
    Head* const head = memory.MutableHead(id);
    if (head == nullptr) continue;
    head->flushed.name.reserve(head->name.size());  // MarkAllFlushed cannot fail.
    CAIRN_RETURN_IF_ERROR(PutHead(*head, batch));
  }
  return Status::Ok();
}

Status FlushNodes(Tree* tree, sstable::WriteBatch* batch) {
  for (const uint64_t id : tree->dirty().nodes()) {
    Node* const node = tree->residency().NodeOrGone(id);
    if (node == nullptr) continue;
    node->flushed.lanes.reserve(node->lanes.size());
    CAIRN_RETURN_IF_ERROR(node->gone ? DeleteNode(*node, batch) : PutNode(*node, batch));
  }
  for (const auto& [segment, node] : tree->logged().Unflushed()) {
    CAIRN_RETURN_IF_ERROR(batch->Put(LoggedKey(segment, node), ""));
  }
  for (const auto& [table, node] : tree->table_usages().joined()) {
    if (!tree->tables().contains(table) || tree->FindNode(node) == nullptr) continue;
    CAIRN_RETURN_IF_ERROR(batch->Put(JoinedKey(table, node), ""));
  }
  return Status::Ok();
}

Status FlushRoots(const Tree& tree, sstable::WriteBatch* batch) {
  for (const uint64_t id : tree.dirty().models()) {
    const auto model = tree.FindModel(id);
    if (model == nullptr) continue;  // Its registration was undone.
    CAIRN_RETURN_IF_ERROR(PutModel(id, *model, batch));
  }
  for (const uint64_t id : tree.dirty().gone_tables()) {
    CAIRN_RETURN_IF_ERROR(batch->Delete(Key('T', id)));
  }
  for (const auto& [id, table] : tree.tables()) {
    if (!table.dirty) continue;
    const TableBytes bytes{table.bytes, table.sealed_bytes, table.live_bytes};
    CAIRN_RETURN_IF_ERROR(batch->Put(Key('T', id), Text(std::as_bytes(std::span(&bytes, 1)))));
  }
  for (const auto& [segment, use] : tree.segment_usages().all()) {
    if (!use.dirty) continue;
    const SegmentBytes bytes{use.live_bytes, use.kv_extents, use.most_live_bytes};
    const std::string key = Key('S', segment);
    CAIRN_RETURN_IF_ERROR(use.live_bytes == 0
                              ? batch->Delete(key)
                              : batch->Put(key, Text(std::as_bytes(std::span(&bytes, 1)))));
  }
  for (const auto& [name, use] : tree.namespaces()) {
    if (!use.dirty) continue;
    const NamespaceBytes bytes{OpPolicy::Of(use.policy), use.branches, use.nodes, use.bytes};
    CAIRN_RETURN_IF_ERROR(use.empty()
                              ? batch->Delete('P' + name)
                              : batch->Put('P' + name, Text(std::as_bytes(std::span(&bytes, 1)))));
  }
  const TreeCounts& sums = tree.counts();
  const CountBytes counts{sums.branches, sums.nodes,     sums.kv_lanes,      sums.kv_extents,
                          sums.tokens,   sums.raw_bytes, sums.evicted_bytes, tree.next_id()};
  return batch->Put(kCountsKey, Text(std::as_bytes(std::span(&counts, 1))));
}

// Nothing here can fail.
void MarkAllFlushed(Tree* tree) {
  Residency& memory = tree->residency();
  for (const uint64_t id : tree->dirty().nodes()) {
    Node* const node = memory.NodeOrGone(id);
    if (node == nullptr) continue;
    if (node->gone) {
      memory.RemoveNode(id);
      continue;
    }
    MarkFlushed(node);
    node->dirty = false;
    memory.TrimRefs(node->parent);
    memory.Charge(node);
  }
  for (const uint64_t id : tree->dirty().heads()) {
    Head* const head = memory.HeadOrGone(id);
    if (head == nullptr) continue;
    if (head->gone) {
      memory.RemoveHead(id);
      continue;
    }
    MarkFlushed(head);
    head->dirty = false;
    memory.TrimRefs(head->node);
    memory.Charge(head);
  }
  tree->sums().MarkFlushed();
  tree->table_usages().MarkFlushed();
  tree->segment_usages().MarkFlushed();
  tree->dirty().Clear();
  tree->logged().MarkFlushed();
  tree->SetGeneration(tree->generation() + 1);
}

}  // namespace

Status TreeRecords::Flush(Tree* tree, sstable::WriteBatch* batch) {
  CAIRN_RETURN_IF_ERROR(FlushHeads(tree, batch));
  CAIRN_RETURN_IF_ERROR(FlushNodes(tree, batch));
  CAIRN_RETURN_IF_ERROR(FlushRoots(*tree, batch));
  tree->residency().RememberDirty(tree->dirty());
  MarkAllFlushed(tree);
  return Status::Ok();
}

}  // namespace cairn::engine
