// SPDX-License-Identifier: Apache-2.0
//
// What calls of a store (cairn/store.h) take and return. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cairn/branch_types.h"
#include "cairn/model.h"

namespace [[gnu::visibility("default")]] cairn {

// A registered model, with its spec as it is known by now.
struct ModelInfo {
  ModelId id{};
  ModelSpec spec;
};

// A page of ListBranches. A copy: it does not change with the branches.
struct BranchPage {
  std::vector<BranchInfo> branches;
  std::string cursor;  // Pass it on for the next page; empty: no more. Opaque.
};

// How much Store::Verify reads.
enum class VerifyLevel : uint8_t {
  kHeaders,  // What opening reads: MANIFEST, OPTIONS, headers of the log, footers of tables.
  // Also every block of the index, the directories of the tables, and whether all these fit each
  // other: parents exist, lanes have no gaps, what is sealed exists.
  kIndex,
  // Also every payload of the log and every frame of the tables, checksum and decoding.
  kAll,
};

// The result of Store::Verify: how much it read, and the damage that it found.
struct VerifyReport {
  uint64_t records = 0, strips = 0;       // Read from the log.
  uint64_t index_tables = 0, tables = 0;  // Index tables; snapshot tables.
  uint64_t frames = 0;                    // Read from snapshot tables.
  uint64_t bytes = 0;                     // Bytes of strips and frames.
  // One damaged place. Branches that do not need it are not affected.
  struct Damage {
    // A path below the store's directory, as "log/0000000000000011.log: offset 4096" or
    // "tables/0000000000000012.snapshot"; or "log", "tree", MANIFEST, OPTIONS.
    std::string where;
    std::string what;       // A Status as text; its paths are below the store's directory, too.
    uint64_t sequence = 0;  // Number of the damaged record; 0: it is none, or not known.
  };
  std::vector<Damage> damages;
};

// The result of Store::Refresh.
struct RefreshResult {
  bool changed = false;   // Something is shown that was not before.
  uint64_t sequence = 0;  // Every change up to here is shown, none behind.
};

// The result of Store::Checkpoint.
struct CheckpointInfo {
  // The prefix of the order of changes that it holds: every change up to here, none behind. It is
  // the last_sequence of the copy's Metrics().
  uint64_t sequence = 0;
  // Tables, and segments of the log that rest. Shared with the store...
  uint64_t linked_tables = 0, linked_bytes = 0;
  uint64_t copied_tables = 0;  // ...or copied, where the target is on another volume.
  uint64_t copied_bytes = 0;   // The log and these tables.
};
// Bytes copied, of those to copy. Called on a thread of the store, which it must neither call nor
// throw into.
using CheckpointProgress = std::function<void(uint64_t done, uint64_t total)>;

// How far Verify is: bytes done, of the bytes that the store's files had at the beginning. Called
// on the thread that verifies; must not throw.
using VerifyProgress = std::function<void(uint64_t done, uint64_t total)>;

// The version of the store's directory as a whole. Each file has a version of its own besides.
inline constexpr uint32_t kFormatVersion = 1;

}  // namespace cairn
