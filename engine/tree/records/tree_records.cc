// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/records/tree_records.h"

#include <string>
#include <utility>

#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"

namespace cairn::engine {

Result<std::optional<Head>> TreeRecords::ReadHead(sstable::LsmIndex& index, uint64_t branch) {
  CAIRN_ASSIGN_OR_RETURN(const auto name, index.Get(Key('H', branch)));
  if (!name.has_value()) return std::optional<Head>();
  const std::string key = 'B' + *name;
  CAIRN_ASSIGN_OR_RETURN(const auto value, index.Get(key));
  // It may be renamed or dropped between the two reads; the caller checks that.
  if (!value.has_value()) return std::optional<Head>();
  CAIRN_ASSIGN_OR_RETURN(Head head, GetHead(key, *value));
  if (head.id != branch) return std::optional<Head>();
  return std::optional<Head>(std::move(head));
}

Result<std::optional<Head>> TreeRecords::ReadNamed(sstable::LsmIndex& index, std::string_view ns,
                                                   std::string_view name) {
  const std::string key = 'B' + NameBytes(ns, name, 0);
  CAIRN_ASSIGN_OR_RETURN(const auto value, index.Get(key));
  if (!value.has_value()) return std::optional<Head>();
  CAIRN_ASSIGN_OR_RETURN(Head head, GetHead(key, *value));
  return std::optional<Head>(std::move(head));
}

Result<std::vector<std::optional<Head>>> TreeRecords::ReadNamed(sstable::LsmIndex& index,
                                                                std::span<const Name> names) {
  std::vector<std::string> keys;
  keys.reserve(names.size());
  for (const auto& [ns, name] : names) keys.push_back('B' + NameBytes(ns, name, 0));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<std::optional<Head>> heads;
  heads.reserve(names.size());
  for (auto& found : index.MultiGet(views)) {
    CAIRN_ASSIGN_OR_RETURN(const auto value, std::move(found));
    std::optional<Head>& head = heads.emplace_back();
    if (!value.has_value()) continue;
    CAIRN_ASSIGN_OR_RETURN(head, GetHead(keys[heads.size() - 1], *value));
  }
  return heads;
}

void TreeRecords::WarmNodes(sstable::LsmIndex& index, std::span<const std::optional<Head>> heads) {
  std::vector<std::string> keys;
  for (const std::optional<Head>& head : heads) {
    if (!head.has_value()) continue;
    keys.push_back(Key('N', head->node));
    keys.push_back(RefKey(head->node, {head->lengths[kTokenLane], Ref::kHead, head->id}));
  }
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  static_cast<void>(index.MultiGet(views));
}

Result<std::vector<Head>> TreeRecords::ReadInOrder(sstable::LsmIndex& index,
                                                   const Tree::NameKey& from, size_t limit) {
  std::vector<Head> heads;
  const auto& [ns, name, id] = from;
  const auto scan = index.NewScan({.end = "C", .read = {}});
  for (scan->Seek('B' + NameBytes(ns, name, id)); scan->valid() && heads.size() < limit;
       scan->Next()) {
    CAIRN_ASSIGN_OR_RETURN(Head head, GetHead(scan->key(), *scan->value()));
    if (head.ns != ns) break;
    // A named one has no id in its key, so `from` may lie behind it.
    if (Tree::NameKey{head.ns, head.name, head.id} >= from) heads.push_back(std::move(head));
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return heads;
}

Result<std::unique_ptr<Node>> TreeRecords::ReadNode(sstable::LsmIndex& index, uint64_t id) {
  const auto scan = index.NewScan({.end = Key('N', id + 1), .read = {}});
  scan->Seek(Key('N', id));
  CAIRN_RETURN_IF_ERROR(scan->status());
  if (!scan->valid()) return std::unique_ptr<Node>();
  if (scan->key().size() != kIdKeyBytes) return Damaged(scan->key(), "a chunk without its node");
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<Node> node, GetNode(scan->key(), *scan->value()));
  for (scan->Next(); scan->valid(); scan->Next()) {
    CAIRN_RETURN_IF_ERROR(AddChunk(scan->key(), *scan->value(), node.get()));
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  const Node::Flushed said = node->flushed;
  MarkFlushed(node.get());
  if (!node->flushed.SameChunks(said)) return Damaged(Key('N', id), "chunks are missing");
  CAIRN_RETURN_IF_ERROR(CheckNode(Key('N', id), *node));
  std::vector<Ref> refs;
  constexpr Ref kLast{UINT64_MAX, Ref::kEdge, UINT64_MAX};
  CAIRN_ASSIGN_OR_RETURN(node->refs_from, ReadRefs(index, id, kLast, &refs));
  node->refs.insert(refs.begin(), refs.end());
  return node;
}

Result<Ref> TreeRecords::ReadRefs(sstable::LsmIndex& index, uint64_t node, const Ref& below,
                                  std::vector<Ref>* refs) {
  const auto scan = index.NewScan({.end = Key('R', node + 1), .read = {}});
  for (scan->Seek(RefKey(node, below)); scan->valid(); scan->Next()) {
    if (scan->key().size() != kRefKeyBytes) return Damaged(scan->key(), "no such kind");
    CAIRN_ASSIGN_OR_RETURN(const Ref ref, GetRef(scan->key()));
    if (ref >= below) continue;
    if (refs->size() == kRefsKept) return refs->back();
    refs->push_back(ref);
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return Ref();
}

}  // namespace cairn::engine
