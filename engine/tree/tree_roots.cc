// SPDX-License-Identifier: Apache-2.0
//
// The part of the tree that is always in memory: sums, untrimmed nodes, models, namespaces, tables.
#include <cstring>
#include <memory>
#include <string>

#include "base/core/check.h"
#include "engine/tree/tree_keys.h"

namespace cairn::engine {

namespace {

Status LoadCounts(sstable::LsmIndex& index, Tree* tree) {
  CAIRN_ASSIGN_OR_RETURN(const auto counts, index.Get(kCountsKey));
  if (!counts.has_value()) return Status::Ok();
  CountBytes bytes;
  if (counts->size() != sizeof(bytes)) return Damaged(kCountsKey, "bad sums");
  std::memcpy(&bytes, counts->data(), sizeof(bytes));
  if (!IsNumber(bytes.next_id)) return Damaged(kCountsKey, "an impossible next id");
  tree->sums().Load({bytes.branches, bytes.nodes, bytes.kv_lanes, bytes.kv_extents, bytes.tokens,
                     bytes.raw_bytes, bytes.evicted_bytes});
  tree->SetNextId(bytes.next_id);
  return Status::Ok();
}

Status LoadUntrimmed(sstable::LsmIndex& index, Tree* tree) {
  const auto untrimmed = index.NewScan({.end = "E", .read = {}});
  for (untrimmed->Seek("D"); untrimmed->valid(); untrimmed->Next()) {
    const std::string_view key = untrimmed->key();
    if (key.size() != kIdKeyBytes || !IsNumber(GetBig(key.substr(1)))) {
      return Damaged(key, "no such kind, or node");
    }
    tree->leftovers().LoadUntrimmed(GetBig(key.substr(1)));
  }
  return untrimmed->status();
}

Status LoadModels(sstable::LsmIndex& index, Tree* tree) {
  const auto models = index.NewScan({.end = "N", .read = {}});
  for (models->Seek("M"); models->valid(); models->Next()) {
    CAIRN_ASSIGN_OR_RETURN(const auto id, GetModelId(models->key()));
    if (!id.has_value()) continue;
    CAIRN_ASSIGN_OR_RETURN(ModelSpec spec, GetModel(index, *id));
    tree->SetModel(*id, std::make_shared<const ModelSpec>(std::move(spec)));
  }
  return models->status();
}

Status LoadNamespaces(sstable::LsmIndex& index, Tree* tree) {
  const auto namespaces = index.NewScan({.end = "Q", .read = {}});
  for (namespaces->Seek("P"); namespaces->valid(); namespaces->Next()) {
    NamespaceBytes bytes;
    if (namespaces->value()->size() != sizeof(bytes)) {
      return Damaged(namespaces->key(), "bad namespace");
    }
    std::memcpy(&bytes, namespaces->value()->data(), sizeof(bytes));
    const std::string_view name = namespaces->key().substr(1);
    const NamespacePolicy policy = bytes.policy.ns_policy();
    if (!IsNamespace(name) || policy.persist > Persist::kTokensOnly ||
        policy.index > Index::kNone || policy.evict.value_or(Evict::kNever) > Evict::kBranches) {
      return Damaged(namespaces->key(), "an impossible name or policy");
    }
    *tree->sums().NamespaceOf(std::string(name)) = {.policy = policy,
                                                    .branches = bytes.branches,
                                                    .nodes = bytes.nodes,
                                                    .bytes = bytes.bytes,
                                                    .was_read = true};
  }
  return namespaces->status();
}

Status LoadExpiry(sstable::LsmIndex& index, Tree* tree) {
  const auto expiring = index.NewScan({.end = "Y", .read = {}});
  if (expiring->Seek("X"); expiring->valid()) {
    if (expiring->key().size() != kExpiryKeyBytes) return Damaged(expiring->key(), "no such kind");
    tree->sums().SetExpiresFrom(GetBig(expiring->key().substr(1, 8)));
  }
  return expiring->status();
}

Status LoadTables(sstable::LsmIndex& index, Tree* tree) {
  const auto tables = index.NewScan({.end = "U", .read = {}});
  for (tables->Seek("T"); tables->valid(); tables->Next()) {
    TableBytes bytes;
    if (tables->key().size() != kIdKeyBytes || tables->value()->size() != sizeof(bytes)) {
      return Damaged(tables->key(), "bad table");
    }
    std::memcpy(&bytes, tables->value()->data(), sizeof(bytes));
    const uint64_t number = GetBig(tables->key().substr(1));
    if (!IsNumber(number) || !IsNumber(bytes.bytes) || bytes.sealed_bytes >= kNumberMax ||
        bytes.live_bytes >= kNumberMax) {
      return Damaged(tables->key(), "an impossible table");
    }
    tree->table_usages().Load(
        number,
        {.bytes = bytes.bytes, .sealed_bytes = bytes.sealed_bytes, .live_bytes = bytes.live_bytes});
  }
  return tables->status();
}

}  // namespace

Status TreeRecords::LoadRoots(Tree* tree) {
  sstable::LsmIndex& index = *tree->index();
  for (const auto& load :
       {LoadCounts, LoadUntrimmed, LoadModels, LoadNamespaces, LoadExpiry, LoadTables}) {
    CAIRN_RETURN_IF_ERROR(load(index, tree));
  }
  return Status::Ok();
}

}  // namespace cairn::engine
