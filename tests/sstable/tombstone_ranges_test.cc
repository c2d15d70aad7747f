// SPDX-License-Identifier: Apache-2.0
//
// Property: a range never covers a key that a put made live, however searches and puts interleave.
#include "sstable/tombstone_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

void Add(TombstoneRanges& ranges, std::string_view from, std::string_view end) {
  ranges.End(ranges.Begin(from), end);
}

TEST(TombstoneRanges, StepsOverAKnownRange) {
  TombstoneRanges ranges;
  EXPECT_EQ(ranges.StartOf("b"), "b");
  Add(ranges, "b", "f");
  EXPECT_EQ(ranges.StartOf("a"), "a");
  EXPECT_EQ(ranges.StartOf("b"), "f");
  EXPECT_EQ(ranges.StartOf("c"), "f");
  EXPECT_EQ(ranges.StartOf("f"), "f");
  EXPECT_EQ(ranges.StartOf("g"), "g");
  Add(ranges, "x", "x");
  Add(ranges, "x", "");
  EXPECT_EQ(ranges.size(), 1u);
}

TEST(TombstoneRanges, RangesThatTouchAreOne) {
  TombstoneRanges ranges;
  Add(ranges, "b", "d");
  Add(ranges, "f", "h");
  Add(ranges, "k", "m");
  EXPECT_EQ(ranges.size(), 3u);
  Add(ranges, "d", "f");
  EXPECT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges.StartOf("b"), "h");
  Add(ranges, "a", "l");
  EXPECT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges.StartOf("a"), "m");
  Add(ranges, "c", "e");  // Inside.
  EXPECT_EQ(ranges.StartOf("a"), "m");
}

TEST(TombstoneRanges, APutShortensARange) {
  TombstoneRanges ranges;
  Add(ranges, "b", "f");
  ranges.OnPut("f");
  ranges.OnPut("a");
  EXPECT_EQ(ranges.StartOf("b"), "f");
  ranges.OnPut("d");
  EXPECT_EQ(ranges.StartOf("b"), "d");
  EXPECT_EQ(ranges.StartOf("e"), "e");
  ranges.OnPut("b");
  EXPECT_EQ(ranges.StartOf("b"), "b");
  EXPECT_EQ(ranges.size(), 0u);
}

TEST(TombstoneRanges, AShorterOneThatNeedsMemoryDropsTheRange) {
  TombstoneRanges ranges;
  Add(ranges, "b", "f");
  ranges.OnPut("b" + std::string(500, 'x'));
  EXPECT_EQ(ranges.size(), 0u);
}

TEST(TombstoneRanges, APutDuringASearchLimitsItsRange) {
  TombstoneRanges ranges;
  const auto search = ranges.Begin("b");
  const auto other = ranges.Begin("d");
  ranges.OnPut("a");
  ranges.OnPut("e");
  ranges.OnPut("c");
  ranges.OnPut("d");
  ranges.End(search, "f");
  EXPECT_EQ(ranges.StartOf("b"), "c");
  ranges.End(other, "f");  // Put at its very start.
  EXPECT_EQ(ranges.StartOf("d"), "d");
}

TEST(TombstoneRanges, AreBounded) {
  TombstoneRanges ranges;
  for (uint64_t i = 0; i < 3 * kMaxTombstoneRanges; ++i) {
    Add(ranges, KeyOf(i * 2), KeyOf(i * 2 + 1));
    ASSERT_LE(ranges.size(), kMaxTombstoneRanges);
  }
  EXPECT_EQ(ranges.StartOf(KeyOf((3 * kMaxTombstoneRanges - 1) * 2)),
            KeyOf((3 * kMaxTombstoneRanges - 1) * 2 + 1));
}

TEST(TombstoneRanges, RandomInterleavings) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    TombstoneRanges ranges;
    std::set<std::string> live;
    struct Running {
      TombstoneRanges::Ticket ticket;
      std::string from;
      std::set<std::string> seen;  // Keys that were live when it began: the least to see.
    };
    std::vector<Running> searches;
    for (int step = 0; step < 2000; ++step) {
      const std::string key = KeyOf(random() % 60);
      switch (random() % 4) {
        case 0:
          ranges.OnPut(key);
          live.insert(key);
          break;
        case 1: live.erase(key); break;
        case 2: searches.push_back({ranges.Begin(key), key, live}); break;
        case 3: {
          if (searches.empty()) break;
          const size_t i = random() % searches.size();
          Running search = std::move(searches[i]);
          searches.erase(searches.begin() + static_cast<ptrdiff_t>(i));
          // It walked to the first record that it saw.
          const auto first = search.seen.lower_bound(search.from);
          ranges.End(search.ticket, first == search.seen.end() ? KeyOf(99) : *first);
          break;
        }
      }
      const std::string from = KeyOf(random() % 60);
      const auto next = live.lower_bound(from);
      ASSERT_LE(ranges.StartOf(from), next == live.end() ? KeyOf(99) : *next) << "seed " << seed;
    }
    for (const Running& search : searches) ranges.End(search.ticket, "");
  }
}

}  // namespace
}  // namespace cairn::sstable
