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

// Target size of a data block or partition. From about here on a device's time for a random read
// grows with its size (16 KiB cost hardly more than 4). Smaller blocks make the index larger and
// waste more on padding: half a record per block, 0.2 % with records of 60 bytes.
inline constexpr size_t kIndexBlockBytes = 16 << 10;
static_assert(kIndexBlockBytes % kTableAlignment == 0);

// One entry in this many has its key written in full. A search decodes half as many on average; a
// smaller interval costs a full key each time (2 % more bytes at 8 for keys of 30).
inline constexpr size_t kRestartInterval = 16;

// The footer block holds the smallest and the largest key. The longest keys of the engine, a
// namespace with an object's key, stay below half of this.
inline constexpr size_t kMaxKeyBytes = 1024;

// Room for a model's description or a conversation's metadata. Larger things are pages. A block
// with one such record is the largest block.
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

// Blocks are collected up to this size before they are written: large enough for the device's full
// bandwidth, small enough that a merge and a flush together cost little memory.
inline constexpr size_t kTableWriteBytes = 256 << 10;
static_assert(kTableWriteBytes % kTableAlignment == 0);

// A merge reads its inputs ahead by this much: 16 data blocks in one request.
inline constexpr size_t kReadAheadBytes = 256 << 10;
static_assert(kReadAheadBytes >= 4 * kIndexBlockBytes);

// A snapshot table that a caller waits for is written in this unit, one buffer being filled while
// the others are written. Writes that extend a file wait for each other in the file system, so they
// must be larger than those of the log: tables of 64 MiB came to 1.4 GB/s with 512 KiB and to 2.0
// to 2.5 with 2 MiB. Allocating blocks ahead did not help (0.6 to 1.1: each write then converts
// extents).
inline constexpr size_t kSnapshotWriteBytes = 2 << 20;
// The unit for tables of the background: two in flight keep the device as busy as packing can, and
// other users of the device wait behind 256 KiB at most.
inline constexpr size_t kQuietWriteBytes = 128 << 10;
inline constexpr size_t kSnapshotWriteBuffers = 3;
static_assert(kSnapshotWriteBytes % kTableAlignment == 0);
static_assert(kQuietWriteBytes % kTableAlignment == 0);

// A frame is read, checked and unpacked whole. The largest has one incompressible row and the
// header of its codec.
inline constexpr size_t kMaxStoredBytes = kMaxRowBytes + kFrameHeaderBytes;

// How much of a table's end Open reads at once. It holds the root of all but the largest tables:
// one entry of about 30 bytes per 700 KiB of data, so 32 KiB are enough for 700 MiB. For a snapshot
// table it holds the list of up to 448 fragments.
inline constexpr size_t kOpenReadBytes = 32 << 10;
static_assert(kOpenReadBytes % kTableAlignment == 0 && kOpenReadBytes >= 2 * kTableAlignment);

// Verifying the entries of all fragments reads fragments up to this size as a whole, one after the
// other in large pieces: a separate read for the entries would cost more than reading the frames
// along.
inline constexpr uint64_t kEntriesWithFragmentBytes = 64 << 10;

// Blocks that a lookup of many keys has in flight at once. That saturates a device: its rate of
// 16 KiB reads hardly grows beyond. Large blocks are bounded by the bytes of this many usual
// ones.
inline constexpr size_t kLookupReads = 64;
inline constexpr uint64_t kLookupReadBytes = kLookupReads * kIndexBlockBytes;
// Queues that an index keeps for lookups, each a file handle. Concurrent lookups make their own.
inline constexpr size_t kLookupQueuesKept = 1;

// Locks of the block cache. Few threads restore at once; eight shards rarely collide.
inline constexpr size_t kCacheShards = 8;

// Memory for each cached block beside its bytes: list and map nodes, the control block.
inline constexpr size_t kCacheEntryBytes = 192;

// Level 0 holds flushed memtables, which overlap; each deeper one is sorted and ten times as large.
// Seven reach 128 MiB * 10^5, beyond any disk.
inline constexpr size_t kLevels = 7;
inline constexpr uint64_t kLevelGrowth = 10;

// A table is merged downwards whatever its level's size if one record in this many is a tombstone,
// and at least kDenseTombstones are: a scan over it reads mostly deleted records. Few tombstones
// are not worth a merge.
inline constexpr uint64_t kDenseShare = 4;
inline constexpr uint64_t kDenseTombstones = 128;

// A seek that skipped this many tombstones remembers their range; fewer cost less than that.
inline constexpr size_t kTombstonesToRemember = 32;
// Ranges kept, about 100 bytes each. If there are more, all are dropped and found again.
inline constexpr size_t kMaxTombstoneRanges = 4096;

// Towers of the memtable: with a quarter of the nodes on each next level, 12 serve 16 million.
inline constexpr int kMemtableHeight = 12;

}  // namespace cairn::sstable
