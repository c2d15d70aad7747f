// SPDX-License-Identifier: Apache-2.0
//
// The part of the tree that is always in memory: sums, untrimmed nodes, models, namespaces, tables.
#include <cstring>
#include <memory>
#include <string>

#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"

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

Status VisitNamespaces(sstable::LsmIndex& index,
                       const std::function<void(std::string_view, const NamespaceUsage&)>& visit) {
  const auto namespaces = index.NewScan({.end = "Q", .read = {}});
  for (namespaces->Seek("P"); namespaces->valid(); namespaces->Next()) {
    CAIRN_ASSIGN_OR_RETURN(const NamespaceUsage use,
                           GetNamespace(namespaces->key(), *namespaces->value()));
    visit(namespaces->key().substr(1), use);
  }
  return namespaces->status();
}

Status LoadNamespaces(sstable::LsmIndex& index, Tree* tree) {
  return VisitNamespaces(index, [tree](std::string_view name, const NamespaceUsage& use) {
    tree->sums().TakeStock(name, use);
  });
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

// An earlier library, which did not count, may have left some.
Status LoadSegments(sstable::LsmIndex& index, Tree* tree) {
  const auto segments = index.NewScan({.end = "T", .read = {}});
  for (segments->Seek("S"); segments->valid(); segments->Next()) {
    CAIRN_ASSIGN_OR_RETURN(const auto found, GetSegment(segments->key(), *segments->value()));
    if (tree->segment_usages().Counts(found.first)) {
      tree->segment_usages().Load(found.first, found.second);
    }
  }
  return segments->status();
}

}  // namespace

Result<std::pair<uint64_t, SegmentUsage>> GetSegment(std::string_view key, std::string_view value) {
  SegmentBytes bytes;
  if (key.size() != kIdKeyBytes || value.size() != sizeof(bytes)) {
    return Damaged(key, "bad segment");
  }
  std::memcpy(&bytes, value.data(), sizeof(bytes));
  const uint64_t segment = GetBig(key.substr(1));
  if (!IsNumber(segment) || !IsNumber(bytes.live_bytes) || bytes.kv_extents >= kNumberMax ||
      bytes.most_live_bytes < bytes.live_bytes || bytes.most_live_bytes >= kNumberMax) {
    return Damaged(key, "an impossible segment");
  }
  return std::pair(segment, SegmentUsage{.live_bytes = bytes.live_bytes,
                                         .kv_extents = bytes.kv_extents,
                                         .most_live_bytes = bytes.most_live_bytes});
}

Result<NamespaceUsage> GetNamespace(std::string_view key, std::string_view value) {
  NamespaceBytes bytes;
  if (value.size() != sizeof(bytes)) return Damaged(key, "bad namespace");
  std::memcpy(&bytes, value.data(), sizeof(bytes));
  if (!IsNamespace(key.substr(1))) return Damaged(key, "an impossible name");
  if (!bytes.policy.is_known()) {
    return Status(StatusCode::kUnsupportedFormat,
                  "namespace \"" + std::string(key.substr(1)) + "\": a policy of a newer version");
  }
  return NamespaceUsage{.policy = bytes.policy.ns_policy(),
                        .branches = bytes.branches,
                        .nodes = bytes.nodes,
                        .bytes = bytes.bytes};
}

Result<std::optional<NamespaceUsage>> TreeRecords::ReadNamespace(sstable::LsmIndex& index,
                                                                 std::string_view ns) {
  const std::string key = 'P' + std::string(ns);
  CAIRN_ASSIGN_OR_RETURN(const auto value, index.Get(key));
  if (!value.has_value()) return std::optional<NamespaceUsage>();
  CAIRN_ASSIGN_OR_RETURN(NamespaceUsage use, GetNamespace(key, *value));
  return std::optional(std::move(use));
}

Result<TreeSums::Namespaces> TreeRecords::ReadNamespaces(sstable::LsmIndex& index) {
  TreeSums::Namespaces all;
  CAIRN_RETURN_IF_ERROR(
      VisitNamespaces(index, [&](std::string_view name, const NamespaceUsage& use) {
        all.emplace_hint(all.end(), name, use);
      }));
  return all;
}

Status TreeRecords::LoadRoots(Tree* tree) {
  sstable::LsmIndex& index = *tree->index();
  for (const auto& load : {LoadCounts, LoadUntrimmed, LoadModels, LoadNamespaces, LoadExpiry,
                           LoadTables, LoadSegments}) {
    CAIRN_RETURN_IF_ERROR(load(index, tree));
  }
  return Status::Ok();
}

}  // namespace cairn::engine
