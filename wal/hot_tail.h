// SPDX-License-Identifier: Apache-2.0
//
// Memory of the log. A chunk mirrors a contiguous stretch of one segment: groups are formed in it
// and written from it, and afterwards it stays as a cache of the newest part of the log. At the
// limit the oldest unpinned chunk gives its memory to the next one.
//
// Prefault touches memory for the first time, on another thread, one chunk after the other. A
// faster append does not wait for it: beyond the first kHotTailAtOnce chunks it takes over the
// oldest chunk instead, so the tail grows as its memory is touched. Afterwards as many chunks are
// touched as were missing, so that the next burst of this size finds room.
//
// Thread-safe; calls block only for the class's own short lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutex.h"
#include "wal/constants.h"
#include "wal/log.h"

namespace cairn::wal {

class HotTail {
 public:
  struct Chunk;

  HotTail(const Allocator& allocator, uint64_t limit_bytes, uint64_t chunk_bytes);

  // A chunk for at least `bytes` of `segment` from `offset` on (a multiple of 4 KiB); null when
  // memory is short: `*pinned` says whether readers and groups pin it (else the allocator failed).
  std::shared_ptr<Chunk> Add(uint64_t segment, uint32_t offset, uint64_t bytes, bool* pinned);

  Pinned Find(uint64_t segment, uint32_t offset, uint32_t bytes);

  // Touches a part of the next chunk's memory, so that page faults happen here and not in an
  // append. Returns whether there is more to do; cheap when there is nothing. One thread at a time.
  bool Prefault();

  // Frees all memory except pinned chunks, which go with their last pin. REQUIRES: nothing is added
  // or touched any more.
  void Clear();

  uint64_t bytes();

 private:
  // Outlives the HotTail while a reader pins a chunk: chunks return their memory to it.
  struct Memory {
    Memory(uint64_t bytes, uint64_t limit) : chunk_bytes(bytes) {
      CAIRN_CHECK(bytes > 0);
      CAIRN_CHECK(bytes % kBlock == 0);
      free.reserve(keep + limit / bytes);
    }
    const uint64_t chunk_bytes;
    // Buffers that eviction frees are taken again at once; more than this would be memory beyond
    // the limit, and goes back to the allocator.
    size_t keep CAIRN_GUARDED_BY(mutex) = 2;
    Mutex mutex;
    std::vector<AlignedBuffer> free CAIRN_GUARDED_BY(mutex);  // All of chunk_bytes.
  };

  uint64_t touched();  // Touched chunks that are not taken yet.
  bool WantsTouched();
  AlignedBuffer TakeBuffer(uint64_t bytes);
  // Drops the oldest unpinned chunks until `bytes` more are within `limit`.
  void MakeRoom(uint64_t bytes, uint64_t limit) CAIRN_REQUIRES(mutex_);

  const Allocator allocator_;
  const uint64_t limit_bytes_;
  const std::shared_ptr<Memory> memory_;
  AlignedBuffer touching_;  // The chunk that Prefault is touching...
  size_t touched_ = 0;      // ...and how far it got.

  Mutex mutex_;
  std::deque<std::shared_ptr<Chunk>> chunks_ CAIRN_GUARDED_BY(mutex_);  // Oldest first.
  uint64_t bytes_ CAIRN_GUARDED_BY(mutex_) = 0;                         // The bytes of chunks_.
  // How often the oldest chunk was taken for want of touched memory, and not made up for yet.
  uint64_t missed_ CAIRN_GUARDED_BY(mutex_) = 0;

 public:
  struct Chunk {
    Chunk(std::shared_ptr<Memory> owner, AlignedBuffer memory, uint64_t in_segment,
          uint32_t at_offset);
    ~Chunk();

    std::byte* At(uint32_t segment_offset) const {
      CAIRN_CHECK(segment_offset >= offset);
      CAIRN_CHECK(segment_offset <= end());
      return buffer.data() + (segment_offset - offset);
    }
    uint64_t end() const { return offset + buffer.size(); }

    const std::shared_ptr<Memory> home;
    AlignedBuffer buffer;
    const uint64_t segment;
    const uint32_t offset;
    std::atomic<uint32_t> used{0};  // Segment offset behind the last reserved record.
  };
};

}  // namespace cairn::wal
