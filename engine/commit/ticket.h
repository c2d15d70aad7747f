// SPDX-License-Identifier: Apache-2.0
//
// The shared state behind Ticket and CompletionQueue.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/io/world.h"
#include "cairn/completion.h"

namespace cairn {

class CompletionQueueState {
 public:
  explicit CompletionQueueState(io::World world);
  void Push(Completion completion);
  std::vector<Completion> Drain(size_t max);
  bool Wait(uint64_t timeout_ns);
  int event_fd() const { return notifier_->fd(); }

 private:
  io::World world_;
  std::unique_ptr<io::Notifier> notifier_;
  std::mutex mutex_;
  std::deque<Completion> completions_;
  std::atomic<uint32_t> version_{0};  // Changes with every Push.
};

// A ticket's life: pending -> over, once. Work that touches the caller's memory runs between Begin
// and the end; Cancel waits for it to notice.
class TicketState : public std::enable_shared_from_this<TicketState> {
 public:
  TicketState(io::World world, std::shared_ptr<CompletionQueueState> queue, uint64_t user_data);

  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  Status status() const;
  bool released() const { return released_.load(); }
  void Release() { released_.store(true); }

  // Ends the ticket; false when it was over already.
  bool Finish(Status status);
  // Sleeps until over.
  bool WaitDone(uint64_t deadline_ns);

  // For calls that run as a job on borrowed memory.
  bool BeginJob();  // False: cancelled first.
  bool cancel_requested() const { return cancel_.load(); }
  Status Cancel();  // See Ticket::Cancel.

  // What a waiting thread can do for it, such as leading its group. Set before it is shared.
  std::function<Status(uint64_t deadline_ns)> help;
  std::function<void()> abandoned;  // A job that was cancelled before it began. Set likewise.
  bool is_job = false;              // Runs on borrowed memory; else it waits for the log.
  uint64_t length = 0;              // Set before done or release.
  bool kv_shed = false;
  std::shared_ptr<RestoreResult> restored{};  // Set before it is shared, filled before it ends.
  uint64_t started_ns = 0;                    // 0: not measured.
  io::World& world() { return world_; }

 private:
  io::World world_;
  std::shared_ptr<CompletionQueueState> queue_;
  const uint64_t user_data_;
  std::atomic<bool> claimed_{false};  // Who sets it ends the ticket.
  std::atomic<bool> started_{false};
  std::atomic<bool> cancel_{false};
  std::atomic<bool> released_{false};
  std::atomic<uint32_t> done_{0};
  Status status_;  // Written once, before done_.
};

}  // namespace cairn
