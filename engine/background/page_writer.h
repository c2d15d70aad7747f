// SPDX-License-Identifier: Apache-2.0
//
// Writes snapshot tables of pages, for sealing.
//
//   fragments   in order: token ids, KV, states      their layout: tree/memory/fragment_layout.h
//   packed      a batch side by side, while the one before is written
//   written     frame by frame, in order             sstable/snapshot_writer.h
//
// The bytes do not depend on which thread packs. For one thread at a time; that thread packs itself
// what no helper has begun, so that it gets on when the executor has no thread to spare. A crash
// before Finish returns costs the table; the next opening removes its file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/codec/kv_frame.h"
#include "base/core/aligned_buffer.h"
#include "base/io/parallel_for.h"
#include "cairn/branch_types.h"
#include "engine/tree/memory/fragment_layout.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

// Positions of a lane of a node. A state has one: its own.
struct PageRange {
  uint64_t node = 0;
  uint32_t lane = 0;
  uint64_t begin = 0;
  uint32_t count = 0;
  bool exact = true;
};

// The KV of a fragment before it is packed.
class PageRows {
 public:
  virtual ~PageRows() = default;
  // All rows of a plane of a layer, [head][position][row]. They are quantised in place, if the
  // plane is. Called by the threads that pack; must not throw.
  virtual std::span<std::byte> Plane(uint32_t layer, uint32_t plane) const = 0;
};

class PageWriter {
 public:
  struct Deps {
    sstable::TableContext tables;
    Allocator allocator = Allocator::Default();
    io::ParallelFor* parallel_for = nullptr;
    // Memory of each of two batches; or that of one head, if that is more.
    uint64_t batch_bytes = 0;
    size_t write_bytes = sstable::kSnapshotWriteBytes;
    bool hashes = false;  // Hashes of frames before they are packed, for the read-back.
    // Others use the device: the table is written in small steps. Null: they never do.
    std::function<bool()> quiet{};
    // Called on the thread that owns the writer each time a batch is packed, for other work
    // meanwhile. An error ends the writing. May be null.
    std::function<Status()> beside{};
    // Called before a frame of this size is written. An error ends the writing.
    std::function<Status(uint64_t stored_bytes)> go_on;
  };

  // Takes a number for the table. Errors of all calls: kNoSpace, kIoError, kOutOfMemory, those of
  // the host and of go_on. They stick, and the destructor of a writer that did not finish leaves no
  // table.
  static Result<std::unique_ptr<PageWriter>> Create(Deps deps);
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;
  uint64_t number() const { return number_; }

  // Fragments ascend by (node, lane, begin). `layout` is that of the lane.
  Status AddTokens(const PageRange& range, const FragmentLayout& layout,
                   std::span<const TokenId> ids);
  Status AddState(const PageRange& range, std::span<const std::byte> state);
  // Rows and layout must live until Pack or Finish.
  Status AddKv(const PageRange& range, const FragmentLayout& layout,
               std::shared_ptr<const PageRows> rows);
  // Packs what was added; a part of it may not be written yet.
  Status Pack();
  // The table survives every crash when this returns.
  Result<sstable::SnapshotInfo> Finish();

  // Bytes written so far: by fragment, and by frame (if wanted), in the order of the table.
  const std::vector<uint64_t>& stored_bytes() const { return stored_bytes_; }
  std::vector<uint64_t> TakeHashes() { return std::move(hashes_); }

 private:
  struct Frame {
    std::span<const std::byte> stored;
    uint64_t raw_bytes = 0;
    uint64_t raw_hash = 0;
  };
  // One head, which one thread packs.
  struct Unit {
    PageRange range;
    const FragmentLayout* layout = nullptr;  // Until it is packed.
    std::shared_ptr<const PageRows> rows{};  // Likewise.
    uint32_t slice = 0;
    uint32_t page_rows = 0, slices = 0;  // The fragment's.
    uint64_t packed_offset = 0;          // In the batch's room.
    size_t first_frame = 0, frames = 0;  // In the batch's frames.
  };
  struct Batch {
    std::vector<Unit> units;
    std::vector<Frame> frames;
    AlignedBuffer room;
    uint64_t bytes = 0;  // How much room is needed.
    void Clear();
  };

  explicit PageWriter(Deps deps) : deps_(std::move(deps)) {}
  Status AddUnit(Unit unit);
  void PackUnit(const Unit& unit, Batch* batch) const;
  Status PackNext();
  Status WritePacked();
  Status WriteAll();
  void Begin(const PageRange& range, uint32_t page_rows, uint32_t slices);
  Status WriteFrame(const Frame& frame);

  const Deps deps_;
  uint64_t number_ = 0;
  std::unique_ptr<sstable::SnapshotWriter> writer_;
  Batch batches_[2];
  Batch* filling_ = &batches_[0];
  Batch* packed_ = &batches_[1];
  std::vector<uint64_t> stored_bytes_, hashes_;
};

}  // namespace cairn::engine
