// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the log, each with its reason. Those of the byte layout are in wal/format.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/io/world.h"
#include "cairn/limits.h"

namespace cairn::wal {

// Groups start on it and are padded to it: no acknowledged byte shares a block with a later write.
inline constexpr uint32_t kBlock = io::kBlockBytes;

// Records, strips and tensors start on a cache line.
inline constexpr uint32_t kRecordAlignment = 64;

// Of the format: above it offsets leave 32 bits behind. Below kMinSegmentBytes the ballast would
// take most of the log.
inline constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 31;
static_assert(cairn::kMaxSegmentBytes <= kMaxSegmentBytes);

// A segment that was closed may be shorter: a header, a group, the clean end.
inline constexpr uint64_t kMinClosedBytes = 3 * kBlock;

// Two being written, one closed behind them and one forming: enough that the device never idles,
// few enough that a slow device is felt as kBusy and not as memory.
inline constexpr size_t kMaxGroups = 4;
inline constexpr size_t kMaxGroupsInFlight = 2;
// Chunks of the hot tail that appends touch themselves where nobody was ahead: as many as groups
// may pin.
inline constexpr uint64_t kHotTailAtOnce = kMaxGroups;
// Of a chunk that is touched ahead, at a time: 1 ms at 500 MB/s, as fast as the host of a virtual
// machine may be.
inline constexpr size_t kPrefaultBytes = 512 << 10;
// The pool's thread rests so many times as long as a step of idle work took: at full speed it took
// a core from the threads that append, whose longest waits were 12 ms then instead of 2.
inline constexpr uint64_t kIdlePauses = 3;

// Payloads from here on get a group of their own and may be written while they are gathered. Also
// the unit of such writes: smaller ones waste requests, larger ones leave nothing to overlap.
inline constexpr uint64_t kLargePayloadBytes = 512 << 10;
inline constexpr size_t kPieceBytes = 512 << 10;
static_assert(kPieceBytes % kBlock == 0);

// Pieces of one group that are in flight together. Four saturate the devices measured.
inline constexpr size_t kPieceDepth = 4;

// A group takes no more members beyond this: what joins late would wait for all of it.
inline constexpr uint32_t kMaxGroupBytes = 4 << 20;

// The ballast, segments that no data may open: one for releases, and the last, for what gives space
// back. Dropping a branch must work on a full disk.
inline constexpr uint32_t kBallastSegments = 2;

// Releases that the ballast has room for, each in a group (and so a block) of its own.
inline constexpr uint32_t kBallastRecords = 64;

// Of the last one, 1/kReleaseShareOfLast may be used by releases. The rest has room for the largest
// record that gives space back: the engine names no more fragments in one than fit.
inline constexpr uint64_t kReleaseShareOfLast = 2;
inline constexpr uint64_t kReclaimRecordBytesMax = 120u << 10;
static_assert(kMinSegmentBytes - kMinSegmentBytes / kReleaseShareOfLast >= kReclaimRecordBytesMax);
static_assert(kMinSegmentBytes + kMinSegmentBytes / kReleaseShareOfLast >=
              (kBallastSegments + uint64_t{kBallastRecords}) * kBlock);  // And the headers.

// A footer repeats the headers of a segment's records. Beyond this share of the segment it would
// save no reading, and the segment gets none.
inline constexpr uint64_t kFooterShare = 16;

// So often a leader asks whether the store's lock is its own: it costs a microsecond, of some
// fifteen that the fastest group takes.
inline constexpr uint64_t kLockCheckNs = 10'000'000;

// Blocks of a new segment are allocated as it fills, so that a small store stays small: this share
// of it at first, which has room for what the ballast is for, and then so many times what there is,
// each time that one part of as many is used. Once a segment was filled, the next ones get all.
inline constexpr uint64_t kFirstShare = 16;
inline constexpr uint64_t kGrowth = 4;
constexpr uint64_t FirstAllocatedBytes(uint64_t segment_bytes) {
  const uint64_t first = segment_bytes / kFirstShare / kBlock * kBlock;
  return first > kMinSegmentBytes ? first : kMinSegmentBytes;
}

// Zeros are written ahead of groups that are this large on average, or smaller. A first write to a
// block that is only allocated is a commit of the file system's journal, which costs a small group
// half of its time again, and a large one less than a second write would.
inline constexpr uint64_t kSmallGroupBytes = 160 << 10;

// That is done in steps of this size, one for as many bytes of the log, and each at once: a group
// that meets it waits some milliseconds, and those until the next step meet nothing.
inline constexpr uint64_t kPrewriteStepBytes = 4 << 20;
inline constexpr size_t kPrewriteDepth = 4;

// Segments are written ahead as far as small groups have filled some in this time, and no more.
inline constexpr uint64_t kUsageWindowNs = 120'000'000'000;
inline constexpr size_t kPrewrittenSegmentsMax = 16;

// After a refused allocation the pool tries again at most this often.
inline constexpr uint64_t kSpaceRetryNs = 10'000'000;

// A group slower than this is reported to the observer.
inline constexpr uint64_t kStallNs = 1'000'000'000;

// Where a group takes at least this long, its leader first lets the callers that were just woken
// join: it waits for at most 1/kGatherShare of that time. On faster devices a sleep costs more than
// it gains.
inline constexpr uint64_t kGatherMinGroupNs = 400'000;
inline constexpr uint64_t kGatherShare = 8;
inline constexpr uint32_t kGatherMaxBytes = 256 << 10;

// The unit of sequential reading in recovery.
inline constexpr size_t kReadBytes = 1 << 20;
static_assert(kReadBytes % kBlock == 0);

// How far recovery looks for groups into a segment whose header was never written.
inline constexpr uint32_t kUnwrittenLookBytes = 1 << 20;

// Handles for reading that stay open: so many, and no larger a share of what the process may have.
inline constexpr uint64_t kOpenSegmentFiles = 64, kOpenSegmentShare = 8;

}  // namespace cairn::wal
