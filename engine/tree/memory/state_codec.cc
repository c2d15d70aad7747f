// SPDX-License-Identifier: Apache-2.0
//
// Field tables of models, samplers and metadata. Ids are on disk and never change.
#include <array>
#include <cstring>

#include "base/codec/model_check.h"
#include "base/core/align.h"
#include "base/core/check.h"
#include "engine/tree/memory/op.h"
#include "sstable/constants.h"

namespace cairn::engine {

namespace {

enum ModelField : uint16_t {
  kIdentityName = 1,
  kRevision,
  kWeightsDigest,
  kTokenizerDigest,
  kQuantization,
  kCacheDtype,
  kVariantName,
  kVariantDigest,
  kVariantScale,
  kLayerBegin,
  kLayerEnd,
  kHeadBegin,
  kHeadEnd,
  kContextRank,
  kContextSize,
  kReplicated,
  kExtentTokens,
  kGroup,
  kLogical,
};
constexpr uint16_t kModelFieldLast = kLogical;

enum GroupField : uint16_t {
  kGroupName = 1,
  kLayers,
  kRetention,
  kWindow,
  kSinks,
  kChunk,
  kOptional,
  kInvFreq,
  kMscale,
  kPlane,
  kPacking,  // Absent if it is empty.
};
constexpr uint16_t kGroupFieldLast = kPacking;

enum PlaneField : uint16_t {
  kPlaneName = 1,
  kRole,
  kHeads,
  kRowBytes,
  kDtype,
  kRotary,  // 1: applied.
  kSealedAs,
  // Absent if unset.
  kRotaryState,  // Other than applied.
  kRotaryPairing,
  kRotaryFirst,
  kRotaryWidth,
  kRotarySections,  // u32 each.
  kRotaryInterleaved,
  kStateParts,
};
constexpr uint16_t kPlaneFieldLast = kStateParts;

enum LogicalField : uint16_t {
  kLogicalName = 1,
  kLogicalLayers,
  kLogicalHeads,
  kHeldLayerBegin,
  kHeldLayerEnd,
  kHeldHeadBegin,
  kHeldHeadEnd,
  kHeldReplicated,
};
constexpr uint16_t kLogicalFieldLast = kHeldReplicated;

enum SamplerField : uint16_t {
  kGenerator = 1,
  kPhiloxSeed,
  kPhiloxOffset,
  kBlobName,
  kBlobVersion,
  kBlob,
  kTemperature,
  kTopP,
  kMinP,
  kRepetitionPenalty,
  kTopK,
  kLastLogits,
};
constexpr uint16_t kSamplerFieldLast = kLastLogits;

enum MetadataField : uint16_t { kContentType = 1, kContent };

// Ids of a table are 1..last.
Result<FieldReader> Parse(std::span<const std::byte> bytes, uint16_t last) {
  CAIRN_ASSIGN_OR_RETURN(FieldReader reader, FieldReader::Parse(bytes));
  std::array<uint16_t, 32> known{};
  CAIRN_CHECK(last <= known.size());
  for (uint16_t id = 1; id <= last; ++id) known[id - 1u] = id;
  CAIRN_RETURN_IF_ERROR(reader.CheckCritical(std::span(known.data(), last)));
  return reader;
}

double F64Or(const FieldReader& reader, uint16_t id, double absent) {
  const Field* field = reader.Find(id, FieldType::kF64);
  return field == nullptr ? absent : field->f64();
}

template <typename T>
std::vector<T> Numbers(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

uint32_t U32Or(const FieldReader& reader, uint16_t id, uint32_t absent) {
  return static_cast<uint32_t>(reader.U64Or(id, absent));
}

// Whatever the limits of models allow fits a record of the index.
constexpr uint64_t kNumberBytes = 16;  // A field: header and value.
constexpr uint64_t TextBytes(uint64_t bytes) { return 8 + AlignUp(bytes, 8); }
constexpr uint64_t kPlaneBytesMax = 8 + TextBytes(kMaxGroupNameBytes) + 12 * kNumberBytes +
                                    TextBytes(kMaxRotarySections * sizeof(uint32_t));
constexpr uint64_t kLogicalBytesMax = 8 + TextBytes(kMaxGroupNameBytes) + 7 * kNumberBytes;
constexpr uint64_t kGroupBytesMax = 8 + 2 * TextBytes(kMaxGroupNameBytes) + 7 * kNumberBytes +
                                    TextBytes(kMaxInvFreq * sizeof(float)) +
                                    kMaxPlanes * kPlaneBytesMax;
static_assert(8 * TextBytes(kMaxIdentityBytes) + 9 * kNumberBytes +
                  kMaxLayerGroups * (kGroupBytesMax + kLogicalBytesMax) <=
              sstable::kMaxValueBytes);

FieldWriter EncodePlane(const Plane& plane) {
  FieldWriter writer;
  writer.Text(kPlaneName, plane.name);
  writer.U64(kRole, static_cast<uint64_t>(plane.role));
  writer.U64(kHeads, plane.heads);
  writer.U64(kRowBytes, plane.row_bytes);
  writer.U64(kDtype, static_cast<uint64_t>(plane.dtype));
  const RotarySpec& rotary = plane.rotary;
  writer.U64(kRotary, rotary.state == RotaryState::kApplied ? 1 : 0);
  // Fields with default values are absent: such models keep the bytes that they had before these
  // fields existed.
  if (plane.sealed_as != SealedAs::kLossless) {
    writer.U64(kSealedAs, static_cast<uint64_t>(plane.sealed_as));
  }
  if (rotary.state == RotaryState::kNone || rotary.state == RotaryState::kBefore) {
    writer.U64(kRotaryState, static_cast<uint64_t>(rotary.state));
  }
  if (rotary.pairing != RotaryPairing::kUnset) {
    writer.U64(kRotaryPairing, static_cast<uint64_t>(rotary.pairing));
  }
  if (rotary.first != 0) writer.U64(kRotaryFirst, rotary.first);
  if (rotary.width != 0) writer.U64(kRotaryWidth, rotary.width);
  if (!rotary.sections.empty()) {
    writer.Bytes(kRotarySections, std::as_bytes(std::span(rotary.sections)));
  }
  if (rotary.interleaved) writer.U64(kRotaryInterleaved, 1);
  if (plane.state_parts != 0) writer.U64(kStateParts, plane.state_parts);
  return writer;
}

FieldWriter EncodeLogical(const LogicalGroup& group) {
  FieldWriter writer;
  writer.Text(kLogicalName, group.name);
  writer.U64(kLogicalLayers, group.layers);
  writer.U64(kLogicalHeads, group.heads);
  writer.U64(kHeldLayerBegin, group.layer_begin);
  writer.U64(kHeldLayerEnd, group.layer_end);
  writer.U64(kHeldHeadBegin, group.head_begin);
  writer.U64(kHeldHeadEnd, group.head_end);
  writer.U64(kHeldReplicated, group.replicated ? 1 : 0);
  return writer;
}

FieldWriter EncodeGroup(const LayerGroup& group) {
  FieldWriter writer;
  writer.Text(kGroupName, group.name);
  writer.U64(kLayers, group.layers);
  writer.U64(kRetention, static_cast<uint64_t>(group.retention.kind));
  writer.U64(kWindow, group.retention.window);
  writer.U64(kSinks, group.retention.sinks);
  writer.U64(kChunk, group.retention.chunk);
  writer.U64(kOptional, group.optional ? 1 : 0);
  writer.Bytes(kInvFreq, std::as_bytes(std::span(group.inv_freq)));
  writer.F64(kMscale, group.mscale);
  for (const Plane& plane : group.planes) writer.Table(kPlane, EncodePlane(plane));
  if (!group.packing.empty()) writer.Text(kPacking, group.packing);
  return writer;
}

Result<Plane> DecodePlane(std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, Parse(bytes, kPlaneFieldLast));
  Plane plane;
  plane.name = reader.TextOr(kPlaneName, "");
  plane.role = static_cast<PlaneRole>(reader.U64Or(kRole, 0));
  plane.heads = U32Or(reader, kHeads, 0);
  plane.row_bytes = U32Or(reader, kRowBytes, 0);
  plane.dtype = static_cast<Dtype>(reader.U64Or(kDtype, 0));
  RotarySpec& rotary = plane.rotary;
  rotary.state = reader.U64Or(kRotary, 0) != 0
                     ? RotaryState::kApplied
                     : static_cast<RotaryState>(reader.U64Or(kRotaryState, 0));
  rotary.pairing = static_cast<RotaryPairing>(reader.U64Or(kRotaryPairing, 0));
  rotary.first = U32Or(reader, kRotaryFirst, 0);
  rotary.width = U32Or(reader, kRotaryWidth, 0);
  rotary.sections = Numbers<uint32_t>(reader.BytesOr(kRotarySections, {}));
  rotary.interleaved = reader.U64Or(kRotaryInterleaved, 0) != 0;
  plane.sealed_as = static_cast<SealedAs>(reader.U64Or(kSealedAs, 0));
  plane.state_parts = U32Or(reader, kStateParts, 0);
  return plane;
}

Result<LogicalGroup> DecodeLogical(std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, Parse(bytes, kLogicalFieldLast));
  return LogicalGroup{.name = std::string(reader.TextOr(kLogicalName, "")),
                      .layers = U32Or(reader, kLogicalLayers, 0),
                      .heads = U32Or(reader, kLogicalHeads, 0),
                      .layer_begin = U32Or(reader, kHeldLayerBegin, 0),
                      .layer_end = U32Or(reader, kHeldLayerEnd, 0),
                      .head_begin = U32Or(reader, kHeldHeadBegin, 0),
                      .head_end = U32Or(reader, kHeldHeadEnd, 0),
                      .replicated = reader.U64Or(kHeldReplicated, 0) != 0};
}

Result<LayerGroup> DecodeGroup(std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, Parse(bytes, kGroupFieldLast));
  LayerGroup group;
  group.name = reader.TextOr(kGroupName, "");
  group.layers = U32Or(reader, kLayers, 0);
  group.retention = {.kind = static_cast<Retention>(reader.U64Or(kRetention, 0)),
                     .window = U32Or(reader, kWindow, 0),
                     .sinks = U32Or(reader, kSinks, 0),
                     .chunk = U32Or(reader, kChunk, 0)};
  group.optional = reader.U64Or(kOptional, 0) != 0;
  group.inv_freq = Numbers<float>(reader.BytesOr(kInvFreq, {}));
  group.mscale = static_cast<float>(F64Or(reader, kMscale, 1.0));
  group.packing = reader.TextOr(kPacking, "");
  for (const Field& field : reader.fields()) {
    if (field.id != kPlane) continue;
    CAIRN_ASSIGN_OR_RETURN(Plane plane, DecodePlane(field.value));
    group.planes.push_back(std::move(plane));
  }
  return group;
}

}  // namespace

std::vector<std::byte> EncodeModel(const ModelSpec& spec) {
  FieldWriter writer;
  writer.Text(kIdentityName, spec.identity.name);
  writer.Text(kRevision, spec.identity.revision);
  writer.Text(kWeightsDigest, spec.identity.weights_digest);
  writer.Text(kTokenizerDigest, spec.identity.tokenizer_digest);
  writer.Text(kQuantization, spec.identity.quantization);
  writer.Text(kCacheDtype, spec.identity.cache_dtype);
  writer.Text(kVariantName, spec.variant.name);
  writer.Text(kVariantDigest, spec.variant.digest);
  writer.F64(kVariantScale, spec.variant.scale);
  writer.U64(kLayerBegin, spec.shard.layer_begin);
  writer.U64(kLayerEnd, spec.shard.layer_end);
  writer.U64(kHeadBegin, spec.shard.kv_head_begin);
  writer.U64(kHeadEnd, spec.shard.kv_head_end);
  writer.U64(kContextRank, spec.shard.context_rank);
  writer.U64(kContextSize, spec.shard.context_size);
  writer.U64(kReplicated, spec.shard.replicated ? 1 : 0);
  writer.U64(kExtentTokens, spec.extent_tokens);
  for (const LayerGroup& group : spec.groups) writer.Table(kGroup, EncodeGroup(group));
  for (const LogicalGroup& group : spec.logical) writer.Table(kLogical, EncodeLogical(group));
  return std::move(writer).Take();
}

Result<ModelSpec> DecodeModel(std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, Parse(bytes, kModelFieldLast));
  ModelSpec spec;
  spec.identity = {.name = std::string(reader.TextOr(kIdentityName, "")),
                   .revision = std::string(reader.TextOr(kRevision, "")),
                   .weights_digest = std::string(reader.TextOr(kWeightsDigest, "")),
                   .tokenizer_digest = std::string(reader.TextOr(kTokenizerDigest, "")),
                   .quantization = std::string(reader.TextOr(kQuantization, "")),
                   .cache_dtype = std::string(reader.TextOr(kCacheDtype, ""))};
  spec.variant = {.name = std::string(reader.TextOr(kVariantName, "")),
                  .digest = std::string(reader.TextOr(kVariantDigest, "")),
                  .scale = F64Or(reader, kVariantScale, 1.0)};
  spec.shard = {.layer_begin = U32Or(reader, kLayerBegin, 0),
                .layer_end = U32Or(reader, kLayerEnd, 0),
                .kv_head_begin = U32Or(reader, kHeadBegin, 0),
                .kv_head_end = U32Or(reader, kHeadEnd, 0),
                .context_rank = U32Or(reader, kContextRank, 0),
                .context_size = U32Or(reader, kContextSize, 1),
                .replicated = reader.U64Or(kReplicated, 0) != 0};
  spec.extent_tokens = U32Or(reader, kExtentTokens, 0);
  for (const Field& field : reader.fields()) {
    if (field.id == kGroup) {
      CAIRN_ASSIGN_OR_RETURN(LayerGroup group, DecodeGroup(field.value));
      spec.groups.push_back(std::move(group));
    } else if (field.id == kLogical) {
      CAIRN_ASSIGN_OR_RETURN(LogicalGroup group, DecodeLogical(field.value));
      spec.logical.push_back(std::move(group));
    }
  }
  if (Status status = CheckStoredModel(spec); !status.ok()) {
    return Status(StatusCode::kCorruption, "stored model: " + std::string(status.message()));
  }
  return spec;
}

std::vector<std::byte> EncodeSampler(const SamplerState& state) {
  FieldWriter writer;
  writer.U64(kGenerator, static_cast<uint64_t>(state.generator));
  writer.U64(kPhiloxSeed, state.philox_seed);
  writer.U64(kPhiloxOffset, state.philox_offset);
  if (!state.blob_name.empty()) writer.Text(kBlobName, state.blob_name);
  writer.U64(kBlobVersion, state.blob_version);
  if (!state.blob.empty()) writer.Bytes(kBlob, state.blob);
  writer.F64(kTemperature, state.temperature);
  writer.F64(kTopP, state.top_p);
  writer.F64(kMinP, state.min_p);
  writer.F64(kRepetitionPenalty, state.repetition_penalty);
  writer.U64(kTopK, state.top_k);
  if (!state.last_logits.empty()) {
    writer.Bytes(kLastLogits, std::as_bytes(std::span(state.last_logits)));
  }
  return std::move(writer).Take();
}

Result<SamplerState> DecodeSampler(std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, Parse(bytes, kSamplerFieldLast));
  SamplerState state;
  const uint64_t generator = reader.U64Or(kGenerator, 0);
  if (generator > static_cast<uint64_t>(GeneratorKind::kNamed)) {
    return Status(StatusCode::kCorruption,
                  "sampler state: unknown generator " + std::to_string(generator));
  }
  state.generator = static_cast<GeneratorKind>(generator);
  state.philox_seed = reader.U64Or(kPhiloxSeed, 0);
  state.philox_offset = reader.U64Or(kPhiloxOffset, 0);
  state.blob_name = reader.TextOr(kBlobName, "");
  state.blob_version = U32Or(reader, kBlobVersion, 0);
  const std::span<const std::byte> blob = reader.BytesOr(kBlob, {});
  state.blob.assign(blob.begin(), blob.end());
  state.temperature = F64Or(reader, kTemperature, 1.0);
  state.top_p = F64Or(reader, kTopP, 1.0);
  state.min_p = F64Or(reader, kMinP, 0.0);
  state.repetition_penalty = F64Or(reader, kRepetitionPenalty, 1.0);
  state.top_k = U32Or(reader, kTopK, 0);
  state.last_logits = Numbers<float>(reader.BytesOr(kLastLogits, {}));
  return state;
}

std::vector<std::byte> EncodeMetadata(const AppMetadata& metadata) {
  FieldWriter writer;
  writer.Text(kContentType, metadata.content_type);
  writer.Bytes(kContent, metadata.bytes);
  return std::move(writer).Take();
}

Result<AppMetadata> DecodeMetadata(std::span<const std::byte> bytes) {
  CAIRN_ASSIGN_OR_RETURN(const FieldReader reader, Parse(bytes, kContent));
  AppMetadata metadata;
  metadata.content_type = reader.TextOr(kContentType, "");
  const std::span<const std::byte> content = reader.BytesOr(kContent, {});
  metadata.bytes.assign(content.begin(), content.end());
  return metadata;
}

}  // namespace cairn::engine
