// SPDX-License-Identifier: Apache-2.0
//
// delta_batch_tokens: one-token appends to a branch wait in staging until enough have come, a timer
// runs out, or anything else touches the branch; then they go into the log as one record. Tickets
// complete with that record, so coalescing costs latency (at most delta_batch_wait_ns) and changes
// nothing else.
//
//   accepted   its room is taken: quota, staging, its ticket's memory. It will be applied, or its
//              ticket ends with the reason why not
//   flushed    one record with all that wait; appends without room or memory go on waiting
//
// Thread-safe. The commit lock guards the waiting appends. The caller holds no lock, except where a
// call takes one.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/options.h"
#include "engine/commit/kv_layout.h"
#include "engine/commit/staging.h"
#include "engine/commit/ticket.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

class CoalescedAppends {
 public:
  using Lock = Committer::Lock;

  explicit CoalescedAppends(const WriteDeps& deps) : deps_(deps) {}
  CoalescedAppends(const CoalescedAppends&) = delete;
  CoalescedAppends& operator=(const CoalescedAppends&) = delete;

  // Nothing when the delta cannot be coalesced and must go another way.
  std::optional<Result<Ticket>> Append(BranchId id, const Delta& delta,
                                       const AppendOptions& options,
                                       std::shared_ptr<const ModelSpec> model, bool kv_shed);

  // kBusy: not now. With `stays_if_full` appends without room go on waiting instead of ending with
  // kNoSpace.
  Status TryFlush(BranchId id, bool stays_if_full = false);
  Status Flush(BranchId id);  // Waits for the log's memory.
  // For calls that wait for room: appends that were accepted before wait with them.
  Status FlushWithRoom(BranchId id, uint64_t deadline_ns);
  void FlushAll();
  // Flushes appends that wait for any of these branches. True: there were some, and the lock was
  // released meanwhile.
  bool FlushTo(std::span<const uint64_t> branches, Lock* lock);
  // The branch and its path, for reading, after its accepted appends were applied; takes the lock.
  // kInvalidState, kNotFound.
  Result<const Head*> LookAt(BranchId id, Lock* lock);
  // For Close. Appends that cannot be flushed for want of memory end with kOutOfMemory, which is
  // reported.
  Status EndAll();

  // REQUIRES: the commit lock.
  bool Has(BranchId id) const { return batches_.contains(id); }
  uint64_t TokensWaiting(BranchId id) const;

 private:
  // The appends that wait for one branch.
  struct Batch {
    std::shared_ptr<const ModelSpec> model;
    std::unique_ptr<KvStaging> staging;
    uint64_t length = 0;  // The branch's, when the first append came.
    std::vector<TokenId> tokens;
    std::optional<bool> exact;        // Whether its KV so far is; nothing: it has none.
    uint64_t bytes = 0;               // Raw, of KV and tokens; charged to the quota...
    std::string ns;                   // ...of this namespace.
    std::vector<uint64_t> kv_counts;  // By group.
    std::vector<DeltaState> states;
    std::vector<std::pair<Durability, std::shared_ptr<TicketState>>> tickets;
  };
  struct Incoming;  // One append on its way to the others.
  struct Flushing;  // Appends on their way into the log.

  std::shared_ptr<TicketState> MakeTicket(BranchId id, const AppendOptions& options, bool kv_shed);
  Result<bool> Accept(BranchId id, Incoming* one);
  Result<bool> FitsBehind(const Head& head, const Batch* waiting, const Incoming& one) const;
  Result<std::unique_ptr<Batch>> Begin(const Head& head, Incoming* one);
  Timer::Entry FlushLater(BranchId id);
  Status Commit(BranchId id, const Status& loaded, Batch* waiting, Flushing* flushing);
  void GiveToLog(uint64_t sequence, const Batch& batch);

  const WriteDeps& deps_;
  std::map<BranchId, std::unique_ptr<Batch>> batches_;
  std::atomic<uint32_t> count_{0};  // The size of batches_.
};

}  // namespace cairn::engine
