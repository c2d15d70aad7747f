// SPDX-License-Identifier: Apache-2.0
//
// The sources that a seal reads, and the op that says where the content lies from then on. Both
// under the commit lock; reading the content and writing the table happen between them, without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/tree/memory/tree.h"

namespace cairn::engine {

// A stretch of a lane, or a state, that becomes one fragment of a table.
struct SealSource {
  uint64_t node = 0;
  uint32_t lane = 0;
  uint64_t begin = 0;
  uint32_t count = 0;
  std::shared_ptr<const ModelSpec> model{};
  std::vector<Extent> extents{};  // Read one after the other. None for a state...
  Mark mark{};                    // ...which is this.
  uint64_t stored_bytes = 0;      // Set when it was written.
  bool exact() const { return extents.empty() || extents.front().exact; }  // All are the same.
};

// The content of a node that lies at a wanted place, cut into sources of at most `bytes` of KV (or
// one extent) and at pages; appended to `sources`.
void CollectSealSources(const Tree& tree, uint64_t node,
                        const std::function<bool(const Place&)>& wanted, uint64_t bytes,
                        std::vector<SealSource>* sources);

// The op that makes `table` the place of what was read from the `sources`, except those parts that
// have moved since. If it has no ranges there is nothing to seal any more.
Op ResolveSeal(const Tree& tree, uint64_t table, uint64_t table_bytes,
               std::span<const SealSource> sources);

}  // namespace cairn::engine
