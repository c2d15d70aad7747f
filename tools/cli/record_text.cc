// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/record_text.h"

#include <algorithm>

#include "base/codec/fields.h"
#include "engine/commit/kv_layout.h"
#include "tools/cli/names.h"
#include "wal/format.h"

namespace cairn::cli {

namespace {

std::span<const std::byte> WholeRecord(const wal::RecordView& view) {
  return {view.fields.data() - sizeof(wal::RecordFrame), view.location.bytes};
}

std::string LaneName(uint32_t lane) {
  if (lane == engine::kTokenLane) return "tokens";
  if (lane == engine::kSamplerLane) return "sampler";
  if (lane == engine::kMetadataLane) return "metadata";
  return "kv group " + std::to_string(lane - 1);
}

std::string StripName(uint32_t tag) {
  switch (engine::TagOf(tag)) {
    case engine::StripTag::kTokens: return "tokens";
    case engine::StripTag::kKv: return "kv group " + std::to_string(tag >> 16);
    case engine::StripTag::kPackedKv: return "packed kv group " + std::to_string(tag >> 16);
    case engine::StripTag::kSampler: return "sampler";
    case engine::StripTag::kMetadata: return "metadata";
  }
  return "tag " + std::to_string(tag);
}

Json OpToJson(const engine::Op& op) {
  Json json = {{"kind", engine::OpKindName(static_cast<uint16_t>(op.kind))},
               {"flags", op.flags},
               {"branch", op.branch},
               {"node", op.node},
               {"other", op.other},
               {"position", op.position},
               {"time_ns", op.time_ns}};
  if (!op.name.empty()) json["name"] = op.name;
  if (!op.ns.empty()) json["ns"] = op.ns;
  if (!op.spec.empty()) {
    const auto spec = engine::DecodeModel(op.spec);
    json["model"] = spec.ok() ? ToJson(*spec) : Json(spec.status().ToString());
  }
  if (!op.lanes.empty()) json["lanes"] = Json::array();
  for (const engine::LaneRange& lane : op.lanes) {
    json["lanes"].push_back({{"lane", LaneName(lane.lane)},
                             {"begin", lane.begin},
                             {"count", lane.count},
                             {"strip", lane.strip}});
  }
  if (!op.spans.empty()) json["spans"] = Json::array();
  for (const ContentSpan& span : op.spans) json["spans"].push_back(ToJson(span));
  if (!op.sealed.empty()) json["sealed"] = Json::array();
  for (const engine::SealedRange& range : op.sealed) {
    json["sealed"].push_back({{"node", range.node},
                              {"lane", LaneName(range.lane)},
                              {"begin", range.begin},
                              {"count", range.count},
                              {"stored_bytes", range.stored_bytes}});
  }
  if (op.table.number != 0) {
    json["table"] = {{"number", op.table.number}, {"bytes", op.table.bytes}};
  }
  if (!op.exact) json["exact"] = false;
  if (op.source_node != 0) json["source_node"] = op.source_node;
  return json;
}

// For records that this version's engine does not understand.
Json FieldsToJson(std::span<const std::byte> fields) {
  const auto reader = FieldReader::Parse(fields);
  if (!reader.ok()) return reader.status().ToString();
  Json json = Json::array();
  for (const Field& field : reader->fields()) {
    Json one = {{"id", field.id}, {"critical", field.critical}};
    if (field.type == FieldType::kU64) {
      one["u64"] = field.u64();
    } else if (field.type == FieldType::kF64) {
      one["f64"] = field.f64();
    } else {
      one["hex"] = Hex(field.value);
    }
    json.push_back(std::move(one));
  }
  return json;
}

// The ids of all token strips, in order.
Json TokensOf(const wal::RecordView& view, const StoreId& store) {
  Json tokens = Json::array();
  const std::span<const std::byte> record = WholeRecord(view);
  for (size_t i = 0; i < view.strip_count(); ++i) {
    const wal::Strip strip = view.strip(i);
    if (engine::TagOf(strip.tag) != engine::StripTag::kTokens) continue;
    if (!view.VerifyStrip(record, i, store).ok()) return nullptr;
    for (uint32_t at = 0; at + sizeof(TokenId) <= strip.bytes; at += sizeof(TokenId)) {
      tokens.push_back(wal::LoadAs<TokenId>(record.data() + view.strip_offset(i) + at));
    }
  }
  return tokens;
}

std::string Id(const char* what, uint64_t id) { return std::string(what) + std::to_string(id); }

// Names what a branch or a namespace does not have as by default.
std::string PolicyText(const engine::Op& op) {
  const engine::OpPolicy policy = op.policy.value_or(engine::OpPolicy{});
  std::string text;
  if (policy.pinned != 0) text += " pinned";
  if (policy.priority != 0) text += Id(" priority ", policy.priority);
  if (policy.ttl_ns != 0) text += " ttl " + std::to_string(policy.ttl_ns / 1'000'000'000) + " s";
  if (policy.max_bytes != UINT64_MAX) text += Id(" max_bytes ", policy.max_bytes);
  const NamespacePolicy ns = policy.ns_policy();
  if (ns.evict) text += " evict " + NameIn(kEvicts, *ns.evict);
  if (ns.persist != Persist::kAlways) text += " persist " + NameIn(kPersists, ns.persist);
  if (ns.index != Index::kPrefix) text += " index " + NameIn(kIndexes, ns.index);
  return text;
}

}  // namespace

std::string OpText(const engine::Op& op) {
  const std::string name = op.name.empty() ? "(unnamed)" : "\"" + NameLabel(op.ns, op.name) + "\"";
  std::string text = engine::OpKindName(static_cast<uint16_t>(op.kind));
  switch (op.kind) {
    case engine::OpKind::kModel: {
      const auto spec = engine::DecodeModel(op.spec);
      return text + Id(" ", op.other) + " " +
             (spec.ok() ? Quoted(spec->identity.name) : spec.status().ToString());
    }
    case engine::OpKind::kCreate:
      return text + Id(" branch #", op.branch) + " " + name + Id(" of model ", op.other);
    case engine::OpKind::kFork:
      return text + Id(" branch #", op.branch) + " " + name +
             (op.source_node != 0 ? Id(" from node ", op.source_node)
                                  : Id(" from branch #", op.other)) +
             Id(" at ", op.position) + Id(" of node ", op.node);
    case engine::OpKind::kRewind:
      return text + Id(" branch #", op.branch) + Id(" to ", op.position) +
             ((op.flags & engine::kOpInPlace) != 0 ? Id(", cuts node ", op.node)
                                                   : Id(", now on node ", op.node));
    case engine::OpKind::kRename: return text + Id(" branch #", op.branch) + " to " + name;
    case engine::OpKind::kDrop: return text + Id(" branch #", op.branch);
    case engine::OpKind::kSeal:
      return text + Id(" into table ", op.other) + ": " + Plural(op.sealed.size(), "fragment");
    case engine::OpKind::kEvict: {
      const auto lanes = std::count_if(op.sealed.begin(), op.sealed.end(), [](const auto& range) {
        return range.lane != engine::kWholeNodeLane;
      });
      return text + Id(" branch #", op.branch) + ": KV of " +
             Plural(static_cast<uint64_t>(lanes), "node lane");
    }
    case engine::OpKind::kFill: text += Id(" branch #", op.branch); break;
    case engine::OpKind::kKeep: return text + Id(" branch #", op.branch) + PolicyText(op);
    case engine::OpKind::kNamespace: return text + " " + Quoted(op.ns) + PolicyText(op);
    case engine::OpKind::kJoin: return text + Id(" node ", op.other) + Id(" into node ", op.node);
    case engine::OpKind::kTrim:
      return text + Id(" node ", op.node) + " to position " + std::to_string(op.position);
    case engine::OpKind::kDerive:
      return text + Id(" kind ", op.other) + Id(" of node ", op.node) + " to position " +
             std::to_string(op.position) +
             (op.table.number == 0 ? ": gone" : Id(" in table ", op.table.number));
    case engine::OpKind::kAppend:
      text += Id(" branch #", op.branch) + Id(" node ", op.node);
      if ((op.flags & engine::kOpNewNode) != 0) {
        text += op.other == 0 ? " (new root)" : Id(" (new, on node ", op.other) + ")";
      }
      break;
    case engine::OpKind::kPart:
    case engine::OpKind::kBatch: break;
  }
  const char* between = ": ";
  for (const engine::LaneRange& lane : op.lanes) {
    text += between + LaneName(lane.lane) + " " + std::to_string(lane.begin);
    const bool state = lane.lane == engine::kSamplerLane || lane.lane == engine::kMetadataLane;
    if (!state) text += ".." + std::to_string(lane.begin + lane.count);
    between = ", ";
  }
  if (op.table.number != 0) {
    text += between + Plural(op.sealed.size(), "fragment") + Id(" in table ", op.table.number);
  }
  if (!op.spans.empty()) text += ", " + Plural(op.spans.size(), "span");
  if (!op.exact) text += ", approximate";
  return text;
}

RecordText DescribeRecord(const wal::RecordView& view, const StoreId& store,
                          const RecordOptions& options) {
  RecordText text;
  text.json = {{"type", "record"},
               {"sequence", view.sequence},
               {"segment", view.location.segment},
               {"offset", view.location.offset},
               {"bytes", view.location.bytes},
               {"kind", engine::OpKindName(view.kind)},
               {"kind_id", view.kind},
               {"unit", view.unit},
               {"more", view.more}};
  const auto ops = engine::DecodeRecord(view);
  if (ops.ok()) {
    text.json["ops"] = Json::array();
    for (const engine::Op& op : *ops) {
      text.json["ops"].push_back(OpToJson(op));
      text.line += (text.line.empty() ? "" : "; ") + OpText(op);
    }
  } else {
    text.json["fields"] = FieldsToJson(view.fields);
    text.line = "kind " + std::to_string(view.kind) + ": " + ops.status().ToString();
    text.damage.push_back(ops.status().ToString());
  }
  text.json["strips"] = Json::array();
  for (size_t i = 0; i < view.strip_count(); ++i) {
    const wal::Strip strip = view.strip(i);
    text.json["strips"].push_back({{"what", StripName(strip.tag)},
                                   {"offset", view.location.offset + view.strip_offset(i)},
                                   {"bytes", strip.bytes}});
    if (!options.verify) continue;
    const Status status = view.VerifyStrip(WholeRecord(view), i, store);
    if (!status.ok()) text.damage.emplace_back(status.message());
  }
  if (options.tokens) text.json["tokens"] = TokensOf(view, store);
  if (!text.damage.empty()) text.json["damage"] = text.damage;
  return text;
}

}  // namespace cairn::cli
