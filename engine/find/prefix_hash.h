// SPDX-License-Identifier: Apache-2.0
//
// The hash of the first tokens of a path, block by block: each block of kPrefixBlock positions is
// hashed with the hash before it. So two paths that agree up to a block's end have the same hash
// there, by any branch, and what comes behind is not needed for it. FORMAT.md has the bytes.
//
// Where it begins, store and model go in, and the namespace where it becomes a key: what belongs to
// different ones never meets.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/codec/hash.h"
#include "cairn/branch_types.h"
#include "cairn/find.h"

namespace cairn::engine {

// Where every chain begins.
Digest PrefixRoot(const StoreId& store, uint64_t model);

// Keys of the index hold a hash of chain and namespace.
inline uint64_t SeedOf(std::string_view ns) { return Hash(std::as_bytes(std::span(ns))); }
inline uint64_t KeyHash(const Digest& chain, uint64_t ns_seed) {
  return SealHash(chain.low, ns_seed);
}

// The digest of the path up to begin + ids.size(), when `chain` is that up to `begin`. REQUIRES:
// `begin` is a block's beginning, `ids` one to kPrefixBlock; `spans` are in order, and those that
// lie elsewhere do not matter.
Digest ExtendPrefix(const Digest& chain, uint64_t begin, std::span<const TokenId> ids,
                    std::span<const ContentSpan> spans);

// Block after block: Add as often as there is more.
class PrefixHasher {
 public:
  // From `begin` on, a block's beginning, where the hash is `chain`. The spans outlive this.
  PrefixHasher(const Digest& chain, uint64_t begin, std::span<const ContentSpan> spans)
      : chain_(chain), end_(begin), spans_(spans) {}

  // The next ids of the path. on_block(end, digest) is called at each block's end.
  template <typename OnBlock>
  void Add(std::span<const TokenId> ids, const OnBlock& on_block);
  // The digest of all that was added.
  Digest At() const { return rest_.empty() ? chain_ : Extend(rest_); }
  // The same, with the beginning of what follows; together no more than a block.
  Digest Peek(std::span<const TokenId> next) const;
  uint64_t end() const { return end_ + rest_.size(); }

 private:
  Digest Extend(std::span<const TokenId> ids) const {
    return ExtendPrefix(chain_, end_, ids, spans_);
  }
  void EndBlock(std::span<const TokenId> ids);

  Digest chain_;
  uint64_t end_;  // Where the last whole block ends.
  std::span<const ContentSpan> spans_;
  std::vector<TokenId> rest_;  // The ids of the block that has begun.
};

template <typename OnBlock>
void PrefixHasher::Add(std::span<const TokenId> ids, const OnBlock& on_block) {
  constexpr size_t kBlock = kPrefixBlock;
  while (!ids.empty()) {
    if (rest_.empty() && ids.size() >= kBlock) {
      EndBlock(ids.first(kBlock));
      ids = ids.subspan(kBlock);
    } else {
      const size_t take = kBlock - rest_.size() < ids.size() ? kBlock - rest_.size() : ids.size();
      rest_.insert(rest_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(take));
      ids = ids.subspan(take);
      if (rest_.size() < kBlock) return;
      EndBlock(rest_);
      rest_.clear();
    }
    on_block(end_, chain_);
  }
}

}  // namespace cairn::engine
