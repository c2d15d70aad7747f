// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the engine, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sstable/constants.h"
#include "wal/constants.h"

namespace cairn::engine {

// A blocking append up to this is one record and gathered straight into its group; above, it is cut
// into parts, so that one append never needs more group memory than there is. A round number of KV
// comes with its tokens, a sampler and padding: 64 KiB more.
inline constexpr uint64_t kPartBytesMax = (4u << 20) + (64u << 10);

// An ingested append packs so many layers of a page ahead at most, each in one or two MiB of
// memory: beyond it the one thread that writes them is what holds up.
inline constexpr uint32_t kIngestHelpersMax = 7;

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
// A fragment up to this is read as a whole, with its entries: what may be read for nothing costs
// less than a second trip to the device.
inline constexpr uint64_t kSmallFragmentBytes = 128u << 10;
// Queues kept for the next restores, each a file handle: as many as run at once on most machines.
inline constexpr size_t kReadQueuesKept = 4;
// Records closer than this are read together: the gap costs less than another request.
inline constexpr uint64_t kReadGapBytes = 64u << 10;

// Pages of token ids, where zstd has seen enough (base/codec/FORMAT.md), and the largest frame.
inline constexpr uint32_t kTokensPerPage = 4096;
inline constexpr uint64_t kFrameBytesMax = 8u << 20;
// A state, sampler or metadata, is cut into frames of so much. Most are far below.
inline constexpr uint64_t kStateFrameBytes = 16u << 20;
static_assert(kFrameBytesMax <= sstable::kMaxStoredBytes &&
              kStateFrameBytes <= sstable::kMaxStoredBytes);
// A page is the unit of sparse reads; this many bytes where the extent is not given by the model.
inline constexpr uint64_t kPageBytes = 512u << 10;

// Files of snapshot tables that are kept open: so many, no larger a share of what the process may
// have, since it has others, and two of them.
inline constexpr uint64_t kOpenFilesMax = 256, kOpenFilesShare = 4, kOpenFilesMin = 2;
// What is kept of a table that was opened, and 64 bytes a fragment.
inline constexpr uint64_t kOpenTableBytes = 1024;

// Locks of the page cache. Threads that restore are few.
inline constexpr size_t kPageCacheShards = 16;
// Kept for each frame beside its bytes: list and map nodes, the control block. And for each name.
inline constexpr uint64_t kPageEntryBytes = 256;
inline constexpr uint64_t kPageNameBytes = 192;
// Of the page cache, what names may take: with frames of 64 KiB they tell of ten times as much as
// there is room for.
inline constexpr uint64_t kNamesShare = 32;
// Scattering reads whole cache lines.
inline constexpr size_t kPageAlignment = 64;
// Frames of the page cache lie in slabs of 1 / kSlabShare of max_memory_bytes: each size class has
// one that is not full, and there are some twenty; from 2 MiB on they are of huge pages, and above
// 8 MiB nothing is gained. A slab without frames is kept while the free places are at most
// 1 / kSlabKeptShare: what the frames of a read window or two leave when they are pushed out.
inline constexpr uint64_t kSlabShare = 256;
inline constexpr uint64_t kSlabBytesMin = 64u << 10, kSlabBytesMax = 8u << 20;
inline constexpr uint64_t kSlabKeptShare = 32;

// Hints that may wait: more are of requests that come much later. One brings in so much of the page
// cache at most that two do not push each other out.
inline constexpr uint32_t kPrefetchesMax = 64;
inline constexpr uint64_t kPrefetchShare = 2;

// How max_memory_bytes is divided (engine/memory_parts.h): shares of what the hot tail and staging
// leave, which is a quarter of it at least. The page cache has what these do not use, and a quarter
// always.
inline constexpr uint64_t kTreeShare = 4;  // tree_memory_bytes, if that is more.
// The tree leaves a quarter of its share to prefixes and object keys. They may also have what the
// bounds of all other parts leave. Without Options::reuse_memory_bytes they get this share of
// max_memory_bytes: at 1 GiB room for a million objects.
inline constexpr uint64_t kReuseShareOfTree = 4, kReuseShare = 16;
// Prefixes get this share of their common memory; keys of objects get the rest.
inline constexpr uint64_t kPrefixShare = 2;
inline constexpr uint64_t kReadBuffersShare = 8;
inline constexpr uint64_t kIndexBlocksShare = 8, kIndexBlocksMax = 16u << 20;
inline constexpr uint64_t kDirectoriesShare = 8, kDirectoriesMax = 16u << 20;
inline constexpr uint64_t kPageFloorShare = 4;
inline constexpr uint64_t kIngestShare = 8;
// One large append takes a quarter of the ingest share at most, if that is enough to go on, so that
// some run side by side.
inline constexpr uint64_t kIngestAtOnce = 4;
// Of each of its two batches of layers: one is packed while one is written.
inline constexpr uint64_t kIngestLayersMin = 1;
// A call that waits for memory looks this often whether it is to go on: nobody tells it that it was
// cancelled.
inline constexpr uint64_t kLineLookAgainNs = 10'000'000;

// Restores into a GPU. A window that is unpacked alone takes longer than the bus needs to bring the
// next, so several are (a decoding warp waits most of its time); as many as there are buffers.
inline constexpr size_t kGpuSlots = kReadWindows;
// Device memory of a slot, and what it may be told of: a window, of small frames. Both grow.
inline constexpr uint64_t kGpuSlotBytes = kReadWindowBytes + (64u << 10);
inline constexpr uint64_t kGpuSlotFrames = 256;
// What kernels know of the views of a call: a table of 8192 blocks, and of what is larger so much
// is kept for the next one.
inline constexpr uint64_t kGpuRoomBytes = 64u << 10;
inline constexpr uint64_t kGpuRoomKeptBytes = 1u << 20;
// Appends from a GPU bring rows to the host by so much at once, where a copy is at the bus's rate,
// and of strips (one head of a layer) as many as that has of 512 bytes. Kept are two rooms for each
// core, so of each thread that gathers: one is copied while the next is gathered.
inline constexpr uint64_t kGpuGatherBytes = 2u << 20;
inline constexpr uint64_t kGpuGatherStrips = 4096;
inline constexpr size_t kGpuGatherRoomsShare = 2;
// Sources that are not ready yet are looked at so often: a twentieth of a fast step of generation.
inline constexpr uint64_t kGpuArrivalLookNs = 100'000;
// Launches that unpack fill one in so many of the card's processors, all slots together
// (GpuOptions::processors_max): by calculation kv64 needs no more to keep up with PCIe 5.
inline constexpr uint32_t kGpuProcessorsShare = 6;
// A device that does not answer is asked again, since another thread of the process may be doing
// what forbids it meanwhile (the capture of a graph); after so long it counts as lost.
inline constexpr uint64_t kGpuAskAgainNs = 10'000'000;
inline constexpr uint64_t kGpuAskNs = 10'000'000'000;
// A caller that is not ready is looked at, and whether it still wants it, so often.
inline constexpr uint64_t kGpuReadyLookNs = 1'000'000;

// Pinned memory (restore/pinned_cache.h) is lent in cells: copies of less are slow on the bus (of
// an H100, as others published: 5 to 7 GB/s with 4 to 24 KiB, 51 with 64). Frames of a page are
// kept together, of so many layers that there are four cells of them, which the last one, half
// empty on average, makes an eighth larger; and a page of one layer of a large model is some 700
// KiB.
inline constexpr uint64_t kPinnedCellBytes = 64u << 10;
inline constexpr uint64_t kPinnedGroupBytes = 256u << 10;
// Of it what branches keep of their newest tokens: so that the rest is a cache, too.
inline constexpr uint64_t kPinnedKeptShare = 2;
// Of the rest, what is set aside for names: with groups of 700 KiB they tell of ten times as much
// as there is room for.
inline constexpr uint64_t kPinnedNamesShare = 256;
// What leaves may not lie side by side, or still be in flight; so often as much again is asked to
// leave before it is given up.
inline constexpr uint32_t kPinnedRoomTries = 8;

// Where a table's number comes from: ranges, each made durable with a checkpoint before its first
// is used.
inline constexpr uint64_t kTableNumbersAtOnce = 1024;
inline constexpr char kTableDirectory[] = "tables";
inline constexpr char kLogDirectory[] = "log";

// Sealing reads and packs so much KV at once; a table takes sources until it has so much of it, as
// much as two default segments. Small enough that half a dead table is no great loss.
inline constexpr uint64_t kSealSourceBytes = 32u << 20;
inline constexpr uint64_t kTableRawBytes = 128u << 20;
// A table is rewritten when less of it is needed: so at most as much again is dead as alive, and
// each byte is rewritten at most once for every byte that died.
inline constexpr double kLiveShareMin = 0.5;
// Where there is no room for data it is done for less, so that a tenth is dead at most: a byte that
// died then costs up to nine that are written again, but a store at its cap holds what it can.
inline constexpr double kLiveShareMinAtCap = 0.9;
// Where the log rests more is worth it: what is dead of tables is a seventh then. A byte that died
// costs up to six that are written again, by a device that nobody else wants.
inline constexpr double kLiveShareMinIdle = 0.85;
// It rests when it got less than this in so long, a tenth of what a slow disk writes; then so much
// is written anew at most, before it is looked again. That is 640 MiB a second.
inline constexpr uint64_t kIdleNs = 100'000'000;
inline constexpr uint64_t kIdleLogBytes = 1u << 20;
inline constexpr uint64_t kIdleStepBytes = 64u << 20;
// The space thread is woken when so much more is dead; less can wait for a round that comes anyway.
inline constexpr uint64_t kDeadLookBytes = 4u << 20;
// When there are more tables below this, of about a size, they are written into one.
inline constexpr uint64_t kSmallTableBytes = 8u << 20;
inline constexpr uint64_t kSmallTablesMax = 64;
// Chains of sealed nodes are joined in idle time from so many on: each join rewrites what the index
// has of the node.
inline constexpr size_t kJoinChainMin = 16;
// Of a new store, unless its options say otherwise.
inline constexpr uint64_t kSegmentBytes = 64u << 20;
// Of a log, so many segments more than full ones would be: processes that end soon leave them, and
// opening looks at each, some 50 us.
inline constexpr uint64_t kShortSegmentsMax = 64;
// Live segments that the log may always have: those being filled, finished and read back.
inline constexpr uint64_t kLogSegmentsMin = 4;
// Where the log nears its limit (engine/space/log_gate.h). The rate of giving back is not known
// before some was: as fast as a slow disk seals. Of each measurement a quarter counts, so that
// neither one segment that was dead nor one that was dense decides.
inline constexpr double kGiveBackRateFirst = 64.0 * (1 << 20);
inline constexpr double kGiveBackRateShare = 4;
// A sleep of less costs more than it gains: smaller appends wait now and then, for some together.
inline constexpr uint64_t kSlowWaitNsMin = 1'000'000;
// However near the limit: what waits looks again when some was given back.
inline constexpr uint64_t kSlowWaitNsMax = 1'000'000'000;
inline constexpr double kSlowestShare = 64;
// Ranges in one record of a seal or an eviction: about 100 KiB of fields, so that it fits what
// releases leave of the smallest segment (wal::kReleaseShareOfLast).
inline constexpr size_t kSealedRangesAtOnce = 2048;

// A table takes no more sources than this: each costs some 300 bytes while the table is written and
// 64 when it is open, and its node stays in memory.
inline constexpr size_t kTableSourcesMax = 32768;

// Entries of the tree that one load looks at to make room for what it brings: a few. When most are
// in use, looking at each every time would cost more than the load.
inline constexpr size_t kTrimSteps = 64;
// The tree is also dumped when a replay would read a quarter as many branches and nodes as records
// may be replayed: the time of a replay is mostly that of these reads.
inline constexpr uint64_t kReplayRecordsPerRead = 4;
// When so many branches and nodes changed, the memory of the index gets them: so neither is the
// commit lock held for longer than some milliseconds, nor can much not be trimmed. (1.1 us to
// encode each, and half as much again to put its records in place.)
inline constexpr size_t kDumpEntriesMax = 1024;
// A dump that cannot wait for the end of a merge adds a table that every lookup asks until the next
// one, so it comes when so many times the records have gathered.
inline constexpr uint64_t kReplayShareInMerge = 2;
// Closing dumps what is more than this share of that: the next opening is the one to wait.
inline constexpr uint64_t kReplayShareAtClose = 16;
// Branches that a listing reads together.
inline constexpr size_t kNamesAtOnce = 256;

// The space thread reads in such pieces, and has so much in flight: an append meanwhile waits
// behind no more than that, with its write and with its sync. Of a device of 3 GB/s a piece takes
// 40 us. (With 512 KiB in flight the p95 of one-token appends was 3 times that of an idle store.)
inline constexpr uint64_t kSpacePieceBytes = 128u << 10;
inline constexpr uint64_t kSpaceInFlightBytes = 2 * kSpacePieceBytes;
// Where nobody else has used the device for so long it is asked for more: pieces of this size, and
// so much in flight.
inline constexpr uint64_t kSpaceAloneNs = 20'000'000;
inline constexpr uint64_t kSpaceAlonePieceBytes = 512u << 10;
inline constexpr uint64_t kSpaceAloneInFlightBytes = 8 * kSpaceAlonePieceBytes;
// What is to be sealed is read so much at a time, where it is many sources: each alone would cost
// 100 us. That no longer matters to a source of more than the second.
inline constexpr uint64_t kReadAheadBytes = 8u << 20;
inline constexpr uint64_t kReadAheadSourceBytesMax = 256u << 10;
// While a batch is packed, the space thread reads so much of the next source: two batches, so that
// the device reads the second while the thread copies the first to its place.
inline constexpr uint64_t kStagedAtOnceBytes = 8u << 20;
// Frames that are packed, or proven, side by side. Enough that handing them out costs nothing (a
// core packs a MiB in 0.3 ms), and two such batches hardly more memory.
inline constexpr uint64_t kFrameBatchBytes = 4u << 20;

// What was not used of the rate is kept for so long: sleeping too long costs no throughput, and
// after a rest there is no burst to speak of.
inline constexpr uint64_t kPaceCreditNs = 10'000'000;
// A wait for the rate is cut into these, so that haste is noticed that nobody told of.
inline constexpr uint64_t kPaceLookAgainNs = 100'000'000;

// A dump is half a megabyte, and merging four of them downwards must not keep the next one waiting:
// so the first level holds little, and a million branches make a dozen tables.
inline constexpr uint64_t kIndexTableBytes = 16u << 20;
inline constexpr uint64_t kIndexLevel1Bytes = 16u << 20;

// Eviction begins when an eighth of a cap is left, so that appends seldom wait for it, and goes on
// until a quarter is: each pass costs a dump, and dead tables are worth rewriting then.
inline constexpr uint64_t kEvictionBeginsShare = 8, kEvictionEndsShare = 4;
// Branches of the order of eviction, or of expiry, that are read ahead: some blocks of the index.
inline constexpr size_t kEvictAhead = 256;
// A refusal for want of room wakes the space thread, also when it found nothing to give back; then
// no more often than this, since a reader may have let go of something, or a group been synced.
inline constexpr uint64_t kRefusedAgainNs = 10'000'000;
// Calls that do not wait, and of which it is known what they asked for when they were refused. More
// than that are forgotten, and ask again.
inline constexpr size_t kBusyAsksMax = 1024;
// Expired branches are looked for no more often than this: each time costs a dump.
inline constexpr uint64_t kExpiryStepNs = 1'000'000'000;
// A read is written down for the order of eviction once in so long: it costs records in a dump.
inline constexpr uint64_t kUsedGranularityNs = 1'000'000'000;

// Blocks of the index kept for one verification, which reads each once or twice.
inline constexpr size_t kVerifyCacheBytes = 1u << 20;

// Conversations whose chains are long are sealed when they have so much KV together: a table of it
// is worth its directory, its syncs and the record that names it.
inline constexpr uint64_t kSealDueBytes = 16u << 20;

// Of max_bytes: the blocks of two manifests, OPTIONS and HINT, and of a temporary file.
inline constexpr uint64_t kSmallFilesBytes = 36u << 10;

// Of max_bytes, or of the disk, the reserve that only the giving back of space may use
// (engine/commit/ledger.h):
// one log segment, which packs to about what it held; another, where the log has none left to name
// that table in; and, as a share of max_bytes, what the index is dumped and merged into (the first
// level and four dumps are 18 MiB), and the live part of a table that is rewritten: what is sealed
// into one table fits into the reserve, less that segment. At least some small index tables.
inline constexpr uint64_t kReserveShare = 32;
inline constexpr uint64_t kReserveBytesMin = 128u << 10;
inline constexpr uint64_t kReserveBytesMax = 64u << 20;
static_assert(kReserveBytesMax >= kIndexLevel1Bytes + kIndexTableBytes);
// A new store holds so many segments at least: the reserve, two of ballast, the one that is
// written to, the one that is to be sealed, and as many again for tables and data.
inline constexpr uint64_t kSegmentsAtCapMin = 10;
// The live log is a quarter of what data may take at most, spares an eighth: what lies in the log
// is not packed, and what is dead of it takes room until its segment is given back.
inline constexpr uint64_t kLogShareAtCap = 4;
inline constexpr uint64_t kSpareShareAtCap = 8;

// A release that waits for room looks again after this: as often as the log tries to make a
// segment.
inline constexpr uint64_t kRoomLookAgainNs = wal::kSpaceRetryNs;

// Held by whoever writes the store; on the open file.
inline constexpr char kLockFile[] = "LOCK";
// How old what readers are told may be. Short for whoever waits for an append to show; at a hundred
// small writes a second to one page, nothing for the writer.
inline constexpr uint64_t kHintPeriodNs = 10'000'000;
// A read beside a writer looks anew so many times before it says kStale.
inline constexpr int kReadAgainMax = 2;

// The log is given back in parts of this share of what it may have, or by segments where these are
// larger: half of the quarter in which appends are slowed, so that they seldom meet its end; and
// tables of some 100 MiB, since a smaller one costs as many syncs. (One segment of 64 MiB at a time
// sealed a third slower; with all that was due at once appends were held for 0.8 s.)
inline constexpr uint64_t kRetireShare = 8;
// What sealing stages, as a share of max_memory_bytes: two sources of large deltas, at 1 GiB.
inline constexpr uint64_t kStageShare = 16;
// A table is proved while the next is written only where memory is so much: what both take beside
// the stages, 8 MiB to pack, 12 to prove and up to 33 to read large deltas, is small beside it
// then.
inline constexpr uint64_t kOverlapMemoryMin = 256u << 20;
// Buffers that came back and wait for the next use, as a share of max_memory_bytes: at 1 GiB what
// sealing takes beside its stages.
inline constexpr uint64_t kKeptShare = 32;
// What nobody took of them for so long is given back.
inline constexpr uint64_t kKeptIdleNs = 10'000'000'000;
// Staging memory for drafts and joined appends, as a share of max_memory_bytes.
inline constexpr uint64_t kStagingShare = 4;

// Applied lengths remembered per branch until they are durable; older ones are merged, so that
// durable_length() may lag on a branch that never syncs, and memory stays bounded.
inline constexpr uint32_t kLengthsTrackedMax = 64;
// Branches whose lengths may all be durable that one append looks at: it adds one at most.
inline constexpr uint32_t kLengthsSwept = 2;
static_assert(kLengthsSwept > 1 && kLengthsTrackedMax > 1);

// Of a page of a sparse session, each plane: a frame of a table, which is read and unpacked as a
// whole.
inline constexpr uint32_t kSparsePageBytesMax = 64u << 10;
// Pinned memory below this has no use.
inline constexpr uint64_t kSparsePinnedBytesMin = 1u << 20;
// Pages that one fetch reads at once: enough to keep a disk busy, and little enough that another
// session's turn comes soon.
inline constexpr size_t kSparsePagesAtOnce = 256;

// What DerivedTables knows the pieces in slots by: what it is, and which version of it.
inline constexpr uint32_t kSparseWarmthKind = 1;
// Of a head: as many as a fetch may want. A frame holds them.
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
                  kIndexBlocksShare == 8 && kDirectoriesShare == 8 && kIngestShare == 8,
              "together no more than all");

}  // namespace cairn::engine
