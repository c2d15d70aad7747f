// SPDX-License-Identifier: Apache-2.0
//
// The queue of appends that were refused for want of room. One pass of the space thread takes in a
// request, evicts for it, and gives it an outcome:
//
//   refused -> admitted -> pending -> made, or in vain        pass: one round of the space thread
//            \-> the refusal: nothing may be evicted for it
//
// A caller that can wait sleeps until the pass has ended; one that cannot gets kBusy, and its next
// call learns the outcome. Releases need no eviction, and where nothing may be evicted a request is
// of no use: both just wait for rounds (AwaitReclaim).
//
// Thread-safe. The commit lock and the queue's own are never held together. MakeRoom and
// AwaitReclaim sleep, so no lock may be held around them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/core/mutex.h"
#include "engine/background/space_deps.h"

namespace cairn::engine {

class SpaceRequests {
 public:
  // Bytes that an append lacked when it was refused for the cap of its namespace, and the length of
  // its branch then. By namespace and branch.
  struct QuotaRequest {
    uint64_t bytes = 0, length = 0;
  };
  using QuotaRequests = std::map<std::string, std::map<uint64_t, QuotaRequest>>;
  // The requests that one pass serves.
  struct Pass {
    QuotaRequests requests;
    uint64_t number = 0;
  };
  enum class Ended : uint8_t {
    kMade,           // There may be room now.
    kInVain,         // There is none, and no more comes.
    kAwaitsReaders,  // Readers hold some: waiting callers go on waiting.
  };

  explicit SpaceRequests(const SpaceDeps& deps)
      : deps_(deps), mutex_(deps.mutex()), tree_(deps.tree()) {}
  SpaceRequests(const SpaceRequests&) = delete;
  SpaceRequests& operator=(const SpaceRequests&) = delete;

  // --- For refused calls: an append of `bytes`, or a change. `id`: its branch, if that exists
  // yet.
  // Ok: room was made, or may have been; try again.
  Status MakeRoom(std::optional<BranchId> id, uint64_t bytes, const Status& refusal,
                  uint64_t deadline_ns, std::optional<uint32_t>* first_round);
  // For callers that do not wait: kBusy if there may be room soon, else the refusal.
  Status WhileRoomIsMade(BranchId id, uint64_t bytes, const Status& refusal);
  // CommitCallbacks::HasRoomAgain.
  bool HasRoomAgain();
  // CommitCallbacks::AwaitReclaim.
  Status AwaitReclaim(const Status& refusal, uint64_t deadline_ns,
                      std::optional<uint32_t>* first_round);

  // --- For the space thread.
  Pass BeginPass();
  void EndPass(Pass pass, Ended ended);

  // --- Any thread.
  // Something may be evicted, and should be: calls were refused, or the cap is near. Takes the
  // commit lock.
  bool RoomIsShort() const;
  // An append that was refused wants room.
  bool AnyRefused() const { return refused_.load(); }
  Evict EvictOf(const NamespaceUsage& use) const;
  Evict EvictOf(std::string_view ns) const;  // Under the commit lock.
  // REQUIRES, of the next two: the commit lock.
  bool SomethingMayGo() const;
  bool IsRequesting(BranchId branch) const { return requesting_.contains(branch); }

 private:
  // A request, and the state of the store at that time.
  struct Request {
    uint64_t call_bytes = 0;  // What the refused call needs.
    uint64_t used_bytes = 0;  // What the ledger said.
    uint64_t pass = 0;        // Pass of the space thread that will have served it.
    bool by_quota = false;
    QuotaRequest quota{};    // For a quota...
    uint64_t evictions = 0;  // ...and the evictions of its namespace then.
  };
  enum class Outcome : uint8_t { kPending, kMade, kInVain };  // kMade: there may be room.
  class Registration;

  Result<Outcome> OutcomeOf(std::optional<BranchId> id, const Request& request);
  Result<Request> Submit(std::optional<BranchId> id, uint64_t bytes, const Status& refusal,
                         bool waits);
  Status RefusedWhilePaused(const Status& refusal) const;
  bool SealingMayHelp(uint64_t bytes, const Status& refusal) const;  // Takes the commit lock.

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  std::multiset<BranchId> requesting_;  // Their appends wait for room; guarded by mutex_.
  std::atomic<bool> refused_{false};
  // When HasRoomAgain looked last, and whether it saw room.
  std::atomic<uint64_t> room_looked_ns_{0};
  std::atomic<bool> room_seen_{false};

  Mutex queue_mutex_;
  QuotaRequests waiting_ CAIRN_GUARDED_BY(queue_mutex_);
  // Requests of calls that did not wait.
  std::map<BranchId, Request> busy_ CAIRN_GUARDED_BY(queue_mutex_);
  uint64_t passes_wanted_ CAIRN_GUARDED_BY(queue_mutex_) = 0;
  uint64_t passes_done_ CAIRN_GUARDED_BY(queue_mutex_) = 0;
  // The last pass that made some room.
  uint64_t made_for_ CAIRN_GUARDED_BY(queue_mutex_) = 0;
};

}  // namespace cairn::engine
