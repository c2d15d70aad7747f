// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/state_records.h"

#include <cstring>

namespace cairn::engine {

namespace {

Status ReadSampler(const PackRecord& record, SamplerState* state) {
  uint64_t generator = 0, blob_version = 0, top_k = 0;
  PackBytes logits;
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.generator", &generator));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.seed", &state->philox_seed));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.offset", &state->philox_offset));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.blob_name", &state->blob_name));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.blob_version", &blob_version));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.blob", &state->blob));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.temperature", &state->temperature));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.top_p", &state->top_p));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.min_p", &state->min_p));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.repetition_penalty", &state->repetition_penalty));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.top_k", &top_k));
  CAIRN_RETURN_IF_ERROR(record.Read("sampler.last_logits", &logits));
  if (generator > static_cast<uint64_t>(GeneratorKind::kNamed) || blob_version > UINT32_MAX ||
      top_k > UINT32_MAX || logits.size() % sizeof(float) != 0) {
    return Status(StatusCode::kCorruption,
                  "a sampler's generator, blob_version, top_k or last_logits is impossible");
  }
  state->generator = static_cast<GeneratorKind>(generator);
  state->blob_version = static_cast<uint32_t>(blob_version);
  state->top_k = static_cast<uint32_t>(top_k);
  state->last_logits.resize(logits.size() / sizeof(float));
  if (!logits.empty()) std::memcpy(state->last_logits.data(), logits.data(), logits.size());
  return Status::Ok();
}

}  // namespace

PackRecord StateToRecord(const Branch::StateAt& state) {
  PackRecord record;
  record.Set("position", state.position);
  if (state.sampler.has_value()) {
    const SamplerState& sampler = *state.sampler;
    record.Set("sampler.generator", static_cast<uint64_t>(sampler.generator));
    record.Set("sampler.seed", sampler.philox_seed);
    record.Set("sampler.offset", sampler.philox_offset);
    record.Set("sampler.blob_name", PackText(sampler.blob_name));
    record.Set("sampler.blob_version", uint64_t{sampler.blob_version});
    record.Set("sampler.blob", sampler.blob);
    record.Set("sampler.temperature", sampler.temperature);
    record.Set("sampler.top_p", sampler.top_p);
    record.Set("sampler.min_p", sampler.min_p);
    record.Set("sampler.repetition_penalty", sampler.repetition_penalty);
    record.Set("sampler.top_k", uint64_t{sampler.top_k});
    const auto logits = std::as_bytes(std::span(sampler.last_logits));
    record.Set("sampler.last_logits", PackBytes(logits.begin(), logits.end()));
  }
  if (state.metadata.has_value()) {
    record.Set("metadata.content_type", PackText(state.metadata->content_type));
    record.Set("metadata.bytes", state.metadata->bytes);
  }
  return record;
}

Result<Branch::StateAt> StateFromRecord(const PackRecord& record) {
  Branch::StateAt state;
  CAIRN_RETURN_IF_ERROR(record.Read("position", &state.position));
  if (record.Has("sampler.generator")) {
    CAIRN_RETURN_IF_ERROR(ReadSampler(record, &state.sampler.emplace()));
  }
  if (record.Has("metadata.bytes")) {
    AppMetadata& metadata = state.metadata.emplace();
    CAIRN_RETURN_IF_ERROR(record.Read("metadata.content_type", &metadata.content_type));
    CAIRN_RETURN_IF_ERROR(record.Read("metadata.bytes", &metadata.bytes));
  }
  return state;
}

}  // namespace cairn::engine
