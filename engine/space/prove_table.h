// SPDX-License-Identifier: Apache-2.0
//
// Reads a new table back. The log's space is freed on its word, so it must decode to what went in.
#pragma once

#include <cstdint>
#include <span>

#include "base/io/parallel_for.h"
#include "engine/restore/tables.h"
#include "engine/tree/seal_source.h"
#include "engine/tree/tree.h"

namespace cairn::engine {

class SealReader;

// `hashes` are those of all frames before they were packed, in the order of the table, whose
// fragments are `sources`. Windows are read on this thread while the frames of the one before are
// checked and decoded beside it. kCorruption naming table and offset where anything differs.
Status ProveTable(TableSet* tables, uint64_t number, std::span<const SealSource> sources,
                  std::span<const uint64_t> hashes, const Allocator& allocator, SealReader* reader,
                  io::ParallelFor* parallel_for);

}  // namespace cairn::engine
