// SPDX-License-Identifier: Apache-2.0
//
// The queue of those who were refused for want of room. An ask is taken in by one pass of the space
// thread, which evicts for it, and has then an outcome:
//
//   refused -> admitted -> pending -> made, or in vain        pass: one round of the space thread
//            \-> the refusal: nothing may go for it
//
// Who can wait sleeps until the pass has ended; who does not gets kBusy, and its next call learns
// the outcome. Releases need nobody's leave, and where nothing may go an ask is of no use: both
// wait for rounds alone (AwaitReclaim).
//
// Thread-safe. Lock order: the commit lock and the queue's own are never held together. MakeRoom
// and AwaitReclaim sleep, so no lock may be held around them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/core/mutex.h"
#include "engine/space/space_means.h"

namespace cairn::engine {

class RoomAsks {
 public:
  // What an append lacked when it was refused for the cap of its namespace, and how long its branch
  // was. By namespace and branch.
  struct QuotaAsk {
    uint64_t bytes = 0, length = 0;
  };
  using QuotaAsks = std::map<std::string, std::map<uint64_t, QuotaAsk>>;
  // What one pass is to see to.
  struct Pass {
    QuotaAsks asks;
    uint64_t number = 0;
  };
  enum class Ended : uint8_t {
    kMade,           // There may be room now.
    kInVain,         // There is none, and no more comes.
    kAwaitsReaders,  // They hold some: those who wait go on waiting.
  };

  explicit RoomAsks(const SpaceMeans& means)
      : means_(means), mutex_(means.mutex()), tree_(means.tree()) {}
  RoomAsks(const RoomAsks&) = delete;
  RoomAsks& operator=(const RoomAsks&) = delete;

  // --- For who was refused. An append of `bytes`, or a change. `id`: whom it is about, if that is
  // there already.
  // Ok: room was made, or may have been; try again.
  Status MakeRoom(std::optional<BranchId> id, uint64_t bytes, const Status& refusal,
                  uint64_t deadline_ns, std::optional<uint32_t>* first_round);
  // For whoever does not wait: kBusy when a refusal for want of room may be another one soon.
  Status WhileRoomIsMade(BranchId id, uint64_t bytes, const Status& refusal);
  // CommitHost::AwaitReclaim.
  Status AwaitReclaim(const Status& refusal, uint64_t deadline_ns,
                      std::optional<uint32_t>* first_round);

  // --- For the space thread.
  Pass BeginPass();
  void EndPass(Pass pass, Ended ended);

  // --- Any thread.
  // Something may go, and is wanted to: by who was refused, or because the cap is near. Takes the
  // commit lock.
  bool RoomIsShort() const;
  // Room is wanted by an append that was refused.
  bool AnyRefused() const { return refused_.load(); }
  Evict EvictOf(const NamespaceUse& use) const;
  // REQUIRES, of the next two: the commit lock.
  bool SomethingMayGo() const;
  bool IsAsking(BranchId branch) const { return asking_.contains(branch); }

 private:
  // What was asked for, and how it was then.
  struct Asked {
    uint64_t call_bytes = 0;  // Of the call that was refused.
    uint64_t used_bytes = 0;  // Of the ledger.
    uint64_t pass = 0;        // Of the space thread, which will have seen to it.
    bool by_quota = false;
    QuotaAsk ask{};          // Of a quota...
    uint64_t evictions = 0;  // ...and of what it is for.
  };
  enum class Outcome : uint8_t { kPending, kMade, kInVain };  // kMade: it may be there.
  class Asking;

  Result<Outcome> OutcomeOf(std::optional<BranchId> id, const Asked& asked);
  Result<Asked> Ask(std::optional<BranchId> id, uint64_t bytes, const Status& refusal, bool waits);
  Status RefusedWhilePaused(const Status& refusal) const;
  bool SealingMayHelp(uint64_t bytes, const Status& refusal) const;  // Takes the commit lock.

  const SpaceMeans& means_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  std::multiset<BranchId> asking_;  // With an append that waits for room; guarded by that.
  std::atomic<bool> refused_{false};

  Mutex queue_mutex_;
  QuotaAsks waiting_ CAIRN_GUARDED_BY(queue_mutex_);
  std::map<BranchId, Asked> busy_ CAIRN_GUARDED_BY(queue_mutex_);  // By calls that did not wait.
  uint64_t passes_wanted_ CAIRN_GUARDED_BY(queue_mutex_) = 0;
  uint64_t passes_done_ CAIRN_GUARDED_BY(queue_mutex_) = 0;
  // The last of them for which there was some room.
  uint64_t made_for_ CAIRN_GUARDED_BY(queue_mutex_) = 0;
};

}  // namespace cairn::engine
