// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/op.h"

#include <array>
#include <cstring>

#include "base/core/check.h"

namespace cairn::engine {

namespace {

// Field ids of an op; on disk, never change.
enum OpField : uint16_t {
  kCore = 1,
  kName = 2,
  kNamespace = 3,
  kSpec = 4,
  kLane = 5,
  kSpan = 6,
  kSealed = 7,
  kTable = 8,
  kPolicy = 9,
  kApproximate = 10,  // U64 1, or absent.
  kSourceNode = 11,   // U64, or absent.
};
constexpr std::array<uint16_t, 11> kKnownOpFields = {kCore,   kName,        kNamespace, kSpec,
                                                     kLane,   kSpan,        kSealed,    kTable,
                                                     kPolicy, kApproximate, kSourceNode};

struct CoreBytes {
  uint16_t kind;
  uint16_t flags;
  uint32_t zero;
  uint64_t branch, node, other, position, time_ns;
};
static_assert(sizeof(CoreBytes) == 48);

struct SpanBytes {
  uint64_t begin, end, hash[2], flags;  // Flag 1: atomic.
};
static_assert(sizeof(SpanBytes) == 40);

template <typename T>
std::span<const std::byte> AsBytes(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

template <typename T>
bool FromBytes(std::span<const std::byte> bytes, T* value) {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(value, bytes.data(), sizeof(T));
  return true;
}

Status Damaged(const std::string& what) {
  return Status(StatusCode::kCorruption, "op fields: " + what);
}

bool KindExists(uint16_t kind) {
  return (kind >= static_cast<uint16_t>(OpKind::kModel) &&
          kind <= static_cast<uint16_t>(OpKind::kPart)) ||
         (kind >= static_cast<uint16_t>(OpKind::kSeal) &&
          kind <= static_cast<uint16_t>(OpKind::kDerive));
}

}  // namespace

const char* OpKindName(uint16_t kind) {
  switch (static_cast<OpKind>(kind)) {
    case OpKind::kModel: return "model";
    case OpKind::kCreate: return "create";
    case OpKind::kFork: return "fork";
    case OpKind::kAppend: return "append";
    case OpKind::kRewind: return "rewind";
    case OpKind::kRename: return "rename";
    case OpKind::kDrop: return "drop";
    case OpKind::kPart: return "part";
    case OpKind::kBatch: return "batch";
    case OpKind::kSeal: return "seal";
    case OpKind::kEvict: return "evict";
    case OpKind::kFill: return "fill";
    case OpKind::kKeep: return "keep";
    case OpKind::kNamespace: return "namespace";
    case OpKind::kJoin: return "join";
    case OpKind::kTrim: return "cut";  // The name that tools print.
    case OpKind::kDerive: return "derive";
  }
  return "unknown";
}

void EncodeOp(const Op& op, FieldWriter* into) {
  const CoreBytes core{static_cast<uint16_t>(op.kind),
                       op.flags,
                       0,
                       op.branch,
                       op.node,
                       op.other,
                       op.position,
                       op.time_ns};
  into->Bytes(kCore, AsBytes(core));
  if (!op.name.empty()) into->Text(kName, op.name);
  if (!op.ns.empty()) into->Text(kNamespace, op.ns);
  if (!op.spec.empty()) into->Bytes(kSpec, op.spec);
  for (const LaneRange& lane : op.lanes) into->Bytes(kLane, AsBytes(lane));
  for (const ContentSpan& span : op.spans) {
    const SpanBytes bytes{
        span.begin, span.end, {span.hash[0], span.hash[1]}, span.atomic ? 1u : 0u};
    into->Bytes(kSpan, AsBytes(bytes));
  }
  for (const SealedRange& range : op.sealed) into->Bytes(kSealed, AsBytes(range));
  if (op.table.number != 0) into->Bytes(kTable, AsBytes(op.table));
  if (op.policy.has_value()) into->Bytes(kPolicy, AsBytes(*op.policy));
  if (!op.exact) into->U64(kApproximate, 1);
  if (op.source_node != 0) into->U64(kSourceNode, op.source_node);
}

Result<Op> DecodeOp(std::span<const std::byte> fields) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, FieldReader::Parse(fields));
  CAIRN_RETURN_IF_ERROR(reader.CheckCritical(kKnownOpFields));
  Op op;
  bool has_core = false;
  for (const Field& field : reader.fields()) {
    switch (field.id) {
      case kCore: {
        CoreBytes core;
        if (!FromBytes(field.value, &core) || has_core) return Damaged("bad core");
        if (!KindExists(core.kind)) return Damaged("unknown kind " + std::to_string(core.kind));
        has_core = true;
        op.kind = static_cast<OpKind>(core.kind);
        op.flags = core.flags;
        op.branch = core.branch;
        op.node = core.node;
        op.other = core.other;
        op.position = core.position;
        op.time_ns = core.time_ns;
        break;
      }
      case kName: op.name = field.text(); break;
      case kNamespace: op.ns = field.text(); break;
      case kSpec: op.spec.assign(field.value.begin(), field.value.end()); break;
      case kLane: {
        LaneRange lane;
        if (!FromBytes(field.value, &lane) || lane.begin + lane.count < lane.begin) {
          return Damaged("bad lane range");
        }
        op.lanes.push_back(lane);
        break;
      }
      case kSpan: {
        SpanBytes bytes;
        if (!FromBytes(field.value, &bytes)) return Damaged("bad content span");
        op.spans.push_back({.begin = bytes.begin,
                            .end = bytes.end,
                            .hash = {bytes.hash[0], bytes.hash[1]},
                            .atomic = (bytes.flags & 1) != 0});
        break;
      }
      case kSealed: {
        SealedRange range;
        if (!FromBytes(field.value, &range) || range.count == 0 ||
            range.begin + range.count < range.begin) {
          return Damaged("bad sealed range");
        }
        op.sealed.push_back(range);
        break;
      }
      case kTable:
        if (!FromBytes(field.value, &op.table) || op.table.number == 0) return Damaged("bad table");
        break;
      case kPolicy: {
        OpPolicy policy;
        if (!FromBytes(field.value, &policy)) return Damaged("bad policy");
        if (!policy.is_known()) {
          return Status(StatusCode::kUnsupportedFormat, "op: a policy of a newer version");
        }
        op.policy = policy;
        break;
      }
      case kApproximate: op.exact = field.u64() == 0; break;
      case kSourceNode: op.source_node = field.u64(); break;
      default: break;  // Not critical: made by a newer version for its own use.
    }
  }
  if (!has_core) return Damaged("no core");
  return op;
}

Result<std::vector<Op>> DecodeRecord(const wal::RecordView& record) {
  std::vector<Op> ops;
  if (record.kind != static_cast<uint16_t>(OpKind::kBatch)) {
    CAIRN_ASSIGN_OR_RETURN(Op op, DecodeOp(record.fields));
    if (static_cast<uint16_t>(op.kind) != record.kind) {
      return Damaged("record kind " + std::to_string(record.kind) + " holds an op of kind " +
                     OpKindName(static_cast<uint16_t>(op.kind)));
    }
    ops.push_back(std::move(op));
    return ops;
  }
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, FieldReader::Parse(record.fields));
  CAIRN_RETURN_IF_ERROR(reader.CheckCritical(std::array<uint16_t, 1>{kOpFieldsField}));
  for (const Field& field : reader.fields()) {
    if (field.id != kOpFieldsField) continue;
    CAIRN_ASSIGN_OR_RETURN(Op op, DecodeOp(field.value));
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace cairn::engine
