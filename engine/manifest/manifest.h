// SPDX-License-Identifier: Apache-2.0
//
// MANIFEST-n: the identity of the store, where its log starts, the tables of the index, and the
// counters. The index holds what the log says up to some sequence, and no more: so a flush or merge
// of it commits here, by the rename, and not in the log, which then need not be read twice. A
// manifest never knows more than the log, and a log that ends before last_sequence has lost
// something. A damaged manifest cannot be rebuilt: the store is refused with the file's name.
// OPTIONS, a text file for people, records measurements and choices of the creation.
//
// File:  magic "CairnMan" | format version u32 | table bytes u32 | field table | hash u64
// The hash covers everything before it. It is not sealed with a place: the store's id is inside.
// engine/FORMAT.md has every field, and an example.
// Written as MANIFEST-n.tmp, synced, renamed, and the directory synced; then MANIFEST-(n-1) goes.
// Why not one file rewritten in place: a torn write would leave none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/codec/hash.h"
#include "base/io/world.h"
#include "engine/manifest/history.h"
#include "engine/manifest/hourly_write_counter.h"
#include "sstable/lsm_index.h"
#include "wal/log.h"

namespace cairn::engine {

// An index beside the tree's. A derived one can be rebuilt from the rest of the store: a library
// that does not know it skips it, and its tables are then files that nothing names.
struct NamedIndex {
  std::string name;  // 1 to kIndexNameBytesMax bytes, no two alike.
  bool derived = false;
  std::vector<sstable::LiveTable> tables;
  bool operator==(const NamedIndex&) const = default;
};
inline constexpr size_t kIndexNameBytesMax = 64;
// The index that finds prefixes (engine/find).
inline constexpr std::string_view kHintsName = "hints";

// A table of level 0 of the index: up to where the older tables alone hold the tree, and where the
// log goes on from there. If the table is lost, so is nothing that the log still has from there on.
struct IndexStep {
  uint64_t table = 0;
  uint64_t index_sequence = 0;
  wal::LogPosition replay_from;
};

inline constexpr uint64_t kCountsNone = UINT64_MAX;

struct Manifest {
  uint64_t number = 0;  // The n of its name.
  StoreId store;
  uint64_t segment_bytes = 0;
  uint64_t log_start_segment = 1;
  uint64_t next_file_number = 1;  // For tables; from logged ranges.
  uint64_t next_id = 1;           // Lower bound for model, branch and node ids.
  uint64_t last_sequence = 0;     // The log held at least this when it was written.
  uint64_t created_at_ns = 0;
  // Tables of the index, and the sequence up to which they hold the tree. The log is replayed from
  // there on.
  std::vector<sstable::LiveTable> index;
  uint64_t index_sequence = 0;
  std::vector<NamedIndex> named;
  std::vector<IndexStep> steps;  // A reader that does not know them skips them.
  // The index lacks nothing that was logged before it.
  wal::LogPosition replay_from;
  // What is needed of segments from this number on is counted, so they may rest; kCountsNone: of no
  // segment.
  uint64_t counted_from = kCountsNone;
  std::vector<wal::RestingSegment> resting;  // Ascending, below the start of the log.
  // The log's when this was written. The index names only this epoch or earlier ones, so none of
  // them is used again, even if the log has lost every trace of them.
  uint64_t epoch = 0;
  HourlyWriteCounter written;  // A reader that does not know it skips it.
  History history;             // The same; without one, zeros.

  // The point of history of a reader that has seen this manifest and the log up to `sequence`.
  HistoryPoint At(uint64_t sequence) const { return {history.id, sequence, next_file_number}; }
};

std::vector<std::byte> EncodeManifest(const Manifest& manifest);
// kCorruption / kUnsupportedFormat naming `path`. `known`: names of the indexes that the reader
// uses. Others are skipped if they are derived, else kUnsupportedFormat naming them.
Result<Manifest> DecodeManifest(const std::string& path, std::span<const std::byte> bytes,
                                std::span<const std::string_view> known = {});

// The newest manifest of a directory, whose writer may replace it between listing and reading.
// kNotFound when there is none.
Result<Manifest> ReadManifest(io::FileSystem& files, const std::string& directory);
// Writes manifest.number, and removes the one before if it can.
Status WriteManifest(io::FileSystem& files, const std::string& directory, const Manifest& manifest);
// Removes manifests that a crash or an error left behind. The newest one's name is durable.
Status RemoveOldManifests(io::FileSystem& files, const std::string& directory, uint64_t newest);

struct StoreOptionsFile {
  wal::SyncMethod sync_method = wal::SyncMethod::kFdatasync;
  std::string probe;  // "fdatasync 41 us, dsync 39 us (p10, 4 KiB)"
  std::string volume;
};
Status WriteOptionsFile(io::FileSystem& files, const std::string& directory,
                        const StoreOptionsFile& options);
// Absent: the defaults. kCorruption when a line cannot be read.
Result<StoreOptionsFile> ReadOptionsFile(io::FileSystem& files, const std::string& directory);

// Measures which way of making one write durable is faster on this volume: p10 of interleaved arms.
Result<StoreOptionsFile> ProbeSync(io::World& world, const std::string& directory);

}  // namespace cairn::engine
