// SPDX-License-Identifier: Apache-2.0
//
// Property: the radix tree that prefix search is compared with finds the longest common prefix with
// anything that was put in, and a path that has it; each id that paths share is held once.
// Method: short paths of few ids, so that nodes are split everywhere, against a comparison with
// each path.
#include "tools/bench/radix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/support/test_seed.h"

namespace cairn::bench {
namespace {

using Ids = std::vector<TokenId>;

size_t Common(const Ids& a, const Ids& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

Ids Draw(std::mt19937_64& random, uint64_t most) {
  Ids ids(1 + random() % most);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % 3);
  return ids;
}

TEST(RadixTree, FindsWhatAComparisonWithEachPathFinds) {
  const uint64_t first = testing::QuickTestSeed();
  for (uint64_t seed = first; seed < first + 30; ++seed) {
    const testing::Repeatable repeatable(seed);
    std::mt19937_64 random(seed);
    RadixTree tree;
    EXPECT_EQ(tree.LongestMatch(Ids{1, 2}).length, 0u);
    std::vector<Ids> paths;
    std::vector<RadixTree::Node*> ends;
    std::set<Ids> prefixes;
    for (int i = 0; i < 100; ++i) {
      // From the root, or where it leaves another path.
      Ids path;
      RadixTree::Node* from = tree.root();
      if (i > 0 && random() % 2 == 0) {
        const size_t other = random() % paths.size();
        path.assign(
            paths[other].begin(),
            paths[other].begin() + static_cast<ptrdiff_t>(random() % (paths[other].size() + 1)));
        from = ends[other];
      }
      const uint64_t at = path.size();
      const Ids own = Draw(random, 12);
      path.insert(path.end(), own.begin(), own.end());
      paths.push_back(path);
      ends.push_back(tree.Insert(from, at, own, static_cast<uint64_t>(i)));
      for (size_t n = 1; n <= path.size(); ++n) {
        prefixes.emplace(path.begin(), path.begin() + static_cast<ptrdiff_t>(n));
      }
      ASSERT_EQ(tree.ids(), prefixes.size()) << repeatable.command();
      for (int look = 0; look < 10; ++look) {
        Ids wanted = Draw(random, 20);
        if (look % 2 == 0) wanted.insert(wanted.begin(), path.begin(), path.end());
        size_t longest = 0;
        for (const Ids& one : paths) longest = std::max(longest, Common(one, wanted));
        const RadixTree::Match found = tree.LongestMatch(wanted);
        ASSERT_EQ(found.length, longest) << repeatable.command();
        if (longest == 0) continue;
        ASSERT_EQ(Common(paths[found.owner], wanted), longest) << repeatable.command();
      }
    }
    // The ends are still where the paths end, whatever was split.
    for (size_t i = 0; i < paths.size(); ++i) EXPECT_EQ(ends[i]->end(), paths[i].size());
    EXPECT_LE(tree.nodes(), 2 * paths.size());
  }
}

}  // namespace
}  // namespace cairn::bench
