// SPDX-License-Identifier: Apache-2.0
//
// Bit-for-bit comparison of runs. Each function says in words where the actual run first differs
// from the expected one, and returns an empty string when it does not.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "tools/demo/conversation.h"
#include "tools/demo/victim.h"
#include "tools/llama/kv_cache.h"
#include "tools/llama/sampler.h"

namespace cairn::demo {

inline std::string Differ(const std::string& what, uint64_t expected, uint64_t actual) {
  return what + ": expected " + std::to_string(expected) + ", found " + std::to_string(actual);
}

inline std::string CompareTokens(std::span<const int32_t> expected,
                                 std::span<const int32_t> actual) {
  if (expected.size() != actual.size()) {
    return Differ("number of tokens", expected.size(), actual.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != actual[i]) {
      return Differ("token " + std::to_string(i), static_cast<uint64_t>(expected[i]),
                    static_cast<uint64_t>(actual[i]));
    }
  }
  return {};
}

// By their bits: equal NaNs are equal, and 0 is not -0.
inline std::string CompareLogits(std::span<const float> expected, std::span<const float> actual) {
  if (expected.size() != actual.size()) {
    return Differ("number of logits", expected.size(), actual.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const uint32_t want = std::bit_cast<uint32_t>(expected[i]);
    const uint32_t have = std::bit_cast<uint32_t>(actual[i]);
    if (want != have) return Differ("bits of logit " + std::to_string(i), want, have);
  }
  return {};
}

inline std::string CompareSampler(const llama::Sampler::State& expected,
                                  const llama::Sampler::State& actual) {
  if (expected.seed != actual.seed) return Differ("sampler seed", expected.seed, actual.seed);
  if (expected.offset == actual.offset) return {};
  return Differ("sampler offset", expected.offset, actual.offset);
}

inline std::string CompareSamplerOptions(const llama::SamplerOptions& expected,
                                         const llama::SamplerOptions& actual) {
  if (expected.temperature != actual.temperature) return "sampler temperature";
  if (expected.top_p != actual.top_p) return "sampler top_p";
  return expected.top_k != actual.top_k ? "sampler top_k" : "";
}

// The KV of the first `positions` positions. The caches are of one model; their sizes may differ.
inline std::string CompareKv(const llama::KvCache& expected, const llama::KvCache& actual,
                             int positions) {
  const size_t row_bytes = static_cast<size_t>(expected.head_dim()) * sizeof(uint16_t);
  const auto place = [](const char* plane, int layer, int position, int head) {
    return std::string(plane) + " of layer " + std::to_string(layer) + ", position " +
           std::to_string(position) + ", head " + std::to_string(head);
  };
  for (int position = 0; position < positions; ++position) {
    for (int layer = 0; layer < expected.layers(); ++layer) {
      for (int head = 0; head < expected.kv_heads(); ++head) {
        if (std::memcmp(expected.K(layer, position, head), actual.K(layer, position, head),
                        row_bytes) != 0) {
          return place("K", layer, position, head);
        }
        if (std::memcmp(expected.V(layer, position, head), actual.V(layer, position, head),
                        row_bytes) != 0) {
          return place("V", layer, position, head);
        }
      }
    }
  }
  return {};
}

// Token, every logit it was sampled from, and the sampler after it; for each step.
inline std::string CompareSteps(std::span<const Step> expected, std::span<const Step> actual) {
  if (expected.size() != actual.size()) {
    return Differ("number of steps", expected.size(), actual.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    std::string difference = CompareLogits(expected[i].logits, actual[i].logits);
    if (difference.empty()) {
      difference = CompareTokens({&expected[i].token, 1}, {&actual[i].token, 1});
    }
    if (difference.empty()) {
      difference = CompareSampler(expected[i].sampler_after, actual[i].sampler_after);
    }
    if (!difference.empty()) return "step " + std::to_string(i) + ": " + difference;
  }
  return {};
}

// Two runs as they stand: tokens, KV, sampler.
inline std::string CompareState(const Conversation& expected, const Conversation& actual) {
  std::string difference = CompareTokens(expected.tokens(), actual.tokens());
  if (difference.empty() && expected.kv_length() != actual.kv_length()) {
    difference = Differ("length of KV", static_cast<uint64_t>(expected.kv_length()),
                        static_cast<uint64_t>(actual.kv_length()));
  }
  if (difference.empty()) {
    difference = CompareKv(expected.kv(), actual.kv(), expected.kv_length());
  }
  if (difference.empty()) {
    difference = CompareSampler(expected.sampler().state(), actual.sampler().state());
  }
  if (difference.empty()) {
    difference = CompareSamplerOptions(expected.sampler().options(), actual.sampler().options());
  }
  return difference;
}

// Compares the tokens that a killed process had acknowledged with the tokens found afterwards,
// which may be more: one append may have been under way.
inline std::string CompareAcknowledged(std::span<const Acknowledgement> acknowledged,
                                       std::span<const int32_t> recovered) {
  if (acknowledged.empty()) return "nothing was acknowledged";
  for (const Acknowledgement& one : acknowledged) {
    if (one.length == 0 || one.length > recovered.size()) {
      return "token " + std::to_string(one.length) + " was acknowledged, " +
             std::to_string(recovered.size()) + " are there";
    }
    const std::string difference =
        CompareTokens({&one.token, 1}, recovered.subspan(one.length - 1, 1));
    if (!difference.empty()) {
      return "at length " + std::to_string(one.length) + ": " + difference;
    }
  }
  return {};
}

// Compares the state recovered after a kill with the uninterrupted run at the same number of
// tokens. `prompt_length`: before its first step.
inline std::string CompareToMomentOf(const Conversation& uninterrupted, int prompt_length,
                                     const Conversation& recovered) {
  const int length = recovered.length();
  if (length <= prompt_length || length > uninterrupted.length()) {
    return "length " + std::to_string(length) + " is outside the run of " +
           std::to_string(prompt_length + 1) + " to " + std::to_string(uninterrupted.length());
  }
  const std::span<const int32_t> tokens = uninterrupted.tokens();
  std::string difference =
      CompareTokens(tokens.first(static_cast<size_t>(length)), recovered.tokens());
  if (difference.empty() && recovered.kv_length() != length - 1) {
    difference = Differ("length of KV", static_cast<uint64_t>(length - 1),
                        static_cast<uint64_t>(recovered.kv_length()));
  }
  if (difference.empty()) {
    difference = CompareKv(uninterrupted.kv(), recovered.kv(), length - 1);
  }
  if (difference.empty()) {
    const Step& step = uninterrupted.steps()[static_cast<size_t>(length - prompt_length - 1)];
    difference = CompareSampler(step.sampler_after, recovered.sampler().state());
  }
  return difference;
}

}  // namespace cairn::demo
