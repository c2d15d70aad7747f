// SPDX-License-Identifier: Apache-2.0
//
// Writes one snapshot table from the content of deltas. Positions are read and packed a stretch at
// a time, so memory is bounded however long a conversation is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/io/parallel_for.h"
#include "engine/restore/tables.h"
#include "engine/tree/memory/seal_source.h"
#include "engine/tree/memory/tree.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

// Where the positions of a source come from. Everything is verified before it is handed out. Called
// by one thread.
class SealReader {
 public:
  virtual ~SealReader() = default;
  virtual Status ReadTokens(const SealSource& source, std::span<TokenId> into) = 0;
  // Reads the positions that `into` has, which begin and end with extents of the source.
  virtual Status ReadKv(const SealSource& source, const GroupView& into) = 0;
  virtual Result<std::vector<std::byte>> ReadState(const SealSource& source) = 0;
  // This much of the table is about to be written. Waits if that is too fast; an error ends the
  // work.
  virtual Status Take(uint64_t written_bytes) = 0;
  // Others use the device: ask little of it at a time.
  virtual bool Quiet() const = 0;
};

// A durable table that is not known to be readable yet. It is removed, with its file and its space,
// unless it is kept.
class WrittenTable {
 public:
  WrittenTable() = default;
  // `hashes`: of the frames before they were packed, in the order of the table; the read-back
  // compares them.
  WrittenTable(TableSet* tables, sstable::SnapshotInfo info, std::vector<uint64_t> hashes)
      : tables_(tables), info_(std::move(info)), hashes_(std::move(hashes)) {}
  WrittenTable(WrittenTable&& other) noexcept { *this = std::move(other); }
  WrittenTable& operator=(WrittenTable&& other) noexcept;
  ~WrittenTable() { Remove(); }

  const sstable::SnapshotInfo& info() const { return info_; }
  std::span<const uint64_t> hashes() const { return hashes_; }
  void Keep() { tables_ = nullptr; }

 private:
  void Remove();

  TableSet* tables_ = nullptr;  // Null: there is none, or it is kept.
  sstable::SnapshotInfo info_;
  std::vector<uint64_t> hashes_;
};

// Memory for staged KV, kept from one table to the next, so that its pages are faulted in only
// once.
struct StageMemory {
  AlignedBuffer staged, ahead;
};

// All of `sources`, ascending by (node, lane, begin); each becomes one fragment, and its
// stored_bytes are set. `parallel_for` packs; the bytes do not depend on it. The table is durable
// when this returns. Any error leaves no table. The next source is read while one is packed, if
// `stage_bytes` are enough for both; otherwise one is staged, whatever it takes. `stages` grow as
// needed.
Result<WrittenTable> WriteSealTable(TableSet* tables, const Allocator& allocator,
                                    std::span<SealSource> sources, SealReader* reader,
                                    io::ParallelFor* parallel_for, uint64_t stage_bytes,
                                    StageMemory* stages);

}  // namespace cairn::engine
