// SPDX-License-Identifier: Apache-2.0
//
// Writes snapshot tables of pages, for all who do: sealing, and large appends.
//
//   fragments   in order: token ids, KV, states      their layout: tree/fragment_layout.h
//   gathered    the rows of a layer, where they lie  PageRows
//   seen        each frame and what it is            FrameVisitor
//   packed      a batch side by side, while the one before is written
//   written     frame by frame, in order             sstable/snapshot_writer.h
//
// The bytes do not depend on who packs. One thread at a time; it packs itself what no helper has
// begun, so that it gets on when the executor has no thread to spare. A crash before Finish returns
// costs the table; the next opening removes its file.
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
#include "cairn/branch.h"
#include "engine/tree/fragment_layout.h"
#include "sstable/snapshot_writer.h"

namespace cairn::engine {

// Positions of a lane of a node. A state has one: the one that it stands at.
struct PageRange {
  uint64_t node = 0;
  uint32_t lane = 0;
  uint64_t begin = 0;
  uint32_t count = 0;
  bool exact = true;
};

// What a frame holds: of a lane of KV the rows of these positions for one head; token ids; or, of a
// state, its `layer`th piece.
struct FrameName {
  PageRange positions;
  uint32_t layer = 0, plane = 0, head = 0;
};

// Sees what goes into a table, for what is derived of it.
class FrameVisitor {
 public:
  virtual ~FrameVisitor() = default;
  // `raw`: [position][row], as it can be read back, until the call returns. Called by the threads
  // that pack: several at once, in no order, each frame once. Must not throw. The table may still
  // fail.
  virtual void OnFrame(const FrameName& name, std::span<const std::byte> raw) = 0;
};

// The KV of a fragment before it is packed.
class PageRows {
 public:
  virtual ~PageRows() = default;
  // Whether Plane needs room for one plane of a layer.
  virtual bool gathers() const = 0;
  // All rows of a plane of a layer, [head][position][row]: in `room`, or where they lie already.
  // They are quantised there if the plane is. Called by the threads that pack; must not throw.
  virtual std::span<std::byte> Plane(uint32_t layer, uint32_t plane,
                                     std::span<std::byte> room) const = 0;
};

class PageWriter {
 public:
  struct Means {
    sstable::TableContext tables;
    Allocator allocator = Allocator::Default();
    io::ParallelFor* parallel_for = nullptr;
    // Two batches take so much memory each, or what one layer (of rows that gather) or one head of
    // it takes.
    uint64_t batch_bytes = 0;
    size_t write_bytes = sstable::kSnapshotWriteBytes;
    bool hashes = false;  // Of frames before they are packed: what a proof goes by.
    FrameVisitor* visitor = nullptr;
    // Somebody else uses the device: the table is written in small steps. Null: it never is.
    std::function<bool()> quiet{};
    // On the thread that owns the writer, each time a batch is packed: what else it can do
    // meanwhile. What it says but Ok ends the work. May be null.
    std::function<Status()> beside{};
    // Before a frame of so many bytes is written. What it says but Ok ends the work.
    std::function<Status(uint64_t stored_bytes)> go_on;
  };

  // Takes a number for the table. Errors of all: kNoSpace, kIoError, kOutOfMemory, what the host
  // and go_on say. They stick, and the destructor of a writer that did not finish leaves no table.
  static Result<std::unique_ptr<PageWriter>> Create(Means means);
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;
  uint64_t number() const { return number_; }

  // Fragments ascend by (node, lane, begin). `layout` is that of the lane.
  Status AddTokens(const PageRange& range, const FragmentLayout& layout,
                   std::span<const TokenId> ids);
  Status AddState(const PageRange& range, std::span<const std::byte> state);
  // Rows and layout are needed until Pack or Finish.
  Status AddKv(const PageRange& range, const FragmentLayout& layout,
               std::shared_ptr<const PageRows> rows);
  // Packs what was added; some of it is still to be written.
  Status Pack();
  // The table survives every crash when this returns.
  Result<sstable::SnapshotInfo> Finish();

  // What was written so far: by fragment, and by frame (if wanted), in the order of the table.
  const std::vector<uint64_t>& stored_bytes() const { return stored_bytes_; }
  std::vector<uint64_t> TakeHashes() { return std::move(hashes_); }

  // Memory that a batch needs for one layer of `rows` positions.
  static uint64_t GatheredLayerBytes(const FragmentLayout& layout, uint32_t rows);

 private:
  struct Frame {
    std::span<const std::byte> stored;
    uint64_t raw_bytes = 0;
    uint64_t raw_hash = 0;
  };
  // Heads next to each other that one thread packs.
  struct Unit {
    PageRange range;
    const FragmentLayout* layout = nullptr;  // Until it is packed.
    std::shared_ptr<const PageRows> rows{};  // Likewise.
    uint32_t first_slice = 0, end_slice = 0;
    uint32_t page_rows = 0, slices = 0;          // Of the fragment.
    uint64_t raw_offset = 0, packed_offset = 0;  // In the batch's room.
    size_t first_frame = 0, frames = 0;          // In the batch's frames.
  };
  struct Batch {
    std::vector<Unit> units;
    std::vector<Frame> frames;
    AlignedBuffer room;
    uint64_t bytes = 0;  // Of the room that is needed.
    void Clear();
  };

  explicit PageWriter(Means means) : means_(std::move(means)) {}
  Status AddUnit(Unit unit);
  void PackUnit(const Unit& unit, Batch* batch) const;
  Status PackNext();
  Status WritePacked();
  Status WriteAll();
  void Begin(const PageRange& range, uint32_t page_rows, uint32_t slices);
  Status WriteFrame(const Frame& frame);

  const Means means_;
  uint64_t number_ = 0;
  std::unique_ptr<sstable::SnapshotWriter> writer_;
  Batch batches_[2];
  Batch* filling_ = &batches_[0];
  Batch* packed_ = &batches_[1];
  std::vector<uint64_t> stored_bytes_, hashes_;
};

}  // namespace cairn::engine
