// SPDX-License-Identifier: Apache-2.0
//
// Copies a prefix of a log into a log of its own while the log goes on.
//
// Acknowledged bytes are never rewritten, so a prefix that ends with a group is the same at any
// time. Nothing behind that group is copied: bytes that are being written would be half there, and
// later ones that are whole would prove to recovery that they had been synced. The last segment of
// a copy ends there with a clean end, like one that was closed. A segment that is not full is
// copied without its unwritten rest, so its file never becomes a spare.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/io/world.h"
#include "wal/log.h"

namespace cairn::wal {

struct LogCopy {
  std::string from, to;  // Log directories; `to` is empty.
  StoreId store;
  // From Recover, with a stop_after that is the last sequence of a group. They are not recycled
  // until the copy is made.
  std::span<const SegmentInfo> segments;
  uint64_t segment_bytes = 0;  // For the unwritten segment 1 of a copy without segments.
  Allocator allocator = Allocator::Default();
  // Called with the bytes of each piece; an error ends the copy.
  std::function<Status(uint64_t)> copied;
};

// Bytes that CopyLog will read and write, to within a footer a segment.
uint64_t BytesOf(const LogCopy& copy);

// Files and their names are durable when it returns. A copy without segments has an unwritten
// segment 1. After an error some files exist. kIoError, kNoSpace, kOutOfMemory.
Status CopyLog(io::World& world, const LogCopy& copy);

}  // namespace cairn::wal
