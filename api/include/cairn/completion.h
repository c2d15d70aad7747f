// SPDX-License-Identifier: Apache-2.0
//
// How asynchronous calls end. A Ticket stands for one call; a CompletionQueue collects the ends of
// many behind one file descriptor.
//
// `timeout_ns` everywhere is nanoseconds from the call on. UINT64_MAX is for ever. 0 waits for
// nothing, neither for room, nor for another call, nor for the disk to write: a Wait then only
// checks the state. Of calls that change a store:
//
//   at Durability::kMemory they succeed as ever.
//   AppendSync and Fill, at the other levels: kUnknownOutcome says that the change was applied and
//     no thread waited to see it written, kDeadlineExceeded that it was not applied.
//   Append, Draft::Commit and Store::Write, at the other levels: their tickets end so at once,
//     unless the log was faster.
//
// A call about a branch that is not in memory reads it from the index, whatever its timeout.
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

// How far a layer of a restore is, as a word of LayerProgress (cairn/restore.h) says it. States
// come in this order; a later version may put a state between pending and complete, so compare with
// the names, never with a number.
enum LayerState : uint32_t {
  kLayerPending = 0,  // Not to be used.
  // GPU restores alone: all that writes the layer was enqueued, and GpuSync::layer_events recorded
  // behind it. Work that the caller enqueues behind that event may read the layer; the restore may
  // still fail.
  kLayerEnqueued = 1,
  kLayerComplete = 2,  // All its bytes of the range are verified and in place.
  kLayerFailed = 3,    // The restore ended without it; its status says why.
};

// One asynchronous call. A handle that may be copied; all copies are of the same call. Letting go
// of all of them cancels nothing. Tickets stay readable after Store::Close, which ends those that
// are still open.
//
// Threads: all methods may be called from any thread at once. Only Wait, WaitForLayer and Cancel
// block. None takes the commit lock.
class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(std::shared_ptr<TicketState> state) : state_(std::move(state)) {}

  // An empty ticket (default constructed) is not done, has length 0, and gives kInvalidState
  // elsewhere.
  bool valid() const { return state_ != nullptr; }
  bool done() const;      // Over; status() is final.
  bool released() const;  // The source memory may be reused. True at the latest when done.
  // kBusy until the call is over, then its outcome: the codes that the call lists. kInvalidState:
  // an empty ticket, or a child of fork().
  Status status() const;
  // An append's: the branch's length right after it was applied, known as soon as the ticket
  // exists. PutBatchAsync's and GetBatchAsync's: the object's bytes, once the ticket is released.
  // Else 0.
  uint64_t length() const;
  bool kv_shed() const;  // The tokens were kept, the KV was not (Overload::kShedKv, Persist).
  // The outcome of a restore (cairn/restore.h); null unless the ticket is of a restore, is done,
  // and went well. Lives as long as the pointer does.
  std::shared_ptr<const RestoreResult> restored() const;

  // Waits until the call is over and returns status(). With UINT64_MAX this thread may lead the
  // group commit that it waits for: write the log and sync it. With any other limit it only looks
  // on, since a leader cannot leave before the disk has answered. Errors beside those of the call:
  //   kDeadlineExceeded: the wait timed out, and the ticket is as it was. A call that itself ran
  //     out of time has the same code; done() distinguishes them.
  //   kOutOfMemory: there was no memory to wait; the call goes on.
  Status Wait(uint64_t timeout_ns = UINT64_MAX);
  // For a restore that was given a LayerProgress: waits until the word `layer` of it has reached
  // `state`, kLayerEnqueued or kLayerComplete, or the restore is over. Ok: the layer is enqueued,
  // or in place. If the restore is over first, its status is returned. The words must outlive the
  // wait, unless the ticket was over before. Errors:
  //   kDeadlineExceeded: as in Wait.
  //   kInvalidArgument: another state, or there is no such word.
  Status WaitForLayer(size_t layer, LayerState state, uint64_t timeout_ns = UINT64_MAX) const;
  // Ends the call now and returns the status that it ended with, which is the earlier one when it
  // was over already. Blocking: a call that is reading or writing the caller's memory is waited for
  // until it notices, at its next step. When this returns, no memory of the call is touched any
  // more.
  //   kCancelled: nothing was or will be applied. The target of a restore is undefined.
  //   kUnknownOutcome: the change had been given to the log, and may survive; expected_length
  //     settles it.
  Status Cancel();

 private:
  std::shared_ptr<TicketState> state_;
};

// The end of one call, as a CompletionQueue hands it out.
struct Completion {
  uint64_t user_data = 0;  // As the call's options said.
  Status status;           // That of the ticket.
  Ticket ticket;           // The same call as the one that the caller got.
};

// Collects the ends of calls that were given it in their options. Made by
// Store::NewCompletionQueue. A handle that may be copied. It may be destroyed before or after the
// store and the calls: a call keeps the part of it that it needs. A completion that is never
// drained keeps its ticket in memory.
//
// Threads: all methods may be called from any thread at once; each completion goes to one of them.
class CompletionQueue {
 public:
  CompletionQueue() = default;
  explicit CompletionQueue(std::shared_ptr<CompletionQueueState> state)
      : state_(std::move(state)) {}
  bool valid() const { return state_ != nullptr; }
  // An eventfd: readable (EPOLLIN) while completions wait. Owned by the queue: poll it, neither
  // read nor close it. It may be -1 when the process had no descriptor left; Wait and Drain work
  // all the same. -1 as well for an empty queue and in a child of fork().
  int event_fd() const;
  // Takes up to `max` completions, oldest first. Never blocks. None when there is no memory for
  // them: they stay. None of an empty queue, and in a child of fork().
  std::vector<Completion> Drain(size_t max = SIZE_MAX);
  // Blocks until at least one completion waits or the time is up; false at time-out, and at once of
  // an empty queue or in a child of fork(). Takes nothing out.
  bool Wait(uint64_t timeout_ns = UINT64_MAX);
  // For the library.
  std::shared_ptr<CompletionQueueState> state() const { return state_; }

 private:
  std::shared_ptr<CompletionQueueState> state_;
};

}  // namespace cairn
