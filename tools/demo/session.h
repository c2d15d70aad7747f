// SPDX-License-Identifier: Apache-2.0
//
// How a conversation is kept in a store, as an inference server would do it: the model is
// described, new tokens are appended, everything is restored. Copy from here.
#pragma once

#include <string>

#include "cairn/store.h"
#include "tools/demo/conversation.h"
#include "tools/llama/checkpoint.h"

namespace cairn::demo {

// The spec of the model in these two files. The digests are XXH3 of their bytes: another checkpoint
// of the same shape is another model, and its state is refused.
Result<ModelSpec> DescribeModel(const llama::Config& config, const std::string& checkpoint_path,
                                const std::string& tokenizer_path);

// Appends everything that the conversation has and the branch has not, in one atomic delta: tokens,
// their KV as far as it is computed, the sampler. When this returns it survives a power loss.
// kConflict when the branch has tokens that this conversation neither was resumed from nor saved.
Status Save(Branch branch, Conversation* conversation);

// Restores all of the branch: tokens, KV and the sampler after the last token. On failure the
// conversation must not be used. kInvalidArgument when it does not fit in the cache.
Status Load(const Branch& branch, Conversation* conversation);

// The sampler as the store keeps it.
SamplerState ToSamplerState(const llama::Sampler& sampler);
// kInvalidArgument when the state is not one of this model's sampler.
Result<llama::Sampler> FromSamplerState(const SamplerState& state);

}  // namespace cairn::demo
