// SPDX-License-Identifier: Apache-2.0
//
// Tickets that wait for the log, by sequence: one row for those that end when their record is
// written, and one for those that wait until it is durable. Owns the rows, their lock, and the
// latencies of appends.
//
// Thread-safe, except Start. Lock order: the log's own -> that of the rows. Ending a ticket
// allocates nothing, since the log's thread does it and nobody may be left waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/core/histogram.h"
#include "base/core/mutex.h"
#include "base/io/world.h"
#include "cairn/branch_types.h"
#include "cairn/options.h"
#include "engine/commit/ticket.h"
#include "engine/commit/timer.h"
#include "wal/log.h"

namespace cairn::engine {

// The result of an applied append.
struct Applied {
  uint64_t sequence = 0;
  uint64_t length = 0;
  bool kv_shed = false;
};

// A ticket with all the memory that it needs, made before the append is applied.
struct NewTicket {
  std::shared_ptr<TicketState> state;
  Timer::Entry timeout{};  // For its deadline, if it has one.
  uint64_t deadline_ns = io::kNoDeadline;
};

class Tickets {
 public:
  // The log may report progress before a ticket is in its row, so that is reported to `observer`
  // again. It must call Finish and EndByPoison, and outlive this.
  Tickets(const io::World& world, wal::LogObserver* observer)
      : world_(world), log_told_(observer) {}
  Tickets(const Tickets&) = delete;
  Tickets& operator=(const Tickets&) = delete;

  // Before the first of the calls below; both outlive them.
  void Start(wal::Log* log, Timer* timer);

  // `log`: alive as long as its store is.
  NewTicket Make(const AppendOptions& options, uint64_t started_ns, uint64_t deadline_ns,
                 std::weak_ptr<wal::Log> log) const;
  // For an applied append. Allocates nothing.
  Ticket GiveToLog(NewTicket ticket, const Applied& applied, Durability durability);
  // Ends the ticket at its deadline if it still waits for the log then.
  Timer::Entry TimeOutLater(const std::shared_ptr<TicketState>& ticket) const;
  // Ends the ticket when the log has reached that sequence. Allocates nothing.
  void Register(uint64_t sequence, Durability durability, std::shared_ptr<TicketState> ticket);
  // Waits without a ticket of the caller's. kUnknownOutcome at the deadline.
  Status WaitFor(uint64_t sequence, Durability durability, uint64_t deadline_ns);

  // The log has got this far.
  void Finish(uint64_t written_sequence, uint64_t durable_sequence);
  // The log gets no further: it failed, or the store is closed.
  void EndByPoison(const Status& cause);
  void EndByClose() { EndAll(closed_); }

  // Records the latency of a call that began then.
  void RecordSave(uint64_t started_ns);
  const Histogram& save_latency() const { return save_latency_; }
  size_t waiting() const;

 private:
  using Row = TicketRow<&TicketState::waiting>;  // By sequence.
  void EndAll(const Status& status);

  const io::World world_;
  wal::LogObserver* const log_told_;
  wal::Log* log_ = nullptr;
  Timer* timer_ = nullptr;
  Histogram save_latency_;
  // Made in advance: ending tickets must not need memory.
  const Status poisoned_{StatusCode::kUnknownOutcome,
                         "the log failed; reopen the store, then expected_length settles it"};
  const Status closed_{StatusCode::kUnknownOutcome, "the store was closed"};
  const Status timed_out_{
      StatusCode::kUnknownOutcome,
      "the deadline passed after it was given to the log; expected_length settles it"};

  mutable Mutex mutex_;
  Row written_ CAIRN_GUARDED_BY(mutex_), durable_ CAIRN_GUARDED_BY(mutex_);  // Waiting for that.
};

}  // namespace cairn::engine
