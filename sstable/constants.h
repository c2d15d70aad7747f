// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the tables, each with its reason. Those of the byte layout are in
// sstable/index_format.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/kv_frame.h"
#include "base/io/world.h"
#include "cairn/limits.h"

namespace cairn::sstable {

// Every block of a table begins on it and is padded to it: a block is read directly, without its
// neighbours, into the memory that the cache keeps.
inline constexpr uint32_t kTableAlignment = io::kBlockBytes;

// What a data block or a partition aims at. Around it a device's time for a random read stops being
// flat (16 KiB cost hardly more than 4), while a smaller block makes the index larger and the
// padding dearer: half a record is lost for each block, 0.2 % with records of 60 bytes.
inline constexpr size_t kIndexBlockBytes = 16 << 10;
static_assert(kIndexBlockBytes % kTableAlignment == 0);

// A key is written whole once in so many entries. A search decodes half as many on average; a
// smaller interval costs a whole key each time (2 % more bytes at 8 for keys of 30).
inline constexpr size_t kRestartInterval = 16;

// The footer block holds the smallest and the largest key. The longest keys of the engine, a
// namespace with an object's key, stay below half of this.
inline constexpr size_t kMaxKeyBytes = 1024;

// A model's description or a conversation's metadata, with room. Larger things are pages. A block
// of one such record is the largest block.
inline constexpr size_t kMaxValueBytes = 1 << 20;
inline constexpr size_t kMaxBlockBytes = kMaxValueBytes + 2 * kTableAlignment;
static_assert(kMaxKeyBytes + 64 <= kTableAlignment, "key, block header and lengths fit beside");

// Bits of a bloom filter for each key, and how many of them a key sets: bits * ln 2 = 6.9 is best
// and gives 0.8 % false positives. Ten million records cost 12 MB, on disk and, as far as they are
// in use, in the cache.
inline constexpr size_t kFilterBitsPerKey = 10;
inline constexpr uint32_t kFilterProbes = 7;
static_assert(kFilterProbes * 1000 / kFilterBitsPerKey >= 650 &&
                  kFilterProbes * 1000 / kFilterBitsPerKey <= 750,
              "close to ln 2");

// Blocks are gathered to this before they are written: large enough for the device's full
// bandwidth, small enough that a merge and a flush together cost little memory.
inline constexpr size_t kTableWriteBytes = 256 << 10;
static_assert(kTableWriteBytes % kTableAlignment == 0);

// A merge reads its inputs ahead by this much: 16 data blocks in one request.
inline constexpr size_t kReadAheadBytes = 256 << 10;
static_assert(kReadAheadBytes >= 4 * kIndexBlockBytes);

// A snapshot table that somebody waits for is written in this unit, one buffer being filled while
// the others are written. Writes that make a file longer wait for each other in the file system, so
// they must be larger than those of the log: tables of 64 MiB came to 1.4 GB/s with 512 KiB and
// to 2.0 to 2.5 with 2 MiB. Blocks allocated ahead did not help (0.6 to 1.1: each write then
// converts extents).
inline constexpr size_t kSnapshotWriteBytes = 2 << 20;
// And one of the background in this: two in flight keep a device busy that packing can hardly fill,
// and whoever waits for the device meanwhile waits behind 256 KiB at most.
inline constexpr size_t kQuietWriteBytes = 128 << 10;
inline constexpr size_t kSnapshotWriteBuffers = 3;
static_assert(kSnapshotWriteBytes % kTableAlignment == 0);
static_assert(kQuietWriteBytes % kTableAlignment == 0);

// A frame is read, checked and unpacked whole. The largest is one row that would not get smaller,
// with the header of its codec.
inline constexpr size_t kMaxStoredBytes = kMaxRowBytes + kFrameHeaderBytes;

// The end of a table that Open reads at once. It holds the root of all but the largest tables: one
// entry of some 30 bytes for about 700 KiB of data, so 32 KiB are enough for 700 MiB. Of a snapshot
// table it holds the list of up to 448 fragments.
inline constexpr size_t kOpenReadBytes = 32 << 10;
static_assert(kOpenReadBytes % kTableAlignment == 0 && kOpenReadBytes >= 2 * kTableAlignment);

// Who verifies the entries of all fragments reads fragments up to this as a whole, one after the
// other in large pieces: to go to the device for each costs more than the frames that come along.
inline constexpr uint64_t kEntriesWithFragmentBytes = 64 << 10;

// Blocks that a lookup of many keys has in flight at once: what fills a device, whose rate of
// 16 KiB reads hardly grows beyond. Large blocks are bounded by bytes, as much as so many usual
// ones.
inline constexpr size_t kLookupReads = 64;
inline constexpr uint64_t kLookupReadBytes = kLookupReads * kIndexBlockBytes;
// Queues that an index keeps for them, each a file handle. Who looks beside another makes one.
inline constexpr size_t kLookupQueuesKept = 1;

// So many locks of the block cache. Threads that restore are few; eight rarely meet.
inline constexpr size_t kCacheShards = 8;

// Kept for each cached block beside its bytes: list and map nodes, the control block.
inline constexpr size_t kCacheEntryBytes = 192;

// Level 0 holds flushed memtables, which overlap; each deeper one is sorted and ten times as large.
// Seven reach 128 MiB * 10^5, beyond any disk.
inline constexpr size_t kLevels = 7;
inline constexpr uint64_t kLevelGrowth = 10;

// A table with a tombstone among so many records, and at least kDenseTombstones of them, is merged
// downwards whatever its level's size: a scan over it reads mostly what is not there. Few
// tombstones are not worth a merge.
inline constexpr uint64_t kDenseShare = 4;
inline constexpr uint64_t kDenseTombstones = 128;

// A seek that skipped so many tombstones leaves a note of the gap; fewer cost less than the note.
inline constexpr size_t kGapTombstones = 32;
// Notes kept: some 100 bytes each. When they are more, all are thrown away and found anew.
inline constexpr size_t kMaxGaps = 4096;

// Towers of the memtable: with a quarter of the nodes on each next level, 12 serve 16 million.
inline constexpr int kMemtableHeight = 12;

}  // namespace cairn::sstable
