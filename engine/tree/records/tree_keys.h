// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of the tree's records (tree_records.h says what they mean). Only the files that
// write, read and check the records include this.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

inline void PutBig(std::string* key, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    key->push_back(static_cast<char>(value >> shift));
  }
}
inline uint64_t GetBig(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}
inline std::string Key(char kind, uint64_t id) {
  std::string key(1, kind);
  PutBig(&key, id, 8);
  return key;
}
inline std::string ChunkKey(uint64_t node, uint16_t lane, uint32_t chunk) {
  std::string key = Key('N', node);
  PutBig(&key, lane, 2);
  PutBig(&key, chunk, 4);
  return key;
}
inline std::string NameBytes(std::string_view ns, std::string_view name, uint64_t id) {
  std::string key(ns);
  key += '\0';
  key += name;
  key += '\0';
  if (name.empty()) PutBig(&key, id, 8);
  return key;
}
inline std::string RefKey(uint64_t node, const Ref& ref) {
  std::string key = Key('R', node);
  PutBig(&key, ~ref.position, 8);
  PutBig(&key, ~uint64_t{ref.kind}, 1);
  PutBig(&key, ~ref.id, 8);
  return key;
}
inline std::string LoggedKey(uint64_t segment, uint64_t node) {
  std::string key = Key('L', segment);
  PutBig(&key, node, 8);
  return key;
}
inline std::string JoinedKey(uint64_t table, uint64_t node) {
  std::string key = Key('F', table);
  PutBig(&key, node, 8);
  return key;
}
// Begins the keys of all branches of a namespace that may be evicted.
inline std::string EvictablesPrefix(std::string_view ns) {
  std::string key = "U";
  key += ns;
  key += '\0';
  return key;
}
inline std::string EvictableKey(std::string_view ns, const TreeRecords::Evictable& branch) {
  std::string key = EvictablesPrefix(ns);
  PutBig(&key, branch.stage, 1);
  PutBig(&key, branch.priority, 1);
  PutBig(&key, branch.used_at_ns, 8);
  PutBig(&key, branch.branch, 8);
  return key;
}
// Where a branch stands in the order of eviction, and of expiry; empty: nowhere.
inline std::string OrderKey(const Head& head, const Keep& keep, uint64_t used_at_ns,
                            bool kv_evicted) {
  if (keep.pinned) return "";
  return EvictableKey(head.ns, {.stage = static_cast<uint8_t>(kv_evicted ? 1 : 0),
                                .priority = keep.priority,
                                .used_at_ns = used_at_ns,
                                .branch = head.id});
}
inline std::string ExpiryKey(const Head& head, const Keep& keep, uint64_t used_at_ns) {
  const uint64_t at_ns = ExpiryOf(keep, used_at_ns);
  if (at_ns == 0) return "";
  std::string key = Key('X', at_ns);
  PutBig(&key, head.id, 8);
  return key;
}
inline constexpr size_t kEvictableSuffixBytes = 18, kExpiryKeyBytes = 17;
inline constexpr size_t kIdKeyBytes = 9, kChunkKeyBytes = 15, kRefKeyBytes = 26,
                        kLoggedKeyBytes = 17, kJoinedKeyBytes = 17;
inline constexpr char kCountsKey[] = "C";

inline std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline Status Damaged(std::string_view key, const std::string& what) {
  std::string text;
  for (const char c : key) {
    constexpr char kHex[] = "0123456789abcdef";
    text += kHex[static_cast<uint8_t>(c) >> 4];
    text += kHex[static_cast<uint8_t>(c) & 15];
  }
  return Status(StatusCode::kCorruption, "index record " + text + ": " + what);
}

// The ref of an R record. The size of the key was checked.
inline Result<Ref> GetRef(std::string_view key) {
  const Ref ref{~GetBig(key.substr(9, 8)),
                static_cast<Ref::Kind>(static_cast<uint8_t>(~GetBig(key.substr(17, 1)))),
                ~GetBig(key.substr(18, 8))};
  if (ref.kind > Ref::kEdge || !IsNumber(ref.id)) return Damaged(key, "no such kind, or id");
  return ref;
}

// The value of the C record.
struct CountBytes {
  uint64_t branches, nodes, kv_lanes, kv_extents, tokens, raw_bytes, evicted_bytes, next_id;
};
static_assert(sizeof(CountBytes) == 64);

// The value of a T record.
struct TableBytes {
  uint64_t bytes, sealed_bytes, live_bytes;
};
static_assert(sizeof(TableBytes) == 24);

// The value of an S record.
struct SegmentBytes {
  uint64_t live_bytes, kv_extents, most_live_bytes;
};
static_assert(sizeof(SegmentBytes) == 24);

// The value of a P record.
struct NamespaceBytes {
  OpPolicy policy;
  uint64_t branches, nodes, bytes;
};
static_assert(sizeof(NamespaceBytes) == 48);

// --- In model_records.cc. The M records of a model.
Status PutModel(uint64_t id, const ModelSpec& spec, sstable::WriteBatch* batch);
Result<ModelSpec> GetModel(sstable::LsmIndex& index, uint64_t id);
// The model that an M record begins; nothing: it continues the one before.
Result<std::optional<uint64_t>> GetModelId(std::string_view key);

// --- In tree_roots.cc. kCorruption for a record that cannot be read; kUnsupportedFormat for a
// policy with a value of a newer version.
Result<std::pair<uint64_t, SegmentUsage>> GetSegment(std::string_view key, std::string_view value);
Result<NamespaceUsage> GetNamespace(std::string_view key, std::string_view value);

// --- In head_records.cc. kCorruption, naming the record, for one that cannot be read.
Result<Head> GetHead(std::string_view key, std::string_view value);
// All records of the head that differ from what was flushed.
Status PutHead(const Head& head, sstable::WriteBatch* batch);
Status DeleteHead(const Head& head, sstable::WriteBatch* batch);
bool IsRenamed(const Head& head);
// Deletes the name under which the index has it.
Status DeleteName(const Head& head, sstable::WriteBatch* batch);

// --- In node_records.cc; errors as above.
// Without its chunks, which are read after it; `flushed` says how many there are.
Result<std::unique_ptr<Node>> GetNode(std::string_view key, std::string_view value);
Status AddChunk(std::string_view key, std::string_view value, Node* node);
Status PutNode(const Node& node, sstable::WriteBatch* batch);
Status DeleteNode(const Node& node, sstable::WriteBatch* batch);

// --- In record_fit.cc; kCorruption naming the record. For a node with its chunks.
bool IsNamespace(std::string_view ns);
Status CheckHead(std::string_view key, const Head& head);
Status CheckNode(std::string_view key, const Node& node);

// The index has its present version.
void MarkFlushed(Head* head);
void MarkFlushed(Node* node);

}  // namespace cairn::engine
