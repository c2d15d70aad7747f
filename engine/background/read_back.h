// SPDX-License-Identifier: Apache-2.0
//
// Reads a new table back. Log segments are freed because it exists, so it must decode to its input.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/io/parallel_for.h"
#include "engine/restore/tables.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn::engine {

struct ReadBackDeps {
  TableSet* tables = nullptr;
  Allocator allocator = Allocator::Default();
  io::ParallelFor* parallel_for = nullptr;
  // This much is about to be read back. Waits if that is too fast; an error ends the work.
  std::function<Status(uint64_t read_bytes)> take{};
  // Others use the device: ask little of it at a time.
  std::function<bool()> quiet{};
};

// `hashes` are those of all frames before they were packed, in the order of the table, whose
// fragments are `sources`. Windows are read on this thread while the frames of the one before are
// checked and decoded by helpers. kCorruption naming table and offset where anything differs.
Status VerifyReadBack(const ReadBackDeps& deps, uint64_t number,
                      std::span<const SealSource> sources, std::span<const uint64_t> hashes);

}  // namespace cairn::engine
