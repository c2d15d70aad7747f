// SPDX-License-Identifier: Apache-2.0
//
// The chunks of one node: which ids of its path must be read for them, and the entries that they
// give. Reads nothing itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/branch_types.h"
#include "engine/find/chunk_hash.h"
#include "engine/find/chunk_stretches.h"
#include "engine/find/hint_records.h"

namespace cairn::engine {

class ChunkTask {
 public:
  // `seed`: ChunkSeed. The spans of the whole path outlive this. Not thread-safe.
  ChunkTask(uint64_t node, uint64_t seed, NewChunks chunks, std::span<const ContentSpan> spans);

  // The ids of [at, upto) are missing. Equal: none are.
  uint64_t at() const { return at_; }
  uint64_t upto() const { return upto_; }
  // Adds the next missing ids, and appends the entries that they give.
  void Add(std::span<const TokenId> ids, std::vector<HintEntry>* entries);

 private:
  void AddWithin(std::span<const TokenId> ids, std::vector<HintEntry>* entries);

  const uint64_t node_, seed_;
  const NewChunks chunks_;
  const std::span<const ContentSpan> spans_;
  size_t stretch_ = 0;  // The one that `at_` lies in or before.
  std::optional<Winnower> winnower_;
  uint64_t at_ = 0, upto_ = 0;
};

}  // namespace cairn::engine
