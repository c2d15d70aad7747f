// SPDX-License-Identifier: Apache-2.0
#include "engine/find/prefix_hash.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"
#include "engine/find/constants.h"

namespace cairn::engine {

namespace {

// A stretch of a block that a content span covers.
struct SpanBytes {
  uint64_t first, count;  // Within the block.
  uint64_t offset;        // Within the span.
  uint64_t hash[2];
};
static_assert(sizeof(SpanBytes) == 40);

constexpr size_t kChainBytes = sizeof(Digest);
constexpr size_t kIdBytes = kPrefixBlock * sizeof(TokenId);

}  // namespace

Digest PrefixRoot(const StoreId& store, uint64_t model) {
  struct {
    StoreId store;
    uint64_t algorithm, model;
  } const root{store, kHintAlgorithm, model};
  static_assert(sizeof(root) == 32);
  return HashWide(std::as_bytes(std::span(&root, 1)));
}

Digest ExtendPrefix(const Digest& chain, uint64_t begin, std::span<const TokenId> ids,
                    std::span<const ContentSpan> spans) {
  CAIRN_CHECK(begin % kPrefixBlock == 0 && !ids.empty() && ids.size() <= kPrefixBlock);
  const uint64_t end = begin + ids.size();
  std::array<std::byte, kChainBytes + kIdBytes + kPrefixBlock * sizeof(SpanBytes)> bytes;
  std::memcpy(bytes.data(), &chain, kChainBytes);
  std::memcpy(bytes.data() + kChainBytes, ids.data(), ids.size_bytes());
  size_t size = kChainBytes + ids.size_bytes();
  auto span = std::partition_point(spans.begin(), spans.end(),
                                   [&](const ContentSpan& one) { return one.end <= begin; });
  for (; span != spans.end() && span->begin < end; ++span) {
    CAIRN_CHECK(size + sizeof(SpanBytes) <= bytes.size());  // In order, each has a position.
    const uint64_t first = std::max(span->begin, begin);
    const SpanBytes part{.first = first - begin,
                         .count = std::min(span->end, end) - first,
                         .offset = first - span->begin,
                         .hash = {span->hash[0], span->hash[1]}};
    std::memcpy(bytes.data() + size, &part, sizeof(part));
    size += sizeof(part);
  }
  return HashWide(std::span(bytes).first(size));
}

Digest PrefixHasher::Peek(std::span<const TokenId> next) const {
  std::vector<TokenId> ids = rest_;
  ids.insert(ids.end(), next.begin(), next.end());
  return ids.empty() ? chain_ : Extend(ids);
}

void PrefixHasher::EndBlock(std::span<const TokenId> ids) {
  chain_ = Extend(ids);
  end_ += ids.size();
}

}  // namespace cairn::engine
