// SPDX-License-Identifier: Apache-2.0
//
// Copies a prefix of a store into a directory of its own (Store::Checkpoint).
//
//   target/LOCK          held while the copy is made, so that nobody opens or copies into it
//   target/tables/*      further names of the same files; copies where the volume is another one
//   target/log/*         segments that rest: as tables; the others: copied up to one group's end
//                        (wal/log_copy.h)
//   target/OPTIONS
//   target/MANIFEST-1    last: everything above is durable before, names included
//
// A directory without a MANIFEST is no store, and one that has tables or log records is refused by
// name (store_directory.h). So the remains of a crash are never taken for a store, nor for an empty
// place to make one in.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/io/world.h"
#include "cairn/store_types.h"
#include "engine/manifest/manifest.h"

namespace cairn::engine {

// The content of a copy. The maker of the plan makes sure that none of these files is deleted
// before the copy is made.
struct CopyPlan {
  std::string source;  // Directory of the store.
  Manifest manifest;   // As it will be written, except number and last_sequence.
  StoreOptionsFile options;
  std::vector<uint64_t> snapshots;  // Tables beside those of manifest.index...
  std::vector<uint64_t> derived;    // ...and derived tables, which may be lost.
  uint64_t last_sequence = 0;       // Durable, and the last one of a group.
  Allocator allocator = Allocator::Default();
  std::function<void(uint64_t done, uint64_t total)> progress;  // Bytes to be copied. May be empty.
  std::function<Status()> go_on;  // Asked between pieces; not Ok ends the work.
};

// The copy is durable when this returns. After an error the copy is removed again. If that fails,
// too, the message says so, and the remains are either no store or a complete one.
Result<CheckpointInfo> WriteCheckpointDirectory(io::World& world, const CopyPlan& plan,
                                                const std::string& target);

}  // namespace cairn::engine
