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

// Limits of the format: above the larger offsets do not fit 32 bits. Below kMinSegmentBytes the
// ballast would take most of the log.
inline constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 31;
static_assert(cairn::kMaxSegmentBytes <= kMaxSegmentBytes);

// A segment that was closed may be shorter: a header, a group, the clean end.
inline constexpr uint64_t kMinClosedBytes = 3 * kBlock;

// Two being written, one closed behind them and one forming: enough that the device never idles,
// few enough that a slow device is felt as kBusy and not as memory.
inline constexpr size_t kMaxGroups = 4;
inline constexpr size_t kMaxGroupsInFlight = 2;
// Chunks of the hot tail that appends touch themselves if Prefault is not ahead: as many as groups
// may pin.
inline constexpr uint64_t kHotTailAtOnce = kMaxGroups;
// Bytes of a chunk that are touched ahead at a time: 1 ms at 500 MB/s, the rate of a virtual
// machine's host in the worst case.
inline constexpr size_t kPrefaultBytes = 512 << 10;
// After a step of idle work the pool's thread rests this many times as long as the step took. At
// full speed it took a core from the appending threads, whose longest waits were then 12 ms instead
// of 2.
inline constexpr uint64_t kIdlePauses = 3;

// A payload of this size or more gets a group of its own and may be written while it is gathered.
// Also the unit of such writes: smaller ones waste requests, larger ones leave nothing to overlap.
inline constexpr uint64_t kLargePayloadBytes = 512 << 10;
inline constexpr size_t kPieceBytes = 512 << 10;
static_assert(kPieceBytes % kBlock == 0);

// Pieces of one group that are in flight together. Four saturate the devices measured.
inline constexpr size_t kPieceDepth = 4;

// A group takes no more members beyond this: late ones would wait for all of it.
inline constexpr uint32_t kMaxGroupBytes = 4 << 20;

// Ballast: segments that data may not open. One is for releases, the last for work that gives space
// back. Dropping a branch must work on a full disk.
inline constexpr uint32_t kBallastSegments = 2;

// Releases that the ballast has room for, each in a group (and so a block) of its own.
inline constexpr uint32_t kBallastRecords = 64;

// Releases may use 1/kReleaseShareOfLast of the last segment. The rest has room for the largest
// record that gives space back: the engine names no more fragments in one than fit.
inline constexpr uint64_t kReleaseShareOfLast = 2;
inline constexpr uint64_t kReclaimRecordBytesMax = 120u << 10;
static_assert(kMinSegmentBytes - kMinSegmentBytes / kReleaseShareOfLast >= kReclaimRecordBytesMax);
static_assert(kMinSegmentBytes + kMinSegmentBytes / kReleaseShareOfLast >=
              (kBallastSegments + uint64_t{kBallastRecords}) * kBlock);  // And the headers.

// A footer repeats the headers of a segment's records. Beyond this share of the segment it would
// save no reading, and the segment gets none.
inline constexpr uint64_t kFooterShare = 16;

// How often a leader checks that it still holds the store's lock: the check costs a microsecond of
// some fifteen that the fastest group takes.
inline constexpr uint64_t kLockCheckNs = 10'000'000;

// Blocks of a new segment are allocated as it fills, so that a small store stays small. First this
// share of it, which has room for the purposes of the ballast. Then, whenever 1/kGrowth of the
// allocated part is used, that part grows by the factor kGrowth. Once a segment was filled, the
// next ones get all blocks.
inline constexpr uint64_t kFirstShare = 16;
inline constexpr uint64_t kGrowth = 4;
constexpr uint64_t FirstAllocatedBytes(uint64_t segment_bytes) {
  const uint64_t first = segment_bytes / kFirstShare / kBlock * kBlock;
  return first > kMinSegmentBytes ? first : kMinSegmentBytes;
}

// Zeros are written ahead of groups whose average size is at most this. The first write to a block
// that is only allocated commits the file system's journal: that costs a small group half of its
// time again, and a large one less than a second write would. Of groups of 128 KiB one in 32 meets
// a step of zeros, which made their p99 2.5 to 3.0 ms and their device bytes 2.6; without zeros it
// is 1.5 to 1.7 ms and 1.7, with the same p50 (cairn-bench load ingest --sizes 131072 --threads 1
// --kv model --arms raw cairn).
inline constexpr uint64_t kSmallGroupBytes = 96 << 10;

// Zeros are written in steps of this size, without a pause within a step, one step for the same
// number of log bytes. A group that meets a step waits a few milliseconds; groups until the next
// step wait for nothing.
inline constexpr uint64_t kPrewriteStepBytes = 4 << 20;
inline constexpr size_t kPrewriteDepth = 4;

// Only as many segments are written ahead as small groups have filled in this time.
inline constexpr uint64_t kUsageWindowNs = 120'000'000'000;
inline constexpr size_t kPrewrittenSegmentsMax = 16;

// On a disk that copies on write (SpaceCushion): the pieces of the cushion, each at most so large
// that eight have room for the largest record of a small segment. Eight are for groups, and bound
// what may be unwritten at a time; one is for what the file system itself needs meanwhile, one for
// releases. Files of their own, since a part of a file may give nothing back.
inline constexpr uint64_t kCushionPieceBytes = 1 << 20;
inline constexpr size_t kCushionPiecesForGroups = 8;
inline constexpr size_t kCushionPieces = kCushionPiecesForGroups + 2;
// As many are kept from releases, for work that gives space back.
inline constexpr size_t kCushionForReclaim = 1;
constexpr uint64_t CushionPieceBytes(uint64_t segment_bytes) {
  const uint64_t share = segment_bytes / kCushionPiecesForGroups / kBlock * kBlock;
  return share < kCushionPieceBytes ? share : kCushionPieceBytes;
}
// A cushion that the disk has no room for is tried again this often: on a full btrfs each attempt
// commits a transaction.
inline constexpr uint64_t kCushionRetryNs = 250'000'000;

// After a refused allocation the pool tries again at most this often.
inline constexpr uint64_t kSpaceRetryNs = 10'000'000;

// A group slower than this is reported to the observer.
inline constexpr uint64_t kStallNs = 1'000'000'000;

// If a group takes at least this long, its leader first lets callers that were just woken join:
// it waits at most 1/kMemberWaitShare of that time. On faster devices a sleep costs more than it
// gains.
inline constexpr uint64_t kMemberWaitMinGroupNs = 400'000;
inline constexpr uint64_t kMemberWaitShare = 8;
inline constexpr uint32_t kMemberWaitMaxBytes = 256 << 10;

// The unit of sequential reading in recovery.
inline constexpr size_t kReadBytes = 1 << 20;
static_assert(kReadBytes % kBlock == 0);

// How much of a segment whose header was never written recovery searches for groups.
inline constexpr uint32_t kUnwrittenLookBytes = 1 << 20;

// Open handles for reading: at most this many, and at most this share of the process's limit.
inline constexpr uint64_t kOpenSegmentFiles = 64, kOpenSegmentShare = 8;

}  // namespace cairn::wal
