// SPDX-License-Identifier: Apache-2.0
//
// The write-ahead log: the one commit point of a store. It gives records sequence numbers (from 1,
// without holes), writes them in that order in groups, and reports how far they have got. It does
// not know what records mean.
//
// The way of a record:
//   Reserve   numbers it and gives it a place in the forming group's memory     (never blocks)
//   fill      the caller copies the payload straight into that memory           (no lock)
//   Publish   seals the checksums                                               (no lock)
//   group     a waiting caller leads the group on its own thread; groups that nobody waits for are
//             led by the log thread. Write, sync if a member asked for it, acknowledge in order.
//
// Group memory belongs to chunks that mirror contiguous stretches of the log. A written chunk stays
// as the *hot tail*, a cache of the newest `hot_tail_bytes` of the log that costs no copy.
//
// Failure: any error of a write or sync of an allocated segment poisons the log. Nothing is
// retried; everything above acknowledged_sequence() has an unknown outcome until the log is opened
// again.
//
// Thread-safe. Reserve takes a short lock of its own. Callers that need an order of their own (the
// engine's commit lock) may hold their lock across Reserve, and across nothing else here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/io/world.h"
#include "cairn/allocator.h"
#include "wal/record.h"

namespace cairn::wal {

// On disk in OPTIONS as text: "dsync" or "fdatasync".
enum class SyncMethod : uint8_t { kFdatasync, kDurableWrite };

// The use of requested space; later values may use more of it. The segments that the log keeps
// ready for the latter two are its *ballast*.
enum class Purpose : uint8_t {
  kData,  // May be refused with kNoSpace.
  // Drop, rewind: possible when there is no room for data any more; they may use a part of the last
  // segment.
  kRelease,
  // Work that gives back space they released. Never waits for a release. At most
  // kReclaimRecordBytesMax.
  kReclaim,
};

// Grants disk space: the store's byte ledger (declared here, implemented above), which keeps a
// reserve from data.
class SpaceGrant {
 public:
  virtual ~SpaceGrant() = default;
  // kNoSpace when max_bytes would be exceeded, or, for data, max_bytes without the reserve.
  virtual Status Take(uint64_t bytes, Purpose purpose) = 0;
  virtual void TakeAnyway(uint64_t bytes) = 0;  // For a file that exists already.
  virtual void Return(uint64_t bytes) = 0;
  // Adds to the bytes that were taken and have no blocks on the disk yet; negative: they have
  // blocks now, or are given up. The grant does not count these blocks as free.
  virtual void Promise(int64_t bytes) = 0;
  virtual uint64_t room(Purpose purpose) const = 0;  // Bytes that may still be taken.
  // The reserve is in use: free space should be returned, not kept.
  virtual bool IsShort() const = 0;
};

// Called by the thread that found out, with no lock of the log held. OnProgress calls never
// overlap; both values only grow. Wait() may return before OnProgress reports its record.
class LogObserver {
 public:
  virtual ~LogObserver() = default;
  virtual void OnProgress(uint64_t written_sequence, uint64_t durable_sequence) = 0;
  // Once. `acknowledged`: the highest sequence whose group was completed.
  virtual void OnPoison(const Status& cause, uint64_t acknowledged) = 0;
  // A group took longer than the stall threshold, or the spare pool ran dry, ...: one line.
  virtual void OnEvent(const std::string& line) = 0;
};

// A full segment that has left the log: its records are not replayed any more, but content is still
// read from it. Its file is never written again, nor used for another segment.
struct RestingSegment {
  uint64_t number = 0;
  uint64_t end_offset = 0;  // First byte after its last group.
  bool operator==(const RestingSegment&) const = default;
};

struct LogOptions {
  std::string directory;  // "<store>/log"
  StoreId store;
  uint64_t segment_bytes = 64 << 20;
  uint32_t spare_segments_min = 2;   // New ones, made ahead.
  uint32_t spare_segments_max = 16;  // Recycled ones kept; more are removed.
  uint64_t hot_tail_bytes = 256 << 20;
  // Within the hot tail; clamped to what a segment can hold. Three groups of a 2 MiB append, or one
  // of the largest record, with little left over.
  uint64_t chunk_bytes = (6 << 20) + (256 << 10);
  uint64_t memory_flush_ns = 100'000'000;  // Age limit for records of a group nobody waits for.
  SyncMethod sync_method = SyncMethod::kFdatasync;
  Allocator allocator = Allocator::Default();
  bool read_only = false;           // No threads, no new files; Reserve returns kReadOnly.
  io::FileLock* lock = nullptr;     // The store's; may be null. See CheckLock.
  SpaceGrant* grant = nullptr;      // May be null: unlimited.
  LogObserver* observer = nullptr;  // May be null.
  uint64_t first_segment = 1;       // The next one of a log that has none.
  // Ascending, below the first segment of the log.
  std::vector<RestingSegment> resting{};
};

// Found by recovery; also the state from which a Log goes on.
struct SegmentInfo {
  uint64_t number = 0;
  uint64_t epoch = 0;
  uint32_t end_offset = 0;  // First byte after the last valid group.
  uint64_t first_sequence = 0;
  uint64_t last_sequence = 0;  // first_sequence - 1 when empty.
  uint64_t file_bytes = 0;     // Less than segment_bytes if the log was closed in it.
};

// A place between two groups.
struct LogPosition {
  uint64_t segment = 0, epoch = 0;
  uint64_t offset = 0;         // 0: where the segment's first group begins.
  uint64_t last_sequence = 0;  // The group before it: its last record, and its header's hash.
  uint64_t last_hash = 0;
  bool operator==(const LogPosition&) const = default;
};

struct RecoveredLog {
  std::vector<SegmentInfo> segments;  // From the log start, consecutive numbers.
  uint64_t last_sequence = 0;
  uint64_t last_hash = 0;  // Header hash of the last valid group; chains segments.
  // The segments that a salvage cuts may have the only traces of the epochs before. Opening the log
  // reuses their files, so the caller of a salvage must have made the epoch durable
  // (RecoveryOptions::epoch_used).
  uint64_t next_epoch = 1;
  bool torn_tail = false;   // Something unacknowledged was dropped at the end.
  std::string torn_detail;  // Where and why, for people.
  bool repaired = false;    // Salvage dropped something that had been synced.
  std::string repaired_detail;
};

struct RecoveryOptions {
  std::string directory;
  StoreId store;
  uint64_t first_segment = 1;
  // Records before it are not wanted, and need not be read: everything up to it was durable. Some
  // may be handed out all the same. The links between segments are checked.
  LogPosition replay_from;
  uint64_t epoch_used = 0;  // Epochs up to it are never used again, whatever the log shows.
  bool read_only = false;   // Then nothing is synced either.
  // Opens what is provable: stops at the first damaged place instead of refusing; `repaired`
  // reports it.
  bool salvage = false;
  // Stops after this sequence and looks at nothing behind it, so that a log can be read while it is
  // written to: everything up to the sequence was written. UINT64_MAX: everything.
  uint64_t stop_after = UINT64_MAX;
  // A writer may be active, and only synced records are wanted: stop_after is known to be synced,
  // and more is when a later group or segment says so. Later groups prove nothing.
  bool following = false;
};

// Replays the headers of all records in sequence order, from replay_from on. Full segments are read
// by their footer. The payload of groups that may not have been synced is verified; the rest is
// trusted until it is read. An error of `on_record` ends recovery with its Status, also a salvage:
// it is no damage of the log. Never writes anything; fdatasyncs what it read unless read_only.
// kCorruption (names file and offset) for damaged headers below what was synced and for missing
// segments; kUnsupportedFormat for a newer format.
Result<RecoveredLog> Recover(io::World& world, const RecoveryOptions& options,
                             const std::function<Status(const RecordView&)>& on_record);

// Bytes of the hot tail; keeps its chunk alive.
struct Pinned {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

class Log {
 public:
  // `recovered` comes from Recover (or is default constructed for a new log; then the first spare
  // segments are made before this returns). Starts the log thread and the pool thread. The first
  // write opens a fresh segment with recovered.next_epoch.
  static Result<std::unique_ptr<Log>> Open(io::World world, LogOptions options,
                                           RecoveredLog recovered);
  virtual ~Log() = default;  // Close()s.

  using Purpose = wal::Purpose;

  // A place in the forming group. Movable value; must be Published.
  struct Slot {
    uint64_t sequence = 0;
    Location location;
    std::byte* payload = nullptr;  // Strip i starts at payload + strip_offsets[i].
    std::vector<uint32_t> strip_offsets;
    void* group = nullptr;        // The log's.
    std::byte* record = nullptr;  // The frame.
  };

  // Never blocks. kBusy: group memory is full (two groups in flight and one formed); retry after
  // progress, see WaitForRoom. kNoSpace: no segment can be had (max_bytes or disk), or, for data,
  // only ballast; kIoError: a segment cannot be made (the directory is gone, ...). After either
  // nothing was numbered, and a retry may work later. kPoisoned. kInvalidArgument: larger than
  // max_record_bytes(). A record with a large payload (kLargePayloadBytes) gets a group of its
  // own.
  virtual Result<Slot> Reserve(const RecordSpec& spec, Purpose purpose) = 0;
  virtual uint64_t max_record_bytes() const = 0;

  // Optional, by the one filling thread, in rising order: payload bytes [0, filled) are final.
  // Lets the log write early pieces of a large record while the next are being gathered.
  virtual void PieceReady(Slot& slot, uint64_t filled) = 0;
  // `strip_hashes`: Hash() of each strip's bytes. After this the slot's memory is the log's.
  virtual void Publish(Slot& slot, std::span<const uint64_t> strip_hashes) = 0;

  // Asks the log thread to write `sequence` (and to sync it, when durable), for a caller that does
  // not wait for it on its own thread. Never blocks.
  virtual void Request(uint64_t sequence, bool durable) = 0;

  // Blocks until `sequence` is written (durable: synced); leads groups on this thread if no other
  // does. Ok; kPoisoned/kUnknownOutcome when it never will be; kDeadlineExceeded. The caller must
  // not hold an unpublished slot up to `sequence`: it could wait for itself.
  virtual Status Wait(uint64_t sequence, bool durable, uint64_t deadline_ns) = 0;
  // Announces data records of these sizes, one per group, one after the other. kNoSpace when one of
  // them is certain to be refused, so that those before it are not written in vain; Ok promises
  // nothing. Never blocks.
  virtual Status CheckRoom(std::span<const uint64_t> record_bytes) = 0;
  // Room was made: space requests that were refused are tried again at once. Reserve is kBusy until
  // then. Never blocks.
  virtual void SpaceWasFreed() = 0;
  // Blocks until a Reserve that gave kBusy may be worth a retry, or the deadline.
  virtual Status WaitForRoom(uint64_t deadline_ns) = 0;
  // Writes and syncs everything reserved and published so far.
  virtual Status Flush(uint64_t deadline_ns) = 0;

  virtual uint64_t last_reserved_sequence() const = 0;
  virtual uint64_t written_sequence() const = 0;  // Acknowledged kProcess up to here.
  virtual uint64_t durable_sequence() const = 0;  // Acknowledged kPower up to here.
  virtual Status poisoned() const = 0;            // Ok while healthy.
  // kLocked, and the log is poisoned with it, once LogOptions::lock is lost: another process may
  // write here. The log checks before it makes, takes or gives back a segment and, now and then
  // (kLockCheckNs), before a group; writers of other files of the store call this before they
  // write.
  virtual Status CheckLock() = 0;

  // `bytes` of the log from a record's place on, if they are in memory. Nothing when they are not
  // (any more), or an earlier epoch wrote the record: after a salvage the same place may hold
  // another. The bytes of a published record are readable at once; those of one that was only
  // reserved, once IsSealed (wal/record.h) says so.
  virtual Pinned FindHot(const Location& record, uint32_t bytes) = 0;
  // Sleeps until another thread has published the record that FindHot returned. This thread must
  // not own its slot.
  virtual void AwaitSealed(const Pinned& record) = 0;
  // A file handle for reading a segment with direct I/O, cached. The segment may rest.
  virtual Result<std::shared_ptr<io::File>> OpenSegment(uint64_t segment) = 0;
  // For a read-only log: goes on from the result of another Recover, with these segments resting.
  // Handles from OpenSegment stay valid for what they were opened for.
  virtual Status Follow(RecoveredLog recovered, std::span<const RestingSegment> resting) = 0;
  virtual std::vector<SegmentInfo> Segments() const = 0;
  // The bytes of its segments, without the unfilled part of the last one. Takes no lock.
  virtual uint64_t live_bytes() const = 0;
  // The end of the last group that was written along with all groups before it.
  virtual LogPosition written_end() const = 0;

  // Recycling: segments below `first_segment` are free. They return to the spare pool (renamed, to
  // be overwritten in place) or are removed when it is full. The caller has made that log start
  // durable. It must hold a durable record, else a power loss could take the whole log: choose one
  // whose first_sequence is at most durable_sequence(). Segments beyond that are not released.
  // Errors are returned, and such segments are tried again by the next call that has nothing else
  // to release: one file that cannot be recycled does not hold up others. By one thread at a time.
  //
  // Those of them that are in `resting`, which ascends, are full. They stay as they are, and go on
  // taking the grant's bytes, until RemoveResting.
  virtual Status ReleaseBelow(uint64_t first_segment, std::span<const uint64_t> resting) = 0;
  Status ReleaseBelow(uint64_t first_segment) { return ReleaseBelow(first_segment, {}); }
  // Removes the file of a segment that rests; also if it is gone already. The caller has made
  // durable that nothing needs it. On an error it goes on resting. By one thread at a time.
  virtual Status RemoveResting(uint64_t segment) = 0;

  struct Counters {
    uint64_t groups = 0, records = 0, syncs = 0;
    uint64_t bytes_written = 0;     // Groups with padding.
    uint64_t segments_made = 0;     // New files.
    uint64_t bytes_prewritten = 0;  // Zeros, ahead of small groups.
    uint64_t led_by_waiter = 0, led_by_thread = 0;
    uint64_t segments_live = 0, segments_spare = 0, segment_bytes_total = 0;
    uint64_t segment_bytes_live = 0;  // Without spares, and without resting ones.
    uint64_t segments_resting = 0, segment_bytes_resting = 0;
    uint64_t hot_bytes = 0, busy = 0;
    uint64_t groups_in_flight = 0;  // Now; a sync without a group counts as one.
    // Stalls. Reported to OnEvent as well: groups slower than kStallNs, and when no segment can be
    // made.
    uint64_t slow_groups = 0, no_segment = 0;
    uint64_t segment_late = 0;  // Reserves that found the next segment still being prepared.
    // There was no space for another segment, and none is left for data.
    bool disk_is_full = false;
  };
  virtual Counters counters() const = 0;

  // Flushes what is published, marks a clean end, frees the rest of the last segment (an event if
  // that is not possible), and stops the threads. Idempotent. After poison it only stops. REQUIRES:
  // every slot was published, and no other call runs or follows, except Wait. When it returns no
  // I/O is under way or will follow.
  virtual Status Close() = 0;
};

}  // namespace cairn::wal
