// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/find_set.h"

#include <algorithm>
#include <cmath>

#include "base/core/check.h"

namespace cairn::bench {
namespace {

// Sebastiano Vigna's splitmix64: mixes what it is given, so that equal arguments give equal
// numbers.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The purpose of a draw, so that no two draws are the same.
enum class Draw : uint64_t { kId = 1, kParent, kForkPlace, kLength, kPrompt };

// In [0, 1).
double Uniform(uint64_t seed, Draw draw, uint64_t a, uint64_t b) {
  const uint64_t mixed = Mix(Mix(Mix(seed * 8 + static_cast<uint64_t>(draw)) + a) + b);
  return static_cast<double>(mixed >> 11) * 0x1p-53;
}

uint64_t Below(double uniform, uint64_t count) {
  return std::min(count - 1, static_cast<uint64_t>(uniform * static_cast<double>(count)));
}

// A rank below `count`: that of r with a probability of log((r + 2) / (r + 1)) / log(count + 1).
uint64_t Zipf(double uniform, uint64_t count) {
  const double rank = std::exp(uniform * std::log(static_cast<double>(count + 1))) - 1;
  return std::min(count - 1, static_cast<uint64_t>(rank));
}

}  // namespace

FindSet::FindSet(const FindShape& shape) : shape_(shape) {
  CAIRN_CHECK(shape.branches > 0 && shape.prompt_tokens > 0 && shape.vocabulary > 1);
  CAIRN_CHECK(shape.tokens >= shape.branches && shape.branches < kNoParent);
  branches_.reserve(shape.branches);
  AddTrunks();
  AddForks();
}

void FindSet::AddTrunks() {
  const uint64_t half = shape_.tokens / 2;
  const uint64_t count =
      std::clamp<uint64_t>(half / shape_.prompt_tokens, 1, shape_.branches / 2 + 1);
  for (uint64_t i = 0; i < count; ++i) {
    branches_.push_back({.own = std::max<uint64_t>(1, std::min(half, shape_.prompt_tokens))});
    tokens_ += branches_.back().own;
  }
}

void FindSet::AddForks() {
  const auto trunks = static_cast<uint32_t>(branches_.size());
  if (trunks >= shape_.branches) return;
  const double mean = static_cast<double>(shape_.tokens - std::min(shape_.tokens, tokens_)) /
                      static_cast<double>(shape_.branches - trunks);
  for (uint32_t i = trunks; i < shape_.branches; ++i) {
    // Three of four leave a trunk, the others any existing branch.
    const double draw = Uniform(shape_.seed, Draw::kParent, i, 0);
    const bool of_trunk = draw < 0.75;
    const auto parent = static_cast<uint32_t>(of_trunk ? Zipf(draw / 0.75, trunks)
                                                       : Below((draw - 0.75) / 0.25, i));
    const Branch& above = branches_[parent];
    const double place = Uniform(shape_.seed, Draw::kForkPlace, i, 0);
    const uint64_t begin =
        place < 0.5 ? above.end() : above.begin + 1 + Below((place - 0.5) / 0.5, above.own);
    // Adds the average loss of rounding down.
    const double length = -std::log1p(-Uniform(shape_.seed, Draw::kLength, i, 0)) * mean + 0.5;
    branches_.push_back(
        {.parent = parent, .begin = begin, .own = std::max<uint64_t>(1, uint64_t(length))});
    tokens_ += branches_.back().own;
  }
}

void FindSet::AppendIds(uint32_t branch, uint64_t begin, uint64_t end,
                        std::vector<TokenId>* ids) const {
  for (uint64_t at = begin; at < end; ++at) {
    const double draw = Uniform(shape_.seed, Draw::kId, branch, at);
    ids->push_back(static_cast<TokenId>(Zipf(draw, shape_.vocabulary)));
  }
}

std::vector<TokenId> FindSet::OwnIds(uint32_t branch) const {
  const Branch& one = branches_[branch];
  std::vector<TokenId> ids;
  ids.reserve(one.own);
  AppendIds(branch, one.begin, one.end(), &ids);
  return ids;
}

std::vector<TokenId> FindSet::PathIds(uint32_t branch, uint64_t length) const {
  CAIRN_CHECK(length <= branches_[branch].end());
  std::vector<uint32_t> path;  // From the branch up.
  for (uint32_t at = branch; at != kNoParent; at = branches_[at].parent) path.push_back(at);
  std::vector<TokenId> ids;
  ids.reserve(length);
  for (size_t i = path.size(); i-- > 0 && ids.size() < length;) {
    const uint64_t end = i == 0 ? branches_[branch].end() : branches_[path[i - 1]].begin;
    AppendIds(path[i], ids.size(), std::min(end, length), &ids);
  }
  return ids;
}

FindSet::Prompt FindSet::MakePrompt(uint64_t n) const {
  const auto draw = [&](uint64_t what) { return Uniform(shape_.seed, Draw::kPrompt, n, what); };
  const uint64_t length = shape_.prompt_tokens;
  Prompt prompt;
  if (n % 16 != 15) {
    prompt.branch = static_cast<uint32_t>(Zipf(draw(0), branches_.size()));
    const uint64_t least = length / 4 + 1;
    prompt.matched = std::min(branches_[prompt.branch].end(),
                              std::min(length, least + Below(draw(1), length - length / 4)));
    prompt.ids = PathIds(prompt.branch, prompt.matched);
  }
  // The first id behind what is known is one that no branch has.
  if (prompt.ids.size() < length) prompt.ids.push_back(shape_.vocabulary);
  for (uint64_t i = prompt.ids.size(); i < length; ++i) {
    prompt.ids.push_back(static_cast<TokenId>(Zipf(draw(i + 2), shape_.vocabulary)));
  }
  return prompt;
}

}  // namespace cairn::bench
