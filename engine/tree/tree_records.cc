// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/tree_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/codec/fields.h"
#include "base/core/check.h"

namespace cairn::engine {

namespace {

constexpr uint16_t kSpanLane = 0xFFFD;  // Beside kSamplerLane and kMetadataLane.
constexpr size_t kChunkEntries = 64;    // Some 4 KiB, what one more delta costs in a dump.

// Fields of a head and of a node; on disk, never change.
enum HeadField : uint16_t {
  kHeadModel = 1,
  kHeadNode = 2,
  kHeadName = 3,
  kHeadNamespace = 4,
  kHeadLengths = 5,
  kHeadCreated = 6,
  kHeadUpdated = 7,
};
constexpr std::array<uint16_t, 7> kHeadFields = {1, 2, 3, 4, 5, 6, 7};
enum NodeField : uint16_t {
  kNodeModel = 1,
  kNodeParent = 2,
  kNodeOwner = 3,
  kNodeLanes = 4,   // LaneBytes each.
  kNodeStates = 5,  // Chunks of samplers, metadata, spans: u32 each.
};
constexpr std::array<uint16_t, 5> kNodeFields = {1, 2, 3, 4, 5};

struct TableBytes {
  uint64_t bytes, sealed_bytes;
};
static_assert(sizeof(TableBytes) == 16);
struct LaneBytes {
  uint64_t start, end;
  uint32_t chunks, zero;
};
static_assert(sizeof(LaneBytes) == 24);
struct PlaceBytes {
  uint64_t segment, epoch;
  uint32_t offset, bytes;
  uint64_t table, stored_bytes;
  uint32_t positions, zero;
};
static_assert(sizeof(PlaceBytes) == 48);
struct ExtentBytes {
  uint64_t begin;
  uint32_t count, op_index, prefix_bytes, zero;
  PlaceBytes place;
};
static_assert(sizeof(ExtentBytes) == 72);
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
  return {place.log.segment, place.log.epoch,    place.log.offset, place.log.bytes,
          place.table,       place.stored_bytes, place.positions,  0};
}
Place Unpack(const PlaceBytes& bytes) {
  return {.log = {bytes.segment, bytes.epoch, bytes.offset, bytes.bytes},
          .table = bytes.table,
          .positions = bytes.positions,
          .stored_bytes = bytes.stored_bytes};
}
ExtentBytes Pack(const Extent& extent) {
  return {extent.begin, extent.count, extent.op_index, extent.prefix_bytes, 0, Pack(extent.place)};
}
Extent Unpack(const ExtentBytes& bytes) {
  return {.begin = bytes.begin,
          .count = bytes.count,
          .op_index = bytes.op_index,
          .place = Unpack(bytes.place),
          .prefix_bytes = bytes.prefix_bytes};
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

void PutBig(std::string* key, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    key->push_back(static_cast<char>(value >> shift));
  }
}
uint64_t GetBig(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}
std::string Key(char kind, uint64_t id) {
  std::string key(1, kind);
  PutBig(&key, id, 8);
  return key;
}
std::string ChunkKey(uint64_t node, uint16_t lane, uint32_t chunk) {
  std::string key = Key('N', node);
  PutBig(&key, lane, 2);
  PutBig(&key, chunk, 4);
  return key;
}
constexpr size_t kIdKeyBytes = 9, kChunkKeyBytes = 15;

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Status Damaged(std::string_view key, const std::string& what) {
  std::string text;
  for (const char c : key) {
    constexpr char kHex[] = "0123456789abcdef";
    text += kHex[static_cast<uint8_t>(c) >> 4];
    text += kHex[static_cast<uint8_t>(c) & 15];
  }
  return Status(StatusCode::kCorruption, "index record " + text + ": " + what);
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

Status PutHead(const Head& head, sstable::WriteBatch* batch) {
  FieldWriter fields;
  fields.U64(kHeadModel, head.model);
  fields.U64(kHeadNode, head.node);
  if (!head.name.empty()) fields.Text(kHeadName, head.name);
  if (!head.ns.empty()) fields.Text(kHeadNamespace, head.ns);
  fields.Bytes(kHeadLengths, std::as_bytes(std::span(head.lengths)));
  fields.U64(kHeadCreated, head.created_at_ns);
  fields.U64(kHeadUpdated, head.updated_at_ns);
  return batch->Put(Key('H', head.id), Text(fields.bytes()));
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
  return batch->Put(Key('N', node.id), Text(fields.bytes()));
}

void NoteDumped(Node* node) {
  const auto note = [](Node::DumpedList* list, size_t entries) {
    *list = {Chunks(entries), entries};
  };
  node->dumped.lanes.resize(node->lanes.size());
  for (size_t i = 0; i < node->lanes.size(); ++i) {
    note(&node->dumped.lanes[i], node->lanes[i].extents.size());
  }
  note(&node->dumped.samplers, node->samplers.size());
  note(&node->dumped.metadata, node->metadata.size());
  note(&node->dumped.spans, node->spans.size());
}

}  // namespace

Status TreeRecords::Dump(Tree* tree, sstable::WriteBatch* batch, std::vector<uint64_t>* gone) {
  Tree::Dirty& dirty = tree->dirty_;
  for (const uint64_t id : dirty.models) {
    const auto model = tree->FindModel(id);
    if (model == nullptr) continue;  // Its registration was undone.
    const std::vector<std::byte> spec = EncodeModel(*model);
    CAIRN_RETURN_IF_ERROR(batch->Put(Key('M', id), Text(spec)));
  }
  for (const uint64_t id : dirty.heads) {
    const Head* head = tree->FindHead(id);
    CAIRN_RETURN_IF_ERROR(head == nullptr ? batch->Delete(Key('H', id)) : PutHead(*head, batch));
  }
  gone->reserve(gone->size() + dirty.nodes.size());
  for (const uint64_t id : dirty.nodes) {
    const Node* node = tree->FindNode(id);
    if (node == nullptr) {
      gone->push_back(id);
      continue;
    }
    // What NoteDumped needs, while failing is possible.
    tree->nodes_.at(id)->dumped.lanes.reserve(node->lanes.size());
    CAIRN_RETURN_IF_ERROR(PutNode(*node, batch));
  }
  for (const uint64_t id : dirty.tables) {
    const auto table = tree->tables_.find(id);
    if (table == tree->tables_.end()) {
      CAIRN_RETURN_IF_ERROR(batch->Delete(Key('T', id)));
      continue;
    }
    const TableBytes bytes{table->second.bytes, table->second.sealed_bytes};
    CAIRN_RETURN_IF_ERROR(batch->Put(Key('T', id), Text(std::as_bytes(std::span(&bytes, 1)))));
  }
  for (const uint64_t id : dirty.heads) {
    if (const auto head = tree->heads_.find(id); head != tree->heads_.end()) {
      head->second.dirty = false;
    }
  }
  for (const uint64_t id : dirty.nodes) {
    const auto node = tree->nodes_.find(id);
    if (node == tree->nodes_.end()) continue;
    NoteDumped(node->second.get());
    node->second->dirty = false;
  }
  dirty.models.clear();
  dirty.heads.clear();
  dirty.nodes.clear();
  dirty.tables.clear();
  return Status::Ok();
}

Status TreeRecords::DeleteGone(sstable::LsmIndex& index, std::span<const uint64_t> gone,
                               sstable::WriteBatch* batch) {
  for (const uint64_t id : gone) {
    const std::string key = Key('N', id);
    CAIRN_ASSIGN_OR_RETURN(const auto value, index.Get(key));
    if (!value.has_value()) continue;  // Came and went between two dumps.
    const auto scan = index.NewScan({.end = Key('N', id + 1), .read = {}});
    for (scan->Seek(key); scan->valid(); scan->Next()) {
      CAIRN_RETURN_IF_ERROR(batch->Delete(scan->key()));
    }
    CAIRN_RETURN_IF_ERROR(scan->status());
  }
  return Status::Ok();
}

Status TreeRecords::Load(sstable::LsmIndex& index, Tree* tree) {
  const auto scan = index.NewScan();
  for (scan->Seek(""); scan->valid(); scan->Next()) {
    CAIRN_RETURN_IF_ERROR(LoadRecord(scan->key(), *scan->value(), tree));
  }
  CAIRN_RETURN_IF_ERROR(scan->status());
  return Link(tree);
}

Status TreeRecords::LoadRecord(std::string_view key, std::string_view value, Tree* tree) {
  if (key.size() != kIdKeyBytes && (key.size() != kChunkKeyBytes || key[0] != 'N')) {
    return Damaged(key, "no such kind");
  }
  const uint64_t id = GetBig(key.substr(1, 8));
  tree->next_id_ = std::max(tree->next_id_, key[0] == 'T' ? 0 : id + 1);
  if (key.size() == kChunkKeyBytes) {
    const auto node = tree->nodes_.find(id);
    if (node == tree->nodes_.end()) return Damaged(key, "a chunk without its node");
    return LoadChunk(key, value, node->second.get());
  }
  switch (key[0]) {
    case 'M': {
      CAIRN_ASSIGN_OR_RETURN(ModelSpec spec, DecodeModel(Bytes(value)));
      tree->models_[id] = std::make_shared<const ModelSpec>(std::move(spec));
      return Status::Ok();
    }
    case 'T': {
      TableBytes bytes;
      if (value.size() != sizeof(bytes)) return Damaged(key, "bad table");
      std::memcpy(&bytes, value.data(), sizeof(bytes));
      tree->tables_[id] = {bytes.bytes, bytes.sealed_bytes, 0};
      return Status::Ok();
    }
    case 'H': {
      CAIRN_ASSIGN_OR_RETURN(const FieldReader fields, FieldReader::Parse(Bytes(value)));
      CAIRN_RETURN_IF_ERROR(fields.CheckCritical(kHeadFields));
      Head head;
      head.id = id;
      head.model = fields.U64Or(kHeadModel, 0);
      head.node = fields.U64Or(kHeadNode, 0);
      head.name = fields.TextOr(kHeadName, "");
      head.ns = fields.TextOr(kHeadNamespace, "");
      head.created_at_ns = fields.U64Or(kHeadCreated, 0);
      head.updated_at_ns = fields.U64Or(kHeadUpdated, 0);
      const auto lengths = fields.BytesOr(kHeadLengths, {});
      head.lengths.resize(lengths.size() / sizeof(uint64_t));
      if (lengths.empty() || lengths.size() % sizeof(uint64_t) != 0) {
        return Damaged(key, "bad lengths");
      }
      std::memcpy(head.lengths.data(), lengths.data(), lengths.size());
      tree->heads_[id] = std::move(head);
      return Status::Ok();
    }
    case 'N': {
      CAIRN_ASSIGN_OR_RETURN(const FieldReader fields, FieldReader::Parse(Bytes(value)));
      CAIRN_RETURN_IF_ERROR(fields.CheckCritical(kNodeFields));
      auto node = std::make_unique<Node>();
      node->id = id;
      node->model = fields.U64Or(kNodeModel, 0);
      node->parent = fields.U64Or(kNodeParent, 0);
      node->owner = fields.U64Or(kNodeOwner, 0);
      const auto lanes = fields.BytesOr(kNodeLanes, {});
      if (lanes.empty() || lanes.size() % sizeof(LaneBytes) != 0) return Damaged(key, "bad lanes");
      for (size_t at = 0; at < lanes.size(); at += sizeof(LaneBytes)) {
        LaneBytes lane;
        std::memcpy(&lane, lanes.data() + at, sizeof(lane));
        node->lanes.push_back({lane.start, lane.end, {}});
      }
      tree->nodes_[id] = std::move(node);
      return Status::Ok();
    }
    default: return Damaged(key, "no such kind");
  }
}

Status TreeRecords::LoadChunk(std::string_view key, std::string_view value, Node* node) {
  const auto lane = static_cast<uint32_t>(GetBig(key.substr(9, 2)));
  if (lane == kSamplerLane) return GetChunk(key, value, &node->samplers);
  if (lane == kMetadataLane) return GetChunk(key, value, &node->metadata);
  if (lane == kSpanLane) return GetChunk(key, value, &node->spans);
  if (lane >= node->lanes.size()) return Damaged(key, "no such lane");
  return GetChunk(key, value, &node->lanes[lane].extents);
}

// What follows from the records, and whether they fit each other.
Status TreeRecords::Link(Tree* tree) {
  std::vector<std::pair<uint64_t, uint64_t>>& logged = tree->logged_;
  for (const auto& [id, node] : tree->nodes_) {
    const std::string key = Key('N', id);
    const auto model = tree->models_.find(node->model);
    if (model == tree->models_.end() || node->lanes.size() != 1 + model->second->groups.size()) {
      return Damaged(key, "its model is missing or has other groups");
    }
    if (node->parent != 0) {
      const auto parent = tree->nodes_.find(node->parent);
      if (parent == tree->nodes_.end()) return Damaged(key, "its parent is missing");
      parent->second->edges.insert({node->lanes[kTokenLane].start, id});
    }
    const auto use = [&](const Place& place, uint64_t count) {
      if (place.table == 0) {
        logged.emplace_back(place.log.segment, id);
        return true;
      }
      const auto table = tree->tables_.find(place.table);
      if (table == tree->tables_.end()) return false;
      table->second.live_bytes += place.Share(count);
      return true;
    };
    for (const Lane& lane : node->lanes) {
      uint64_t position = lane.start;
      for (const Extent& extent : lane.extents) {
        if (extent.begin != position) return Damaged(key, "a lane has a gap");
        position += extent.count;
        if (!use(extent.place, extent.count)) return Damaged(key, "its table is missing");
      }
      if (position != lane.end) return Damaged(key, "a lane ends early");
    }
    for (const std::vector<Mark>* marks : {&node->samplers, &node->metadata}) {
      for (const Mark& mark : *marks) {
        if (!use(mark.place, 1)) return Damaged(key, "a state's table is missing");
      }
    }
    NoteDumped(node.get());
    tree->Count(*node, 1);
  }
  for (auto& [id, head] : tree->heads_) {
    const auto model = tree->models_.find(head.model);
    if (model == tree->models_.end() || head.lengths.size() != 1 + model->second->groups.size()) {
      return Damaged(Key('H', id), "its model is missing or has other groups");
    }
    if (head.node != 0) {
      const auto node = tree->nodes_.find(head.node);
      if (node == tree->nodes_.end()) return Damaged(Key('H', id), "its node is missing");
      node->second->heads.insert({head.lengths[kTokenLane], id});
    }
    tree->names_.emplace(head.ns, head.name, id);
  }
  std::sort(logged.begin(), logged.end());
  logged.erase(std::unique(logged.begin(), logged.end()), logged.end());
  tree->dirty_.nodes.reserve(2 * tree->nodes_.size());
  return Status::Ok();
}

}  // namespace cairn::engine
