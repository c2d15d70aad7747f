// SPDX-License-Identifier: Apache-2.0
//
// The log behind the interface of wal/log.h: placing records (log_reserve.cc), group commit
// (log_commit.cc, log_progress.cc), opening, closing and everything else (log.cc).
//
// A group is forming -> closed -> done, and groups stand in one queue in the order of their
// sequences. One thread, its leader, carries a group from forming or closed to done:
//
//   close it, wait for its members to be filled, seal the header          no lock
//   write                                                                 no lock
//   wait until all earlier groups are written, sync if a member asked     no lock
//   take all done groups off the front of the queue, wake who waits
//
// The sync comes after the wait because it vouches for everything before: a sync that began while
// an earlier write was still under way proves nothing about that write.
//
// Callers' demands are two numbers, write_wanted_ and durable_wanted_; a thread that may lead looks
// for the first group that they reach. Threads that cannot lead sleep on the word of their group;
// one of them, the candidate, sleeps on lead_word_ and is woken to lead the next.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/core/mutex.h"
#include "base/core/out_of_memory.h"
#include "wal/commit_group.h"
#include "wal/constants.h"
#include "wal/format.h"
#include "wal/hot_tail.h"
#include "wal/log.h"
#include "wal/segment_pool.h"

namespace cairn::wal {

class LogImpl final : public Log {
 public:
  LogImpl(io::World world, LogOptions options, RecoveredLog recovered);
  ~LogImpl() override;
  Status Start();

  Result<Slot> Reserve(const RecordSpec& spec, Purpose purpose) override;
  uint64_t max_record_bytes() const override;
  void PieceReady(Slot& slot, uint64_t filled) override;
  void Publish(Slot& slot, std::span<const uint64_t> strip_hashes) override;
  void Request(uint64_t sequence, bool durable) override;
  Status Wait(uint64_t sequence, bool durable, uint64_t deadline_ns) override;
  void SpaceWasFreed() override { pool_.TryAgain(); }
  Status CheckRoom(std::span<const uint64_t> record_bytes) override;
  Status WaitForRoom(uint64_t deadline_ns) override;
  Status Flush(uint64_t deadline_ns) override;
  uint64_t last_reserved_sequence() const override { return last_reserved_.load(); }
  uint64_t written_sequence() const override { return written_.load(); }
  uint64_t durable_sequence() const override { return durable_.load(); }
  Status poisoned() const override;
  Status CheckLock() override;
  Pinned FindHot(const Location& record, uint32_t bytes) override;
  void AwaitSealed(const Pinned& record) override;
  Result<std::shared_ptr<io::File>> OpenSegment(uint64_t segment) override;
  Status Follow(RecoveredLog recovered, std::span<const RestingSegment> resting) override;
  std::vector<SegmentInfo> Segments() const override;
  uint64_t live_bytes() const override { return live_bytes_.load(std::memory_order_relaxed); }
  LogPosition written_end() const override;
  Status ReleaseBelow(uint64_t first_segment, std::span<const uint64_t> resting) override;
  Status RemoveResting(uint64_t segment) override;
  Counters counters() const override;
  Status Close() override;

 private:
  using Group = CommitGroup;
  // Wake-ups that are collected under the lock and done after it: a thread woken under the lock
  // would only run into it.
  class WakeList {
   public:
    void Add(std::atomic<uint32_t>& word) {
      word.fetch_add(1);
      for (size_t i = 0; i < count_; ++i) {
        if (words_[i] == &word) return;
      }
      words_[count_++] = &word;
    }
    void Go(io::Scheduler& scheduler) {
      for (size_t i = 0; i < count_; ++i) scheduler.WakeAll(*words_[i]);
      count_ = 0;
    }

   private:
    std::array<std::atomic<uint32_t>*, kMaxGroups + 8> words_{};
    size_t count_ = 0;
  };

  // --- Placing records (log_reserve.cc)
  Result<Group*> GroupFor(const RecordSpec& spec, uint64_t record_bytes, Purpose purpose,
                          WakeList& wakes) CAIRN_REQUIRES(mutex_);
  Status OpenNextSegment(uint64_t group_bytes, uint32_t group_footer, Purpose purpose)
      CAIRN_REQUIRES(mutex_);
  bool FitsForming(uint64_t record_bytes, uint64_t header_bytes) const CAIRN_REQUIRES(mutex_);
  Status NoNextSegment(bool pool_is_stuck) CAIRN_REQUIRES(mutex_);
  Status CheckBallast(uint64_t record_bytes, Purpose purpose) CAIRN_REQUIRES(mutex_);
  Status CheckCushion(Purpose purpose) const;
  bool CushionCovers(uint64_t record_bytes) const CAIRN_REQUIRES(mutex_);
  bool AskForBlocks(uint64_t end) CAIRN_REQUIRES(mutex_);
  Status NoBlocks(bool refused) CAIRN_REQUIRES(mutex_);
  Group* FreeGroup() CAIRN_REQUIRES(mutex_);
  void CloseForming() CAIRN_REQUIRES(mutex_);
  void CountPlaced(uint64_t end) CAIRN_REQUIRES(mutex_);
  Result<std::shared_ptr<HotTail::Chunk>> ChunkFor(uint64_t segment, uint32_t offset,
                                                   uint64_t bytes) CAIRN_REQUIRES(mutex_);

  // --- Group commit (log_commit.cc, log_progress.cc). Functions that REQUIRE the lock and wait or
  // write release it meanwhile.
  Group* NextToLead() CAIRN_REQUIRES(mutex_);
  bool SyncWanted() const CAIRN_REQUIRES(mutex_);
  bool LeadSomething(bool by_waiter) CAIRN_REQUIRES(mutex_);
  void Lead(Group& group) CAIRN_REQUIRES(mutex_);
  void LeadSync() CAIRN_REQUIRES(mutex_);
  void AwaitMembers(Group& group) CAIRN_REQUIRES(mutex_);
  void SealGroup(Group& group, uint64_t synced_upto) CAIRN_EXCLUDES(mutex_);
  Status FinishPredecessor(const Group& group) CAIRN_EXCLUDES(mutex_);
  // A disk that copies on write may be full though the blocks were allocated: then writes again,
  // with what the cushion gives. `write` syncs nothing but its own bytes: a sync that failed may
  // have lost what was written before, and is never done again.
  template <typename Write>
  Status WithCushion(const Write& write) {
    Status status = CatchBadAlloc(write);
    while (status.code() == StatusCode::kNoSpace && pool_.GiveUpCushion())
      status = CatchBadAlloc(write);
    return status;
  }
  bool AwaitEarlierWrites(const Group& group) CAIRN_REQUIRES(mutex_);
  void CountWritten(WakeList& wakes) CAIRN_REQUIRES(mutex_);
  void SetDurable(uint64_t sequence, WakeList& wakes) CAIRN_REQUIRES(mutex_);
  void Retire(WakeList& wakes) CAIRN_REQUIRES(mutex_);
  void PassLeadership(WakeList& wakes) CAIRN_REQUIRES(mutex_);
  void PoisonLocked(const Status& cause, WakeList& wakes) CAIRN_REQUIRES(mutex_);
  void Poison(const Status& cause) CAIRN_EXCLUDES(mutex_);
  Status LockIsOurs(uint64_t now_ns);
  void Announce(WakeList& wakes) CAIRN_REQUIRES(mutex_);
  Status OutcomeAfterPoison(uint64_t sequence) const CAIRN_REQUIRES(mutex_);
  Group* Unretired(uint64_t sequence) CAIRN_REQUIRES(mutex_);
  bool Sleep(std::atomic<uint32_t>& word, uint64_t deadline_ns) CAIRN_REQUIRES(mutex_);
  void RunLogThread() CAIRN_EXCLUDES(mutex_);
  uint64_t NextTimer(uint64_t now) CAIRN_REQUIRES(mutex_);

  // --- The rest (log.cc)
  void SetAllocated(uint64_t segment, uint64_t allocated) CAIRN_EXCLUDES(mutex_);
  Status WriteCleanEnd() CAIRN_EXCLUDES(mutex_);
  void CutTail(OpenSegmentState& segment, uint64_t end) CAIRN_EXCLUDES(mutex_);
  void StopThreads() CAIRN_EXCLUDES(mutex_);
  void AwaitWrites() CAIRN_EXCLUDES(mutex_);
  void SetLive(std::deque<SegmentInfo>* live) CAIRN_REQUIRES(mutex_);  // Swaps.
  // Its place among the resting ones; their end if it is none.
  std::vector<RestingSegment>::iterator FindResting(uint64_t segment) CAIRN_REQUIRES(mutex_);

  const io::World world_;
  io::Scheduler& scheduler_;
  LogOptions options_;
  RecoveredLog recovered_;
  const uint64_t epoch_;
  HotTail hot_;
  SegmentPool pool_;

  mutable Mutex mutex_;
  std::array<Group, kMaxGroups> groups_;
  // By sequence; the forming one is the last. Has room for all.
  std::vector<Group*> queue_ CAIRN_GUARDED_BY(mutex_);
  Group* forming_ CAIRN_GUARDED_BY(mutex_) = nullptr;  // queue_.back() or null.
  std::shared_ptr<HotTail::Chunk> chunk_ CAIRN_GUARDED_BY(mutex_);
  // Where records are placed, and where the last retired group lies.
  std::shared_ptr<OpenSegmentState> segment_ CAIRN_GUARDED_BY(mutex_);
  std::shared_ptr<OpenSegmentState> tail_segment_ CAIRN_GUARDED_BY(mutex_);
  uint64_t last_hash_ CAIRN_GUARDED_BY(mutex_) = 0;  // That group's header hash.
  uint32_t tail_end_ CAIRN_GUARDED_BY(mutex_) = 0;   // Its padded end.
  FooterBuffer footer_;
  AlignedBuffer block_;  // For trailers and the clean end; used by one leader at a time.
  std::deque<SegmentInfo> live_ CAIRN_GUARDED_BY(mutex_);
  // The log, with segment_ up to counted_end_.
  std::atomic<uint64_t> live_bytes_{0};
  uint64_t counted_end_ CAIRN_GUARDED_BY(mutex_) = 0;  // How much of segment_ live_bytes_ counts.
  std::vector<SegmentInfo> released_;  // Not live, not recycled yet: ReleaseBelow's own.
  std::vector<RestingSegment> resting_ CAIRN_GUARDED_BY(mutex_);  // Ascending.
  // Newest last. A file opened before a Follow may belong to another segment by now.
  std::deque<std::pair<uint64_t, std::shared_ptr<io::File>>> open_files_ CAIRN_GUARDED_BY(mutex_);
  uint64_t follows_ CAIRN_GUARDED_BY(mutex_) = 0;

  std::atomic<uint64_t> last_reserved_, written_, durable_;
  uint64_t issued_ CAIRN_GUARDED_BY(mutex_) = 0;  // Highest sequence handed to a write.
  // Every sequence up to it has been written, retired or not.
  uint64_t writes_through_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t write_wanted_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t durable_wanted_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint32_t in_flight_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool wake_pool_ CAIRN_GUARDED_BY(mutex_) = false;  // The next Reserve must wake the pool.
  bool exclusive_ CAIRN_GUARDED_BY(mutex_) = false;  // No other group may be in flight now.
  bool any_written_ CAIRN_GUARDED_BY(mutex_) = false;
  bool closing_ CAIRN_GUARDED_BY(mutex_) = false;
  bool stop_ CAIRN_GUARDED_BY(mutex_) = false;
  Status cause_ CAIRN_GUARDED_BY(mutex_);  // Why the log is poisoned.
  Status close_status_ CAIRN_GUARDED_BY(mutex_);

  // Announcements to the observer, never two at once.
  bool announcing_ CAIRN_GUARDED_BY(mutex_) = false;
  bool announce_poison_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t announced_written_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t announced_durable_ CAIRN_GUARDED_BY(mutex_) = 0;

  // Readers of records that are being filled: their number, and the word that they sleep on.
  std::atomic<uint32_t> seal_waiters_{0};
  std::atomic<uint32_t> seal_word_{0};

  // The leader that waits for members, see AwaitMembers().
  uint32_t members_wanted_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool awaits_members_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t group_ns_ CAIRN_GUARDED_BY(mutex_) = 0;  // Moving average of the time of a synced group.

  std::atomic<uint64_t> lock_checked_ns_{0};

  bool candidate_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t candidate_sequence_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool sync_sleepers_ CAIRN_GUARDED_BY(mutex_) = false;
  bool room_sleepers_ CAIRN_GUARDED_BY(mutex_) = false;
  bool log_thread_sleeps_ CAIRN_GUARDED_BY(mutex_) = false;
  bool log_thread_idle_ CAIRN_GUARDED_BY(mutex_) = false;
  std::atomic<uint32_t> lead_word_{0}, sync_word_{0}, room_word_{0}, write_word_{0}, log_word_{0},
      members_word_{0};

  mutable Counters counters_ CAIRN_GUARDED_BY(mutex_);
  std::unique_ptr<io::Thread> log_thread_;
};

}  // namespace cairn::wal
