// SPDX-License-Identifier: Apache-2.0
//
// Property: a table of leases that finds no memory at any one allocation has granted nothing, and
// goes on.
#include "engine/tree/memory/lease_table.h"

#include <new>

#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

TEST(LeaseTableMemory, AtEveryAllocation) {
  AtEveryAllocation([&](uint64_t n) {
    engine::LeaseTable leases;
    const uint64_t before = leases.Grant({8, 3, 5}, 100);
    const engine::LeasedPart parts[] = {{7, 20, 4}, {8, 12, 5}};
    uint64_t lease = 0;
    {
      const FailingAt failing(n);
      try {
        lease = leases.Grant(parts, 100);
      } catch (const std::bad_alloc&) {
      }
    }
    EXPECT_EQ(lease == 0 ? 0u : 20u, leases.LeasedTo(7));
    EXPECT_EQ(lease == 0 ? 3u : 12u, leases.LeasedTo(8));
    EXPECT_EQ(lease == 0 ? 5u : 14u, leases.bytes());
    leases.Release(lease);
    EXPECT_EQ(1u, leases.size());
    EXPECT_EQ(3u, leases.LeasedTo(8));
    leases.Release(before);
    EXPECT_EQ(0u, leases.LeasedTo(8));
    EXPECT_EQ(0u, leases.bytes());
  });
}

TEST(LeaseTableMemory, AtEveryAllocationOfOneThatGrows) {
  AtEveryAllocation([&](uint64_t n) {
    engine::LeaseTable leases;
    const uint64_t lease = leases.Grant({8, 3, 5}, 100);
    const engine::LeasedPart more[] = {{7, 20, 4}, {8, 12, 4}, {9, 1, 1}};
    bool grown = false;
    {
      const FailingAt failing(n);
      try {
        grown = leases.Extend(lease, more);
      } catch (const std::bad_alloc&) {
      }
    }
    EXPECT_EQ(grown ? 12u : 3u, leases.LeasedTo(8));
    EXPECT_EQ(grown ? 20u : 0u, leases.LeasedTo(7));
    EXPECT_EQ(grown ? 14u : 5u, leases.bytes());
    EXPECT_EQ(grown ? 4u : 1u, leases.parts());
    leases.Release(lease);
    EXPECT_EQ(0u, leases.parts());
    EXPECT_EQ(0u, leases.LeasedTo(8));
  });
}

}  // namespace
}  // namespace cairn::memory
