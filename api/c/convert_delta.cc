// SPDX-License-Identifier: Apache-2.0
#include "api/c/convert.h"
#include "api/c/handles.h"

namespace cairn::capi {

namespace {

Result<SamplerState> ToSampler(const cairn_sampler_state& given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_sampler_state read, Read(&given));
  SamplerState state;
  CAIRN_RETURN_IF_ERROR(ToEnum(read.generator, GeneratorKind::kNamed,
                               "cairn_sampler_state::generator", &state.generator));
  state.philox_seed = read.philox_seed;
  state.philox_offset = read.philox_offset;
  state.blob_name = String(read.blob_name);
  state.blob_version = read.blob_version;
  CAIRN_RETURN_IF_ERROR(
      CheckCount(read.blob.data, read.blob.size, kMaxStateBytes, "cairn_sampler_state::blob"));
  state.blob.assign(Span(read.blob).begin(), Span(read.blob).end());
  state.temperature = read.temperature;
  state.top_p = read.top_p;
  state.min_p = read.min_p;
  state.repetition_penalty = read.repetition_penalty;
  state.top_k = read.top_k;
  CAIRN_RETURN_IF_ERROR(CheckCount(read.last_logits, read.last_logit_count, kMaxLastLogits,
                                   "cairn_sampler_state::last_logits"));
  state.last_logits.assign(read.last_logits, read.last_logits + read.last_logit_count);
  return state;
}

Result<AppMetadata> ToMetadata(const cairn_app_metadata& given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_app_metadata read, Read(&given));
  AppMetadata metadata;
  metadata.content_type = String(read.content_type);
  CAIRN_RETURN_IF_ERROR(
      CheckCount(read.bytes.data, read.bytes.size, kMaxStateBytes, "cairn_app_metadata::bytes"));
  metadata.bytes.assign(Span(read.bytes).begin(), Span(read.bytes).end());
  return metadata;
}

}  // namespace

Result<std::string_view> ToKey(const cairn_bytes& given) {
  CAIRN_RETURN_IF_ERROR(CheckCount(given.data, given.size, SIZE_MAX, "key"));
  return std::string_view(static_cast<const char*>(given.data), given.size);
}

Status ToSpans(const cairn_content_span* given, size_t count, size_t max,
               std::vector<ContentSpan>* into) {
  CAIRN_RETURN_IF_ERROR(CheckCount(given, count, max, "spans"));
  into->reserve(count);
  for (size_t i = 0; i < count; ++i) {
    into->push_back({.begin = given[i].begin,
                     .end = given[i].end,
                     .hash = {given[i].hash[0], given[i].hash[1]},
                     .atomic = given[i].atomic});
  }
  return Status::Ok();
}

Status DeltaArrays::Fill(const cairn_delta* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_delta read, Read(given));
  CAIRN_RETURN_IF_ERROR(
      CheckCount(read.tokens, read.token_count, kMaxAppendTokens, "cairn_delta::tokens"));
  delta.tokens = {read.tokens, read.token_count};
  if (read.kv != nullptr) {
    CAIRN_RETURN_IF_ERROR(kv_.Fill(read.kv));
    delta.kv = &kv_.view;
  }
  if (read.sampler != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(sampler_, ToSampler(*read.sampler));
    delta.sampler = &sampler_;
  }
  if (read.metadata != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(metadata_, ToMetadata(*read.metadata));
    delta.metadata = &metadata_;
  }
  CAIRN_RETURN_IF_ERROR(ToSpans(read.spans, read.span_count, kMaxAppendSpans, &spans_));
  delta.spans = spans_;
  delta.exact = !read.approximate;
  return Status::Ok();
}

Status RestoreArrays::Fill(const cairn_restore_request* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_restore_request read, Read(given));
  request.begin = read.begin;
  request.end = read.end;
  CAIRN_RETURN_IF_ERROR(CheckCount(read.tokens, read.token_count, SIZE_MAX / sizeof(TokenId),
                                   "cairn_restore_request::tokens"));
  request.tokens = {read.tokens, read.token_count};
  if (read.into != nullptr) {
    CAIRN_RETURN_IF_ERROR(kv_.Fill(read.into));
    request.into = &kv_.view;
  }
  request.require_kv = read.require_kv;
  // One for each (group, layer): no view has more.
  CAIRN_RETURN_IF_ERROR(CheckCount(read.gpu_layer_events, read.gpu_layer_event_count,
                                   kMaxLayerGroups * kMaxLayers,
                                   "cairn_restore_request::gpu_layer_events"));
  // With a view of host memory there is nothing to fall back from, but an event is a mistake.
  const bool on_gpu = request.into != nullptr && request.into->memory == MemoryKind::kCuda;
  if (read.gpu_ready != 0 || read.gpu_layer_event_count != 0 ||
      (read.fall_back_to_host && on_gpu)) {
    gpu_.ready = read.gpu_ready;
    events_.assign(read.gpu_layer_events, read.gpu_layer_events + read.gpu_layer_event_count);
    gpu_.layer_events = events_;
    gpu_.fall_back_to_host = read.fall_back_to_host;
    request.gpu = &gpu_;
  }
  request.timeout_ns = read.timeout_ns;
  if (read.queue != nullptr) request.queue = &read.queue->value;
  request.user_data = read.user_data;
  return Status::Ok();
}

cairn_content_span ToC(const ContentSpan& span) {
  return {span.begin, span.end, {span.hash[0], span.hash[1]}, span.atomic};
}

cairn_sampler_state ToC(const SamplerState& state) {
  auto c = Sized<cairn_sampler_state>::Default();
  c.generator = static_cast<uint32_t>(state.generator);
  c.blob_version = state.blob_version;
  c.top_k = state.top_k;
  c.philox_seed = state.philox_seed;
  c.philox_offset = state.philox_offset;
  c.blob_name = state.blob_name.c_str();
  c.blob = {state.blob.empty() ? nullptr : state.blob.data(), state.blob.size()};
  c.temperature = state.temperature;
  c.top_p = state.top_p;
  c.min_p = state.min_p;
  c.repetition_penalty = state.repetition_penalty;
  c.last_logits = state.last_logits.empty() ? nullptr : state.last_logits.data();
  c.last_logit_count = state.last_logits.size();
  return c;
}

cairn_app_metadata ToC(const AppMetadata& metadata) {
  auto c = Sized<cairn_app_metadata>::Default();
  c.content_type = metadata.content_type.c_str();
  c.bytes = {metadata.bytes.empty() ? nullptr : metadata.bytes.data(), metadata.bytes.size()};
  return c;
}

}  // namespace cairn::capi
