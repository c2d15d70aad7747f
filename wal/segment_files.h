// SPDX-License-Identifier: Apache-2.0
//
// The files of the log directory:
//   <16 hex digits>.log         a numbered segment: live, or prepared to be the next. Shorter than
//                               others if the log was closed in it
//   spare-<16 hex digits>.log   new or recycled, waiting; the digits mean nothing
//   cushion-<number>            noise in the place of room (space_cushion.h)
//   *.tmp                       a spare being made; removed at the next Open
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/world.h"

namespace cairn::wal {

struct LogDirectory {
  std::vector<uint64_t> segments;  // Sorted.
  std::vector<uint64_t> spares;    // Sorted.
  std::vector<std::string> unfinished;
};

// Other names are ignored. A missing directory is empty.
Result<LogDirectory> ListLogDirectory(io::FileSystem& files, const std::string& directory);

bool IsLogFileName(std::string_view name);

// Whether a file of a log was ever used; if not, it has only the zeros of its making.
Result<bool> HoldsRecords(io::FileSystem& files, const std::string& path);

std::string SegmentPath(const std::string& directory, uint64_t segment);
std::string SparePath(const std::string& directory, uint64_t id);

// Makes the file `path`, which reads as `bytes` zeros, with blocks for the first `allocated` of
// them. Nothing is written: a first write to such a block changes the file's metadata, which costs
// a large write less than writing everything twice. Synced under a temporary name and renamed (not
// yet durably). On failure no file remains.
Status MakeSegmentFile(io::FileSystem& files, const std::string& path, uint64_t bytes,
                       uint64_t allocated);

}  // namespace cairn::wal
