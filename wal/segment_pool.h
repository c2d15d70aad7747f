// SPDX-License-Identifier: Apache-2.0
//
// A stock of segment files: spares, and the one that is prepared to be the log's next segment.
// Files are made, renamed and allocated and directories synced only here, on a thread of its own,
// before the log needs them.
//
// The order on disk: a spare is made and synced; it is renamed to the next number and the directory
// is synced; only then may the log write to it. So a full segment always has a successor file,
// which is what lets recovery call a missing one corruption.
//
// A new segment has its full length and blocks for a part of it. The log writes only to blocks that
// the file has; the pool allocates more before they are needed (Grow). If the disk is full, the log
// goes on as if the segment were full. Blocks are not written ahead, unless small groups filled the
// last segment: then spares are, a step at a time beside the groups.
//
// Where a disk copies on write, blocks of a file are no promise. The pool keeps a SpaceCushion
// there.
//
// Thread-safe. The caller may hold a lock of its own around the calls marked "never blocks".
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/world.h"
#include "wal/constants.h"
#include "wal/log.h"
#include "wal/prewriter.h"
#include "wal/segment_files.h"
#include "wal/space_cushion.h"

namespace cairn::wal {

class SegmentPool {
 public:
  struct Callbacks {
    std::function<void()> on_ready;  // Something was added: a refused caller may retry.
    // Groups may go up to `allocated` of that segment.
    std::function<void(uint64_t segment, uint64_t allocated)> on_grown;
    std::function<void(const Status&)> on_fatal;  // A sync failed: the log must be poisoned.
    std::function<Status()> check_lock;           // Log::CheckLock
    std::function<void(const std::string&)> on_event;
    // Runs on the pool's thread after a wake, when the work that appends may wait for is done: a
    // small step. True: there is more; it goes on after a rest (kIdlePauses).
    std::function<bool()> idle_work;
  };

  struct Ready {
    std::shared_ptr<io::File> file;  // Null: there is none.
    uint64_t segment = 0;
    uint64_t allocated = 0;
  };

  SegmentPool(io::World world, const LogOptions& options, Callbacks callbacks);
  ~SegmentPool();  // Stop()s.

  // Takes stock of the directory: `first_live` to `next_segment` - 1 belong to the log, everything
  // else becomes a spare or is removed. Prepares `next_segment` unless there is no space; with
  // `fill`, makes all spares too. Starts no thread.
  Status Open(uint64_t first_live, uint64_t next_segment, bool fill);
  bool Start();  // False when the system refuses a thread.
  void Stop();

  // How many segments can be had right now, the prepared one included. Never blocks.
  uint32_t ready() const { return ready_.load(std::memory_order_acquire); }
  // Takes the prepared segment out of the pool. Empty file: there is none yet, or it has no blocks
  // up to `wanted`, since it may have been prepared after NextHasBlocks found none. The one taken
  // before is full, with groups of `group_bytes` on average; no more of its blocks are promised.
  // The caller must Wake() afterwards, so that another is prepared. Never blocks.
  Ready TakeNext(uint64_t group_bytes, uint64_t wanted);
  // Whether the prepared segment, if there is one, has blocks up to `wanted`. If not, requests them
  // as Grow() does, and sets `*refused` to what that says. Never blocks.
  bool NextHasBlocks(uint64_t wanted, bool* refused);
  // Requests blocks up to `wanted` at least for the segment that the log writes; on_grown reports
  // them. The caller must Wake(). False as long as the disk had no room for them. Never blocks.
  bool Grow(const std::shared_ptr<io::File>& file, uint64_t segment, uint64_t allocated,
            uint64_t wanted);
  // This many bytes went to the log. True: the caller must Wake(), since zeros are written ahead
  // for as many. Never blocks.
  bool Placed(uint64_t bytes) {
    const uint64_t before = placed_.fetch_add(bytes, std::memory_order_relaxed);
    return before < kPrewriteStepBytes && before + bytes >= kPrewriteStepBytes;
  }
  // Why no more segments can be had, or Ok while the pool is still working on it. Never blocks.
  Status refusal();
  // Whether the last attempt to make a file found the disk full, max_bytes apart.
  bool disk_is_full() const {
    return disk_is_full_.load(std::memory_order_acquire) || !cushion_.whole();
  }
  const SpaceCushion& cushion() const { return cushion_; }
  // The disk refused a write into allocated blocks. True: it has room again for some of it.
  bool GiveUpCushion();
  // Segments being made: their space is taken, or about to be.
  uint32_t making() const { return making_.load(std::memory_order_acquire); }
  // Not a new file was refused: there are spares, but none of them can be made the next segment.
  bool stock_is_refused();
  // Room was made: forgets the refusal and tries again at once. Never blocks.
  void TryAgain();
  // More is needed than there is, and the disk was full last time: makes one more than the stock
  // usually has, if there is room by now. Never blocks.
  void TryOneMore();
  // Wakes the thread: to try again after a refusal (at a bounded rate) and to run idle_work.
  void Wake();
  // Whether the log needs another segment to go on giving space back, or still has room for that
  // where it writes. As long as it has room, no segment is made from, or kept in, the reserve for
  // giving space back, since that is for tables then. It needs one at first. Never blocks.
  void NeedOne(bool needed) { needs_one_.store(needed, std::memory_order_release); }

  // A live segment whose records nobody needs becomes a spare; or it is removed, if there are
  // enough, space is short, or its size differs from new segments. On any error the file is still
  // there. By one thread at a time.
  Status Recycle(uint64_t segment, uint64_t bytes);

  struct Stock {
    uint64_t spares = 0;  // The prepared one included.
    uint64_t made = 0;
    uint64_t bytes_prewritten = 0;
    uint64_t times_refused = 0;  // Nothing more could be had; counts on_event reports.
  };
  Stock stock();

 private:
  enum class Task : uint8_t { kNone, kCushion, kGrow, kPrepare, kMake, kTrim, kPrewrite };
  struct Spare {
    uint64_t id = 0;
    uint64_t allocated = 0;  // At least; the rest is promised.
    bool written = false;    // All of its blocks.
  };
  // Blocks that the log has requested for the segment that it writes, or for the next. Without a
  // file: none.
  struct Growth {
    std::shared_ptr<io::File> file;
    uint64_t segment = 0, allocated = 0, wanted = 0;
  };

  void Run();
  void RunCounted(Task task, bool makes_file, bool with_stock, bool refused);
  Task NextTaskLocked(uint64_t now_ns) const CAIRN_REQUIRES(mutex_);
  std::vector<Spare>::iterator NextSpareLocked() CAIRN_REQUIRES(mutex_);
  // The spare to be written ahead, if one is wanted.
  const Spare* SpareToWriteLocked(uint64_t now_ns) const CAIRN_REQUIRES(mutex_);
  Status RunTask(Task task);
  Status GrowSegment();
  // Its allocated bytes; null when it is neither the next nor the one being written.
  uint64_t* BytesOfLocked(uint64_t segment) CAIRN_REQUIRES(mutex_);
  void RefuseGrowth(const Status& status);
  bool HasDiskRoom(uint64_t bytes);
  Status Prewrite();
  Result<uint64_t> AllocateNext(io::File& file, uint64_t allocated);
  void Promise(uint64_t bytes);
  void Keep(uint64_t promised);  // The bytes have blocks, or are not wanted any more.
  uint64_t FirstBytes() const { return FirstAllocatedBytes(options_.segment_bytes); }
  uint64_t Unallocated(uint64_t allocated) const {
    return options_.segment_bytes - std::min(options_.segment_bytes, allocated);
  }
  Status MakeCushion();
  void TryCushionLater();
  Status MakeSpare();
  Status PrepareNext();
  Status TrimSpare();
  Status AdoptSpare(uint64_t id);
  Status AdoptSegments(const std::vector<uint64_t>& segments, uint64_t first_live,
                       uint64_t next_segment);
  Status AdoptNext(uint64_t next_segment);
  Result<std::optional<uint64_t>> AllocatedOf(const std::string& path);
  uint64_t NewSpareLocked() CAIRN_REQUIRES(mutex_);
  void AddSpare(const Spare& spare);
  void CountReadyLocked() CAIRN_REQUIRES(mutex_);
  void Report(const char* what, const Status& status);
  void SetRefusal(const Status& status, bool with_stock);
  Status Take();
  void Return(uint64_t bytes);
  bool MayUseReserve() const { return ready() == 0 && needs_one_.load(std::memory_order_acquire); }
  bool IsShort() const { return options_.grant != nullptr && options_.grant->IsShort(); }

  io::World world_;
  const LogOptions options_;
  const Callbacks callbacks_;

  Mutex mutex_;
  Ready next_ CAIRN_GUARDED_BY(mutex_);
  uint64_t next_segment_ CAIRN_GUARDED_BY(mutex_) = 0;  // The number that next_ has or will have.
  // A spare has that name already, but there was no memory to open it.
  bool next_is_named_ CAIRN_GUARDED_BY(mutex_) = false;
  Spare named_ CAIRN_GUARDED_BY(mutex_);
  Growth growth_ CAIRN_GUARDED_BY(mutex_);
  bool growth_is_refused_ CAIRN_GUARDED_BY(mutex_) = false;
  // When a refused growth may be tried again.
  uint64_t grow_again_ns_ CAIRN_GUARDED_BY(mutex_) = 0;
  // Allocated bytes of the segment being written, possibly more than the log knows. Once the log
  // has left it no more are promised.
  uint64_t grown_segment_ CAIRN_GUARDED_BY(mutex_) = 0, grown_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  FillHistory history_ CAIRN_GUARDED_BY(mutex_);
  Prewriter prewriter_;  // The thread's.
  SpaceCushion cushion_;
  uint64_t cushion_again_ns_ CAIRN_GUARDED_BY(mutex_) = 0;  // When it may be tried again.
  // Ids of spares. A place is reserved before a spare's file exists, so that none is lost for want
  // of memory.
  std::vector<Spare> spares_ CAIRN_GUARDED_BY(mutex_);
  uint64_t next_spare_id_ CAIRN_GUARDED_BY(mutex_) = 1;
  Status refusal_ CAIRN_GUARDED_BY(mutex_);
  // With refusal_: no spare could be made the next segment.
  bool stock_is_refused_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t retry_at_ns_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool woken_ CAIRN_GUARDED_BY(mutex_) = false;
  bool one_more_ CAIRN_GUARDED_BY(mutex_) = false;
  bool broken_ CAIRN_GUARDED_BY(mutex_) = false;  // After on_fatal: nothing more is prepared.
  bool stop_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t made_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_prewritten_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> times_refused_{0};

  std::atomic<uint64_t> placed_{0};  // Since the last step of zeros.
  std::atomic<uint32_t> ready_{0};
  std::atomic<uint32_t> making_{0};
  std::atomic<bool> disk_is_full_{false};
  std::atomic<bool> needs_one_{true};
  std::atomic<uint32_t> word_{0};
  std::unique_ptr<io::Thread> thread_;
};

}  // namespace cairn::wal
