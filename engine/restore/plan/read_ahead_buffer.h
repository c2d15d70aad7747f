// SPDX-License-Identifier: Apache-2.0
//
// Small records of the log, read together ahead of the seal that takes them one by one: a hundred
// thousand conversations of a few tokens then take a few reads of megabytes instead of a hundred
// thousand of 4 KiB. The bytes are as they came from the device; the reader that takes them
// verifies them.
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

  // Forgets its content.
  void Clear();
  void Add(const wal::Location& location, uint32_t bytes) {
    entries_.push_back({location, bytes, 0});
  }
  // Call after the last Add: returns each record once, by location, with memory for it; none when
  // memory is short. Find returns nothing before Filled.
  std::span<const Entry> Arrange(const Allocator& allocator);
  std::span<std::byte> RoomOf(const Entry& entry) {
    return memory_.span().subspan(entry.offset, entry.bytes);
  }
  void Filled() { filled_ = true; }

  // The first `bytes` of the record; empty if it is not here.
  std::span<const std::byte> Find(const wal::Location& location, uint32_t bytes) const;

 private:
  std::vector<Entry> entries_;
  AlignedBuffer memory_;
  bool filled_ = false;
};

}  // namespace cairn::engine
