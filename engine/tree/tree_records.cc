// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/tree_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/codec/fields.h"
#include "base/core/check.h"
#include "engine/tree/tree_keys.h"

namespace cairn::engine {

namespace {

constexpr uint16_t kSpanLane = 0xFFFD;  // Beside kSamplerLane and kMetadataLane.
constexpr size_t kChunkEntries = 64;    // Some 4 KiB, what one more delta costs in a dump.

// Fields of a head and of a node; on disk, never change.
enum HeadField : uint16_t {
  kHeadId = 1,
  kHeadModel = 2,
  kHeadNode = 3,
  kHeadLengths = 4,
  kHeadCreated = 5,
  kHeadUpdated = 6,
  kHeadVersion = 7,
  kHeadUsed = 8,
  kHeadKeep = 9,  // KeepBytes; without: all zero.
};
constexpr std::array<uint16_t, 9> kHeadFields = {1, 2, 3, 4, 5, 6, 7, 8, 9};
enum NodeField : uint16_t {
  kNodeModel = 1,
  kNodeParent = 2,
  kNodeOwner = 3,
  kNodeLanes = 4,   // LaneBytes each.
  kNodeStates = 5,  // Chunks of samplers, metadata, spans: u32 each.
  kNodeNamespace = 6,
  kNodeKvGone = 7,  // 1, or absent.
  kNodeLoose = 8,   // 1: it has a D record; or absent.
  // 1: some of its extents are approximate; or absent. So that who does not know of that is told.
  kNodeApproximate = 9,
};
constexpr std::array<uint16_t, 9> kNodeFields = {1, 2, 3, 4, 5, 6, 7, 8, 9};

struct KeepBytes {
  uint64_t ttl_ns;
  uint8_t priority, pinned, kv_evicted, reused;
  uint32_t zero;
};
static_assert(sizeof(KeepBytes) == 16);

struct CountBytes {
  uint64_t branches, nodes, kv_lanes, kv_extents, tokens, raw_bytes, evicted_bytes, next_id;
};
static_assert(sizeof(CountBytes) == 64);
struct LaneBytes {
  uint64_t start, end;
  uint32_t chunks, zero;
};
static_assert(sizeof(LaneBytes) == 24);
struct PlaceBytes {
  uint64_t segment;
  uint64_t epoch;  // With segment 0: Place::fragment_node.
  uint32_t offset, bytes;
  uint64_t table, stored_bytes;
  uint32_t positions, zero;
};
static_assert(sizeof(PlaceBytes) == 48);
struct ExtentBytes {
  uint64_t begin;
  uint32_t count, op_index, prefix_bytes;
  uint32_t flags;  // 1: approximate.
  PlaceBytes place;
};
static_assert(sizeof(ExtentBytes) == 72);
constexpr uint32_t kExtentApproximate = 1;
struct MarkBytes {
  uint64_t position;
  uint32_t strip, zero;
  PlaceBytes place;
};
static_assert(sizeof(MarkBytes) == 64);
struct SpanBytes {
  uint64_t begin, end, hash[2], flags;  // Flag 1: atomic.
};
static_assert(sizeof(SpanBytes) == 40);

PlaceBytes Pack(const Place& place) {
  return {place.log.segment, place.log.segment != 0 ? place.log.epoch : place.fragment_node,
          place.log.offset,  place.log.bytes,
          place.table,       place.stored_bytes,
          place.positions,   0};
}
Place Unpack(const PlaceBytes& bytes) {
  const bool in_log = bytes.segment != 0;
  return {.log = {bytes.segment, in_log ? bytes.epoch : 0, bytes.offset, bytes.bytes},
          .table = bytes.table,
          .positions = bytes.positions,
          .stored_bytes = bytes.stored_bytes,
          .fragment_node = in_log ? 0 : bytes.epoch};
}
ExtentBytes Pack(const Extent& extent) {
  return {extent.begin,
          extent.count,
          extent.op_index,
          extent.prefix_bytes,
          extent.exact ? 0 : kExtentApproximate,
          Pack(extent.place)};
}
Extent Unpack(const ExtentBytes& bytes) {
  return {.begin = bytes.begin,
          .count = bytes.count,
          .op_index = bytes.op_index,
          .place = Unpack(bytes.place),
          .prefix_bytes = bytes.prefix_bytes,
          .exact = (bytes.flags & kExtentApproximate) == 0};
}
MarkBytes Pack(const Mark& mark) { return {mark.position, mark.strip, 0, Pack(mark.place)}; }
Mark Unpack(const MarkBytes& bytes) {
  return {.position = bytes.position, .strip = bytes.strip, .place = Unpack(bytes.place)};
}
SpanBytes Pack(const ContentSpan& span) {
  return {span.begin, span.end, {span.hash[0], span.hash[1]}, span.atomic ? 1u : 0u};
}
ContentSpan Unpack(const SpanBytes& bytes) {
  return {.begin = bytes.begin,
          .end = bytes.end,
          .hash = {bytes.hash[0], bytes.hash[1]},
          .atomic = (bytes.flags & 1) != 0};
}

uint32_t Chunks(size_t entries) {
  return static_cast<uint32_t>((entries + kChunkEntries - 1) / kChunkEntries);
}

// The chunks of `entries` from that of `first_changed` on; deletes those that are no more.
template <typename T>
Status PutChunks(uint64_t node, uint16_t lane, const std::vector<T>& entries, size_t first_changed,
                 uint32_t dumped_chunks, sstable::WriteBatch* batch) {
  using Packed = decltype(Pack(std::declval<const T&>()));
  const uint32_t chunks = Chunks(entries.size());
  for (auto chunk = static_cast<uint32_t>(first_changed / kChunkEntries); chunk < chunks; ++chunk) {
    std::vector<Packed> packed;
    const size_t end = std::min(entries.size(), size_t{chunk + 1} * kChunkEntries);
    for (size_t i = size_t{chunk} * kChunkEntries; i < end; ++i) packed.push_back(Pack(entries[i]));
    CAIRN_RETURN_IF_ERROR(batch->Put(ChunkKey(node, lane, chunk),
                                     Text(std::as_bytes(std::span<const Packed>(packed)))));
  }
  for (uint32_t chunk = chunks; chunk < dumped_chunks; ++chunk) {
    CAIRN_RETURN_IF_ERROR(batch->Delete(ChunkKey(node, lane, chunk)));
  }
  return Status::Ok();
}

template <typename T>
Status GetChunk(std::string_view key, std::string_view value, std::vector<T>* entries) {
  using Packed = decltype(Pack(std::declval<const T&>()));
  const uint64_t chunk = GetBig(key.substr(11));
  if (value.empty() || value.size() % sizeof(Packed) != 0 ||
      entries->size() != chunk * kChunkEntries) {
    return Damaged(key, "a chunk of another size, or one before it is missing");
  }
  for (size_t at = 0; at < value.size(); at += sizeof(Packed)) {
    Packed packed;
    std::memcpy(&packed, value.data() + at, sizeof(Packed));
    entries->push_back(Unpack(packed));
  }
  return Status::Ok();
}

bool IsRenamed(const Head& head) { return head.dumped.there && head.dumped.name != head.name; }

// The name under which the index has it.
Status DeleteName(const Head& head, sstable::WriteBatch* batch) {
  return batch->Delete('B' + NameBytes(head.ns, head.dumped.name, head.id));
}

Status Move(const std::string& from, const std::string& to, sstable::WriteBatch* batch) {
  if (from == to) return Status::Ok();
  if (!from.empty()) CAIRN_RETURN_IF_ERROR(batch->Delete(from));
  return to.empty() ? Status::Ok() : batch->Put(to, "");
}

// The records of the orders in which branches go.
Status PutOrders(const Head& head, sstable::WriteBatch* batch) {
  const Head::Dumped& was = head.dumped;
  std::string order, expiry, order_was, expiry_was;
  if (!head.gone) {
    order = OrderKey(head, head.keep, head.used_at_ns, head.kv_evicted);
    expiry = ExpiryKey(head, head.keep, head.used_at_ns);
  }
  if (was.there) {
    order_was = OrderKey(head, was.keep, was.used_at_ns, was.kv_evicted);
    expiry_was = ExpiryKey(head, was.keep, was.used_at_ns);
  }
  CAIRN_RETURN_IF_ERROR(Move(order_was, order, batch));
  return Move(expiry_was, expiry, batch);
}

Status PutHead(const Head& head, sstable::WriteBatch* batch) {
  const Head::Dumped& dumped = head.dumped;
  const std::string name = NameBytes(head.ns, head.name, head.id);
  FieldWriter fields;
  fields.U64(kHeadId, head.id);
  fields.U64(kHeadModel, head.model);
  fields.U64(kHeadNode, head.node);
  fields.Bytes(kHeadLengths, std::as_bytes(std::span(head.lengths)));
  fields.U64(kHeadCreated, head.created_at_ns);
  fields.U64(kHeadUpdated, head.updated_at_ns);
  fields.U64(kHeadVersion, head.version);
  fields.U64(kHeadUsed, head.used_at_ns);
  const KeepBytes keep{head.keep.ttl_ns, head.keep.priority, head.keep.pinned,
                       head.kv_evicted,  head.reused,        0};
  fields.Bytes(kHeadKeep, std::as_bytes(std::span(&keep, 1)));
  CAIRN_RETURN_IF_ERROR(PutOrders(head, batch));
  CAIRN_RETURN_IF_ERROR(batch->Put('B' + name, Text(fields.bytes())));
  if (!dumped.there || IsRenamed(head)) CAIRN_RETURN_IF_ERROR(batch->Put(Key('H', head.id), name));
  const uint64_t length = head.lengths[kTokenLane];
  if (dumped.node == head.node && dumped.length == length) return Status::Ok();
  if (dumped.node != 0) {
    CAIRN_RETURN_IF_ERROR(batch->Delete(RefKey(dumped.node, {dumped.length, Ref::kHead, head.id})));
  }
  if (head.node == 0) return Status::Ok();
  return batch->Put(RefKey(head.node, {length, Ref::kHead, head.id}), "");
}

Status DeleteHead(const Head& head, sstable::WriteBatch* batch) {
  const Head::Dumped& dumped = head.dumped;
  if (!dumped.there) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(DeleteName(head, batch));
  CAIRN_RETURN_IF_ERROR(PutOrders(head, batch));
  CAIRN_RETURN_IF_ERROR(batch->Delete(Key('H', head.id)));
  if (dumped.node == 0) return Status::Ok();
  return batch->Delete(RefKey(dumped.node, {dumped.length, Ref::kHead, head.id}));
}

// By which the index knows it on its parent.
Status DeleteEdge(const Node& node, sstable::WriteBatch* batch) {
  const Node::Dumped& dumped = node.dumped;
  if (dumped.parent == 0) return Status::Ok();
  return batch->Delete(RefKey(dumped.parent, {dumped.start, Ref::kEdge, node.id}));
}

Status PutNode(const Node& node, sstable::WriteBatch* batch) {
  const Node::Dumped& dumped = node.dumped;
  std::vector<LaneBytes> lanes;
  for (size_t i = 0; i < node.lanes.size(); ++i) {
    const Lane& lane = node.lanes[i];
    lanes.push_back({lane.start, lane.end, Chunks(lane.extents.size()), 0});
    CAIRN_RETURN_IF_ERROR(PutChunks(node.id, static_cast<uint16_t>(i), lane.extents,
                                    dumped.lanes.empty() ? 0 : dumped.lanes[i].same,
                                    dumped.lanes.empty() ? 0 : dumped.lanes[i].chunks, batch));
  }
  CAIRN_RETURN_IF_ERROR(PutChunks(node.id, kSamplerLane, node.samplers, dumped.samplers.same,
                                  dumped.samplers.chunks, batch));
  CAIRN_RETURN_IF_ERROR(PutChunks(node.id, kMetadataLane, node.metadata, dumped.metadata.same,
                                  dumped.metadata.chunks, batch));
  CAIRN_RETURN_IF_ERROR(
      PutChunks(node.id, kSpanLane, node.spans, dumped.spans.same, dumped.spans.chunks, batch));
  const std::array<uint32_t, 3> states = {Chunks(node.samplers.size()),
                                          Chunks(node.metadata.size()), Chunks(node.spans.size())};
  FieldWriter fields;
  fields.U64(kNodeModel, node.model);
  fields.U64(kNodeParent, node.parent);
  fields.U64(kNodeOwner, node.owner);
  fields.Bytes(kNodeLanes, std::as_bytes(std::span<const LaneBytes>(lanes)));
  fields.Bytes(kNodeStates, std::as_bytes(std::span(states)));
  if (!node.ns.empty()) fields.Text(kNodeNamespace, node.ns);
  if (node.kv_gone) fields.U64(kNodeKvGone, 1);
  if (node.loose) fields.U64(kNodeLoose, 1);
  const auto approximate = [](const Lane& lane) {
    return std::any_of(lane.extents.begin(), lane.extents.end(),
                       [](const Extent& extent) { return !extent.exact; });
  };
  if (std::any_of(node.lanes.begin(), node.lanes.end(), approximate)) {
    fields.U64(kNodeApproximate, 1);
  }
  if (node.loose && !dumped.loose) CAIRN_RETURN_IF_ERROR(batch->Put(Key('D', node.id), ""));
  if (!node.loose && dumped.loose) CAIRN_RETURN_IF_ERROR(batch->Delete(Key('D', node.id)));
  const uint64_t start = node.lanes[kTokenLane].start;
  if (dumped.parent != node.parent || dumped.start != start) {
    CAIRN_RETURN_IF_ERROR(DeleteEdge(node, batch));
    if (node.parent != 0) {
      CAIRN_RETURN_IF_ERROR(batch->Put(RefKey(node.parent, {start, Ref::kEdge, node.id}), ""));
    }
  }
  return batch->Put(Key('N', node.id), Text(fields.bytes()));
}

Status DeleteNode(const Node& node, sstable::WriteBatch* batch) {
  if (!node.in_index) return Status::Ok();
  const auto chunks = [&](uint16_t lane, const Node::DumpedList& list) {
    for (uint32_t chunk = 0; chunk < list.chunks; ++chunk) {
      CAIRN_RETURN_IF_ERROR(batch->Delete(ChunkKey(node.id, lane, chunk)));
    }
    return Status::Ok();
  };
  for (size_t i = 0; i < node.dumped.lanes.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(chunks(static_cast<uint16_t>(i), node.dumped.lanes[i]));
  }
  CAIRN_RETURN_IF_ERROR(chunks(kSamplerLane, node.dumped.samplers));
  CAIRN_RETURN_IF_ERROR(chunks(kMetadataLane, node.dumped.metadata));
  CAIRN_RETURN_IF_ERROR(chunks(kSpanLane, node.dumped.spans));
  CAIRN_RETURN_IF_ERROR(DeleteEdge(node, batch));
  if (node.dumped.loose) CAIRN_RETURN_IF_ERROR(batch->Delete(Key('D', node.id)));
  return batch->Delete(Key('N', node.id));
}

}  // namespace

Result<Head> GetHead(std::string_view key, std::string_view value) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader fields, FieldReader::Parse(Bytes(value)));
  CAIRN_RETURN_IF_ERROR(fields.CheckCritical(kHeadFields));
  Head head;
  const size_t ns_end = key.find('\0', 1);
  const size_t name_end = ns_end == key.npos ? key.npos : key.find('\0', ns_end + 1);
  if (name_end == key.npos) return Damaged(key, "no name");
  head.ns = key.substr(1, ns_end - 1);
  head.name = key.substr(ns_end + 1, name_end - ns_end - 1);
  head.id = fields.U64Or(kHeadId, 0);
  head.model = fields.U64Or(kHeadModel, 0);
  head.node = fields.U64Or(kHeadNode, 0);
  head.created_at_ns = fields.U64Or(kHeadCreated, 0);
  head.updated_at_ns = fields.U64Or(kHeadUpdated, 0);
  head.version = fields.U64Or(kHeadVersion, 0);
  const auto lengths = fields.BytesOr(kHeadLengths, {});
  if (lengths.empty() || lengths.size() % sizeof(uint64_t) != 0 ||
      key.substr(1) != NameBytes(head.ns, head.name, head.id)) {
    return Damaged(key, "bad lengths or another branch");
  }
  head.lengths.resize(lengths.size() / sizeof(uint64_t));
  std::memcpy(head.lengths.data(), lengths.data(), lengths.size());
  head.used_at_ns = fields.U64Or(kHeadUsed, 0);
  KeepBytes keep{};
  if (const auto bytes = fields.BytesOr(kHeadKeep, {}); bytes.size() == sizeof(keep)) {
    std::memcpy(&keep, bytes.data(), sizeof(keep));
  } else {
    return Damaged(key, "bad policy");
  }
  head.keep = {.pinned = keep.pinned != 0, .priority = keep.priority, .ttl_ns = keep.ttl_ns};
  head.kv_evicted = keep.kv_evicted != 0;
  head.reused = keep.reused != 0;
  CAIRN_RETURN_IF_ERROR(CheckHead(key, head));
  NoteDumped(&head);
  return head;
}

Result<std::unique_ptr<Node>> GetNode(std::string_view key, std::string_view value) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader fields, FieldReader::Parse(Bytes(value)));
  CAIRN_RETURN_IF_ERROR(fields.CheckCritical(kNodeFields));
  auto node = std::make_unique<Node>();
  node->id = GetBig(key.substr(1, 8));
  node->model = fields.U64Or(kNodeModel, 0);
  node->parent = fields.U64Or(kNodeParent, 0);
  node->owner = fields.U64Or(kNodeOwner, 0);
  node->ns = fields.TextOr(kNodeNamespace, "");
  node->kv_gone = fields.U64Or(kNodeKvGone, 0) != 0;
  node->loose = fields.U64Or(kNodeLoose, 0) != 0;
  const auto lanes = fields.BytesOr(kNodeLanes, {});
  if (lanes.empty() || lanes.size() % sizeof(LaneBytes) != 0) return Damaged(key, "bad lanes");
  for (size_t at = 0; at < lanes.size(); at += sizeof(LaneBytes)) {
    LaneBytes lane;
    std::memcpy(&lane, lanes.data() + at, sizeof(lane));
    node->lanes.push_back({lane.start, lane.end, {}});
    node->dumped.lanes.push_back({lane.chunks, 0});
  }
  const auto states = fields.BytesOr(kNodeStates, {});
  std::array<uint32_t, 3> chunks{};
  if (states.size() != sizeof(chunks)) return Damaged(key, "bad states");
  std::memcpy(chunks.data(), states.data(), sizeof(chunks));
  node->dumped.samplers.chunks = chunks[0];
  node->dumped.metadata.chunks = chunks[1];
  node->dumped.spans.chunks = chunks[2];
  return node;
}

Status AddChunk(std::string_view key, std::string_view value, Node* node) {
  if (key.size() != kChunkKeyBytes) return Damaged(key, "no such kind");
  const auto lane = static_cast<uint32_t>(GetBig(key.substr(9, 2)));
  if (lane == kSamplerLane) return GetChunk(key, value, &node->samplers);
  if (lane == kMetadataLane) return GetChunk(key, value, &node->metadata);
  if (lane == kSpanLane) return GetChunk(key, value, &node->spans);
  if (lane >= node->lanes.size()) return Damaged(key, "no such lane");
  return GetChunk(key, value, &node->lanes[lane].extents);
}

// Of a head that is dumped the room for its name was reserved.
void NoteDumped(Head* head) {
  head->dumped.there = true;
  head->dumped.name = head->name;
  head->dumped.node = head->node;
  head->dumped.length = head->lengths[kTokenLane];
  head->dumped.keep = head->keep;
  head->dumped.used_at_ns = head->used_at_ns;
  head->dumped.kv_evicted = head->kv_evicted;
}

void NoteDumped(Node* node) {
  const auto note = [](Node::DumpedList* list, size_t entries) {
    *list = {Chunks(entries), entries};
  };
  node->in_index = true;
  node->dumped.parent = node->parent;
  node->dumped.start = node->lanes[kTokenLane].start;
  node->dumped.loose = node->loose;
  node->dumped.lanes.resize(node->lanes.size());
  for (size_t i = 0; i < node->lanes.size(); ++i) {
    note(&node->dumped.lanes[i], node->lanes[i].extents.size());
  }
  note(&node->dumped.samplers, node->samplers.size());
  note(&node->dumped.metadata, node->metadata.size());
  note(&node->dumped.spans, node->spans.size());
}

Status TreeRecords::Dump(Tree* tree, sstable::WriteBatch* batch) {
  Tree::Dirty& dirty = tree->dirty_;
  for (const uint64_t id : dirty.models) {
    const auto model = tree->FindModel(id);
    if (model == nullptr) continue;  // Its registration was undone.
    CAIRN_RETURN_IF_ERROR(PutModel(id, *model, batch));
  }
  // First what goes: another branch may have the name now.
  for (const uint64_t id : dirty.heads) {
    const auto found = tree->heads_.find(id);
    if (found == tree->heads_.end()) continue;
    const Head& head = found->second;
    if (head.gone) {
      CAIRN_RETURN_IF_ERROR(DeleteHead(head, batch));
    } else if (IsRenamed(head)) {
      CAIRN_RETURN_IF_ERROR(DeleteName(head, batch));
    }
  }
  for (const uint64_t id : dirty.heads) {
    const auto found = tree->heads_.find(id);
    if (found == tree->heads_.end() || found->second.gone) continue;
    found->second.dumped.name.reserve(found->second.name.size());  // NoteAllDumped cannot fail.
    CAIRN_RETURN_IF_ERROR(PutHead(found->second, batch));
  }
  for (const uint64_t id : dirty.nodes) {
    const auto found = tree->nodes_.find(id);
    if (found == tree->nodes_.end()) continue;
    Node& node = *found->second;
    node.dumped.lanes.reserve(node.lanes.size());
    CAIRN_RETURN_IF_ERROR(node.gone ? DeleteNode(node, batch) : PutNode(node, batch));
  }
  for (const uint64_t id : dirty.gone_tables) {
    CAIRN_RETURN_IF_ERROR(batch->Delete(Key('T', id)));
  }
  for (const auto& [id, table] : tree->tables_) {
    if (!table.dirty) continue;
    const TableBytes bytes{table.bytes, table.sealed_bytes, table.live_bytes};
    CAIRN_RETURN_IF_ERROR(batch->Put(Key('T', id), Text(std::as_bytes(std::span(&bytes, 1)))));
  }
  for (const auto& [name, use] : tree->namespaces_) {
    if (!use.dirty) continue;
    const NamespaceBytes bytes{OpPolicy::Of(use.policy), use.branches, use.nodes, use.bytes};
    CAIRN_RETURN_IF_ERROR(use.empty()
                              ? batch->Delete('P' + name)
                              : batch->Put('P' + name, Text(std::as_bytes(std::span(&bytes, 1)))));
  }
  // A copy: Tree::ForgetLogged goes by their order.
  std::vector<std::pair<uint64_t, uint64_t>> logged(
      tree->logged_.begin() + static_cast<ptrdiff_t>(tree->logged_dumped_), tree->logged_.end());
  std::sort(logged.begin(), logged.end());
  logged.erase(std::unique(logged.begin(), logged.end()), logged.end());
  for (const auto& [segment, node] : logged) {
    CAIRN_RETURN_IF_ERROR(batch->Put(LoggedKey(segment, node), ""));
  }
  for (const auto& [table, node] : tree->joined_) {
    if (!tree->tables_.contains(table) || tree->FindNode(node) == nullptr) continue;
    CAIRN_RETURN_IF_ERROR(batch->Put(JoinedKey(table, node), ""));
  }
  const TreeCounts& sums = tree->counts_;
  const CountBytes counts{sums.branches, sums.nodes,     sums.kv_lanes,      sums.kv_extents,
                          sums.tokens,   sums.raw_bytes, sums.evicted_bytes, tree->next_id_};
  CAIRN_RETURN_IF_ERROR(batch->Put(kCountsKey, Text(std::as_bytes(std::span(&counts, 1)))));
  tree->RememberDirty();
  NoteAllDumped(tree);
  return Status::Ok();
}

// Nothing here can fail.
void TreeRecords::NoteAllDumped(Tree* tree) {
  Tree::Dirty& dirty = tree->dirty_;
  for (const uint64_t id : dirty.nodes) {
    const auto found = tree->nodes_.find(id);
    if (found == tree->nodes_.end()) continue;
    Node& node = *found->second;
    if (node.gone) {
      tree->memory_bytes_ -= node.charge;
      tree->nodes_.erase(found);
      continue;
    }
    NoteDumped(&node);
    node.dirty = false;
    tree->TrimRefs(node.parent);
    tree->Charge(&node);
  }
  for (auto it = tree->namespaces_.begin(); it != tree->namespaces_.end();) {
    it->second.dirty = false;
    const bool unused = it->second.empty() && !it->second.was_read;
    it = unused ? tree->namespaces_.erase(it) : std::next(it);
  }
  for (const uint64_t id : dirty.heads) {
    const auto found = tree->heads_.find(id);
    if (found == tree->heads_.end()) continue;
    Head& head = found->second;
    if (head.gone) {
      tree->memory_bytes_ -= head.charge;
      tree->heads_.erase(found);
      continue;
    }
    NoteDumped(&head);
    head.dirty = false;
    tree->TrimRefs(head.node);
    tree->Charge(&head);
  }
  for (auto& [id, table] : tree->tables_) table.dirty = false;
  dirty.models.clear();
  dirty.heads.clear();
  dirty.nodes.clear();
  dirty.gone_tables.clear();
  tree->joined_.clear();
  if (tree->keep_logged_) {
    tree->logged_dumped_ = tree->logged_.size();
  } else {
    tree->logged_.clear();
  }
  ++tree->generation_;
}

Status TreeRecords::LoadRoots(Tree* tree) {
  sstable::LsmIndex& index = *tree->index_;
  CAIRN_ASSIGN_OR_RETURN(const auto counts, index.Get(kCountsKey));
  if (counts.has_value()) {
    CountBytes bytes;
    if (counts->size() != sizeof(bytes)) return Damaged(kCountsKey, "bad sums");
    std::memcpy(&bytes, counts->data(), sizeof(bytes));
    if (!IsNumber(bytes.next_id)) return Damaged(kCountsKey, "an impossible next id");
    tree->counts_ = {bytes.branches, bytes.nodes,     bytes.kv_lanes,     bytes.kv_extents,
                     bytes.tokens,   bytes.raw_bytes, bytes.evicted_bytes};
    tree->next_id_ = bytes.next_id;
  }
  const auto loose = index.NewScan({.end = "E", .read = {}});
  for (loose->Seek("D"); loose->valid(); loose->Next()) {
    const std::string_view key = loose->key();
    if (key.size() != kIdKeyBytes || !IsNumber(GetBig(key.substr(1)))) {
      return Damaged(key, "no such kind, or node");
    }
    tree->loose_.push_back(GetBig(key.substr(1)));
  }
  CAIRN_RETURN_IF_ERROR(loose->status());
  const auto models = index.NewScan({.end = "N", .read = {}});
  for (models->Seek("M"); models->valid(); models->Next()) {
    CAIRN_ASSIGN_OR_RETURN(const auto id, GetModelId(models->key()));
    if (!id.has_value()) continue;
    CAIRN_ASSIGN_OR_RETURN(ModelSpec spec, GetModel(index, *id));
    tree->models_[*id] = std::make_shared<const ModelSpec>(std::move(spec));
  }
  CAIRN_RETURN_IF_ERROR(models->status());
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
        policy.evict.value_or(Evict::kNever) > Evict::kBranches) {
      return Damaged(namespaces->key(), "an impossible name or policy");
    }
    tree->namespaces_[std::string(name)] = {.policy = policy,
                                            .branches = bytes.branches,
                                            .nodes = bytes.nodes,
                                            .bytes = bytes.bytes,
                                            .was_read = true};
  }
  CAIRN_RETURN_IF_ERROR(namespaces->status());
  const auto expiring = index.NewScan({.end = "Y", .read = {}});
  if (expiring->Seek("X"); expiring->valid()) {
    if (expiring->key().size() != kExpiryKeyBytes) return Damaged(expiring->key(), "no such kind");
    tree->expires_from_ns_ = GetBig(expiring->key().substr(1, 8));
  }
  CAIRN_RETURN_IF_ERROR(expiring->status());
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
    tree->tables_[number] = {
        .bytes = bytes.bytes, .sealed_bytes = bytes.sealed_bytes, .live_bytes = bytes.live_bytes};
  }
  return tables->status();
}

Result<std::optional<Head>> TreeRecords::ReadHead(sstable::LsmIndex& index, uint64_t branch) {
  CAIRN_ASSIGN_OR_RETURN(const auto name, index.Get(Key('H', branch)));
  if (!name.has_value()) return std::optional<Head>();
  const std::string key = 'B' + *name;
  CAIRN_ASSIGN_OR_RETURN(const auto value, index.Get(key));
  // Between the two it may have been renamed or dropped; the caller looks whether it was.
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

Result<std::vector<Head>> TreeRecords::ReadInOrder(sstable::LsmIndex& index,
                                                   const Tree::NameKey& from, size_t limit) {
  std::vector<Head> heads;
  const auto& [ns, name, id] = from;
  const auto scan = index.NewScan({.end = "C", .read = {}});
  for (scan->Seek('B' + NameBytes(ns, name, id)); scan->valid() && heads.size() < limit;
       scan->Next()) {
    CAIRN_ASSIGN_OR_RETURN(Head head, GetHead(scan->key(), *scan->value()));
    if (head.ns != ns) break;
    // A named one has no id in its key, so what was asked from may lie behind it.
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
  const Node::Dumped said = node->dumped;
  NoteDumped(node.get());
  if (!node->dumped.SameChunks(said)) return Damaged(Key('N', id), "chunks are missing");
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
