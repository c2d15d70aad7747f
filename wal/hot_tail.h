// SPDX-License-Identifier: Apache-2.0
//
// Memory of the log. A chunk mirrors a contiguous stretch of one segment: groups are formed in it,
// written from it, and afterwards it stays as a cache of the newest part of the log. When the limit
// is reached, the oldest chunk that nobody pins gives its memory to the next.
//
// Memory is touched for the first time by Prefault, on another thread, one chunk after the other.
// An append that is faster does not wait for that: beyond the first kHotTailAtOnce chunks it takes
// the oldest chunk instead, so that the tail grows as its memory is touched. As many chunks are
// touched behind it as were missing, so that the next burst of this size finds room.
//
// Thread-safe; no call blocks for anything but the class's own short lock.
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
  // memory is short: `*pinned` tells whether because of readers and groups (or the allocator).
  std::shared_ptr<Chunk> Add(uint64_t segment, uint32_t offset, uint64_t bytes, bool* pinned);

  Pinned Find(uint64_t segment, uint32_t offset, uint32_t bytes);

  // Touches a part of the memory of the next chunk, so that the page faults happen here and not
  // under an append. Whether there is more to do; cheap when there is nothing. One thread at a
  // time.
  bool Prefault();

  // Gives all memory back, but for what is pinned: that goes with the last pin. REQUIRES: nothing
  // is added or touched any more.
  void Clear();

  uint64_t bytes();

 private:
  // Outlives the HotTail when a reader still pins a chunk: chunks hand their memory back to it.
  struct Memory {
    Memory(uint64_t bytes, uint64_t limit) : chunk_bytes(bytes) {
      CAIRN_CHECK(bytes > 0);
      CAIRN_CHECK(bytes % kBlock == 0);
      free.reserve(keep + limit / bytes);
    }
    const uint64_t chunk_bytes;
    // What eviction frees is taken at once; more would be memory beyond the limit, and is given
    // back to the allocator.
    size_t keep CAIRN_GUARDED_BY(mutex) = 2;
    Mutex mutex;
    std::vector<AlignedBuffer> free CAIRN_GUARDED_BY(mutex);  // All of chunk_bytes.
  };

  uint64_t touched();  // Chunks that nobody has taken yet.
  bool WantsTouched();
  AlignedBuffer TakeBuffer(uint64_t bytes);
  // Drops the oldest chunks that nobody pins until `bytes` more are within `limit`.
  void MakeRoom(uint64_t bytes, uint64_t limit) CAIRN_REQUIRES(mutex_);

  const Allocator allocator_;
  const uint64_t limit_bytes_;
  const std::shared_ptr<Memory> memory_;
  AlignedBuffer touching_;  // Of Prefault...
  size_t touched_ = 0;      // ...and how far it got.

  Mutex mutex_;
  std::deque<std::shared_ptr<Chunk>> chunks_ CAIRN_GUARDED_BY(mutex_);  // Oldest first.
  uint64_t bytes_ CAIRN_GUARDED_BY(mutex_) = 0;                         // Of chunks_.
  // For want of touched memory the oldest was taken so often, and not yet made up for.
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
    std::atomic<uint32_t> used{0};  // Segment offset behind the last record that was reserved.
  };
};

}  // namespace cairn::wal
