// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/branch_file.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "base/core/text.h"
#include "engine/exchange/model_json.h"

namespace cairn::engine {

namespace {

constexpr const char* kFormat = "cairn-branch";
constexpr const char* kVersion = "1";
constexpr const char* kDigestName = "xxh3-128";
constexpr size_t kDigestDigits = 32;
constexpr uint64_t kDigestPositionsMax = 4096;
constexpr uint64_t kTokensMax = uint64_t{1} << 48;  // So that sums and bytes fit 64 bits.

Status BadFile(const std::string& what) { return Status(StatusCode::kCorruption, what); }

// A name that may be a part of a tensor's.
bool IsPlain(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  const bool is_number =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return !name.empty() && name.size() <= 64 && !is_number &&
         std::all_of(name.begin(), name.end(), fits);
}

// The name, or the number where it is not plain, or another one's too.
template <typename Named>
std::string WordOf(const std::vector<Named>& all, size_t index) {
  const std::string& name = all[index].name;
  const auto same =
      std::count_if(all.begin(), all.end(), [&](const Named& one) { return one.name == name; });
  return IsPlain(name) && same == 1 ? name : std::to_string(index);
}

const char* TensorTypeOf(const Plane& plane) {
  if (plane.row_bytes % DtypeBytes(plane.dtype) != 0) return "U8";
  switch (plane.dtype) {
    case Dtype::kF32: return "F32";
    case Dtype::kF16: return "F16";
    case Dtype::kBf16: return "BF16";
    case Dtype::kF8E4M3: return "F8_E4M3";
    case Dtype::kF8E5M2: return "F8_E5M2";
    case Dtype::kI8: return "I8";
    case Dtype::kOpaque:
    case Dtype::kU8: break;
  }
  return "U8";
}

Tensor TensorOf(const BranchFile& file, const KvTensor& kv) {
  const Plane& plane = file.model.groups[kv.group].planes[kv.plane];
  const uint64_t positions = file.groups[kv.group].positions();
  Tensor tensor;
  tensor.dtype = TensorTypeOf(plane);
  tensor.shape = {plane.heads, positions, plane.row_bytes / TensorTypeBytes(tensor.dtype)};
  tensor.begin = kv.offset;
  tensor.end = kv.offset + plane.heads * positions * plane.row_bytes;
  return tensor;
}

Tensor TensorOf(const Whole& whole, const char* dtype) {
  return {.dtype = dtype,
          .shape = {whole.bytes / TensorTypeBytes(dtype)},
          .begin = whole.offset,
          .end = whole.offset + whole.bytes};
}

void NameTensors(BranchFile* file) {
  file->tensors.clear();
  const std::vector<LayerGroup>& groups = file->model.groups;
  for (uint32_t group = 0; group < groups.size(); ++group) {
    if (file->groups[group].runs.empty()) continue;
    const std::string word = WordOf(groups, group);
    for (uint32_t layer = 0; layer < groups[group].layers; ++layer) {
      for (uint32_t plane = 0; plane < groups[group].planes.size(); ++plane) {
        file->tensors.push_back({.group = group,
                                 .layer = layer,
                                 .plane = plane,
                                 .name = "kv." + word + "." + std::to_string(layer) + "." +
                                         WordOf(groups[group].planes, plane),
                                 .digest = std::string(kDigestDigits, '0')});
      }
    }
  }
}

Json RangesToJson(const std::vector<Range>& ranges) {
  Json json = Json::array();
  for (const Range& range : ranges) json.push_back({range.begin, range.end});
  return json;
}

std::string KvDataText(const BranchFile& file) {
  Json groups = Json::array();
  for (uint32_t i = 0; i < file.groups.size(); ++i) {
    Json tensors = Json::object();
    for (const KvTensor& tensor : file.tensors) {
      if (tensor.group == i) tensors[tensor.name] = tensor.digest;
    }
    groups.push_back({{"group", TextToJson(file.model.groups[i].name)},
                      {"positions", RangesToJson(file.groups[i].runs)},
                      {"digest_positions", file.groups[i].digest_positions},
                      {"tensors", tensors}});
  }
  return Dump({{"digest", kDigestName}, {"groups", groups}});
}

// What a reader needs to know to use the tensors; the model has all of it, and more.
std::string KvFormatText(const BranchFile& file) {
  Json groups = Json::array();
  for (const LayerGroup& group : file.model.groups) {
    Json planes = Json::array();
    for (const Plane& plane : group.planes) {
      planes.push_back({{"name", TextToJson(plane.name)},
                        {"dtype", DtypeName(plane.dtype)},
                        {"heads", plane.heads},
                        {"row_bytes", plane.row_bytes},
                        {"rotary", RotaryStateName(plane.rotary.state)}});
    }
    groups.push_back(
        {{"group", TextToJson(group.name)}, {"layers", group.layers}, {"planes", planes}});
  }
  return Dump({{"shape", {"heads", "positions", "row"}}, {"groups", groups}});
}

std::string ProvenanceText(const BranchFile& file) {
  Json approximate = Json::array();
  for (const GroupKv& group : file.groups) approximate.push_back(RangesToJson(group.approximate));
  return Dump({{"approximate", approximate}, {"lossy_bytes", file.lossy_bytes}});
}

void AddSampler(const SamplerState& state, std::map<std::string, std::string>* metadata) {
  (*metadata)["rng_state"] = Dump({{"generator", static_cast<uint64_t>(state.generator)},
                                   {"seed", state.philox_seed},
                                   {"offset", state.philox_offset},
                                   {"blob_name", TextToJson(state.blob_name)},
                                   {"blob_version", state.blob_version},
                                   {"blob_bytes", state.blob.size()}});
  (*metadata)["sampling_config"] = Dump({{"temperature", state.temperature},
                                         {"top_k", state.top_k},
                                         {"top_p", state.top_p},
                                         {"min_p", state.min_p},
                                         {"repetition_penalty", state.repetition_penalty}});
}

// ---------------------------------------------------------------- reading

class MetadataReader {
 public:
  explicit MetadataReader(const SafetensorsHeader& header) : header_(header) {}

  Result<std::string> Text(const char* name) const {
    const auto found = header_.metadata.find(name);
    if (found == header_.metadata.end()) return BadFile(std::string(name) + " is missing");
    return found->second;
  }
  Result<uint64_t> Number(const char* name) const {
    CAIRN_ASSIGN_OR_RETURN(const Json json, Parse(name));
    if (!json.is_number_unsigned()) return BadFile(std::string(name) + " is no number");
    return json.get<uint64_t>();
  }
  Result<Json> Parse(const char* name) const {
    CAIRN_ASSIGN_OR_RETURN(const std::string text, Text(name));
    return ParseJson(text, name);
  }

 private:
  const SafetensorsHeader& header_;
};

Result<std::string> DigestText(const Json* json, const std::string& name) {
  if (json == nullptr || !json->is_string() || json->get<std::string>().size() != kDigestDigits) {
    return BadFile(name + " has no digest of " + std::to_string(kDigestDigits) + " digits");
  }
  return json->get<std::string>();
}

// Ranges in order, none empty, within [begin, end). Those that `touch` may follow each other.
Result<std::vector<Range>> RangesOf(const Json& json, uint64_t end, bool may_touch,
                                    const std::string& name) {
  std::vector<Range> ranges;
  if (!json.is_array()) return BadFile(name + " is no list");
  for (const Json& one : json) {
    Status wrong;
    if (!one.is_array() || one.size() != 2) return BadFile(name + " has no pair");
    const Range range{NumberOf(one[0], name, &wrong), NumberOf(one[1], name, &wrong)};
    CAIRN_RETURN_IF_ERROR(wrong);
    const uint64_t least = ranges.empty() ? 0 : ranges.back().end + (may_touch ? 0 : 1);
    if (range.begin < least || range.begin >= range.end || range.end > end) {
      return BadFile(name + " has [" + std::to_string(range.begin) + ", " +
                     std::to_string(range.end) + "), which is empty, or not behind the one before" +
                     ", or beyond the tokens");
    }
    ranges.push_back(range);
  }
  return ranges;
}

Status ReadKvData(const Json& json, BranchFile* file, std::map<std::string, std::string>* digests) {
  Status wrong;
  JsonFields fields(json, "kv_data", &wrong);
  std::string digest;
  fields.Read("digest", &digest);
  CAIRN_RETURN_IF_ERROR(wrong);
  if (digest != kDigestName) {
    return Status(StatusCode::kUnsupportedFormat, "kv_data.digest is " + Quoted(digest));
  }
  fields.Each("groups", [&](const Json& one, const std::string& where) {
    GroupKv group;
    JsonFields parts(one, where, &wrong);
    parts.Read("digest_positions", &group.digest_positions);
    if (!std::has_single_bit(group.digest_positions) ||
        group.digest_positions > kDigestPositionsMax) {
      parts.Fail("digest_positions", "is no power of two up to 4096");
    }
    const Json* const positions = parts.Find("positions");
    if (positions == nullptr) return parts.Fail("positions", "is missing");
    auto runs = RangesOf(*positions, file->end, /*may_touch=*/false, where + ".positions");
    if (!runs.ok()) {
      wrong = runs.status();
      return;
    }
    group.runs = std::move(*runs);
    if (const Json* const tensors = parts.Find("tensors"); tensors && tensors->is_object()) {
      for (const auto& [name, value] : tensors->items()) {
        auto text = DigestText(&value, where + ".tensors." + Printable(name));
        if (!text.ok()) {
          wrong = text.status();
          return;
        }
        (*digests)[name] = std::move(*text);
      }
    }
    file->groups.push_back(std::move(group));
  });
  CAIRN_RETURN_IF_ERROR(wrong);
  if (file->groups.size() != file->model.groups.size()) {
    return BadFile("kv_data has " + std::to_string(file->groups.size()) + " groups, the model " +
                   std::to_string(file->model.groups.size()));
  }
  for (size_t i = 0; i < file->groups.size(); ++i) {
    const uint64_t n = file->groups[i].digest_positions;
    if (n == 1 || n * file->model.groups[i].token_bytes() <= kDigestBytes) continue;
    return BadFile("kv_data.groups[" + std::to_string(i) + "].digest_positions has more than " +
                   BytesText(kDigestBytes) + " of KV");
  }
  return Status::Ok();
}

Status ReadProvenance(const Json& json, BranchFile* file) {
  Status wrong;
  JsonFields fields(json, "provenance", &wrong);
  fields.Read("lossy_bytes", &file->lossy_bytes);
  size_t group = 0;
  fields.Each("approximate", [&](const Json& one, const std::string& where) {
    if (group == file->groups.size()) return fields.Fail("approximate", "has too many groups");
    auto ranges = RangesOf(one, file->end, /*may_touch=*/true, where);
    if (!ranges.ok()) {
      wrong = ranges.status();
      return;
    }
    file->groups[group++].approximate = std::move(*ranges);
  });
  return wrong;
}

Status ReadBranch(const Json& json, BranchFile* file) {
  Status wrong;
  JsonFields fields(json, "branch", &wrong);
  fields.Read("name", &file->name);
  fields.Read("namespace", &file->ns);
  if (const Json* const keep = fields.Find("keep")) {
    file->keep = KeepFromJson(*keep, "branch.keep", &wrong);
  }
  return wrong;
}

// The tensor that the header has under this name, which must be what is expected there.
Result<uint64_t> OffsetOf(const SafetensorsHeader& header, const std::string& name,
                          const Tensor& expected, std::set<std::string>* used) {
  const auto found = header.tensors.find(name);
  if (found == header.tensors.end()) return BadFile("tensor " + Quoted(name) + " is missing");
  if (found->second.dtype != expected.dtype || found->second.shape != expected.shape) {
    return BadFile("tensor " + Quoted(name) + " has not the type and shape that the model says");
  }
  used->insert(name);
  return found->second.begin;
}

Status FindTensors(const SafetensorsHeader& header, BranchFile* file,
                   const std::map<std::string, std::string>& digests) {
  // Nobody can have more tensors than the header names, so this stays small.
  uint64_t expected = 0;
  for (size_t i = 0; i < file->groups.size(); ++i) {
    const LayerGroup& group = file->model.groups[i];
    if (!file->groups[i].runs.empty()) expected += uint64_t{group.layers} * group.planes.size();
  }
  if (expected > header.tensors.size()) {
    return BadFile("the model has " + std::to_string(expected) + " tensors, the file " +
                   std::to_string(header.tensors.size()));
  }
  std::set<std::string> used;
  NameTensors(file);
  for (KvTensor& tensor : file->tensors) {
    CAIRN_ASSIGN_OR_RETURN(tensor.offset,
                           OffsetOf(header, tensor.name, TensorOf(*file, tensor), &used));
    const auto digest = digests.find(tensor.name);
    if (digest == digests.end()) return BadFile("kv_data has no digest of " + tensor.name);
    tensor.digest = digest->second;
  }
  if (DigestBlocksOf(*file) > kDigestBlocksMax) {
    return Status(StatusCode::kInvalidArgument, "KV has too many digests to check them at once");
  }
  file->tokens.bytes = (file->end - file->begin) * sizeof(TokenId);
  CAIRN_ASSIGN_OR_RETURN(file->tokens.offset,
                         OffsetOf(header, "tokens", TensorOf(file->tokens, "U32"), &used));
  if (const auto states = header.tensors.find("states"); states != header.tensors.end()) {
    file->states.bytes = states->second.bytes();
    CAIRN_ASSIGN_OR_RETURN(file->states.offset,
                           OffsetOf(header, "states", TensorOf(file->states, "U8"), &used));
  }
  for (const auto& [name, tensor] : header.tensors) {
    if (!used.contains(name)) return BadFile("tensor " + Quoted(name) + " is foreign");
  }
  return Status::Ok();
}

Status CheckKind(const SafetensorsHeader& header) {
  const auto format = header.metadata.find("format");
  const auto version = header.metadata.find("version");
  if (format == header.metadata.end() || format->second != kFormat ||
      version == header.metadata.end()) {
    return Status(StatusCode::kInvalidArgument, "is a safetensors file, and no exported branch");
  }
  if (version->second != kVersion) {
    return Status(StatusCode::kUnsupportedFormat, "is an export of version " +
                                                      Quoted(version->second.substr(0, 20)) +
                                                      "; this is " + kVersion);
  }
  return Status::Ok();
}

}  // namespace

uint64_t GroupKv::positions() const {
  uint64_t sum = 0;
  for (const Range& run : runs) sum += run.end - run.begin;
  return sum;
}

uint64_t GroupKv::blocks() const {
  uint64_t sum = 0;
  for (const Range& run : runs) {
    sum += (run.end + digest_positions - 1) / digest_positions - run.begin / digest_positions;
  }
  return sum;
}

uint64_t DigestBlocksOf(const BranchFile& file) {
  uint64_t blocks = 0;
  for (size_t i = 0; i < file.groups.size(); ++i) {
    uint64_t heads = 0;
    for (const Plane& plane : file.model.groups[i].planes) heads += plane.heads;
    blocks += file.groups[i].blocks() * heads * file.model.groups[i].layers;
  }
  return blocks;
}

uint64_t BranchFile::kv_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    bytes += groups[i].positions() * model.groups[i].token_bytes();
  }
  return bytes;
}

uint64_t DigestPositionsOf(const LayerGroup& group) {
  const uint64_t positions = kDigestBytes / std::max<uint64_t>(1, group.token_bytes());
  return std::clamp<uint64_t>(std::bit_floor(positions), 1, kDigestPositionsMax);
}

uint64_t PlaceTensors(BranchFile* file) {
  NameTensors(file);
  file->tokens = {.bytes = (file->end - file->begin) * sizeof(TokenId),
                  .digest = std::string(kDigestDigits, '0')};
  uint64_t offset = file->tokens.bytes;
  for (const uint64_t element_bytes : {4, 2, 1}) {
    for (KvTensor& tensor : file->tensors) {
      const Tensor placed = TensorOf(*file, tensor);
      if (TensorTypeBytes(placed.dtype) != element_bytes) continue;
      tensor.offset = offset;
      offset += placed.bytes();
    }
  }
  file->states.offset = offset;
  return offset + file->states.bytes;
}

SafetensorsHeader HeaderOf(const BranchFile& file) {
  SafetensorsHeader header;
  std::map<std::string, std::string>& metadata = header.metadata;
  metadata["format"] = kFormat;
  metadata["version"] = kVersion;
  metadata["model_id"] = Printable(file.model.identity.name);
  metadata["tokenizer_id"] = Printable(file.model.identity.tokenizer_digest);
  metadata["sequence_length"] = std::to_string(file.end);
  metadata["tokens"] = Dump({{"tensor", "tokens"}, {"digest", file.tokens.digest}});
  metadata["kv_data"] = KvDataText(file);
  metadata["kv_format"] = KvFormatText(file);
  metadata["created_at"] = std::to_string(file.created_at_ns);
  metadata["updated_at"] = std::to_string(file.updated_at_ns);
  metadata["snapshot_id"] = file.snapshot_id;
  if (file.begin != 0) {
    metadata["base_snapshot_id"] = file.base_snapshot_id;
    metadata["start_pos"] = std::to_string(file.begin);
    metadata["end_pos"] = std::to_string(file.end);
  }
  metadata["branch"] = Dump({{"name", TextToJson(file.name)},
                             {"namespace", TextToJson(file.ns)},
                             {"keep", KeepToJson(file.keep)}});
  metadata["model"] = Dump(ModelToJson(file.model));
  metadata["spans"] = Dump(SpansToJson(file.spans));
  metadata["provenance"] = ProvenanceText(file);
  if (file.sampler.has_value()) AddSampler(*file.sampler, &metadata);
  for (const KvTensor& tensor : file.tensors) {
    header.tensors[tensor.name] = TensorOf(file, tensor);
  }
  header.tensors["tokens"] = TensorOf(file.tokens, "U32");
  if (file.states.bytes != 0) {
    metadata["states"] = Dump({{"tensor", "states"}, {"digest", file.states.digest}});
    header.tensors["states"] = TensorOf(file.states, "U8");
  }
  return header;
}

Result<BranchFile> BranchFileOf(const SafetensorsHeader& header) {
  CAIRN_RETURN_IF_ERROR(CheckKind(header));
  const MetadataReader metadata(header);
  BranchFile file;
  CAIRN_ASSIGN_OR_RETURN(file.end, metadata.Number("sequence_length"));
  if (file.end > kTokensMax) return BadFile("sequence_length is " + std::to_string(file.end));
  CAIRN_ASSIGN_OR_RETURN(file.snapshot_id, metadata.Text("snapshot_id"));
  if (header.metadata.contains("base_snapshot_id")) {
    CAIRN_ASSIGN_OR_RETURN(file.base_snapshot_id, metadata.Text("base_snapshot_id"));
    CAIRN_ASSIGN_OR_RETURN(file.begin, metadata.Number("start_pos"));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t end, metadata.Number("end_pos"));
    if (file.begin == 0 || file.begin > file.end || end != file.end) {
      return BadFile("start_pos and end_pos are no part of sequence_length");
    }
  }
  if (file.snapshot_id.size() != kDigestDigits ||
      file.base_snapshot_id.size() != (file.begin == 0 ? 0 : kDigestDigits)) {
    return BadFile("snapshot_id or base_snapshot_id has not 32 digits");
  }
  CAIRN_ASSIGN_OR_RETURN(const Json branch, metadata.Parse("branch"));
  CAIRN_RETURN_IF_ERROR(ReadBranch(branch, &file));
  CAIRN_ASSIGN_OR_RETURN(const Json model, metadata.Parse("model"));
  CAIRN_ASSIGN_OR_RETURN(file.model, ModelFromJson(model, "model"));
  CAIRN_ASSIGN_OR_RETURN(const Json spans, metadata.Parse("spans"));
  CAIRN_ASSIGN_OR_RETURN(file.spans, SpansFromJson(spans, file.begin, file.end, "spans"));
  CAIRN_ASSIGN_OR_RETURN(const Json kv_data, metadata.Parse("kv_data"));
  std::map<std::string, std::string> digests;
  CAIRN_RETURN_IF_ERROR(ReadKvData(kv_data, &file, &digests));
  CAIRN_ASSIGN_OR_RETURN(const Json provenance, metadata.Parse("provenance"));
  CAIRN_RETURN_IF_ERROR(ReadProvenance(provenance, &file));
  CAIRN_RETURN_IF_ERROR(FindTensors(header, &file, digests));
  CAIRN_ASSIGN_OR_RETURN(const Json tokens, metadata.Parse("tokens"));
  Status wrong;
  const Json* const token_digest = JsonFields(tokens, "tokens", &wrong).Find("digest");
  CAIRN_ASSIGN_OR_RETURN(file.tokens.digest, DigestText(token_digest, "tokens"));
  if (file.states.bytes != 0) {
    CAIRN_ASSIGN_OR_RETURN(const Json states, metadata.Parse("states"));
    const Json* const state_digest = JsonFields(states, "states", &wrong).Find("digest");
    CAIRN_ASSIGN_OR_RETURN(file.states.digest, DigestText(state_digest, "states"));
  }
  return file;
}

}  // namespace cairn::engine
