// SPDX-License-Identifier: Apache-2.0
//
// Property: a filter knows every key that was put in, and is wrong about others at the rate that
// its size promises.
#include "sstable/bloom.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

TEST(Bloom, KnowsItsKeysAndFewOthers) {
  // The rate of k probes of n keys in m bits: (1 - e^(-kn/m))^k, 0.8 %.
  const double promised =
      std::pow(1 - std::exp(-double{kFilterProbes} / kFilterBitsPerKey), double{kFilterProbes});
  EXPECT_LT(promised, 0.0085);
  for (const uint64_t keys : {100, 1000, 12'000}) {
    std::vector<uint64_t> hashes;
    for (uint64_t i = 0; i < keys; ++i) hashes.push_back(FilterHash(KeyOf(i)));
    const std::string filter = BuildFilter(hashes);
    EXPECT_EQ(filter.size(), FilterBytes(keys));
    EXPECT_LE(filter.size() * 8, keys * kFilterBitsPerKey + 63);
    const auto bytes = std::as_bytes(std::span(filter));
    for (const uint64_t hash : hashes) ASSERT_TRUE(FilterMayContain(bytes, kFilterProbes, hash));
    const uint64_t asked = 200'000;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < asked; ++i) {
      wrong += FilterMayContain(bytes, kFilterProbes, FilterHash(KeyOf(1'000'000 + i))) ? 1 : 0;
    }
    const double rate = static_cast<double>(wrong) / static_cast<double>(asked);
    EXPECT_LT(rate, promised * (keys < 1000 ? 2.0 : 1.25)) << keys << " keys";
    EXPECT_GT(rate, promised * 0.4) << keys << " keys: asked for what was put in?";
  }
}

TEST(Bloom, OneKey) {
  const uint64_t hash = FilterHash("only");
  const std::string filter = BuildFilter({&hash, 1});
  EXPECT_EQ(filter.size(), 8u + 0);
  EXPECT_TRUE(FilterMayContain(std::as_bytes(std::span(filter)), kFilterProbes, hash));
}

}  // namespace
}  // namespace cairn::sstable
