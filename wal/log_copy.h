// SPDX-License-Identifier: Apache-2.0
//
// A prefix of a log as a log of its own, made while the log goes on.
//
// What was acknowledged is never rewritten, so the bytes of a prefix that ends with a group are the
// same at any time. Nothing behind that group is copied: bytes that are being written would be
// found half there, and later ones that are whole would prove to recovery that they had been
// synced. So the last segment of a copy ends without footer and without clean end, as one that a
// crash ended early.
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
  // As Recover gave them with a stop_after that is the last sequence of a group. They stay where
  // they are until the copy is made.
  std::span<const SegmentInfo> segments;
  uint64_t segment_bytes = 0;  // Of the unwritten segment 1 that a copy without segments is.
  Allocator allocator = Allocator::Default();
  // Told the bytes of each piece; not Ok ends the copy.
  std::function<Status(uint64_t)> copied;
};

// What CopyLog will read and write, to within a footer a segment.
uint64_t BytesOf(const LogCopy& copy);

// Files and their names are durable when it returns. What the segments have no data for has blocks
// and reads as zeros. After an error some files are there. kIoError, kNoSpace, kOutOfMemory.
Status CopyLog(io::World& world, const LogCopy& copy);

}  // namespace cairn::wal
