// SPDX-License-Identifier: Apache-2.0
//
// The directory of tables, and what readers and writers of tables share.
//   <16 hex digits>.index      an index table, complete: it got this name when it was durable
//   <16 hex digits>.snapshot   a snapshot table, complete
//   *.tmp                      one being written, or left behind by a crash
// All kinds share one sequence of numbers.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/codec/hash.h"
#include "base/io/file_cache.h"
#include "base/io/world.h"
#include "cairn/allocator.h"
#include "sstable/block_cache.h"
#include "sstable/table_callbacks.h"

namespace cairn::sstable {

inline constexpr char kUnfinishedSuffix[] = ".tmp";

// Requests to the device. They only grow.
struct TableCounters {
  std::atomic<uint64_t> block_reads{0};  // A merge reads several blocks with one.
  std::atomic<uint64_t> read_bytes{0};
  std::atomic<uint64_t> written_bytes{0};
  std::atomic<uint64_t> cache_hits{0};
  std::atomic<uint64_t> filter_skips{0};  // Data blocks that a filter spared.
};

// Copied freely; the referenced objects outlive every copy.
struct TableContext {
  io::FileSystem* files = nullptr;
  std::string directory;
  StoreId store;
  Allocator allocator = Allocator::Default();
  BlockCache* cache = nullptr;
  // Open snapshot tables, by number; null: each table keeps its own file open.
  io::FileCache* open_files = nullptr;
  TableCallbacks* callbacks = nullptr;  // May be null where nothing is written.
  TableCounters* counters = nullptr;
};

std::string IndexTablePath(const std::string& directory, uint64_t number);
std::string SnapshotTablePath(const std::string& directory, uint64_t number);

// Whether this is the name of a finished table.
bool IsTableFileName(std::string_view name);

// Deletes unfinished tables and those whose number is not in `live` (any order). Call it after
// replay, when the live tables are known; never for a read-only store. Other names are left alone.
// The removals are durable with the next sync of the directory; if a crash brings a file back, it
// is an orphan again.
Status RemoveTableOrphans(io::FileSystem& files, const std::string& directory,
                          std::span<const uint64_t> live);

}  // namespace cairn::sstable
