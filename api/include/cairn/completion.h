// SPDX-License-Identifier: Apache-2.0
//
// How asynchronous calls end. A Ticket stands for one call; a CompletionQueue collects the ends of
// many behind one file descriptor.
//
// `timeout_ns` everywhere: UINT64_MAX is for ever; 0 waits for nothing, neither for room, nor for
// another call, nor for the disk to write. A Wait then is a look at what is there. AppendSync, Fill
// and Write: at Durability::kMemory they succeed as ever; at the others kUnknownOutcome says that
// it was applied and nobody waited to see it written, kDeadlineExceeded that it was not applied,
// and tickets end so at once, unless the log was faster. (What a call needs to know of a branch
// that was not used for long, it reads all the same.)
//
// Once a ticket is over, whatever its status, Cairn touches neither the source nor the target
// memory of its call again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

class TicketState;
struct RestoreResult;
class CompletionQueueState;

// How far a layer of a restore is, as a word of LayerProgress (cairn/branch.h) says it. In this
// order; a later version may put a state between pending and complete, so compare with the names,
// never with a number.
enum LayerState : uint32_t {
  kLayerPending = 0,  // Not to be used.
  // Of a GPU alone: all that writes it was enqueued, and GpuSync::layer_events recorded behind.
  // What the caller enqueues behind that event may read it; the restore may still fail.
  kLayerEnqueued = 1,
  kLayerComplete = 2,  // All its bytes of the range are verified and in place.
  kLayerFailed = 3,    // The restore ended without it; its status says why.
};

// Copyable handle; all methods are thread-safe.
class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(std::shared_ptr<TicketState> state) : state_(std::move(state)) {}

  bool valid() const { return state_ != nullptr; }
  bool done() const;      // Over; status() is final.
  bool released() const;  // The source memory may be reused. True at the latest when done.
  Status status() const;  // kBusy until done.
  // Branch length right after this call was applied (appends).
  uint64_t length() const;
  bool kv_shed() const;  // The tokens were kept, the KV was not (Overload::kShedKv, Persist).
  // What a restore delivered (cairn/branch.h); null unless it is done and went well.
  std::shared_ptr<const RestoreResult> restored() const;

  // Waits until done and returns status(). May lead a group commit on the calling thread.
  // A time-out of the wait is kDeadlineExceeded and leaves the ticket as it is.
  Status Wait(uint64_t timeout_ns = UINT64_MAX);
  // Of a restore that was given a LayerProgress: waits until the word `layer` of it has reached
  // `state`, kLayerEnqueued or kLayerComplete, or the restore is over: then its status is returned.
  // Ok: the layer is enqueued, or in place. kDeadlineExceeded as in Wait, kInvalidArgument (another
  // state, no such word). The words must outlive the wait, unless the ticket was over before.
  Status WaitForLayer(size_t layer, LayerState state, uint64_t timeout_ns = UINT64_MAX) const;
  // Ends the ticket now. kCancelled: nothing was or will be applied. kUnknownOutcome: it had been
  // given to the log and may survive. Returns the status it ended with, which is the earlier one
  // when it was over already. When this returns, no memory of the call is touched any more.
  Status Cancel();

 private:
  std::shared_ptr<TicketState> state_;
};

struct Completion {
  uint64_t user_data = 0;
  Status status;
  Ticket ticket;
};

// Made by Store::NewCompletionQueue; must outlive no store. Thread-safe.
class CompletionQueue {
 public:
  CompletionQueue() = default;
  explicit CompletionQueue(std::shared_ptr<CompletionQueueState> state)
      : state_(std::move(state)) {}
  bool valid() const { return state_ != nullptr; }
  // Readable (EPOLLIN) while completions wait. Owned by the queue.
  int event_fd() const;
  // Takes up to `max` completions, oldest first; never blocks. None when there is no memory for
  // them: they stay.
  std::vector<Completion> Drain(size_t max = SIZE_MAX);
  // Blocks until at least one completion waits or the time is up; false at time-out.
  bool Wait(uint64_t timeout_ns = UINT64_MAX);
  std::shared_ptr<CompletionQueueState> state() const { return state_; }

 private:
  std::shared_ptr<CompletionQueueState> state_;
};

}  // namespace cairn
