// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever happens between a seal's beginning and its end, the index has after the next
// tree flush an L record of each node that was logged and not sealed, and none of what was sealed
// is put again. Method: the three ways on which a seal ends, with tree flushes before, in and after
// it.
#include <gtest/gtest.h>

#include <vector>

#include "engine/tree/memory/logged_nodes.h"

namespace cairn::engine {
namespace {

using Entries = std::vector<LoggedNodes::Entry>;

Entries All(const LoggedNodes& logged) {
  return {logged.entries().begin(), logged.entries().end()};
}

TEST(LoggedNodes, AFlushTakesEachOnceAndInOrder) {
  LoggedNodes logged;
  logged.Add(2, 7);
  logged.Add(1, 9);
  logged.Add(2, 7);
  EXPECT_EQ(logged.Unflushed(), (Entries{{1, 9}, {2, 7}}));
  EXPECT_EQ(All(logged).size(), 3u);
  logged.MarkFlushed();
  EXPECT_TRUE(logged.Unflushed().empty());
  EXPECT_TRUE(logged.entries().empty());
}

TEST(LoggedNodes, ASealForgetsWhatItKeptUpToItsSegment) {
  LoggedNodes logged;
  logged.Add(1, 7);
  logged.Add(2, 8);
  logged.Keep();
  logged.Add(1, 9);  // Not sealed, since it came meanwhile.
  logged.Add(3, 9);
  logged.Forget({.last = 1});
  EXPECT_EQ(All(logged), (Entries{{2, 8}, {1, 9}, {3, 9}}));
  EXPECT_EQ(logged.Unflushed(), (Entries{{1, 9}, {2, 8}, {3, 9}}));
}

// The deletion of the L records up to the segment takes what the tree flush has put there.
TEST(LoggedNodes, WhatWasFlushedMeanwhileUpToTheSegmentIsPutAgain) {
  LoggedNodes logged;
  logged.Add(1, 7);
  logged.Keep();
  logged.Add(1, 9);
  logged.Add(2, 9);
  logged.MarkFlushed();
  EXPECT_EQ(All(logged).size(), 3u);  // All of it is kept.
  logged.Add(2, 10);
  EXPECT_EQ(logged.Unflushed(), (Entries{{2, 10}}));
  logged.Forget({.last = 1});
  EXPECT_EQ(logged.Unflushed(), (Entries{{1, 9}, {2, 10}}));
  logged.MarkFlushed();
  EXPECT_TRUE(logged.entries().empty());  // Nothing is kept any more.
}

TEST(LoggedNodes, ASealThatCameToNothingLeavesWhatTheIndexDoesNotHave) {
  LoggedNodes logged;
  logged.Add(1, 7);
  logged.Keep();
  logged.MarkFlushed();
  logged.Add(1, 9);
  logged.Release();
  EXPECT_EQ(logged.Unflushed(), (Entries{{1, 9}}));
  EXPECT_EQ(All(logged), (Entries{{1, 9}}));
}

}  // namespace
}  // namespace cairn::engine
