// SPDX-License-Identifier: Apache-2.0
//
// Options of a store, and the enums that other calls share. Plain structs with defaults; what is
// not set is as the comment says. Sizes are bytes, times nanoseconds. Options are copied when a
// store is opened and never change after; Options::segment_bytes is fixed when the store is made,
// all others may differ from one opening to the next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cairn/allocator.h"
#include "cairn/gpu.h"
#include "cairn/keep.h"
#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

namespace io {
struct World;
}

// The meaning of an acknowledgement. Levels may be mixed freely; order is kept across all of them.
enum class Durability : uint8_t {
  // In memory. Written with the next group, when the buffer fills or after 100 ms. A crash of the
  // process or the machine may lose it, together with everything after it.
  kMemory = 0,
  // Written to the operating system. Survives the death of the process (kill -9); a power loss may
  // lose it, together with everything after it.
  kProcess = 1,
  // On stable media, with everything before it. Survives power loss.
  kPower = 2,
};

// How files are read and written.
enum class Backend : uint8_t {
  kAuto,   // io_uring when the kernel grants it, else blocking threads (with one log line).
  kUring,  // Or fail.
  kThreads,
};

// Hears about the life of the store. Calls come from the store's or the caller's threads, several
// at once, must not block, must not throw, and must not call back into the store.
struct EventListener {
  std::function<void(const Status& cause)> on_poisoned{};   // Once, with the cause.
  std::function<void(const std::string& line)> on_event{};  // Human readable, one line.
};

// The reaction to a write or sync of the log that fails: the store is poisoned (writes are refused
// until it is reopened, reads go on), or, after on_poisoned was called, the process ends.
enum class FatalAction : uint8_t { kPoison, kAbort };

// What an opening does where files that it reads are damaged.
enum class Recovery : uint8_t {
  // kCorruption, naming file and offset. Nothing is changed.
  kRefuse = 0,
  // Opens a damaged store and serves what is provable of it. Where tables of the index are cut,
  // damaged or missing, what the others and the log behind them prove stays, and is written into
  // new tables at once: a branch stays if every record of it and of its path survives. A damaged
  // log ends where it is damaged; records that need what is lost are left out. The rest is gone for
  // good. on_event and Store::recovery_note say in one line what is gone. The damaged files move to
  // lost/<time>/ within the store's directory. They count under max_bytes and are not copied;
  // beyond 1/16 of it (1 GiB without a cap) the oldest go. A follower moves nothing. Damage that
  // opening does not read (in payload, in snapshot tables, in single blocks of the index, in the
  // log below where its replay begins) stays; reads that need it and Verify report it. A damaged
  // MANIFEST, OPTIONS, or header of the log's first live segment is refused all the same: they say
  // what the store is, and have no second copy. For servers that must start, and for `cairn
  // repair`.
  kSetAside = 1,
};

struct Options {
  // --- Opening
  // Makes the directory, and a store in it, where there is none. Its parent must exist.
  bool create_if_missing = false;
  // kAlreadyExists where a store exists.
  bool error_if_exists = false;
  // A follower: takes no lock and writes nothing. Beside a writer, in this or another process, it
  // shows only what a crash cannot take away any more: what was known to be durable when it was
  // opened or last refreshed (Store::Refresh). Of a writer that crashed, what it had acknowledged
  // counts as known again once the next one's opening has returned. Without a writer it shows all
  // that the next one would find. A writer may delete files that the follower needs: such a read
  // refreshes the follower and tries again, twice, which shows the store as it is then; after that
  // it is kStale: retry. It never shows wrong bytes, and kCorruption is damage. Excludes the two
  // options above.
  bool read_only = false;
  // What happens where opening meets damage.
  Recovery recovery = Recovery::kRefuse;

  // Permissions of new files, whatever the umask says: 0600, or with 0040, 0060, 0004 or 0006 for
  // the group and for others. Users who may read files may also enter directories: 0700 for 0600. A
  // follower needs to read them. Existing files keep theirs, as does a directory that was made
  // before the store.
  uint32_t file_mode = 0600;

  // --- Space
  // Hard cap on the blocks of all files, spares included. Some of it is kept from data: two log
  // segments that only what drops or rewinds may open, and room for two more and some tables (1/32
  // of the cap, 64 MiB at most), which lets space be given back when all is taken. So a new store
  // needs ten segments (kInvalidArgument). A store that has more than a smaller cap allows can be
  // opened all the same: it says so, takes no data, and may use that room beyond what it has. The
  // same amount of disk is kept free even without a cap, so appends fail with kNoSpace before the
  // disk is full and dropped space can be reclaimed. It is not preallocated: other programs may
  // consume it.
  uint64_t max_bytes = UINT64_MAX;
  // The content that may go when room runs out under max_bytes or on the disk, unless a namespace
  // says otherwise (cairn/keep.h): in the background from seven eighths of what data may take on.
  // An append that comes too early for that waits, or is kBusy if it is asynchronous; making,
  // forking and renaming branches wait as well. kNoSpace when nothing is left that may go. The wait
  // is short where the cap is hundreds of segments; at a few tens of them it may last for seconds.
  // With eviction off, blocking calls still wait for two background rounds, because sealing shrinks
  // the log.
  Evict evict = Evict::kNever;
  // The size of a log segment, fixed at creation: 256 KiB to 1 GiB. 0: what the store has; at
  // creation 64 MiB, or the power of two of which max_bytes and the disk's free space then hold 32
  // (262 MiB: 8 MiB). Another value than the store's is refused; StoreMetrics has it. Each opening
  // that writes begins one, and an orderly Close gives back what was not written of it.
  uint64_t segment_bytes = 0;
  // The live log stays below this, so that it and the time to open stay bounded: from three
  // quarters on the oldest part leaves it in the background, and when max_bytes leaves no room for
  // another segment. Full segments that are mostly needed, by pieces of KV of 256 KiB on average,
  // stay where they are and do not count here (StoreMetrics::log_resting_segments), until packing
  // them pays; the content of others is sealed into tables. At most a quarter of max_bytes; at
  // least four segments. Where data
  // comes faster than that, whatever can wait (AppendSync, Fill) is slowed the more the nearer the
  // limit is, and held at it, until its deadline; so are creating, forking and renaming branches. A
  // call that does not wait is kBusy at the limit. Drops and rewinds are never held, nor are large
  // appends that have begun: it may be longer by all of these, and by one segment. While the
  // background is paused, makes a checkpoint, or cannot give back what is damaged, nothing is held,
  // and the log grows; it gets short again beside the appends that come then. The log also never
  // holds more than 64 segments beyond ceil(bytes / segment_bytes): the background gives back the
  // oldest segments that short-lived processes leave, and at the latest Close waits for that. A
  // larger one takes bursts at the speed of the disk and lets short conversations end before they
  // are sealed; it costs disk, and time when a store is opened.
  uint64_t log_bytes_max = 4ull << 30;
  // A conversation is also sealed after this many new tokens or deltas, so that restores read short
  // chains; several conversations are sealed together, 16 MiB of KV or more, unless the log is
  // reclaimed first. Deltas with KV of 256 KiB and more do not count: they are read as well where
  // they are. 0: not for that reason.
  uint64_t snapshot_interval_tokens = 1024;
  uint64_t max_delta_chain = 100;
  // After this many log records, changes of the tree are flushed to the index, in the background.
  // Opening replays about that many at most; each flush costs a small table and a new MANIFEST.
  uint64_t replay_records_max = 8192;
  // Bytes per second that the background reads and writes together while it seals, rewrites and
  // merges, at most: in small steps, so that appends and restores meet little of it. As a rule of
  // thumb sealing moves 2.4 bytes for one of KV: it reads it, writes the packed table and reads
  // that back. Where room runs out the limit rises, and is lifted when none is left: between three
  // quarters and all of log_bytes_max, or of what max_bytes leaves to data, it is divided by the
  // part of the last quarter that is still free. So the log never passes log_bytes_max because of
  // this limit. 0: no limit; the threads of the background still give way to all others where they
  // meet on a core. From 64 KiB.
  uint64_t background_bytes_per_second = 0;
  // Log segments kept ready. Min: new ones created ahead, which costs next to nothing, since their
  // blocks are allocated as they fill and not written twice. Max: recycled ones kept, whose blocks
  // are written, which makes small appends faster. Others go back to the disk. Zeros are written
  // ahead only of appends below 96 KiB that come one by one, once they have filled a segment, as
  // far as they did so in the last two minutes.
  uint32_t spare_segments_min = 2;
  uint32_t spare_segments_max = 16;

  // --- Memory
  // All buffers and caches together; from 16 MiB. Restores stand in line for what they need of it,
  // until their deadline; one always gets on, whatever it needs. At 1 GiB about thirty run at once.
  uint64_t max_memory_bytes = 1ull << 30;
  // Newest part of the log kept in memory, from 256 KiB up to half of the above (without what GPUs
  // have of it).
  uint64_t hot_tail_bytes = 256ull << 20;
  // Larger asynchronous appends borrow the source. Up to 4 MiB and 64 KiB.
  uint64_t submit_copy_max_bytes = 1ull << 20;
  // Memory for branches, about 1 KiB each. Beyond this (or 3/16 of what the hot tail and a quarter
  // for staging leave of max_memory_bytes) the least recently used are dropped from memory and read
  // from the index when they are needed again. A new or changed branch stays until the index has
  // it.
  uint64_t tree_memory_bytes = 64ull << 20;
  // Memory for lookups of reusable content, 8 KiB or more. 0: 1/16 of max_memory_bytes. Limited to
  // what other parts of max_memory_bytes leave: all of 1/16 at 1 GiB, 1/128 at 16 MiB. Half of it
  // is for prefixes: a filter, and about 120 bytes for every 64 tokens until a table has them. Half
  // is for keys of objects (cairn/objects.h), about 25 bytes each: objects without room there are
  // looked up in the index.
  uint64_t reuse_memory_bytes = 0;
  // Where large buffers come from. See cairn/allocator.h for how long it must live.
  Allocator allocator = Allocator::Default();

  // --- Finding (cairn/find.h)
  // kPrefix: as its namespaces say (NamespacePolicy::index). kNone: nothing is found in this store,
  // whatever they say; indexes of earlier openings are given up with the next MANIFEST. kChunks is
  // for namespaces alone, and refused here.
  Index index = Index::kPrefix;
  // The longest lease (PrefixQuery::lease_ns) without a renewal, and the raw bytes that all leases
  // together may hold.
  uint64_t max_lease_ns = 60'000'000'000;
  uint64_t max_leased_bytes = 16ull << 30;

  // --- Appending
  // 1, or up to 64: one-token appends to a branch are coalesced into records of this many tokens; a
  // ticket completes when its record is logged, `delta_batch_wait_ns` later at most (an hour).
  // Where a record of the log holds fewer positions, as many are coalesced. A crash costs what was
  // accepted and not logged: nothing of that was acknowledged.
  uint32_t delta_batch_tokens = 1;
  uint64_t delta_batch_wait_ns = 5'000'000;

  // --- Failure
  FatalAction on_fatal = FatalAction::kPoison;
  std::shared_ptr<EventListener> listener{};  // Not called any more once Close has returned.

  // --- Machine
  Backend backend = Backend::kAuto;
  // Threads that help restores and run asynchronous calls; the same number seal in the background.
  // 0: one less than the cores, at least one. They begin when there is work for them.
  uint32_t executor_threads = 0;
  // GPUs that restores may write to; one per ordinal. Their pinned memory is part of
  // max_memory_bytes, half of it at most, and leaves 16 MiB of it.
  std::vector<Gpu> gpus{};
  // The world to live in, instead of this machine: tests run the store on a simulated one.
  std::shared_ptr<const io::World> world{};

  // kInvalidArgument naming the field. Open alone checks segment_bytes and max_bytes against the
  // store. Does no I/O.
  Status Validate() const;
};

}  // namespace cairn
