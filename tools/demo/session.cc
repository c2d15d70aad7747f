// SPDX-License-Identifier: Apache-2.0

#include "tools/demo/session.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "tools/demo/cache_view.h"
#include "tools/llama/model_files.h"

namespace cairn::demo {
namespace {

Result<std::string> DigestOfFile(const std::string& path) {
  std::string error;
  const std::optional<std::string> content = llama::ReadFile(path, &error);
  if (!content) return Status(StatusCode::kIoError, error);
  char digest[32];
  std::snprintf(digest, sizeof(digest), "xxh3-64:%016" PRIx64,
                Hash(std::as_bytes(std::span(*content))));
  return std::string(digest);
}

}  // namespace

Result<ModelSpec> DescribeModel(const llama::Config& config, const std::string& checkpoint_path,
                                const std::string& tokenizer_path) {
  ModelSpec spec;
  spec.identity.name = "llama2.c";
  spec.identity.cache_dtype = DtypeName(Dtype::kBf16);
  CAIRN_ASSIGN_OR_RETURN(spec.identity.weights_digest, DigestOfFile(checkpoint_path));
  CAIRN_ASSIGN_OR_RETURN(spec.identity.tokenizer_digest, DigestOfFile(tokenizer_path));
  spec.groups.push_back(GroupOf(config));
  return spec;
}

SamplerState ToSamplerState(const llama::Sampler& sampler) {
  SamplerState state;
  state.generator = GeneratorKind::kPhilox;
  state.philox_seed = sampler.state().seed;
  state.philox_offset = sampler.state().offset;
  state.temperature = sampler.options().temperature;
  state.top_p = sampler.options().top_p;
  state.top_k = static_cast<uint32_t>(sampler.options().top_k);
  return state;
}

Result<llama::Sampler> FromSamplerState(const SamplerState& state) {
  if (state.generator != GeneratorKind::kPhilox) {
    return Status(StatusCode::kInvalidArgument,
                  "sampler.generator is " + std::to_string(static_cast<int>(state.generator)) +
                      ", this sampler has philox");
  }
  return llama::Sampler({.temperature = static_cast<float>(state.temperature),
                         .top_p = static_cast<float>(state.top_p),
                         .top_k = static_cast<int>(state.top_k)},
                        {.seed = state.philox_seed, .offset = state.philox_offset});
}

Status Save(Branch branch, Conversation* conversation) {
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  const std::vector<int32_t>& tokens = conversation->tokens();
  if (info.length > tokens.size()) {
    return Status(StatusCode::kConflict, "the branch has " + std::to_string(info.length) +
                                             " tokens, the conversation " +
                                             std::to_string(tokens.size()));
  }
  const std::vector<TokenId> new_tokens(tokens.begin() + static_cast<ptrdiff_t>(info.length),
                                        tokens.end());
  const int kv_begin = static_cast<int>(info.kv_lengths[0]);
  const CacheView kv(&conversation->kv(), kv_begin, std::max(kv_begin, conversation->kv_length()));
  const SamplerState sampler = ToSamplerState(conversation->sampler());
  Delta delta;
  delta.tokens = new_tokens;
  delta.kv = conversation->kv_length() > kv_begin ? &kv.view() : nullptr;
  delta.sampler = &sampler;
  AppendOptions options;
  options.durability = Durability::kPower;
  options.expected_length = info.length;
  return branch.AppendSync(delta, options).status();
}

Status Load(const Branch& branch, Conversation* conversation) {
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  if (info.length > static_cast<uint64_t>(conversation->kv().max_positions())) {
    return Status(StatusCode::kInvalidArgument,
                  "the branch has " + std::to_string(info.length) + " tokens, the cache room for " +
                      std::to_string(conversation->kv().max_positions()));
  }
  std::vector<TokenId> tokens(info.length);
  const int kv_length = static_cast<int>(info.kv_lengths[0]);
  const CacheView kv(&conversation->kv(), 0, kv_length);
  RestoreRequest request;
  request.end = info.length;
  request.tokens = tokens;
  request.into = kv_length > 0 ? &kv.view() : nullptr;
  CAIRN_RETURN_IF_ERROR(branch.Restore(request).status());

  CAIRN_ASSIGN_OR_RETURN(const Branch::StateAt state, branch.SamplerAt(info.length));
  CAIRN_ASSIGN_OR_RETURN(const llama::Sampler sampler,
                         FromSamplerState(state.sampler.value_or(SamplerState())));
  conversation->Resume({tokens.begin(), tokens.end()}, kv_length, sampler);
  return Status::Ok();
}

}  // namespace cairn::demo
