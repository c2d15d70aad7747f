// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the engine, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sstable/constants.h"
#include "wal/constants.h"

namespace cairn::engine {

// A blocking append up to this size is one record, gathered straight into its group. A larger one
// is split into parts, so that one append never needs more group memory than there is. 4 MiB of KV,
// and 64 KiB for its tokens, a sampler state and padding.
inline constexpr uint64_t kPartBytesMax = (4u << 20) + (64u << 10);

// Records keep KV packed from this size of a slice on (one plane of one layer). Below it the states
// and the model of a frame take what packing saves.
inline constexpr uint64_t kPackedSliceBytesMin = 4u << 10;
// And only if this share of the bytes is left, or less: incompressible rows stay as they are.
inline constexpr double kPackedShareOfRecord = 0.95;
// Layers that one thread packs, with flags that the first of them chose (kv64).
inline constexpr size_t kPackedLayersOfRun = 4;
// Helpers that pack one record: as many as there are runs of layers in most models, less the one of
// the caller.
inline constexpr uint32_t kPackHelpersMax = 7;

// Reads of a restore: a window holds whole records, is read in pieces and then verified and
// scattered at once. Four windows keep 16 reads of 512 KiB in flight, where the disk is at its
// best; two are being worked on, and two wait so that neither side ever waits for the other (five
// gave 0.70 of the disk's rate, eight 0.84, twelve 0.81: more memory than the caches like).
inline constexpr uint64_t kReadPieceBytes = 512u << 10;
inline constexpr uint64_t kReadWindowBytes = 2u << 20;
inline constexpr uint32_t kReadWindows = 8;
// Requests of one restore. Windows that hold a large record have more pieces, which then wait.
inline constexpr size_t kReadsInFlightMax = 64;
// A restore of less is over before another thread has woken up: decoding it takes 0.1 ms.
inline constexpr uint64_t kReadHelpBytes = 256u << 10;
// A fragment up to this is read as a whole, with its entries: bytes read in vain cost less than a
// second trip to the device.
inline constexpr uint64_t kSmallFragmentBytes = 128u << 10;
// Queues kept for the next restores, each a file handle: as many as run at once on most machines.
inline constexpr size_t kReadQueuesKept = 4;
// Records closer than this are read together: the gap costs less than another request.
inline constexpr uint64_t kReadGapBytes = 64u << 10;

// Token ids in a page, by when zstd has seen enough (base/codec/FORMAT.md), and the largest frame.
inline constexpr uint32_t kTokensPerPage = 4096;
inline constexpr uint64_t kFrameBytesMax = 8u << 20;
// A state (sampler, metadata) is cut into frames of this size. Most states are far smaller.
inline constexpr uint64_t kStateFrameBytes = 16u << 20;
static_assert(kFrameBytesMax <= sstable::kMaxStoredBytes &&
              kStateFrameBytes <= sstable::kMaxStoredBytes);
// A page is the unit of sparse reads. Its size where the model does not give one.
inline constexpr uint64_t kPageBytes = 512u << 10;

// Open files of snapshot tables: at most this many, at most this share of what the process may open
// (it has other files), and at least two.
inline constexpr uint64_t kOpenFilesMax = 256, kOpenFilesShare = 4, kOpenFilesMin = 2;
// Memory kept for an opened table, besides 64 bytes a fragment.
inline constexpr uint64_t kOpenTableBytes = 1024;

// Locks of the page cache. Threads that restore are few.
inline constexpr size_t kPageCacheShards = 16;
// Kept for each frame beside its bytes: list and map nodes, the control block. And for each name.
inline constexpr uint64_t kPageEntryBytes = 256;
inline constexpr uint64_t kPageNameBytes = 192;
// Share of the page cache that names may take. With frames of 64 KiB they describe ten times as
// many frames as there is room for.
inline constexpr uint64_t kNamesShare = 32;
// Scattering reads whole cache lines.
inline constexpr size_t kPageAlignment = 64;
// Frames of the page cache lie in slabs of 1 / kSlabShare of max_memory_bytes. Each of some twenty
// size classes has one slab that is not full. From 2 MiB on slabs are of huge pages; above 8 MiB
// nothing is gained. An empty slab is kept while the free places are at most 1 / kSlabKeptShare of
// the cache: about what a read window or two leave free when their frames are evicted.
inline constexpr uint64_t kSlabShare = 256;
inline constexpr uint64_t kSlabBytesMin = 64u << 10, kSlabBytesMax = 8u << 20;
inline constexpr uint64_t kSlabKeptShare = 32;

// Prefetch hints that may wait: more of them belong to requests that come much later. One hint
// loads at most this share of the page cache, so that two do not evict each other's frames.
inline constexpr uint32_t kPrefetchesMax = 64;
inline constexpr uint64_t kPrefetchShare = 2;

// Positions whose turns a shifted restore makes at once. Those of 64 pairs take 32 KiB, which stay
// in a core's cache while the rows of a page are turned.
inline constexpr uint64_t kTurnTokens = 64;

// How max_memory_bytes is divided (engine/config/memory_parts.h): shares of what the hot tail and
// staging leave, which is at least a quarter of it. The page cache gets at least a quarter, and
// uses what the others do not.
inline constexpr uint64_t kTreeShare = 4;  // tree_memory_bytes, if that is more.
// The tree leaves a quarter of its share to prefixes and object keys. They may also have what the
// bounds of all other parts leave. Without Options::reuse_memory_bytes they get this share of
// max_memory_bytes: at 1 GiB room for a million objects.
inline constexpr uint64_t kReuseShareOfTree = 4, kReuseShare = 16;
// Prefixes get this share of their common memory; keys of objects get the rest.
inline constexpr uint64_t kPrefixShare = 2;
inline constexpr uint64_t kReadBuffersShare = 8;
inline constexpr uint64_t kIndexBlocksShare = 8, kIndexBlocksMax = 64u << 20;
inline constexpr uint64_t kDirectoriesShare = 8, kDirectoriesMax = 16u << 20;
inline constexpr uint64_t kPageFloorShare = 4;
// A call that waits for memory checks this often whether to go on, since nobody notifies it of a
// cancellation.
inline constexpr uint64_t kLineLookAgainNs = 10'000'000;

// Restores into a GPU. One window alone takes longer to unpack than the bus takes to bring the
// next, so several are unpacked at once (a decoding warp waits most of its time): one for each
// buffer.
inline constexpr size_t kGpuSlots = kReadWindows;
// Device memory of a slot, and the frames it can describe: a window of small frames. Both grow.
inline constexpr uint64_t kGpuSlotBytes = kReadWindowBytes + (64u << 10);
inline constexpr uint64_t kGpuSlotFrames = 256;
// Memory in which kernels find the views of a call: enough for a table of 8192 blocks. Rooms up to
// the second size are kept for the next call.
inline constexpr uint64_t kGpuStagingBytes = 64u << 10;
inline constexpr uint64_t kGpuStagingKeptBytes = 1u << 20;
// Appends from a GPU copy rows to the host in pieces of this size, where a copy reaches the bus
// rate. A piece has the number of strips (one head per layer) that fit at 512 bytes each. Two
// buffers are kept for each core, so for each thread that gathers: one is copied into while the
// other is gathered from.
inline constexpr uint64_t kGpuGatherBytes = 2u << 20;
inline constexpr uint64_t kGpuGatherStrips = 4096;
inline constexpr size_t kGpuGatherRoomsShare = 2;
// How often sources that are not ready are polled: a twentieth of a fast step of generation.
inline constexpr uint64_t kGpuArrivalLookNs = 100'000;
// Launches that unpack use at most one in this many of the card's processors, all slots together
// (GpuOptions::processors_max). By calculation kv64 needs no more to keep up with PCIe 5.
inline constexpr uint32_t kGpuProcessorsShare = 6;
// A device that does not answer is asked again: another thread of the process may be doing
// something that forbids the call meanwhile, like capturing a graph. After this long the device
// counts as lost.
inline constexpr uint64_t kGpuAskAgainNs = 10'000'000;
inline constexpr uint64_t kGpuAskNs = 10'000'000'000;
// How often the engine polls a caller that is not ready, and whether it still wants the result.
inline constexpr uint64_t kGpuReadyLookNs = 1'000'000;

// Pinned memory (restore/gpu/pinned_cache.h) is lent in cells, since smaller copies are slow on the
// bus (of an H100, as others published: 5 to 7 GB/s with 4 to 24 KiB, 51 with 64 KiB). Frames of a
// page are kept together in groups of layers that fill at least four cells; the last cell is half
// empty on average, which costs an eighth more memory. A page of one layer of a large model has
// about 700 KiB.
inline constexpr uint64_t kPinnedCellBytes = 64u << 10;
inline constexpr uint64_t kPinnedGroupBytes = 256u << 10;
// Share of it that branches keep for their newest tokens, so that the rest still works as a cache.
inline constexpr uint64_t kPinnedKeptShare = 2;
// Share of the rest that is set aside for names: with groups of 700 KiB they describe ten times as
// many groups as there is room for.
inline constexpr uint64_t kPinnedNamesShare = 256;
// Evicted cells may not be adjacent, or may still be in flight. So the same amount is evicted
// again, this many times, before the attempt is given up.
inline constexpr uint32_t kPinnedRoomTries = 8;

// Table numbers are taken in ranges of this size. Each range is made durable with a manifest
// before its first number is used.
inline constexpr uint64_t kTableNumbersAtOnce = 1024;
inline constexpr char kTableDirectory[] = "tables";
inline constexpr char kLostDirectory[] = "lost";
inline constexpr char kLogDirectory[] = "log";

// Sealing reads and packs this much KV at once; a table takes sources until it holds the second
// figure, which is two default segments. Small enough that half a dead table is no great loss.
inline constexpr uint64_t kSealSourceBytes = 32u << 20;
inline constexpr uint64_t kTableRawBytes = 128u << 20;
// A table is rewritten when less than this share of it is needed. So at most as many bytes are dead
// as alive, and each byte that died causes at most one byte to be rewritten.
inline constexpr double kLiveShareMin = 0.5;
// Where there is no room for data tables are rewritten earlier, so that at most a tenth is dead. A
// byte that died then costs up to nine rewritten ones, but a store at its cap holds what it can.
inline constexpr double kLiveShareMinAtCap = 0.9;
// While the log is idle more rewriting is worthwhile, down to a seventh of dead bytes. A byte that
// died costs up to six rewritten ones, on a device that nobody else wants.
inline constexpr double kLiveShareMinIdle = 0.85;
// A segment of the log rests only if its KV lies in at most this many pieces: 256 KiB each, on
// average, of a default segment. A read of that size costs about a tenth more than one of 2 MiB.
inline constexpr uint64_t kRestingPiecesMax = 256;
// A delta with this much KV is as well read where it is as from a table: it does not make its
// conversation due to be sealed.
inline constexpr uint64_t kLargeDeltaBytes = 256u << 10;
// A segment that held this much more content than it has bytes holds packed KV. Incompressible
// content leaves a segment at its own size, and packed 16-bit floats at 1.3 to 1.5 times it.
inline constexpr double kPackedContent = 1.1;
// A segment that rests is packed only if that would leave less than this share of it, as
// kTrialFrames heads of kTrialRows rows show. They tell floats from random bytes: of bf16 they
// leave 0.72. A place costs a record, so of 2 MiB records an eighth of the segment is read.
inline constexpr double kPackedShareMax = 0.9;
inline constexpr size_t kTrialFrames = 4;
inline constexpr uint32_t kTrialRows = 16;
// The log is idle when it grew by less than kIdleLogBytes in kIdleNs, a tenth of what a slow disk
// writes. Then at most kIdleStepBytes are rewritten before that is checked again: 640 MiB per
// second.
inline constexpr uint64_t kIdleNs = 100'000'000;
inline constexpr uint64_t kIdleLogBytes = 1u << 20;
inline constexpr uint64_t kIdleStepBytes = 64u << 20;
// The space thread is woken when this much more is dead; less can wait for the next round.
inline constexpr uint64_t kDeadLookBytes = 4u << 20;
// Tables smaller than this are merged into one when there are more of them, of similar size.
inline constexpr uint64_t kSmallTableBytes = 8u << 20;
inline constexpr uint64_t kSmallTablesMax = 64;
// Chains of sealed nodes are joined in idle time from this length on: each join rewrites all that
// the index has of the node.
inline constexpr size_t kJoinChainMin = 16;
// Segment size of a new store, unless its options give one: this, or less where the cap or the free
// space of the disk is smaller than kSegmentsInRoom of them. The ballast, the segment being written
// and the reserve (kReserveShare) then take a fifth of that.
inline constexpr uint64_t kSegmentBytes = 64u << 20;
inline constexpr uint64_t kSegmentsInRoom = 32;
// A log may have this many segments more than it would with full ones: processes that end soon
// leave short ones, and opening looks at each, about 50 us.
inline constexpr uint64_t kShortSegmentsMax = 64;
// Live segments that the log may always have: those being filled, finished and read back.
inline constexpr uint64_t kLogSegmentsMin = 4;
// Flow control where the log nears its limit (engine/background/log_gate.h). Until the rate of
// giving back was measured it is taken to be that of a slow disk. Each measurement counts for a
// quarter, so that neither one dead segment nor one dense segment decides.
inline constexpr double kReclaimRateFirst = 64.0 * (1 << 20);
inline constexpr double kReclaimRateShare = 4;
// A shorter sleep costs more than it gains: small appends sleep now and then, for several of them.
inline constexpr uint64_t kSlowWaitNsMin = 1'000'000;
// However near the limit, a waiting append looks again after at most this, as some may be given
// back.
inline constexpr uint64_t kSlowWaitNsMax = 1'000'000'000;
inline constexpr double kSlowestShare = 64;
// Ranges in one record of a seal or an eviction: about 100 KiB of fields, so that the record fits
// into what releases leave of the smallest segment (wal::kReleaseShareOfLast).
inline constexpr size_t kSealedRangesAtOnce = 2048;

// A table takes at most this many sources: each costs about 300 bytes while the table is written,
// 64 when it is open, and its node stays in memory.
inline constexpr size_t kTableSourcesMax = 32768;

// Tree entries that one load examines to make room for what it brings. Few: when most are in use,
// examining each of them every time would cost more than the load.
inline constexpr size_t kTrimSteps = 64;
// The tree is also flushed when a replay would read a quarter as many branches and nodes as records
// may be replayed: these reads are most of the time of a replay.
inline constexpr uint64_t kReplayRecordsPerRead = 4;
// When this many branches and nodes changed they are flushed into the memory of the index. That
// bounds the commit lock's hold to a few milliseconds, and how much of the tree cannot be trimmed.
// (1.1 us to encode each entry, and half of that to insert its records.)
inline constexpr size_t kTreeFlushEntriesMax = 1024;
// A tree flush that cannot wait for the end of a merge adds a table that every lookup asks until
// the next merge. So it waits until this many times the usual number of records has gathered.
inline constexpr uint64_t kReplayShareInMerge = 2;
// Closing flushes the tree when more than this share of that gathered: else the next opening would
// wait for it.
inline constexpr uint64_t kReplayShareAtClose = 16;
// Branches that a listing reads together.
inline constexpr size_t kNamesAtOnce = 256;

// The space thread reads in pieces of this size and keeps this much in flight: a concurrent append
// waits behind no more than that, with its write and with its sync. A device of 3 GB/s takes 40 us
// for a piece. (With 512 KiB in flight the p95 of one-token appends was 3 times that of an idle
// store.)
inline constexpr uint64_t kSpacePieceBytes = 128u << 10;
inline constexpr uint64_t kSpaceInFlightBytes = 2 * kSpacePieceBytes;
// When nobody else has used the device for this long, the space thread reads in larger pieces and
// keeps more in flight.
inline constexpr uint64_t kSpaceAloneNs = 20'000'000;
inline constexpr uint64_t kSpaceAlonePieceBytes = 512u << 10;
inline constexpr uint64_t kSpaceAloneInFlightBytes = 8 * kSpaceAlonePieceBytes;
// Many small sources are read ahead together, this much at a time: one by one each would cost 100
// us. For a source larger than the second figure that no longer matters.
inline constexpr uint64_t kReadAheadBytes = 8u << 20;
inline constexpr uint64_t kReadAheadSourceBytesMax = 256u << 10;
// While a batch is packed, the space thread reads this much of the next source. It is two batches,
// so that the device reads one while the thread copies the other to its place.
inline constexpr uint64_t kStagedAtOnceBytes = 8u << 20;
// Frames that are packed, or verified, side by side. Enough that handing them out costs nothing (a
// core packs a MiB in 0.3 ms), and two such batches take hardly more memory.
inline constexpr uint64_t kFrameBatchBytes = 4u << 20;

// Unused rate can be saved up for this long: an overlong sleep costs no throughput, and there is no
// noticeable burst after a rest.
inline constexpr uint64_t kPaceCreditNs = 10'000'000;
// A wait for the rate is cut into pieces of this, so that urgency which nobody signalled is
// noticed.
inline constexpr uint64_t kPaceLookAgainNs = 100'000'000;

// A tree flush is half a megabyte, and merging four of them downwards must not delay the next one.
// So the first level is small, and a million branches make a dozen tables.
inline constexpr uint64_t kIndexTableBytes = 16u << 20;
inline constexpr uint64_t kIndexLevel1Bytes = 16u << 20;

// Eviction begins when an eighth of a cap is left, so that appends seldom wait for it, and goes on
// until a quarter is left: each pass costs a tree flush, and afterwards tables with dead bytes are
// worth rewriting.
inline constexpr uint64_t kEvictionBeginsShare = 8, kEvictionEndsShare = 4;
// Branches read ahead in the order of eviction, or of expiry: some blocks of the index.
inline constexpr size_t kEvictAhead = 256;
// Compact waits for readers of the log's oldest segment. Longer than most reads take, and not so
// long that its caller takes it for hung.
inline constexpr uint64_t kCompactAwaitsNs = 2'000'000'000;
// A refusal for want of room wakes the space thread, even if its last round found nothing to give
// back: a reader may have ended, or a group been synced. But then no more often than this.
inline constexpr uint64_t kRefusedAgainNs = 10'000'000;
// Refused calls that do not wait, of which the store remembers what they asked for. If there are
// more, all of them are forgotten, and ask again.
inline constexpr size_t kBusyRequestsMax = 1024;
// Expired branches are looked for no more often than this: each time costs a tree flush.
inline constexpr uint64_t kExpiryStepNs = 1'000'000'000;
// A read is written down for the order of eviction once in so long: it costs records in a tree
// flush.
inline constexpr uint64_t kUsedGranularityNs = 1'000'000'000;

// Blocks of the index kept for one verification, which reads each once or twice.
inline constexpr size_t kVerifyCacheBytes = 1u << 20;

// Conversations with long chains are sealed once they have this much KV together: a table of that
// size is worth its directory, its syncs and the record that names it.
inline constexpr uint64_t kSealDueBytes = 16u << 20;

// Part of max_bytes that the blocks of two manifests, OPTIONS, HINT and a temporary file take.
inline constexpr uint64_t kSmallFilesBytes = 36u << 10;

// Part of max_bytes that damaged files which were set aside may take (lost/); the oldest go first.
// They are for looking at, and must not take the room of what is served.
inline constexpr uint64_t kLostShare = 16;
// Without a cap: a damaged log of sixteen segments of the usual size, or all tables of an index
// that describes a terabyte of KV.
inline constexpr uint64_t kLostBytesMax = 1u << 30;

// Reserve of max_bytes, or of the disk, that only the giving back of space may use
// (engine/commit/ledger.h): one log segment, which packs to about what it held; another one, for
// when the log has no segment left to log that table in; and, as a share of max_bytes, room to
// flush the tree and merge the index (the first level and four tree flushes are 18 MiB) and to
// rewrite the live part of a table. Content sealed into one table fits into the reserve less that
// segment. At least some small index tables.
inline constexpr uint64_t kReserveShare = 32;
inline constexpr uint64_t kReserveBytesMin = 128u << 10;
inline constexpr uint64_t kReserveBytesMax = 64u << 20;
static_assert(kReserveBytesMax >= kIndexLevel1Bytes + kIndexTableBytes);
// A new store holds at least this many segments: the reserve, two of ballast, the one being
// written, the one to be sealed, and the same number again for tables and data.
inline constexpr uint64_t kSegmentsAtCapMin = 10;
// The live log takes at most a quarter of what data may take, spare segments an eighth. Content in
// the log is not packed, and its dead bytes take room until the segment is given back.
inline constexpr uint64_t kLogShareAtCap = 4;
inline constexpr uint64_t kSpareShareAtCap = 8;

// A refused call looks whether there is room again, once in this time. Each look that finds some
// has the log try for a segment.
inline constexpr uint64_t kRoomLookNs = 10'000'000;
// A release that waits for room tries again after this: as often as the log tries to allocate a
// segment.
inline constexpr uint64_t kRoomLookAgainNs = wal::kSpaceRetryNs;

// The writer of a store holds a lock on this file while it has the store open.
inline constexpr char kLockFile[] = "LOCK";
// Readers of the hint see a state at most this old. A reader that waits for an append to show needs
// it short; a hundred small writes per second to one page are nothing for the writer.
inline constexpr uint64_t kHintPeriodNs = 10'000'000;
// A read beside a writer takes a new look this many times before it returns kStale.
inline constexpr int kReadAgainMax = 2;

// The log is given back in parts of this share of its limit, or by segments where these are larger.
// That is half of the quarter in which appends are slowed, so that they seldom reach the limit. It
// makes tables of about 100 MiB, and a smaller table costs as many syncs. (One segment of 64 MiB at
// a time sealed a third slower; with all that was due at once appends were held for 0.8 s.)
inline constexpr uint64_t kLogReclaimShare = 8;
// Staging memory of seals, as a share of max_memory_bytes: at 1 GiB two sources of large deltas.
inline constexpr uint64_t kStageShare = 16;
// A table is verified while the next one is written only if there is this much memory. Then what
// both take besides the stages is small beside it: 8 MiB to pack, 12 to read back, up to 33 to read
// large deltas.
inline constexpr uint64_t kOverlapMemoryMin = 256u << 20;
// Freed buffers kept for the next use, as a share of max_memory_bytes: at 1 GiB what sealing takes
// besides its stages.
inline constexpr uint64_t kKeptShare = 32;
// Those that nobody used for this long are given back to the system.
inline constexpr uint64_t kKeptIdleNs = 10'000'000'000;
// Staging memory for drafts and coalesced appends, as a share of max_memory_bytes.
inline constexpr uint64_t kStagingShare = 4;

// Applied lengths remembered for each branch until they are durable. Beyond that older ones are
// merged: memory stays bounded, and durable_length() may lag on a branch that never syncs.
inline constexpr uint32_t kLengthsTrackedMax = 64;
// Branches that one append checks for lengths that are all durable: more than the one it adds.
inline constexpr uint32_t kLengthsSwept = 2;
static_assert(kLengthsSwept > 1 && kLengthsTrackedMax > 1);

// Size of each plane of a page of a sparse session: one frame of a table, which is read and
// unpacked as a whole.
inline constexpr uint32_t kSparsePageBytesMax = 64u << 10;
// Less pinned memory than this is of no use.
inline constexpr uint64_t kSparsePinnedBytesMin = 1u << 20;
// Pages that one fetch reads at once: enough to keep a disk busy, and little enough that another
// session's turn comes soon.
inline constexpr size_t kSparsePagesAtOnce = 256;
// Pages that a prefetch reads at once: a fetch that comes meanwhile waits for 2 MiB.
inline constexpr size_t kSparsePagesAhead = 32;

// How DerivedTables names the list of pieces that were in slots: its kind, and its version.
inline constexpr uint32_t kSparseWarmthKind = 1;
// For each head: as many as a fetch may want. They fit into a frame.
inline constexpr size_t kSparseWarmPiecesMax = 4096;

// A batch is one record, and a record must fit a group.
inline constexpr uint64_t kBatchBytesMax = kPartBytesMax;

static_assert(kEvictionBeginsShare > kEvictionEndsShare);
static_assert(kReadWindowBytes % kReadPieceBytes == 0);
static_assert(kPartBytesMax >= kReadPieceBytes);
static_assert(kPartBytesMax >= kMaxSubmitCopyBytes, "what is copied in the call is one record");
static_assert(kReadWindows * (kReadWindowBytes / kReadPieceBytes) >= 2 * 16);
static_assert(kReadWindows * (kReadWindowBytes / kReadPieceBytes + 1) <= kReadsInFlightMax);

static_assert(kTreeShare == 4 && kPageFloorShare == 4 && kReadBuffersShare == 8 &&
                  kIndexBlocksShare == 8 && kDirectoriesShare == 8,
              "together no more than all");

}  // namespace cairn::engine
