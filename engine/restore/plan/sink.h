// SPDX-License-Identifier: Apache-2.0
//
// The target of a restore. The tiers (page_tier.h) hand records, frames and small fragments, as
// they find them, to the sink of the item that wants them, from several threads at once. A sink
// that copies at once (host_sink.h) is done when its method returns. One that only begins a copy
// keeps the bytes in place by a BufferHold, and drops it when the copy has ended: in a method of
// its own, or when Reclaim asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "cairn/status.h"
#include "engine/config/constants.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

// The owner of buffers that a sink may hold. Thread-safe.
class BufferLender : public std::enable_shared_from_this<BufferLender> {
 public:
  virtual ~BufferLender() = default;
  virtual void Keep(size_t buffer) = 0;
  virtual void Release(size_t buffer) = 0;
};

// While it lives, the memory of some ReadBytes does not change.
class BufferHold {
 public:
  BufferHold() = default;
  explicit BufferHold(std::shared_ptr<const void> owner) : owner_(std::move(owner)) {}
  BufferHold(std::shared_ptr<BufferLender> lender, size_t buffer)
      : lender_(std::move(lender)), buffer_(buffer) {
    lender_->Keep(buffer_);
  }
  BufferHold(BufferHold&& other) noexcept { *this = std::move(other); }
  BufferHold& operator=(BufferHold&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(lender_, other.lender_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferHold() {
    if (lender_ != nullptr) lender_->Release(buffer_);
  }

 private:
  std::shared_ptr<const void> owner_;
  std::shared_ptr<BufferLender> lender_;
  size_t buffer_ = 0;
};

// Memory of one thread that works on read frames, reused from one frame to the next: about 64 KiB,
// which stay in the processor's cache. Not from the options' allocator: a restore can go on without
// it.
class ScratchBuffers {
 public:
  // Until the next call. Empty when there is no memory.
  std::span<std::byte> Take(size_t bytes) {
    if (memory_.size() < bytes) {
      memory_ = AlignedBuffer();
      memory_ = AlignedBuffer::TryAllocate(Allocator::Default(), bytes, kPageAlignment);
    }
    return memory_.span().first(memory_.empty() ? 0 : bytes);
  }

 private:
  AlignedBuffer memory_;
};

// Bytes on their way to a sink. They are valid during the call, and as long as a hold on them
// lives.
class ReadBytes {
 public:
  // Null: they cannot be held.
  ReadBytes(std::span<const std::byte> bytes, const std::shared_ptr<const void>* owner)
      : bytes_(bytes), owner_(owner) {}
  ReadBytes(std::span<const std::byte> bytes, BufferLender* lender, size_t buffer,
            ScratchBuffers* room)
      : bytes_(bytes), lender_(lender), buffer_(buffer), room_(room) {}
  const std::span<const std::byte>& bytes() const { return bytes_; }
  // Whether the bytes lie in a read buffer that several calls share: WindowDone follows for it.
  bool of_window() const { return lender_ != nullptr; }
  size_t buffer() const { return buffer_; }
  // The calling thread's. Never null for frames and fragments.
  ScratchBuffers* room() const { return room_; }
  ReadBytes Part(size_t offset, size_t count) const {
    ReadBytes part = *this;
    part.bytes_ = bytes_.subspan(offset, count);
    return part;
  }
  BufferHold Keep() const {
    if (lender_ != nullptr) return {lender_->shared_from_this(), buffer_};
    CAIRN_CHECK(owner_ != nullptr);
    return BufferHold(*owner_);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::shared_ptr<const void>* owner_ = nullptr;
  BufferLender* lender_ = nullptr;
  size_t buffer_ = 0;
  ScratchBuffers* room_ = nullptr;
};

// KV bytes that a sink got; those of them from frames of tables; those from planes that are sealed
// with loss; and of all those that are approximate (Delta::exact).
struct Delivered {
  uint64_t bytes = 0, frame_bytes = 0, lossy_bytes = 0, approximate_bytes = 0;
};

// Takes frames from memory that is pinned for its device (pinned_cache.h), packed as they are
// stored; they were verified. Called by the thread that drives the restore.
class PinnedTaker {
 public:
  virtual ~PinnedTaker() = default;
  // `stored` has an owner. Returns the KV bytes that were wanted of it.
  virtual Result<uint64_t> Pinned(const FrameJob& job, const ReadBytes& stored) = 0;
  virtual Status PinnedDone() = 0;  // No more come.
};

// One for each item. Its methods are called concurrently, for different positions. They may throw
// std::bad_alloc.
class RestoreSink {
 public:
  virtual ~RestoreSink() = default;

  // `record` holds job.read_bytes of the record. `verify`: it came from a device, so every strip is
  // checked before any byte of it is used. kCorruption names segment and offset.
  virtual Status Record(const RecordJob& job, const ReadBytes& record, bool verify) = 0;
  // `stored`: the frame as it came from the device. kCorruption names the file.
  virtual Status Frame(const FrameJob& job, const ReadBytes& stored) = 0;
  // The whole fragment of a small OpenPiece whose entries were read. On failure `first_position` is
  // set to the first that cannot be delivered.
  virtual Status Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) = 0;
  // Delivers all that a job, whose outline is known, wants of its record out of the page cache;
  // returns the KV bytes. Nothing: it lacks something, and nothing was delivered.
  virtual std::optional<uint64_t> RecordFromCache(const RecordJob& /*job*/) { return std::nullopt; }
  // A verified and unpacked frame from a cache. Returns the KV bytes that were wanted of it.
  virtual uint64_t Unpacked(const FrameJob& job, const ReadBytes& raw) = 0;
  // No more bytes come from this buffer. On the thread that the last ones came from.
  virtual Status WindowDone(size_t buffer) = 0;
  // All of a layer was delivered. `layer` counts the layers of all groups of the view, in their
  // order.
  virtual void LayerDone(size_t layer) = 0;

  // Called by the thread that drives the restore while there are holds: drops those that are not
  // needed any more. If all are needed, waits for one, at most until `deadline_ns` (0: not at all).
  // True: some were dropped. A sink whose holds end without it has nothing to do here.
  virtual bool Reclaim(uint64_t deadline_ns) = 0;
  // Called last, however the restore went, with no hold left: ends everything that was begun.
  // Nothing touches the target after it returned.
  virtual Status Finish() = 0;
  virtual Delivered delivered() const = 0;
};

}  // namespace cairn::engine
