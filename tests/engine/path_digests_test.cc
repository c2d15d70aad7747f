// SPDX-License-Identifier: Apache-2.0
//
// Property: what is remembered of a path is found by the node and the stretch that it lies on, and
// nothing behind a cut is; the memory is bounded.
#include <gtest/gtest.h>

#include "engine/find/constants.h"
#include "engine/find/path_digests.h"

namespace cairn::testing {
namespace {

using engine::PathDigests;

TEST(PathDigests, TheLastOfAStretch) {
  PathDigests digests;
  digests.Add({.node = 5, .end = 64, .digest = {1, 1}});
  digests.Add({.node = 5, .end = 640, .digest = {2, 2}});
  digests.Add({.node = 6, .end = 128, .digest = {3, 3}});
  EXPECT_EQ(640u, digests.Last(5, 0, UINT64_MAX)->end);
  EXPECT_EQ(640u, digests.Last(5, 0, 640)->end);
  EXPECT_EQ(64u, digests.Last(5, 0, 639)->end);
  EXPECT_EQ((Digest{1, 1}), digests.Last(5, 63, 64)->digest);
  EXPECT_FALSE(digests.Last(5, 64, 639).has_value());
  EXPECT_FALSE(digests.Last(5, 0, 63).has_value());
  EXPECT_FALSE(digests.Last(4, 0, UINT64_MAX).has_value());
  EXPECT_FALSE(digests.Last(7, 0, UINT64_MAX).has_value());
}

TEST(PathDigests, NothingBehindACut) {
  PathDigests digests;
  for (const uint64_t end : {64, 128, 192}) {
    for (const uint64_t node : {5, 6, 7}) digests.Add({.node = node, .end = end, .digest = {end}});
  }
  digests.Trim(6, 128);
  EXPECT_EQ(128u, digests.Last(6, 0, UINT64_MAX)->end);
  digests.Trim(6, 127);
  EXPECT_EQ(64u, digests.Last(6, 0, UINT64_MAX)->end);
  EXPECT_EQ(192u, digests.Last(5, 0, UINT64_MAX)->end);
  EXPECT_EQ(192u, digests.Last(7, 0, UINT64_MAX)->end);
  digests.Clear();
  EXPECT_FALSE(digests.Last(5, 0, UINT64_MAX).has_value());
}

TEST(PathDigests, WhatIsAskedForStaysAndItsMemoryIsBounded) {
  PathDigests digests;
  const auto known = [&](uint64_t node) { return digests.Last(node, 0, 64).has_value(); };
  constexpr uint64_t kNodes = 5 * engine::kRememberedDigests;
  for (uint64_t node = 1; node <= kNodes; ++node) {
    digests.Add({.node = node, .end = 64, .digest = {node}});
    ASSERT_TRUE(known(node));
    if (node % 1000 == 0) {
      ASSERT_TRUE(known(1)) << node;
    }
  }
  EXPECT_TRUE(known(kNodes - engine::kRememberedDigests + 100));
  EXPECT_FALSE(known(2));
  EXPECT_FALSE(known(kNodes - 2 * engine::kRememberedDigests - 1));
}

}  // namespace
}  // namespace cairn::testing
