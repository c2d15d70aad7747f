// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/ticket.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/no_cancel.h"

namespace cairn {

namespace {

uint64_t DeadlineIn(io::Scheduler& scheduler, uint64_t timeout_ns) {
  if (timeout_ns == UINT64_MAX) return io::kNoDeadline;
  const uint64_t now = scheduler.MonotonicNs();
  return timeout_ns > io::kNoDeadline - now ? io::kNoDeadline : now + timeout_ns;
}

// Not Ok: the ticket must not be touched. In a child of fork() only the parent may end it.
Status Usable(const std::shared_ptr<TicketState>& state) {
  if (state == nullptr) return Status(StatusCode::kInvalidState, "an empty ticket");
  if (!CAIRN_KEPT(kNotInChild) || !state->IsInChild()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "used in a child process after fork()");
}

// The descriptor of a queue is shared with the parent: draining it here would drain it there.
bool IsUsable(const std::shared_ptr<CompletionQueueState>& state) {
  return state != nullptr && !(CAIRN_KEPT(kNotInChild) && state->IsInChild());
}

// Made in advance: cancelling needs no memory.
const Status kCancelledEarly(StatusCode::kCancelled, "cancelled before it began");
const Status kCancelledLate(StatusCode::kUnknownOutcome,
                            "cancelled after it was given to the log; expected_length settles it");

}  // namespace

CompletionQueueState::CompletionQueueState(io::World world)
    : world_(std::move(world)), notifier_(world_.scheduler->NewNotifier()) {}

void CompletionQueueState::Push(std::shared_ptr<TicketState> ticket) {
  {
    const MutexLock lock(&mutex_);
    tickets_.Add(std::move(ticket));
    version_.fetch_add(1, std::memory_order_release);
    notifier_->Signal();
  }
  world_.scheduler->WakeAll(version_);
}

std::vector<Completion> CompletionQueueState::Drain(size_t max) {
  const MutexLock lock(&mutex_);
  const size_t count = std::min(max, tickets_.size());
  std::vector<Completion> taken;
  try {
    taken.reserve(count);
  } catch (const std::bad_alloc&) {
    return taken;
  }
  while (taken.size() < count) taken.push_back(tickets_.TakeFirst()->completion());
  if (tickets_.size() == 0) notifier_->Clear();
  return taken;
}

bool CompletionQueueState::Wait(uint64_t timeout_ns) {
  const uint64_t deadline_ns = DeadlineIn(*world_.scheduler, timeout_ns);
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    {
      const MutexLock lock(&mutex_);
      if (tickets_.size() != 0) return true;
    }
    if (!world_.scheduler->Wait(version_, seen, deadline_ns)) return false;
  }
}

TicketState::TicketState(io::World world, std::shared_ptr<CompletionQueueState> queue,
                         uint64_t user_data)
    : world_(std::move(world)), queue_(std::move(queue)), user_data_(user_data) {}

Status TicketState::status() const {
  if (!done()) return Status(StatusCode::kBusy, "the call is not over");
  return status_;
}

bool TicketState::Finish(Status status) {
  if (claimed_.exchange(true, std::memory_order_acq_rel)) return false;
  status_ = std::move(status);
  Release();
  done_.store(1, std::memory_order_release);
  world_.scheduler->WakeAll(done_);
  // The completion holds this ticket. If the ticket held the queue as well, both would live for
  // ever when nobody drains it.
  if (const auto queue = std::exchange(queue_, nullptr); queue != nullptr) {
    queue->Push(shared_from_this());
  }
  return true;
}

bool TicketState::WaitDone(uint64_t deadline_ns) {
  while (!done()) {
    if (!world_.scheduler->Wait(done_, 0, deadline_ns)) return done();
  }
  return true;
}

Status TicketState::WaitLayer(size_t layer, LayerState state, uint64_t deadline_ns) {
  if (state != kLayerEnqueued && state != kLayerComplete) {
    return Status(StatusCode::kInvalidArgument,
                  "state " + std::to_string(state) + " of a layer cannot be waited for");
  }
  if (layer >= layers.size()) {
    return Status(StatusCode::kInvalidArgument, "layer " + std::to_string(layer) +
                                                    " of a call that tells of " +
                                                    std::to_string(layers.size()));
  }
  std::atomic<uint32_t>& word = layers[layer];
  // Once the ticket is over the word may be gone. It gets its last state before that.
  while (!done()) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (seen == state || seen == kLayerComplete) return Status::Ok();
    const bool in_time = seen == kLayerFailed ? WaitDone(deadline_ns)
                                              : world_.scheduler->Wait(word, seen, deadline_ns);
    if (!in_time && !done()) {
      return Status(StatusCode::kDeadlineExceeded, "the wait timed out; the call goes on");
    }
  }
  return status_;
}

void TicketState::FinishIfCancelled() {
  if (cancel_requested()) Finish(kCancelledLate);
}

bool TicketState::BeginJob() { return !started_.exchange(true, std::memory_order_acq_rel); }

Status TicketState::Cancel() {
  if (done()) return status_;
  // Sequentially consistent, like the job's Release before it reads cancel_: one of the two sees
  // the other, so Cancel does not wait for a job that is done with its memory.
  cancel_.store(true);
  if (!is_job || released()) {
    Finish(kCancelledLate);
  } else if (BeginJob()) {
    if (abandoned) abandoned();
    Finish(kCancelledEarly);
  }
  WaitDone(io::kNoDeadline);
  return status_;
}

bool Ticket::done() const { return state_ != nullptr && state_->done(); }
bool Ticket::released() const { return state_ != nullptr && state_->released(); }
uint64_t Ticket::length() const { return state_ == nullptr ? 0 : state_->length; }
std::shared_ptr<const RestoreResult> Ticket::restored() const {
  return state_ != nullptr && state_->done() && state_->status().ok() ? state_->restored : nullptr;
}
bool Ticket::kv_shed() const { return state_ != nullptr && state_->kv_shed; }

Status Ticket::status() const {
  return CatchBadAlloc([&]() -> Status {
    CAIRN_RETURN_IF_ERROR(Usable(state_));
    return state_->status();
  });
}

Status Ticket::Wait(uint64_t timeout_ns) {
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> Status {  // If there is no memory the wait ends. The call goes on.
    CAIRN_RETURN_IF_ERROR(Usable(state_));
    const uint64_t deadline_ns = DeadlineIn(*state_->world().scheduler, timeout_ns);
    // The result of helping does not matter: the ticket's end counts. A helper may have to stay
    // until the disk answers, so a wait with a deadline only looks on.
    if (deadline_ns == io::kNoDeadline && !state_->done() && state_->help) {
      static_cast<void>(state_->help(deadline_ns));
    }
    if (!state_->WaitDone(deadline_ns)) {
      return Status(StatusCode::kDeadlineExceeded, "the wait timed out; the call goes on");
    }
    return state_->status();
  });
}

Status Ticket::WaitForLayer(size_t layer, LayerState state, uint64_t timeout_ns) const {
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> Status {
    CAIRN_RETURN_IF_ERROR(Usable(state_));
    return state_->WaitLayer(layer, state, DeadlineIn(*state_->world().scheduler, timeout_ns));
  });
}

Status Ticket::Cancel() {
  const io::NoCancel guard;
  return CatchBadAlloc([&]() -> Status {
    CAIRN_RETURN_IF_ERROR(Usable(state_));
    return state_->Cancel();
  });
}

int CompletionQueue::event_fd() const { return IsUsable(state_) ? state_->event_fd() : -1; }

std::vector<Completion> CompletionQueue::Drain(size_t max) {
  if (!IsUsable(state_)) return {};
  const io::NoCancel guard;
  return state_->Drain(max);
}

bool CompletionQueue::Wait(uint64_t timeout_ns) {
  if (!IsUsable(state_)) return false;
  const io::NoCancel guard;
  return state_->Wait(timeout_ns);
}

}  // namespace cairn
