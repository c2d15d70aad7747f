// SPDX-License-Identifier: Apache-2.0
//
// Small records of the log, read together and ahead of those who seal them one by one: a hundred
// thousand conversations of a few tokens are then some reads of megabytes and not as many of 4 KiB.
// The bytes are as they came from the device; whoever takes them verifies them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "wal/record.h"

namespace cairn::engine {

class ReadAheadBuffer {
 public:
  struct Entry {
    wal::Location location;
    uint32_t bytes = 0;   // From the record's start.
    uint64_t offset = 0;  // In the buffer.
  };

  // Forgets what it held.
  void Clear();
  void Add(const wal::Location& location, uint32_t bytes) {
    entries_.push_back({location, bytes, 0});
  }
  // After the last Add: each record once, by location, with room; none when memory is short.
  // Nothing is found before Filled.
  std::span<const Entry> Arrange(const Allocator& allocator);
  std::span<std::byte> RoomOf(const Entry& entry) {
    return memory_.span().subspan(entry.offset, entry.bytes);
  }
  void Filled() { filled_ = true; }

  // The first `bytes` of the record; empty when it is not here.
  std::span<const std::byte> Find(const wal::Location& location, uint32_t bytes) const;

 private:
  std::vector<Entry> entries_;
  AlignedBuffer memory_;
  bool filled_ = false;
};

}  // namespace cairn::engine
