// SPDX-License-Identifier: Apache-2.0
//
// Ranges of paths, whose ids and content spans are compared with those of a query.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/codec/hash.h"
#include "cairn/find.h"
#include "engine/restore/reader.h"

namespace cairn::engine {

struct PathRun {
  uint64_t node = 0;            // The path that ends with it...
  uint64_t begin = 0, end = 0;  // ...and positions of that.
  // Those of all positions. Empty: not read, or why not says the status.
  std::vector<TokenId> ids{};
  Status status{};  // It is damaged, or has moved meanwhile.
  // Those that the range touches, as the tree had them. The caller collects them.
  std::vector<ContentSpan> spans{};
};

// Reads the ids of all runs together. What moved or is damaged meanwhile stays empty, with a status
// of its own. kBusy with memory_only, kIoError, kOutOfMemory.
Status ReadRuns(Reader* reader, std::span<PathRun* const> runs, bool memory_only);

// Whether id and content at position `source` of the run are those at `position` of the query.
// REQUIRES: the run was read and has `source`.
bool IsSame(const PathRun& run, uint64_t source, const PrefixQuery& query, uint64_t position);

// The hash of the ids, and of the spans by where they lie in the run.
Digest DigestOf(std::span<const TokenId> ids, uint64_t begin, std::span<const ContentSpan> spans);

}  // namespace cairn::engine
