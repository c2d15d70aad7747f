// SPDX-License-Identifier: Apache-2.0
//
// Records of the index that are read many at a time: branches to evict or expire, and nodes that
// may have content in a log segment or a table.
#include <functional>
#include <string>

#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"

namespace cairn::engine {

namespace {

// Parses a U record, whose letter and namespace take `prefix` bytes.
Result<TreeRecords::Evictable> GetEvictable(std::string_view key, size_t prefix) {
  if (key.size() != prefix + kEvictableSuffixBytes) return Damaged(key, "no such kind");
  const std::string_view order = key.substr(prefix);
  const TreeRecords::Evictable found{.stage = static_cast<uint8_t>(order[0]),
                                     .priority = static_cast<uint8_t>(order[1]),
                                     .used_at_ns = GetBig(order.substr(2, 8)),
                                     .branch = GetBig(order.substr(10, 8))};
  if (found.stage > 1 || !IsNumber(found.branch)) return Damaged(key, "no such stage, or branch");
  return found;
}

}  // namespace

Result<std::vector<uint64_t>> TreeRecords::ReadNodes(sstable::LsmIndex& index, uint64_t from,
                                                     size_t limit) {
  std::vector<uint64_t> nodes;
  const auto scan = index.NewScan({.end = "O", .read = {}});
  for (scan->Seek(Key('N', from)); scan->valid() && nodes.size() < limit;) {
    if (scan->key().size() < kIdKeyBytes) return Damaged(scan->key(), "no such kind");
    const uint64_t node = GetBig(scan->key().substr(1, 8));
    if (!IsNumber(node)) return Damaged(scan->key(), "an impossible number");
    nodes.push_back(node);
    scan->Seek(Key('N', node + 1));  // Skips its chunks.
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return nodes;
}

Result<std::vector<TreeRecords::Evictable>> TreeRecords::ReadEvictable(sstable::LsmIndex& index,
                                                                       std::string_view ns,
                                                                       const Evictable& from,
                                                                       size_t limit) {
  std::vector<Evictable> found;
  const std::string prefix = EvictablesPrefix(ns);
  const auto scan = index.NewScan({.end = "V", .read = {}});
  for (scan->Seek(EvictableKey(ns, from));
       scan->valid() && scan->key().starts_with(prefix) && found.size() < limit; scan->Next()) {
    CAIRN_ASSIGN_OR_RETURN(const Evictable one, GetEvictable(scan->key(), prefix.size()));
    found.push_back(one);
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return found;
}

Result<std::vector<TreeRecords::Evictable>> TreeRecords::ReadUsedAfter(sstable::LsmIndex& index,
                                                                       std::string_view ns,
                                                                       uint64_t at_ns,
                                                                       const Evictable& from,
                                                                       size_t limit) {
  std::vector<Evictable> found;
  const std::string prefix = EvictablesPrefix(ns);
  const auto scan = index.NewScan({.end = "V", .read = {}});
  scan->Seek(EvictableKey(ns, from));
  while (scan->valid() && scan->key().starts_with(prefix) && found.size() < limit) {
    const std::string_view key = scan->key();
    CAIRN_ASSIGN_OR_RETURN(const Evictable one, GetEvictable(key, prefix.size()));
    if (one.used_at_ns > at_ns) {
      found.push_back(one);
      scan->Next();
    } else {  // Skips those of this stage and priority used until then.
      scan->Seek(EvictableKey(
          ns, {.stage = one.stage, .priority = one.priority, .used_at_ns = at_ns + 1}));
    }
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return found;
}

Result<std::vector<TreeRecords::Expiring>> TreeRecords::ReadExpired(sstable::LsmIndex& index,
                                                                    uint64_t now_ns,
                                                                    const Expiring& from,
                                                                    size_t limit,
                                                                    uint64_t* next_ns) {
  std::vector<Expiring> expired;
  *next_ns = 0;
  const auto scan = index.NewScan({.end = "Y", .read = {}});
  std::string first = Key('X', from.at_ns);
  PutBig(&first, from.branch, 8);
  for (scan->Seek(first); scan->valid(); scan->Next()) {
    if (scan->key().size() != kExpiryKeyBytes) return Damaged(scan->key(), "no such kind");
    const uint64_t at_ns = GetBig(scan->key().substr(1, 8));
    if (at_ns > now_ns || expired.size() == limit) {
      *next_ns = at_ns;
      break;
    }
    expired.push_back({at_ns, GetBig(scan->key().substr(9, 8))});
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return expired;
}

namespace {

// The L records of these segments.
Status VisitLogged(sstable::LsmIndex& index, const SegmentSet& segments,
                   const std::function<Status(std::string_view key)>& visit) {
  const auto scan = index.NewScan({.end = "M", .read = {}});
  scan->Seek(Key('L', segments.first));
  while (scan->valid()) {
    if (scan->key().size() != kLoggedKeyBytes) return Damaged(scan->key(), "no such kind");
    const uint64_t segment = GetBig(scan->key().substr(1, 8));
    if (segment > segments.last) break;
    if (segments.Contains(segment)) {
      CAIRN_RETURN_IF_ERROR(visit(scan->key()));
      scan->Next();
    } else {
      scan->Seek(Key('L', segment + 1));
    }
  }
  return scan->status();
}

}  // namespace

Status TreeRecords::ReadLogged(sstable::LsmIndex& index, const SegmentSet& segments,
                               std::vector<uint64_t>* nodes) {
  return VisitLogged(index, segments, [nodes](std::string_view key) {
    nodes->push_back(GetBig(key.substr(9, 8)));
    return Status::Ok();
  });
}

Status TreeRecords::DeleteLogged(sstable::LsmIndex& index, const SegmentSet& segments,
                                 sstable::WriteBatch* batch) {
  return VisitLogged(index, segments, [batch](std::string_view key) { return batch->Delete(key); });
}

Status TreeRecords::ReadJoined(sstable::LsmIndex& index, uint64_t table,
                               std::vector<uint64_t>* nodes) {
  const auto scan = index.NewScan({.end = Key('F', table + 1), .read = {}});
  for (scan->Seek(Key('F', table)); scan->valid(); scan->Next()) {
    if (scan->key().size() != kJoinedKeyBytes) return Damaged(scan->key(), "no such kind");
    nodes->push_back(GetBig(scan->key().substr(9, 8)));
  }
  return scan->status();
}

Status TreeRecords::DeleteJoined(sstable::LsmIndex& index, uint64_t table,
                                 sstable::WriteBatch* batch) {
  std::vector<uint64_t> nodes;
  CAIRN_RETURN_IF_ERROR(ReadJoined(index, table, &nodes));
  for (const uint64_t node : nodes) {
    CAIRN_RETURN_IF_ERROR(batch->Delete(JoinedKey(table, node)));
  }
  return Status::Ok();
}

}  // namespace cairn::engine
