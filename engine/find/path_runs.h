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
  uint64_t node = 0;            // The path ends with this node.
  uint64_t begin = 0, end = 0;  // Positions of the path.
  // One for each position. Empty: they were not read; `status` says why if that failed.
  std::vector<TokenId> ids{};
  Status status{};  // The ids are damaged, or have moved meanwhile.
  // Spans that the range touches, as the tree had them. The caller collects them.
  std::vector<ContentSpan> spans{};
};

// Reads the ids of all runs together. What moved or is damaged meanwhile stays empty, with a status
// of its own. kBusy with memory_only, kIoError, kOutOfMemory.
Status ReadRuns(Reader* reader, std::span<PathRun* const> runs, bool memory_only);

// Whether id and content at position `source` of the run are those at `position` of the query.
// REQUIRES: the run was read and has `source`.
bool IsSame(const PathRun& run, uint64_t source, const PrefixQuery& query, uint64_t position);

// The hash of the ids of a run that begins at position `begin`, and of what the spans have of it.
Digest DigestOf(std::span<const TokenId> ids, uint64_t begin, std::span<const ContentSpan> spans);

}  // namespace cairn::engine
