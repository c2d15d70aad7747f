// SPDX-License-Identifier: Apache-2.0
//
// The shared state behind Ticket and CompletionQueue.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/world.h"
#include "cairn/completion.h"

namespace cairn {

class CompletionQueueState;
class TicketState;

// Links a ticket into a TicketRow.
struct TicketLink {
  std::shared_ptr<TicketState> next{};
  TicketState* previous = nullptr;
};

// A ticket's life: pending -> over, once. Work that touches the caller's memory runs between
// BeginJob and the end; Cancel waits until that work has noticed.
class [[gnu::visibility("hidden")]] TicketState : public std::enable_shared_from_this<TicketState> {
 public:
  TicketState(io::World world, std::shared_ptr<CompletionQueueState> queue, uint64_t user_data);

  bool IsInChild() const { return world_.scheduler->ProcessId() != process_id_; }
  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  Status status() const;
  bool released() const { return released_.load(); }
  void Release() { released_.store(true); }

  // Ends the ticket; false when it was over already. Allocates nothing.
  bool Finish(Status status);
  // Sleeps until over.
  bool WaitDone(uint64_t deadline_ns);

  Status WaitLayer(size_t layer, LayerState state, uint64_t deadline_ns);  // Ticket::WaitForLayer.

  // For calls that run as a job on borrowed memory.
  bool BeginJob();  // False: cancelled first.
  bool cancel_requested() const { return cancel_.load(); }
  void FinishIfCancelled();  // Once the log has it.
  Status Cancel();           // See Ticket::Cancel.

  // Makes progress on a waiting thread, for example by leading its group. Set before it is shared.
  std::function<Status(uint64_t deadline_ns)> help;
  std::function<void()> abandoned;  // A job that was cancelled before it began. Set likewise.
  bool is_job = false;              // Runs on borrowed memory; else it waits for the log.
  uint64_t length = 0;              // Set before done or release.
  bool kv_shed = false;
  std::shared_ptr<RestoreResult> restored{};  // Set before it is shared, filled before it ends.
  std::span<std::atomic<uint32_t>> layers{};  // The caller's, until it ends. Set likewise.
  uint64_t started_ns = 0;                    // 0: not measured.
  uint64_t sequence = 0;                      // Its record, while it waits for the log.
  TicketLink waiting, completed;              // Its places in the rows that it may be in.
  io::World& world() { return world_; }
  // REQUIRES: the ticket is over.
  Completion completion() { return {user_data_, status_, Ticket(shared_from_this())}; }

 private:
  io::World world_;
  std::shared_ptr<CompletionQueueState> queue_;
  const uint64_t process_id_ = world_.scheduler->ProcessId();
  const uint64_t user_data_;
  std::atomic<bool> claimed_{false};  // The thread that sets it ends the ticket.
  std::atomic<bool> started_{false};
  std::atomic<bool> cancel_{false};
  std::atomic<bool> released_{false};
  std::atomic<uint32_t> done_{0};
  Status status_;  // Written once, before done_.
};

// A list of tickets, linked through themselves: adding one takes no memory. A ticket is in at most
// one row of each kind.
template <TicketLink TicketState::*kLink>
class TicketRow {
 public:
  TicketRow() = default;
  // Frees them one by one: if each freed the next, a long row would overflow the stack.
  ~TicketRow() {
    while (TakeFirst() != nullptr) {
    }
  }
  TicketRow(const TicketRow&) = delete;
  TicketRow& operator=(const TicketRow&) = delete;

  TicketState* first() const { return first_.get(); }
  TicketState* last() const { return last_; }
  size_t size() const { return size_; }
  void Add(std::shared_ptr<TicketState> ticket) { AddBehind(last_, std::move(ticket)); }
  // `before` null: at the front.
  void AddBehind(TicketState* before, std::shared_ptr<TicketState> ticket) {
    std::shared_ptr<TicketState>& place = before == nullptr ? first_ : (before->*kLink).next;
    TicketLink& link = (*ticket).*kLink;
    link.previous = before;
    link.next = std::move(place);
    (link.next == nullptr ? last_ : ((*link.next).*kLink).previous) = ticket.get();
    place = std::move(ticket);
    ++size_;
  }
  // Null when there is none.
  std::shared_ptr<TicketState> TakeFirst() {
    if (first_ == nullptr) return nullptr;
    std::shared_ptr<TicketState> taken = std::move(first_);
    first_ = std::move(((*taken).*kLink).next);
    (first_ == nullptr ? last_ : ((*first_).*kLink).previous) = nullptr;
    --size_;
    return taken;
  }

 private:
  std::shared_ptr<TicketState> first_;
  TicketState* last_ = nullptr;
  size_t size_ = 0;
};

class [[gnu::visibility("hidden")]] CompletionQueueState {
 public:
  explicit CompletionQueueState(io::World world);
  // REQUIRES: the ticket is over. Allocates nothing.
  void Push(std::shared_ptr<TicketState> ticket);
  std::vector<Completion> Drain(size_t max);
  bool Wait(uint64_t timeout_ns);
  int event_fd() const { return notifier_->fd(); }
  bool IsInChild() const { return world_.scheduler->ProcessId() != process_id_; }

 private:
  io::World world_;
  const uint64_t process_id_ = world_.scheduler->ProcessId();
  std::unique_ptr<io::Notifier> notifier_;
  Mutex mutex_;
  TicketRow<&TicketState::completed> tickets_ CAIRN_GUARDED_BY(mutex_);
  std::atomic<uint32_t> version_{0};  // Changes with every Push.
};

}  // namespace cairn
