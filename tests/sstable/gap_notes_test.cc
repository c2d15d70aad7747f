// SPDX-License-Identifier: Apache-2.0
//
// Property: a note never covers a key that a put made live, however searches and puts interleave.
#include "sstable/gap_notes.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

void Note(GapNotes& notes, std::string_view from, std::string_view end) {
  notes.End(notes.Begin(from), end);
}

TEST(GapNotes, StepsOverAKnownGap) {
  GapNotes notes;
  EXPECT_EQ(notes.StartOf("b"), "b");
  Note(notes, "b", "f");
  EXPECT_EQ(notes.StartOf("a"), "a");
  EXPECT_EQ(notes.StartOf("b"), "f");
  EXPECT_EQ(notes.StartOf("c"), "f");
  EXPECT_EQ(notes.StartOf("f"), "f");
  EXPECT_EQ(notes.StartOf("g"), "g");
  Note(notes, "x", "x");
  Note(notes, "x", "");
  EXPECT_EQ(notes.size(), 1u);
}

TEST(GapNotes, GapsThatTouchAreOne) {
  GapNotes notes;
  Note(notes, "b", "d");
  Note(notes, "f", "h");
  Note(notes, "k", "m");
  EXPECT_EQ(notes.size(), 3u);
  Note(notes, "d", "f");
  EXPECT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes.StartOf("b"), "h");
  Note(notes, "a", "l");
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes.StartOf("a"), "m");
  Note(notes, "c", "e");  // Inside.
  EXPECT_EQ(notes.StartOf("a"), "m");
}

TEST(GapNotes, APutCutsAGap) {
  GapNotes notes;
  Note(notes, "b", "f");
  notes.OnPut("f");
  notes.OnPut("a");
  EXPECT_EQ(notes.StartOf("b"), "f");
  notes.OnPut("d");
  EXPECT_EQ(notes.StartOf("b"), "d");
  EXPECT_EQ(notes.StartOf("e"), "e");
  notes.OnPut("b");
  EXPECT_EQ(notes.StartOf("b"), "b");
  EXPECT_EQ(notes.size(), 0u);
}

TEST(GapNotes, ACutThatNeedsMemoryDropsTheGap) {
  GapNotes notes;
  Note(notes, "b", "f");
  notes.OnPut("b" + std::string(500, 'x'));
  EXPECT_EQ(notes.size(), 0u);
}

TEST(GapNotes, APutDuringASearchLimitsItsNote) {
  GapNotes notes;
  const auto search = notes.Begin("b");
  const auto other = notes.Begin("d");
  notes.OnPut("a");
  notes.OnPut("e");
  notes.OnPut("c");
  notes.OnPut("d");
  notes.End(search, "f");
  EXPECT_EQ(notes.StartOf("b"), "c");
  notes.End(other, "f");  // Put at its very start.
  EXPECT_EQ(notes.StartOf("d"), "d");
}

TEST(GapNotes, AreBounded) {
  GapNotes notes;
  for (uint64_t i = 0; i < 3 * kMaxGaps; ++i) {
    Note(notes, KeyOf(i * 2), KeyOf(i * 2 + 1));
    ASSERT_LE(notes.size(), kMaxGaps);
  }
  EXPECT_EQ(notes.StartOf(KeyOf((3 * kMaxGaps - 1) * 2)), KeyOf((3 * kMaxGaps - 1) * 2 + 1));
}

TEST(GapNotes, RandomInterleavings) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    GapNotes notes;
    std::set<std::string> live;
    struct Running {
      GapNotes::Ticket ticket;
      std::string from;
      std::set<std::string> seen;  // Keys that were live when it began: the least to see.
    };
    std::vector<Running> searches;
    for (int step = 0; step < 2000; ++step) {
      const std::string key = KeyOf(random() % 60);
      switch (random() % 4) {
        case 0:
          notes.OnPut(key);
          live.insert(key);
          break;
        case 1: live.erase(key); break;
        case 2: searches.push_back({notes.Begin(key), key, live}); break;
        case 3: {
          if (searches.empty()) break;
          const size_t i = random() % searches.size();
          Running search = std::move(searches[i]);
          searches.erase(searches.begin() + static_cast<ptrdiff_t>(i));
          // It walked to the first record that it saw.
          const auto first = search.seen.lower_bound(search.from);
          notes.End(search.ticket, first == search.seen.end() ? KeyOf(99) : *first);
          break;
        }
      }
      const std::string from = KeyOf(random() % 60);
      const auto next = live.lower_bound(from);
      ASSERT_LE(notes.StartOf(from), next == live.end() ? KeyOf(99) : *next) << "seed " << seed;
    }
    for (const Running& search : searches) notes.End(search.ticket, "");
  }
}

}  // namespace
}  // namespace cairn::sstable
