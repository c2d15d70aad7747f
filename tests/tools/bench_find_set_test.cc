// SPDX-License-Identifier: Apache-2.0
//
// Property: the data set of the prefix search benchmark is what its header says: the size that was
// asked for, forks that begin as their parents do, Zipf's ids, the same for the same seed; and what
// it says of its prompts is true.
// Method: a small one, whose every path is compared with every prompt; and the radix tree, which
// finds the same.
#include "tools/bench/find_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tools/bench/radix_tree.h"

namespace cairn::bench {
namespace {

FindShape SmallSet(uint64_t seed) {
  return {
      .tokens = 40'000, .branches = 1'000, .prompt_tokens = 500, .vocabulary = 1'000, .seed = seed};
}

std::vector<TokenId> WholePath(const FindSet& set, uint32_t branch) {
  return set.PathIds(branch, set.branches()[branch].end());
}

TEST(FindSetTest, HasTheSizeThatWasAskedFor) {
  for (const FindShape& shape :
       {SmallSet(1), FindShape{.tokens = 2'000'000, .branches = 20'000, .prompt_tokens = 10'000},
        FindShape{.tokens = 10, .branches = 10, .prompt_tokens = 1'000},
        FindShape{.tokens = 1'000, .branches = 1, .prompt_tokens = 100}}) {
    const FindSet set(shape);
    EXPECT_EQ(set.branches().size(), shape.branches);
    uint64_t tokens = 0;
    for (const FindSet::Branch& branch : set.branches()) tokens += branch.own;
    EXPECT_EQ(tokens, set.tokens());
    if (shape.branches < 100) continue;
    EXPECT_NEAR(static_cast<double>(tokens), static_cast<double>(shape.tokens),
                0.1 * static_cast<double>(shape.tokens));
  }
}

TEST(FindSetTest, AForkBeginsAsItsParentDoes) {
  const FindSet set(SmallSet(2));
  uint64_t trunks = 0, at_end = 0, forks_of_forks = 0;
  for (uint32_t i = 0; i < set.branches().size(); ++i) {
    const FindSet::Branch& branch = set.branches()[i];
    const std::vector<TokenId> own = set.OwnIds(i);
    ASSERT_EQ(own.size(), branch.own);
    std::vector<TokenId> path;
    if (branch.parent == FindSet::kNoParent) {
      ++trunks;
      ASSERT_EQ(branch.begin, 0u);
    } else {
      ASSERT_LT(branch.parent, i);
      const FindSet::Branch& parent = set.branches()[branch.parent];
      ASSERT_GT(branch.begin, parent.begin);
      ASSERT_LE(branch.begin, parent.end());
      at_end += branch.begin == parent.end();
      forks_of_forks += parent.parent != FindSet::kNoParent;
      path = WholePath(set, branch.parent);
      path.resize(branch.begin);
    }
    path.insert(path.end(), own.begin(), own.end());
    ASSERT_EQ(WholePath(set, i), path);
  }
  EXPECT_EQ(trunks, 40u);  // Half of the ids, by the length of a prompt.
  EXPECT_GT(at_end, 400u);
  EXPECT_LT(at_end, 700u);
  EXPECT_GT(forks_of_forks, 100u);
}

TEST(FindSetTest, TheSeedDecides) {
  const FindSet one(SmallSet(3)), same(SmallSet(3)), other(SmallSet(4));
  EXPECT_EQ(WholePath(one, 999), WholePath(same, 999));
  EXPECT_EQ(one.MakePrompt(7).ids, same.MakePrompt(7).ids);
  EXPECT_NE(one.OwnIds(0), other.OwnIds(0));
  EXPECT_NE(one.MakePrompt(7).ids, other.MakePrompt(7).ids);
  EXPECT_NE(one.MakePrompt(7).ids, one.MakePrompt(8).ids);
}

TEST(FindSetTest, IdsAreZipfs) {
  const FindSet set(SmallSet(5));
  std::map<TokenId, double> seen;
  for (uint32_t i = 0; i < set.branches().size(); ++i) {
    for (const TokenId id : set.OwnIds(i)) seen[id] += 1;
  }
  EXPECT_LT(seen.rbegin()->first, set.shape().vocabulary);
  const double all = static_cast<double>(set.tokens()) / std::log(1'001.0);
  for (const TokenId id : {0u, 1u, 3u, 10u, 30u}) {
    const double expected = all * std::log((id + 2.0) / (id + 1.0));
    EXPECT_NEAR(seen[id], expected, 6 * std::sqrt(expected)) << id;
  }
}

TEST(FindSetTest, PromptsMatchAsTheySay) {
  const FindSet set(SmallSet(6));
  RadixTree tree;
  std::vector<std::vector<TokenId>> paths;
  std::vector<RadixTree::Node*> ends;
  for (uint32_t i = 0; i < set.branches().size(); ++i) {
    const FindSet::Branch& branch = set.branches()[i];
    RadixTree::Node* const from =
        branch.parent == FindSet::kNoParent ? tree.root() : ends[branch.parent];
    ends.push_back(tree.Insert(from, branch.begin, set.OwnIds(i), i));
    paths.push_back(WholePath(set, i));
  }
  EXPECT_LE(tree.ids(), set.tokens());
  uint64_t unknown = 0, whole = 0, matched = 0;
  std::set<uint32_t> branches;
  constexpr uint64_t kPrompts = 160;
  for (uint64_t n = 0; n < kPrompts; ++n) {
    const FindSet::Prompt prompt = set.MakePrompt(n);
    ASSERT_EQ(prompt.ids.size(), set.shape().prompt_tokens);
    uint64_t longest = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
      const auto [end, other] =
          std::mismatch(prompt.ids.begin(), prompt.ids.end(), paths[i].begin(), paths[i].end());
      const auto common = static_cast<uint64_t>(end - prompt.ids.begin());
      longest = std::max(longest, common);
      if (i == prompt.branch) {
        ASSERT_GE(common, prompt.matched);
      }
    }
    ASSERT_EQ(longest, prompt.matched) << n;
    ASSERT_EQ(tree.LongestMatch(prompt.ids).length, longest) << n;
    unknown += longest == 0;
    whole += longest == prompt.ids.size();
    matched += longest;
    branches.insert(prompt.branch);
  }
  EXPECT_EQ(unknown, kPrompts / 16);
  EXPECT_GT(whole, 0u);
  EXPECT_GT(matched, kPrompts * set.shape().prompt_tokens / 4);
  EXPECT_LT(branches.size(), kPrompts);  // Popular ones come again.
  EXPECT_GT(branches.size(), kPrompts / 4);
}

}  // namespace
}  // namespace cairn::bench
