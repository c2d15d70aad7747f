// SPDX-License-Identifier: Apache-2.0
#include "sstable/bloom.h"

#include <bit>

#include "base/core/check.h"
#include "sstable/constants.h"
#include "sstable/index_format.h"

namespace cairn::sstable {
namespace {

__extension__ using Wide = unsigned __int128;

// The bits of one key: a walk over all 64-bit numbers in steps of its own, scaled down to `bits`.
class Walk {
 public:
  Walk(uint64_t hash, uint64_t bits) : at_(hash), step_(std::rotl(hash, 32) | 1), bits_(bits) {}

  uint64_t Next() {
    const auto bit = static_cast<uint64_t>((static_cast<Wide>(at_) * bits_) >> 64);
    at_ += step_;
    return bit;
  }

 private:
  uint64_t at_;
  const uint64_t step_;
  const uint64_t bits_;
};

}  // namespace

size_t FilterBytes(size_t keys) { return AlignUp((keys * kFilterBitsPerKey + 7) / 8, 8); }

std::string BuildFilter(std::span<const uint64_t> hashes) {
  CAIRN_CHECK(!hashes.empty());
  std::string filter(FilterBytes(hashes.size()), '\0');
  for (const uint64_t hash : hashes) {
    Walk walk(hash, filter.size() * 8);
    for (uint32_t i = 0; i < kFilterProbes; ++i) {
      const uint64_t bit = walk.Next();
      filter[bit / 8] = static_cast<char>(filter[bit / 8] | (1 << (bit % 8)));
    }
  }
  return filter;
}

bool FilterMayContain(std::span<const std::byte> filter, uint32_t probes, uint64_t hash) {
  CAIRN_CHECK(!filter.empty());
  Walk walk(hash, filter.size() * 8);
  for (uint32_t i = 0; i < probes; ++i) {
    const uint64_t bit = walk.Next();
    if ((filter[bit / 8] & static_cast<std::byte>(1 << (bit % 8))) == std::byte{0}) return false;
  }
  return true;
}

}  // namespace cairn::sstable
