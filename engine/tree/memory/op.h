// SPDX-License-Identifier: Apache-2.0
//
// The effect of a log record on the tree. An Op is *resolved*: it says which node is extended or
// created and whether a rewind happened in place, so that replay repeats decisions instead of
// taking them again. The kinds and field ids are on disk and never change.
//
//   record of one op:  kind = the op's kind, fields = op fields
//   batch:             kind = kBatch,        fields = one kTable field (kOpFieldsField) per op
//   op fields:         core (48 bytes), then as the kind needs: name, namespace, model spec,
//                      lane ranges (24 bytes each), content spans (40 bytes each), sealed ranges
//                      (32 bytes each), table (16 bytes), policy (24 bytes), approximate, source
//                      node (8 bytes each); engine/FORMAT.md has them byte by byte
//   large append:      records of kind kPart (lane ranges only, `more` set), ended by a kAppend
//                      record of the same unit, which alone changes the tree
//   append to a table: one kAppend record. Its lane ranges are what its payload carries (ids,
//                      states); its sealed ranges, all of the op's node, lie in the snapshot table
//                      that its table field names, which was durable before the record was placed.
//                      A lane is in the one or in the other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/codec/fields.h"
#include "cairn/branch_types.h"
#include "cairn/keep.h"
#include "wal/record.h"

namespace cairn::engine {

// Ids, sequences, segments and tables are counted from 1 and never reach this bound. 0 means
// none.
inline constexpr uint64_t kNumberMax = uint64_t{1} << 62;
inline bool IsNumber(uint64_t number) { return number != 0 && number < kNumberMax; }

// On disk; never change. 0 is never written.
enum class OpKind : uint16_t {
  kModel = 1,   // branch: -, other: model id; spec. See kOpKnown.
  kCreate = 2,  // branch: new id, other: model id; name, namespace.
  // branch: new id, other: source branch, node and position: where it leaves. A fork from a node
  // has other: 0, source_node.
  kFork = 3,
  // branch, node, other: parent of a new node, position: tokens before. With a table: part of the
  // append is in it. KV that begins beyond its lane leaves a gap.
  kAppend = 4,
  kRewind = 5,  // branch, node: where the head is then (0: nowhere), position: new length.
  kRename = 6,  // branch; name.
  kDrop = 7,    // branch.
  kPart = 8,    // Carries payload of a later kAppend of its unit.
  kBatch = 9,
  kSeal = 10,   // other: snapshot table, position: its bytes; what it holds from now on.
  kEvict = 11,  // chosen branch; sealed: ranges of its nodes that lose their KV, to the lane's end.
  kFill = 12,   // branch; lanes: KV of positions that lie nowhere, each range on one node.
  kKeep = 13,   // branch; policy: pinned, priority, ttl.
  kNamespace = 14,  // namespace; policy: cap, what may be evicted and what is kept, ttl.
  kJoin = 15,       // node, other: its parent, which nothing else needs; the node takes it in.
  kTrim = 16,       // node, position: where it ends from now on, since nothing reaches beyond.
  // node, position, other: kind, table: computed from the path up to there. Without a table: the
  // mark of that kind is removed.
  kDerive = 17,
};
const char* OpKindName(uint16_t kind);

// Flags of the core.
inline constexpr uint16_t kOpNewNode = 1;  // kAppend: `node` is made, child of `other`.
inline constexpr uint16_t kOpInPlace = 2;  // kRewind: the node itself is trimmed.
inline constexpr uint16_t kOpKnown = 4;    // kModel: known; settings it left unset are set now.

// A lane is a stream with its own length along a path: tokens, or the KV of one layer group.
inline constexpr uint32_t kTokenLane = 0;  // Lane 1 + g: KV of group g.
// States set at a position (`begin`); `count` is 1.
inline constexpr uint32_t kSamplerLane = 0xFFFE;
inline constexpr uint32_t kMetadataLane = 0xFFFF;
// In the index: content spans, and what is derived.
inline constexpr uint32_t kSpanLane = 0xFFFD;
inline constexpr uint32_t kDerivedLane = 0xFFFB;
// kEvict: nothing needs KV of this node any more (Node::kv_gone); `begin` 0, `count` 1.
inline constexpr uint32_t kWholeNodeLane = 0xFFFC;

// Which positions of a lane a record's payload carries, and the first strip that holds them.
struct LaneRange {
  uint32_t lane = 0;
  uint32_t strip = 0;
  uint64_t begin = 0;
  uint64_t count = 0;
};
static_assert(sizeof(LaneRange) == 24);

// Positions of a lane of a node that are in a snapshot table from now on: one fragment of it.
struct SealedRange {
  uint64_t node = 0;
  uint64_t begin = 0;
  uint32_t lane = 0;
  uint32_t count = 0;
  uint64_t stored_bytes = 0;  // The fragment's frames.
};
static_assert(sizeof(SealedRange) == 32);

// Names a snapshot table. kAppend: the one that its sealed ranges lie in. kDerive: the derived one.
// (kSeal has number and bytes in its core.)
struct TableRef {
  uint64_t number = 0;
  uint64_t bytes = 0;  // The file's size.
};
static_assert(sizeof(TableRef) == 16);

// Retention of a branch (kKeep, also with kCreate and kFork) or of a namespace.
struct OpPolicy {
  uint64_t max_bytes = UINT64_MAX;  // Namespace.
  uint64_t ttl_ns = 0;
  uint8_t priority = 0;  // Branch.
  uint8_t pinned = 0;    // Branch.
  uint8_t evict = 0;     // Namespace: 1 + Evict; 0: as the store's options say.
  uint8_t persist = 0;   // Namespace.
  uint8_t index = 0;     // Namespace.
  std::array<uint8_t, 3> zero{};
  bool operator==(const OpPolicy&) const = default;
  // Every value is one that this version knows. Others are of a newer one.
  bool is_known() const {
    return evict <= 1 + static_cast<int>(Evict::kBranches) &&
           persist <= static_cast<int>(Persist::kTokensOnly) &&
           index <= static_cast<int>(kLastIndex);
  }
  static OpPolicy Of(const NamespacePolicy& policy) {
    return {.max_bytes = policy.max_bytes,
            .ttl_ns = policy.ttl_ns,
            .evict = static_cast<uint8_t>(policy.evict ? 1 + static_cast<int>(*policy.evict) : 0),
            .persist = static_cast<uint8_t>(policy.persist),
            .index = static_cast<uint8_t>(policy.index)};
  }
  static OpPolicy Of(const Keep& keep) {
    return {.ttl_ns = keep.ttl_ns,
            .priority = keep.priority,
            .pinned = static_cast<uint8_t>(keep.pinned ? 1 : 0)};
  }
  NamespacePolicy ns_policy() const {
    NamespacePolicy policy{.max_bytes = max_bytes,
                           .evict = {},
                           .persist = static_cast<Persist>(persist),
                           .ttl_ns = ttl_ns,
                           .index = static_cast<Index>(index)};
    if (evict != 0) policy.evict = static_cast<Evict>(evict - 1);
    return policy;
  }
  Keep keep() const { return {.pinned = pinned != 0, .priority = priority, .ttl_ns = ttl_ns}; }
};
static_assert(sizeof(OpPolicy) == 24);

struct Op {
  OpKind kind{};
  uint16_t flags = 0;
  uint64_t branch = 0;
  uint64_t node = 0;
  uint64_t other = 0;
  uint64_t position = 0;
  uint64_t time_ns = 0;  // Wall clock; recorded only.
  std::string name, ns;
  std::vector<std::byte> spec;  // kModel: EncodeModel.
  std::vector<LaneRange> lanes;
  std::vector<ContentSpan> spans;
  std::vector<SealedRange> sealed;
  TableRef table;
  std::optional<OpPolicy> policy{};
  bool exact = true;         // kAppend, kFill: Delta::exact, of all KV of the op and of its parts.
  uint64_t source_node = 0;  // kFork: the node that is forked, if no branch is.
};

void EncodeOp(const Op& op, FieldWriter* into);
// kCorruption / kUnsupportedFormat for tables that no version of this library wrote.
Result<Op> DecodeOp(std::span<const std::byte> fields);
// The ops of a record: one, or those of a batch.
Result<std::vector<Op>> DecodeRecord(const wal::RecordView& record);
inline constexpr uint16_t kOpFieldsField = 16;  // In a record of kind kBatch.

std::vector<std::byte> EncodeModel(const ModelSpec& spec);
Result<ModelSpec> DecodeModel(std::span<const std::byte> bytes);

std::vector<std::byte> EncodeSampler(const SamplerState& state);
Result<SamplerState> DecodeSampler(std::span<const std::byte> bytes);
std::vector<std::byte> EncodeMetadata(const AppMetadata& metadata);
Result<AppMetadata> DecodeMetadata(std::span<const std::byte> bytes);

}  // namespace cairn::engine
