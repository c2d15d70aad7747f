// SPDX-License-Identifier: Apache-2.0
//
// What the files of a store take. Every command counts by these words:
//
//   long      the lengths of files: what `ls -l` shows, and what copying them naively moves
//   on disk   the blocks that they have: what `du` shows, and what Options::max_bytes counts
//   live      content that is still needed
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "tools/cli/output.h"

namespace cairn::cli {

struct FileSums {
  uint64_t count = 0, bytes = 0, allocated = 0;
  uint64_t shared = 0;  // Allocated by files that have another name, as tables of a copy have.

  void Add(const FileSums& other);
  Json ToJson() const;  // {"count", "bytes", "allocated_bytes"}
};

// Segments of the log, by number, and those that rest. Others are ready to be the next, or left to
// be used again.
struct LiveSegments {
  uint64_t first = 0, count = 0;
  std::set<uint64_t> resting{};
};

// By kind, those without a file included: "segments", "resting", "spares", "snapshot_tables",
// "index_tables", "other".
std::map<std::string, FileSums> SumFiles(const std::string& store, const LiveSegments& live);
FileSums SumAllFiles(const std::string& store);

// "3 files, 1 MiB on disk, 4 MiB long"
std::string FilesText(const FileSums& sums);

}  // namespace cairn::cli
