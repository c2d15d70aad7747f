// SPDX-License-Identifier: Apache-2.0
//
// Segment files in stock: spares, and the one that is prepared to be the next segment of the log.
// All making, renaming and directory syncs happen here, on a thread of its own, before the log
// needs the file.
//
// The order on disk: a spare is zeroed and synced; it is renamed to the next number and the
// directory is synced; only then may the log write to it. So a full segment always has a successor
// file, which is what lets recovery call a missing one corruption.
//
// Thread-safe. The caller may hold a lock of its own around the calls marked "never blocks".
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/world.h"
#include "wal/log.h"
#include "wal/segment_files.h"

namespace cairn::wal {

class SegmentPool {
 public:
  struct Callbacks {
    std::function<void()> on_ready;  // Something was added: a refused caller may retry.
    std::function<void(const Status&)> on_fatal;  // A sync failed: the log must be poisoned.
    std::function<Status()> check_lock;           // Log::CheckLock
    std::function<void(const std::string&)> on_event;
    std::function<void()> idle_work;  // Run on the pool's thread when it was kicked.
  };

  struct Ready {
    std::shared_ptr<io::File> file;
    uint64_t segment = 0;
  };

  SegmentPool(io::World world, const LogOptions& options, Callbacks callbacks);
  ~SegmentPool();  // Stop()s.

  // Takes stock of the directory: `first_live` to `next_segment` - 1 belong to the log, everything
  // else becomes a spare or goes. Prepares `next_segment` unless there is no space; with
  // `fill`, makes all spares too. Starts no thread.
  Status Open(uint64_t first_live, uint64_t next_segment, bool fill);
  bool Start();  // False when the system refuses a thread.
  void Stop();

  // How many segments can be had right now, the prepared one included. Never blocks.
  uint32_t ready() const { return ready_.load(std::memory_order_acquire); }
  // The prepared segment, which is then no longer the pool's; empty file when there is none yet.
  // The caller Kick()s the pool afterwards to prepare another. Never blocks.
  Ready TakeNext();
  // Why nothing more can be had, or Ok while the pool is still working on it. Never blocks.
  Status refusal();
  // Whether the last file that was to be made found no space, but for max_bytes.
  bool disk_is_full() const { return disk_is_full_.load(std::memory_order_acquire); }
  // Segments that are being made: their space is taken, or about to be.
  uint32_t making() const { return making_.load(std::memory_order_acquire); }
  // The refusal is not of a new file: there are spares, of which none can be made the next segment.
  bool stock_is_refused();
  // What was refused may be had by now: forgets the refusal and tries at once. Never blocks.
  void TryAgain();
  // More is needed than there is, and the disk was full the last time: makes one more than the
  // stock has otherwise, if there is room by now. Never blocks.
  void TryOneMore();
  // Wakes the thread: to try again after a refusal (at a bounded rate) and to run idle_work.
  void Kick();
  // Whether the log needs another segment to go on giving space back, or has room for that where it
  // writes: as long as it has, no segment is made of, or kept in, what is reserved for giving space
  // back, since that is for tables then. It needs one at first. Never blocks.
  void NeedOne(bool needed) { needs_one_.store(needed, std::memory_order_release); }

  // A live segment whose records nobody needs becomes a spare, or is removed when there are
  // enough, space is short, or its size is not what new segments have. Any error: it is still
  // there. By one thread at a time.
  Status Recycle(uint64_t segment, uint64_t bytes);

  struct Stock {
    uint64_t spares = 0;  // The prepared one included.
    uint64_t bytes_prewritten = 0;
    uint64_t times_refused = 0;  // Nothing more could be had; as often as on_event told of it.
  };
  Stock stock();

 private:
  enum class Task : uint8_t { kNone, kPrepare, kMake, kTrim };

  void Run();
  Task NextTaskLocked() const CAIRN_REQUIRES(mutex_);
  Status RunTask(Task task);
  Status MakeSpare();
  Status PrepareNext();
  Status TrimSpare();
  Status AdoptSpare(uint64_t id);
  Status AdoptSegments(const std::vector<uint64_t>& segments, uint64_t first_live,
                       uint64_t next_segment);
  Status AdoptNext(uint64_t next_segment);
  Result<bool> HasRightSize(const std::string& path);
  uint64_t NewSpareLocked() CAIRN_REQUIRES(mutex_);
  void AddSpare(uint64_t id);
  void CountReadyLocked() CAIRN_REQUIRES(mutex_);
  void Tell(const char* what, const Status& status);
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
  // A spare has that number, and there was no memory to open it.
  bool next_is_named_ CAIRN_GUARDED_BY(mutex_) = false;
  // Their ids. There is room for what is about to be one before its file is: none is lost for want
  // of memory.
  std::vector<uint64_t> spares_ CAIRN_GUARDED_BY(mutex_);
  uint64_t next_spare_id_ CAIRN_GUARDED_BY(mutex_) = 1;
  Status refusal_ CAIRN_GUARDED_BY(mutex_);
  // By refusal_: a spare could not be made the next segment.
  bool stock_is_refused_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t retry_at_ns_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool kicked_ CAIRN_GUARDED_BY(mutex_) = false;
  bool one_more_ CAIRN_GUARDED_BY(mutex_) = false;
  bool broken_ CAIRN_GUARDED_BY(mutex_) = false;  // After on_fatal: nothing more is prepared.
  bool stop_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t bytes_prewritten_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> times_refused_{0};

  std::atomic<uint32_t> ready_{0};
  std::atomic<uint32_t> making_{0};
  std::atomic<bool> disk_is_full_{false};
  std::atomic<bool> needs_one_{true};
  std::atomic<uint32_t> word_{0};
  std::unique_ptr<io::Thread> thread_;
};

}  // namespace cairn::wal
