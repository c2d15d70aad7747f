// SPDX-License-Identifier: Apache-2.0
//
// Property: a cache that finds no memory at any one allocation holds what its sums say, and goes
// on.
#include "base/core/s3_fifo.h"

#include <memory>
#include <new>

#include "tests/memory/failing_at.h"

namespace cairn::memory {
namespace {

using Payload = std::shared_ptr<int>;
struct HashOf {
  size_t operator()(uint64_t name) const { return name * 0x9e3779b97f4a7c15u; }
};

TEST(S3FifoMemory, AtEveryAllocation) {
  constexpr uint64_t kBytes = 64, kCapacity = 2048;
  AtEveryAllocation([&](uint64_t n) {
    S3Fifo<uint64_t, HashOf, Payload, 1> cache(
        {.entry_bytes = 0, .name_bytes = 8, .names_share = 4});
    std::vector<std::weak_ptr<int>> made;
    made.reserve(400);
    {
      const FailingAt failing(n);
      for (uint64_t i = 0; i < 400; ++i) {
        // Some come again, some are used while they are cached.
        const uint64_t name = i % 3 == 0 ? i / 2 : i;
        try {
          if (cache.Find(name)) continue;
          const CacheAdmission admission = cache.Admit(name, kBytes, i % 5 == 0, kCapacity);
          if (admission == CacheAdmission::kNo) continue;
          auto payload = std::make_shared<int>(1);
          made.push_back(payload);
          cache.Insert(name, std::move(payload), kBytes, admission, kCapacity);
        } catch (const std::bad_alloc&) {
        }
        ASSERT_LE(cache.bytes(), kCapacity);
      }
    }
    uint64_t alive = 0;
    for (const auto& one : made) alive += one.expired() ? 0 : 1;
    EXPECT_GE(cache.bytes(), alive * kBytes);
    EXPECT_LE(cache.bytes() - alive * kBytes, kCapacity / 2) << "names";
    cache.Clear();
    EXPECT_EQ(0u, cache.bytes());
    for (const auto& one : made) EXPECT_TRUE(one.expired());
  });
}

}  // namespace
}  // namespace cairn::memory
