// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/read_ahead_buffer.h"

#include <algorithm>

#include "base/core/align.h"
#include "wal/constants.h"

namespace cairn::engine {

void ReadAheadBuffer::Clear() {
  entries_.clear();
  filled_ = false;
}

std::span<const ReadAheadBuffer::Entry> ReadAheadBuffer::Arrange(const Allocator& allocator) {
  // If a record is wanted twice, the longer request comes first and stays.
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.location != b.location ? a.location < b.location : a.bytes > b.bytes;
  });
  const auto same = [](const Entry& a, const Entry& b) { return a.location == b.location; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  uint64_t bytes = 0;
  for (Entry& entry : entries_) {
    entry.offset = bytes;
    bytes += AlignUp(entry.bytes, wal::kRecordAlignment);
  }
  if (memory_.size() < bytes) {
    memory_ = AlignedBuffer::TryAllocate(allocator, bytes, wal::kRecordAlignment);
    if (memory_.empty()) Clear();
  }
  return entries_;
}

std::span<const std::byte> ReadAheadBuffer::Find(const wal::Location& location,
                                                 uint32_t bytes) const {
  if (!filled_) return {};
  const auto found =
      std::partition_point(entries_.begin(), entries_.end(),
                           [&](const Entry& entry) { return entry.location < location; });
  if (found == entries_.end() || found->location != location || found->bytes < bytes) return {};
  return memory_.span().subspan(found->offset, bytes);
}

}  // namespace cairn::engine
