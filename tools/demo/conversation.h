// SPDX-License-Identifier: Apache-2.0
//
// A run of the small model in memory: tokens, their KV, a sampler. It knows of no store; session.h
// saves it to one and brings it back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tools/llama/kv_cache.h"
#include "tools/llama/sampler.h"
#include "tools/llama/transformer.h"

namespace cairn::demo {

// The inputs and results of one sampled token.
struct Step {
  int32_t token = 0;
  std::vector<float> logits;  // That it was sampled from.
  llama::Sampler::State sampler_after;
};

// One thread at a time. Conversations of one thread may share a transformer, whose scratch memory
// carries nothing from one call to the next.
class Conversation {
 public:
  // `transformer` is borrowed. `tokens` is the prompt, at least one token and at most
  // `max_positions`, of which none has KV yet.
  Conversation(llama::Transformer<float>* transformer, int max_positions,
               std::vector<int32_t> tokens, const llama::Sampler& sampler)
      : transformer_(transformer),
        kv_(transformer->config(), max_positions),
        tokens_(std::move(tokens)),
        sampler_(sampler) {}

  const std::vector<int32_t>& tokens() const { return tokens_; }
  int length() const { return static_cast<int>(tokens_.size()); }
  // Positions [0, kv_length) are in the cache. One behind the tokens while generating: the KV of a
  // sampled token comes out of the forward pass that samples the next one.
  int kv_length() const { return kv_length_; }
  llama::KvCache& kv() { return kv_; }
  const llama::KvCache& kv() const { return kv_; }
  const llama::Sampler& sampler() const { return sampler_; }
  // Every Next since this object was made or resumed.
  const std::vector<Step>& steps() const { return steps_; }

  // Continues after `tokens`; the KV of the first `kv_length` of them is in kv() by now.
  void Resume(std::vector<int32_t> tokens, int kv_length, const llama::Sampler& sampler) {
    tokens_ = std::move(tokens);
    kv_length_ = kv_length;
    sampler_ = sampler;
    steps_.clear();
  }

  // Computes the KV that a restore would bring: of all tokens but the last.
  void Prefill() {
    if (kv_length_ < length() - 1) Forward(length() - 1, llama::LogitsOf::kNoRow);
  }

  // Runs the model over the tokens it has not seen, samples one and adds it. Throws
  // std::out_of_range when the cache is full.
  const Step& Next() {
    // A fork has the KV of its last token, but not the logits: the model looks at that token again
    // and writes the same bytes over its KV.
    kv_length_ = std::min(kv_length_, length() - 1);
    const std::span<const float> logits = Forward(length(), llama::LogitsOf::kLastRow);
    Step step;
    step.logits.assign(logits.begin(), logits.end());
    step.token = sampler_.Sample(logits);
    step.sampler_after = sampler_.state();
    tokens_.push_back(step.token);
    return steps_.emplace_back(std::move(step));
  }

 private:
  // Brings the KV up to `end`.
  std::span<const float> Forward(int end, llama::LogitsOf rows) {
    const std::span<const int32_t> unseen = std::span(tokens_).subspan(
        static_cast<size_t>(kv_length_), static_cast<size_t>(end - kv_length_));
    const std::span<const float> logits = transformer_->Forward(unseen, kv_length_, rows, &kv_);
    kv_length_ = end;
    return logits;
  }

  llama::Transformer<float>* transformer_;
  llama::KvCache kv_;
  std::vector<int32_t> tokens_;
  int kv_length_ = 0;
  llama::Sampler sampler_;
  std::vector<Step> steps_;
};

}  // namespace cairn::demo
