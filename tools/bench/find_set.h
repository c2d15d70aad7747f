// SPDX-License-Identifier: Apache-2.0
//
// A generated data set for prefix search: branches that fork off each other, and prompts whose
// prefixes are in them.
//
// Half of the ids lie in *trunks*, branches without a parent that are as long as a prompt (long
// system prompts and conversations); the other half in forks of these and of each other: half of
// them go on at their parent's end, as turns of a conversation do, half leave it somewhere. How
// much a fork adds is distributed exponentially. Ids are Zipf's: the one of rank r has a frequency
// of about 1 / (r + 1). Prompts begin as a branch does, popular ones more often (Zipf again), and
// end with ids that nobody has.
//
// Everything follows from the seed. Ids are computed on request, about 15 ns each; only 24 bytes
// are kept for each branch.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cairn/branch.h"

namespace cairn::bench {

struct FindShape {
  uint64_t tokens = 100'000'000;  // In all branches, those that forks share counted once; about.
  uint32_t branches = 1'000'000;
  uint64_t prompt_tokens = 100'000;
  uint32_t vocabulary = 128'000;
  uint64_t seed = 1;
};

class FindSet {
 public:
  static constexpr uint32_t kNoParent = std::numeric_limits<uint32_t>::max();
  struct Branch {
    uint32_t parent = kNoParent;  // Comes before it.
    uint64_t begin = 0;           // Where it leaves its parent, at least 1; 0 without one.
    uint64_t own = 0;             // Ids from there on, at least 1.
    uint64_t end() const { return begin + own; }
  };
  struct Prompt {
    std::vector<TokenId> ids{};
    uint32_t branch = 0;   // Begins like the prompt...
    uint64_t matched = 0;  // ...with this many ids, and no other branch with more.
  };

  explicit FindSet(const FindShape& shape);

  const FindShape& shape() const { return shape_; }
  const std::vector<Branch>& branches() const { return branches_; }
  uint64_t tokens() const { return tokens_; }

  // The branch's own ids, from its `begin` on; and the first `length` ids of its whole path.
  std::vector<TokenId> OwnIds(uint32_t branch) const;
  std::vector<TokenId> PathIds(uint32_t branch, uint64_t length) const;

  // The n-th prompt. One in sixteen shares nothing with a branch; the others share at least a
  // quarter of their length with their branch, if that is long enough, and whole branches where
  // these are shorter.
  Prompt MakePrompt(uint64_t n) const;

 private:
  void AddTrunks();
  void AddForks();
  void AppendIds(uint32_t branch, uint64_t begin, uint64_t end, std::vector<TokenId>* ids) const;

  const FindShape shape_;
  std::vector<Branch> branches_;
  uint64_t tokens_ = 0;
};

}  // namespace cairn::bench
