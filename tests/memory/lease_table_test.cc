// SPDX-License-Identifier: Apache-2.0
//
// Property: a table of leases that finds no memory at any one allocation has granted nothing, and
// goes on.
#include "engine/tree/lease_table.h"

#include <new>

#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

TEST(LeaseTableMemory, AtEveryAllocation) {
  AtEveryAllocation([&](uint64_t n) {
    engine::LeaseTable leases;
    const uint64_t before = leases.Grant(8, 3, 100, 5);
    uint64_t lease = 0;
    {
      const FailingAt failing(n);
      try {
        lease = leases.Grant(7, 20, 100, 9, {.node = 8, .position = 12});
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

}  // namespace
}  // namespace cairn::memory
