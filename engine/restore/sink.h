// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of a restore go. The tiers (page_tier.h) hand records, frames and small fragments
// to the sink of the item that wants them, as they find them, from several threads at once. A sink
// that copies at once (host_sink.h) is done when its method returns. One that only begins a copy
// keeps the bytes where they are meanwhile, by a BufferHold, and gives it back when the copy has
// ended: in a method of its own, or asked for it by TakeBack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "cairn/status.h"
#include "engine/constants.h"
#include "engine/restore/plan.h"

namespace cairn::engine {

// Who reads into buffers that a sink may keep. Thread-safe.
class BufferLender : public std::enable_shared_from_this<BufferLender> {
 public:
  virtual ~BufferLender() = default;
  virtual void Keep(size_t buffer) = 0;
  virtual void Release(size_t buffer) = 0;
};

// While it lives, the memory of some ReadBytes stays as it is.
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

// Memory of one thread that works on what was read, from one frame to the next: some 64 KiB, which
// stay in the processor's cache. Not the allocator's of the options: a restore goes on without it.
class WorkRoom {
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

// Bytes on their way to a sink. They are there for the length of the call, and as long as a hold on
// them lives.
class ReadBytes {
 public:
  // Null: they can not be kept.
  ReadBytes(std::span<const std::byte> bytes, const std::shared_ptr<const void>* owner)
      : bytes_(bytes), owner_(owner) {}
  ReadBytes(std::span<const std::byte> bytes, BufferLender* lender, size_t buffer, WorkRoom* room)
      : bytes_(bytes), lender_(lender), buffer_(buffer), room_(room) {}
  const std::span<const std::byte>& bytes() const { return bytes_; }
  // Whether the bytes lie in a buffer that was read into, which several calls share: WindowDone
  // follows for it.
  bool of_window() const { return lender_ != nullptr; }
  size_t buffer() const { return buffer_; }
  // Of the thread that calls. Of frames and fragments never null.
  WorkRoom* room() const { return room_; }
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
  WorkRoom* room_ = nullptr;
};

// KV bytes that a sink was given; of these out of frames of tables; of those of planes that are not
// sealed without loss; of all, what is approximate (Delta::exact).
struct Delivered {
  uint64_t bytes = 0, frame_bytes = 0, lossy_bytes = 0, approximate_bytes = 0;
};

// Takes frames out of memory that is pinned for the device to which they go (pinned_cache.h), as
// they are stored; they were verified. By the thread that drives the restore.
class PinnedTaker {
 public:
  virtual ~PinnedTaker() = default;
  // `stored` has an owner. The KV bytes that it was wanted for.
  virtual Result<uint64_t> Pinned(const FrameJob& job, const ReadBytes& stored) = 0;
  virtual Status PinnedDone() = 0;  // No more come.
};

// Of one item. What its methods are given holds different positions, so they run side by side. They
// may throw std::bad_alloc.
class RestoreSink {
 public:
  virtual ~RestoreSink() = default;

  // `record` holds job.read_bytes of the record. `verify`: it came from a device, so every strip is
  // checked before a byte of it goes anywhere. kCorruption names segment and offset.
  virtual Status Record(const RecordJob& job, const ReadBytes& record, bool verify) = 0;
  // `stored`: the frame as it came from the device. kCorruption names the file.
  virtual Status Frame(const FrameJob& job, const ReadBytes& stored) = 0;
  // Of a small OpenPiece, whose entries were read: the whole fragment. On failure `first_position`
  // is set to the first that cannot be had.
  virtual Status Fragment(size_t piece, const ReadBytes& stored, uint64_t* first_position) = 0;
  // A frame that is verified and unpacked, out of a cache. The KV bytes that it was wanted for.
  virtual uint64_t Unpacked(const FrameJob& job, const ReadBytes& raw) = 0;
  // Nothing more comes out of this buffer, by the thread that the last of it came from.
  virtual Status WindowDone(size_t buffer) = 0;
  // All of a layer was given. `layer` counts the layers of all groups of the view, in their order.
  virtual void LayerDone(size_t layer) = 0;

  // Asked by the thread that drives the restore while holds are out: lets go of those that are not
  // needed any more. If it has some, waits for one, at most until `deadline_ns` (0: not at all).
  // True: some went. A sink whose holds go by themselves has nothing to do here.
  virtual bool TakeBack(uint64_t deadline_ns) = 0;
  // After the last of the above, however the restore went, and with no hold left: what was begun is
  // ended. Nothing of the target is touched any more once it returned.
  virtual Status Finish() = 0;
  virtual Delivered delivered() const = 0;
};

}  // namespace cairn::engine
