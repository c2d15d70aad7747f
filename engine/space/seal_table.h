// SPDX-License-Identifier: Apache-2.0
//
// Writes one snapshot table out of what deltas hold, and proves it by reading it back. Positions
// are read and packed a stretch at a time, so memory is bounded however long a conversation is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/io/parallel_for.h"
#include "engine/restore/tables.h"
#include "engine/tree/seal_source.h"
#include "engine/tree/tree.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

// Where the positions of a source come from. Everything is verified before it is handed out. Called
// by one thread.
class SealReader {
 public:
  virtual ~SealReader() = default;
  virtual Status ReadTokens(const SealSource& source, std::span<TokenId> into) = 0;
  // The positions that `into` has, which begin and end with extents of the source.
  virtual Status ReadKv(const SealSource& source, const GroupView& into) = 0;
  virtual Result<std::vector<std::byte>> ReadState(const SealSource& source) = 0;
  // So much of the table was written, or read back, or is about to be. Waits where that is too
  // fast; not Ok ends the work.
  virtual Status Take(uint64_t read_bytes, uint64_t written_bytes) = 0;
  // Somebody else uses the device: little is asked of it at a time.
  virtual bool Quiet() const = 0;
};

// The whole of `sources`, ascending by (node, lane, begin), becomes one fragment each; their
// stored_bytes are set. `parallel_for` packs and proves; the bytes do not depend on it. The table
// is durable, and every frame was read back and compared with what was packed, when this returns.
// Any error leaves no table. While a source is packed the next is read, where `stage_bytes` are
// enough for both; without that, one is staged whatever it takes.
Result<sstable::SnapshotInfo> WriteSealTable(TableSet* tables, const Allocator& allocator,
                                             std::span<SealSource> sources, SealReader* reader,
                                             io::ParallelFor* parallel_for, uint64_t stage_bytes);

}  // namespace cairn::engine
