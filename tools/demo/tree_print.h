// SPDX-License-Identifier: Apache-2.0
//
// The tree of conversations, read out of a store and drawn with text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cairn/store.h"

namespace cairn::demo {

struct BranchPicture {
  std::string name;
  int parent = -1;          // Index of the branch it was forked from; -1: none.
  uint64_t begin = 0;       // Position where it left its parent.
  uint64_t end = 0;         // Its length.
  std::string text_before;  // The end of the part that it shares with its parent.
  std::string text;         // Its own part.
  SamplerState sampler;     // As it is now.
};

using Decode = std::function<std::string(std::span<const TokenId> tokens)>;

// All named branches of the default namespace, from the store alone.
Result<std::vector<BranchPicture>> ReadTree(const Store& store, const Decode& decode);

// Two lines a branch, no wider than `columns` (40 or more): its description and its text. Forks
// stand below their parent in the order of their positions.
std::string DrawTree(const std::vector<BranchPicture>& branches, size_t columns);

// "temperature 0.8, top-p 0.95, seed 7"
std::string SamplingText(const SamplerState& sampler);

}  // namespace cairn::demo
