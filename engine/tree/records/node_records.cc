// SPDX-License-Identifier: Apache-2.0
//
// Records of a node: N with its chunks, its D record, and the R record on its parent.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/codec/fields.h"
#include "base/core/check.h"
#include "engine/tree/records/tree_keys.h"

namespace cairn::engine {

namespace {

constexpr size_t kChunkEntries = 64;  // Some 4 KiB: what one more delta costs in a tree flush.

// Fields of a node; on disk, never change.
enum NodeField : uint16_t {
  kNodeModel = 1,
  kNodeParent = 2,
  kNodeOwner = 3,
  kNodeLanes = 4,   // LaneBytes each.
  kNodeStates = 5,  // Chunks of samplers, metadata, spans: u32 each.
  kNodeNamespace = 6,
  kNodeKvGone = 7,     // 1, or absent.
  kNodeUntrimmed = 8,  // 1: it has a D record; or absent.
  // 1: some of its extents are approximate; or absent. So that a reader which does not know them
  // refuses.
  kNodeApproximate = 9,
  kNodeDerived = 10,  // Chunks of derived marks, or absent.
};
constexpr std::array<uint16_t, 10> kNodeFields = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

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

// The chunks of `entries` from that of `first_changed` on; deletes those beyond the end.
template <typename T>
Status PutChunks(uint64_t node, uint16_t lane, const std::vector<T>& entries, size_t first_changed,
                 uint32_t flushed_chunks, sstable::WriteBatch* batch) {
  using Packed = decltype(Pack(std::declval<const T&>()));
  const uint32_t chunks = Chunks(entries.size());
  for (auto chunk = static_cast<uint32_t>(first_changed / kChunkEntries); chunk < chunks; ++chunk) {
    std::vector<Packed> packed;
    const size_t end = std::min(entries.size(), size_t{chunk + 1} * kChunkEntries);
    for (size_t i = size_t{chunk} * kChunkEntries; i < end; ++i) packed.push_back(Pack(entries[i]));
    CAIRN_RETURN_IF_ERROR(batch->Put(ChunkKey(node, lane, chunk),
                                     Text(std::as_bytes(std::span<const Packed>(packed)))));
  }
  for (uint32_t chunk = chunks; chunk < flushed_chunks; ++chunk) {
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

// Deletes the ref by which the index knows it on its parent.
Status DeleteEdge(const Node& node, sstable::WriteBatch* batch) {
  const Node::Flushed& flushed = node.flushed;
  if (flushed.parent == 0) return Status::Ok();
  return batch->Delete(RefKey(flushed.parent, {flushed.start, Ref::kEdge, node.id}));
}

}  // namespace

bool Node::Flushed::SameChunks(const Flushed& other) const {
  const auto same = [](const FlushedList& a, const FlushedList& b) { return a.chunks == b.chunks; };
  return std::equal(lanes.begin(), lanes.end(), other.lanes.begin(), other.lanes.end(), same) &&
         same(samplers, other.samplers) && same(metadata, other.metadata) &&
         same(derived, other.derived) && same(spans, other.spans);
}

Status PutNode(const Node& node, sstable::WriteBatch* batch) {
  const Node::Flushed& flushed = node.flushed;
  std::vector<LaneBytes> lanes;
  for (size_t i = 0; i < node.lanes.size(); ++i) {
    const Lane& lane = node.lanes[i];
    lanes.push_back({lane.start, lane.end, Chunks(lane.extents.size()), 0});
    CAIRN_RETURN_IF_ERROR(PutChunks(node.id, static_cast<uint16_t>(i), lane.extents,
                                    flushed.lanes.empty() ? 0 : flushed.lanes[i].same,
                                    flushed.lanes.empty() ? 0 : flushed.lanes[i].chunks, batch));
  }
  CAIRN_RETURN_IF_ERROR(PutChunks(node.id, kSamplerLane, node.samplers, flushed.samplers.same,
                                  flushed.samplers.chunks, batch));
  CAIRN_RETURN_IF_ERROR(PutChunks(node.id, kMetadataLane, node.metadata, flushed.metadata.same,
                                  flushed.metadata.chunks, batch));
  CAIRN_RETURN_IF_ERROR(PutChunks(node.id, kDerivedLane, node.derived, flushed.derived.same,
                                  flushed.derived.chunks, batch));
  CAIRN_RETURN_IF_ERROR(
      PutChunks(node.id, kSpanLane, node.spans, flushed.spans.same, flushed.spans.chunks, batch));
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
  if (node.untrimmed) fields.U64(kNodeUntrimmed, 1);
  const auto approximate = [](const Lane& lane) {
    return std::any_of(lane.extents.begin(), lane.extents.end(),
                       [](const Extent& extent) { return !extent.exact; });
  };
  if (std::any_of(node.lanes.begin(), node.lanes.end(), approximate)) {
    fields.U64(kNodeApproximate, 1);
  }
  if (!node.derived.empty()) fields.U64(kNodeDerived, Chunks(node.derived.size()));
  if (node.untrimmed && !flushed.untrimmed)
    CAIRN_RETURN_IF_ERROR(batch->Put(Key('D', node.id), ""));
  if (!node.untrimmed && flushed.untrimmed) CAIRN_RETURN_IF_ERROR(batch->Delete(Key('D', node.id)));
  const uint64_t start = node.lanes[kTokenLane].start;
  if (flushed.parent != node.parent || flushed.start != start) {
    CAIRN_RETURN_IF_ERROR(DeleteEdge(node, batch));
    if (node.parent != 0) {
      CAIRN_RETURN_IF_ERROR(batch->Put(RefKey(node.parent, {start, Ref::kEdge, node.id}), ""));
    }
  }
  return batch->Put(Key('N', node.id), Text(fields.bytes()));
}

Status DeleteNode(const Node& node, sstable::WriteBatch* batch) {
  if (!node.in_index) return Status::Ok();
  const auto chunks = [&](uint16_t lane, const Node::FlushedList& list) {
    for (uint32_t chunk = 0; chunk < list.chunks; ++chunk) {
      CAIRN_RETURN_IF_ERROR(batch->Delete(ChunkKey(node.id, lane, chunk)));
    }
    return Status::Ok();
  };
  for (size_t i = 0; i < node.flushed.lanes.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(chunks(static_cast<uint16_t>(i), node.flushed.lanes[i]));
  }
  CAIRN_RETURN_IF_ERROR(chunks(kSamplerLane, node.flushed.samplers));
  CAIRN_RETURN_IF_ERROR(chunks(kMetadataLane, node.flushed.metadata));
  CAIRN_RETURN_IF_ERROR(chunks(kDerivedLane, node.flushed.derived));
  CAIRN_RETURN_IF_ERROR(chunks(kSpanLane, node.flushed.spans));
  CAIRN_RETURN_IF_ERROR(DeleteEdge(node, batch));
  if (node.flushed.untrimmed) CAIRN_RETURN_IF_ERROR(batch->Delete(Key('D', node.id)));
  return batch->Delete(Key('N', node.id));
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
  node->untrimmed = fields.U64Or(kNodeUntrimmed, 0) != 0;
  const auto lanes = fields.BytesOr(kNodeLanes, {});
  if (lanes.empty() || lanes.size() % sizeof(LaneBytes) != 0) return Damaged(key, "bad lanes");
  for (size_t at = 0; at < lanes.size(); at += sizeof(LaneBytes)) {
    LaneBytes lane;
    std::memcpy(&lane, lanes.data() + at, sizeof(lane));
    node->lanes.push_back({lane.start, lane.end, {}});
    node->flushed.lanes.push_back({lane.chunks, 0});
  }
  const auto states = fields.BytesOr(kNodeStates, {});
  std::array<uint32_t, 3> chunks{};
  if (states.size() != sizeof(chunks)) return Damaged(key, "bad states");
  std::memcpy(chunks.data(), states.data(), sizeof(chunks));
  node->flushed.samplers.chunks = chunks[0];
  node->flushed.metadata.chunks = chunks[1];
  node->flushed.spans.chunks = chunks[2];
  const uint64_t derived = fields.U64Or(kNodeDerived, 0);
  if (derived > UINT32_MAX) return Damaged(key, "bad states");
  node->flushed.derived.chunks = static_cast<uint32_t>(derived);
  return node;
}

Status AddChunk(std::string_view key, std::string_view value, Node* node) {
  if (key.size() != kChunkKeyBytes) return Damaged(key, "no such kind");
  const auto lane = static_cast<uint32_t>(GetBig(key.substr(9, 2)));
  if (lane == kSamplerLane) return GetChunk(key, value, &node->samplers);
  if (lane == kMetadataLane) return GetChunk(key, value, &node->metadata);
  if (lane == kDerivedLane) return GetChunk(key, value, &node->derived);
  if (lane == kSpanLane) return GetChunk(key, value, &node->spans);
  if (lane >= node->lanes.size()) return Damaged(key, "no such lane");
  return GetChunk(key, value, &node->lanes[lane].extents);
}

void MarkFlushed(Node* node) {
  const auto note = [](Node::FlushedList* list, size_t entries) {
    *list = {Chunks(entries), entries};
  };
  node->in_index = true;
  node->flushed.parent = node->parent;
  node->flushed.start = node->lanes[kTokenLane].start;
  node->flushed.untrimmed = node->untrimmed;
  node->flushed.lanes.resize(node->lanes.size());
  for (size_t i = 0; i < node->lanes.size(); ++i) {
    note(&node->flushed.lanes[i], node->lanes[i].extents.size());
  }
  note(&node->flushed.samplers, node->samplers.size());
  note(&node->flushed.metadata, node->metadata.size());
  note(&node->flushed.derived, node->derived.size());
  note(&node->flushed.spans, node->spans.size());
}

}  // namespace cairn::engine
