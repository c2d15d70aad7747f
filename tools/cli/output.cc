// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/output.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>

namespace cairn::cli {

namespace {

std::string Dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Unset fields are left out.
Json RotaryToJson(const RotarySpec& rotary) {
  Json json = Json::object();
  if (rotary.state != RotaryState::kUnset) json["state"] = RotaryStateName(rotary.state);
  if (rotary.pairing != RotaryPairing::kUnset) json["pairing"] = RotaryPairingName(rotary.pairing);
  if (rotary.width != 0) {
    json["first"] = rotary.first;
    json["width"] = rotary.width;
  }
  if (!rotary.sections.empty()) {
    json["sections"] = rotary.sections;
    json["interleaved"] = rotary.interleaved;
  }
  return json;
}

Json PlaneToJson(const Plane& plane) {
  Json json = {{"name", plane.name},
               {"role", RoleName(plane.role)},
               {"heads", plane.heads},
               {"row_bytes", plane.row_bytes},
               {"dtype", DtypeName(plane.dtype)},
               {"rotary", RotaryToJson(plane.rotary)},
               {"sealed_as", SealedAsName(plane.sealed_as)}};
  if (plane.state_parts != 0) json["state_parts"] = plane.state_parts;
  return json;
}

Json LogicalToJson(const LogicalGroup& group) {
  return {{"name", group.name},           {"layers", group.layers},
          {"heads", group.heads},         {"layer_begin", group.layer_begin},
          {"layer_end", group.layer_end}, {"head_begin", group.head_begin},
          {"head_end", group.head_end},   {"replicated", group.replicated}};
}

Json GroupToJson(const LayerGroup& group) {
  Json planes = Json::array();
  for (const Plane& plane : group.planes) planes.push_back(PlaneToJson(plane));
  Json retention = {{"kind", RetentionName(group.retention.kind)}};
  if (group.retention.window != 0) retention["window"] = group.retention.window;
  if (group.retention.sinks != 0) retention["sinks"] = group.retention.sinks;
  if (group.retention.chunk != 0) retention["chunk"] = group.retention.chunk;
  Json json = {
      {"name", group.name},     {"layers", group.layers},     {"token_bytes", group.token_bytes()},
      {"retention", retention}, {"optional", group.optional}, {"planes", planes}};
  if (!group.packing.empty()) json["packing"] = group.packing;
  return json;
}

}  // namespace

void PrintJson(const Json& value) { std::printf("%s\n", Dump(value, 2).c_str()); }
void PrintJsonLine(const Json& value) { std::printf("%s\n", Dump(value, -1).c_str()); }

Json ToJson(const BranchInfo& info) {
  return {{"id", static_cast<uint64_t>(info.id)},
          {"name", info.name},
          {"ns", info.ns},
          {"model", static_cast<uint64_t>(info.model)},
          {"node", static_cast<uint64_t>(info.node)},
          {"length", info.length},
          {"kv_lengths", info.kv_lengths},
          {"created_at_ns", info.created_at_ns},
          {"updated_at_ns", info.updated_at_ns},
          {"used_at_ns", info.used_at_ns},
          {"keep",
           {{"pinned", info.keep.pinned},
            {"priority", info.keep.priority},
            {"ttl_ns", info.keep.ttl_ns}}}};
}

Json ToJson(const ModelSpec& spec) {
  Json groups = Json::array();
  for (const LayerGroup& group : spec.groups) groups.push_back(GroupToJson(group));
  Json json = {{"name", spec.identity.name},
               {"revision", spec.identity.revision},
               {"weights_digest", spec.identity.weights_digest},
               {"tokenizer_digest", spec.identity.tokenizer_digest},
               {"quantization", spec.identity.quantization},
               {"cache_dtype", spec.identity.cache_dtype},
               {"extent_tokens", spec.extent_tokens},
               {"token_bytes", spec.token_bytes()},
               {"groups", groups}};
  if (spec.variant != ModelVariant{}) {
    json["variant"] = {{"name", spec.variant.name},
                       {"digest", spec.variant.digest},
                       {"scale", spec.variant.scale}};
  }
  if (const ShardSpec& shard = spec.shard; shard != ShardSpec{}) {
    json["shard"] = {{"layer_begin", shard.layer_begin},     {"layer_end", shard.layer_end},
                     {"kv_head_begin", shard.kv_head_begin}, {"kv_head_end", shard.kv_head_end},
                     {"context_rank", shard.context_rank},   {"context_size", shard.context_size},
                     {"replicated", shard.replicated}};
  }
  for (const LogicalGroup& group : spec.logical) json["logical"].push_back(LogicalToJson(group));
  return json;
}

Json ToJson(const ModelInfo& info) {
  Json json = {{"id", static_cast<uint64_t>(info.id)}};
  json.update(ToJson(info.spec));
  return json;
}

Json ToJson(const ContentSpan& span) {
  char hash[40];
  std::snprintf(hash, sizeof hash, "%016llx%016llx", static_cast<unsigned long long>(span.hash[0]),
                static_cast<unsigned long long>(span.hash[1]));
  return {{"begin", span.begin}, {"end", span.end}, {"hash", hash}, {"atomic", span.atomic}};
}

Json ToJson(const SamplerState& state) {
  Json json = {{"generator", GeneratorName(state.generator)}};
  if (state.generator == GeneratorKind::kPhilox) {
    json["seed"] = state.philox_seed;
    json["offset"] = state.philox_offset;
  }
  if (!state.blob_name.empty()) json["blob_name"] = state.blob_name;
  if (!state.blob.empty()) {
    json["blob_version"] = state.blob_version;
    json["blob"] = Hex(state.blob);
  }
  json["temperature"] = state.temperature;
  json["top_p"] = state.top_p;
  json["top_k"] = state.top_k;
  json["min_p"] = state.min_p;
  json["repetition_penalty"] = state.repetition_penalty;
  json["last_logits"] = state.last_logits.size();
  return json;
}

Json ToJson(const Status& error) {
  return {{"error",
           {{"code", StatusCodeName(error.code())}, {"message", std::string(error.message())}}}};
}

Json ToJson(const AppMetadata& metadata) {
  Json value;
  const auto* begin = reinterpret_cast<const uint8_t*>(metadata.bytes.data());
  const auto* end = begin + metadata.bytes.size();
  if (metadata.content_type == "application/json") {
    value = Json::parse(begin, end, nullptr, /*allow_exceptions=*/false);
  } else if (metadata.content_type == "application/msgpack") {
    value = Json::from_msgpack(begin, end, /*strict=*/true, /*allow_exceptions=*/false);
  } else if (metadata.content_type == "application/cbor") {
    value = Json::from_cbor(begin, end, /*strict=*/true, /*allow_exceptions=*/false);
  } else {
    value = Json(Json::value_t::discarded);
  }
  Json json = {{"content_type", metadata.content_type}};
  if (value.is_discarded()) {
    json["hex"] = Hex(metadata.bytes);
  } else {
    json["value"] = std::move(value);
  }
  return json;
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kCharacters = 80;
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_one = (text[i] & 0xc0) != 0x80;
    // Text that is no UTF-8 may have none that begins a character.
    if ((begins_one && ++characters > kCharacters) || i == 4 * kCharacters)
      return std::string(text.substr(0, i)) + "...";
  }
  return std::string(text);
}

std::string Hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string TimeText(uint64_t ns) {
  const auto seconds = static_cast<time_t>(ns / 1'000'000'000);
  tm parts{};
  if (ns == 0 || gmtime_r(&seconds, &parts) == nullptr) return "-";
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

std::string SpanText(uint64_t ns) {
  if (ns == 0) return "-";
  const uint64_t seconds = ns / 1'000'000'000;
  if (seconds == 0) return "< 1 s";
  for (const auto& [unit, name] :
       {std::pair<uint64_t, const char*>{86'400, " d"}, {3600, " h"}, {60, " min"}}) {
    if (seconds % unit == 0) return std::to_string(seconds / unit) + name;
  }
  return std::to_string(seconds) + " s";
}

std::string Plural(uint64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " " + std::string(noun);
  if (count != 1) text += noun.ends_with("ch") ? "es" : "s";
  return text;
}

std::string_view GeneratorName(GeneratorKind kind) {
  switch (kind) {
    case GeneratorKind::kNone: return "none";
    case GeneratorKind::kPhilox: return "philox";
    case GeneratorKind::kMt19937: return "mt19937";
    case GeneratorKind::kNamed: return "named";
  }
  return "unknown";
}

std::string_view RoleName(PlaneRole role) {
  switch (role) {
    case PlaneRole::kKey: return "key";
    case PlaneRole::kValue: return "value";
    case PlaneRole::kLatent: return "latent";
    case PlaneRole::kScale: return "scale";
    case PlaneRole::kState: return "state";
    case PlaneRole::kOpaque: return "opaque";
  }
  return "unknown";
}

std::string_view RetentionName(Retention retention) {
  switch (retention) {
    case Retention::kAll: return "all";
    case Retention::kWindow: return "window";
    case Retention::kChunkLocal: return "chunk-local";
    case Retention::kCheckpoint: return "checkpoint";
    case Retention::kPerRequest: return "per-request";
  }
  return "unknown";
}

std::string LossText(const LayerGroup& group) {
  std::string text;
  for (const Plane& plane : group.planes) {
    if (plane.sealed_as == SealedAs::kLossless) continue;
    text += ", " + plane.name + " sealed as " + SealedAsName(plane.sealed_as);
  }
  return text;
}

std::string RotaryText(const LayerGroup& group) {
  for (const Plane& plane : group.planes) {
    const RotarySpec& rotary = plane.rotary;
    const bool before = rotary.state == RotaryState::kBefore;
    if (!before && rotary.state != RotaryState::kApplied) continue;
    if (!before && rotary.pairing == RotaryPairing::kUnset) continue;
    std::string text = ", " + plane.name + (before ? " before rotation" : " rotated");
    if (rotary.pairing == RotaryPairing::kHalves) text += " in halves";
    if (rotary.pairing == RotaryPairing::kAdjacent) text += " in adjacent pairs";
    return text;
  }
  return "";
}

std::string HeldText(const ModelSpec& spec, const LayerGroup& group) {
  const auto held = [](const char* what, uint32_t begin, uint32_t end, uint32_t all) {
    if (begin == 0 && end == all) return std::string();
    return std::string(", ") + what + " " + std::to_string(begin) + ".." + std::to_string(end) +
           " of " + std::to_string(all);
  };
  for (const LogicalGroup& logical : spec.logical) {
    if (logical.name != group.name) continue;
    return held("layers", logical.layer_begin, logical.layer_end, logical.layers) +
           held("heads", logical.head_begin, logical.head_end, logical.heads) +
           (logical.replicated ? ", replicated" : "");
  }
  return "";
}

std::string ShellWord(std::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-./,:+@%=").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

TextTable::TextTable(std::vector<std::string> header, std::vector<size_t> right)
    : right_(std::move(right)) {
  rows_.push_back(std::move(header));
}

void TextTable::Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

std::string TextTable::ToString() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - DisplayWidth(row[i]), ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      if (i > 0) text += "  ";
      text += right ? padding + row[i] : i + 1 == row.size() ? row[i] : row[i] + padding;
    }
    text += '\n';
  }
  return text;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace cairn::cli
