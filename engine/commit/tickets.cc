// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/tickets.h"

#include <utility>

#include "base/core/out_of_memory.h"

namespace cairn::engine {

void Tickets::Start(wal::Log* log, Timer* timer) {
  log_ = log;
  timer_ = timer;
}

void Tickets::RecordSave(uint64_t started_ns) {
  save_latency_.Add(world_.scheduler->MonotonicNs() - started_ns);
}

size_t Tickets::waiting() const {
  const MutexLock lock(&mutex_);
  return written_.size() + durable_.size();
}

// ---------------------------------------------------------------- one ticket

NewTicket Tickets::Make(const AppendOptions& options, uint64_t started_ns, uint64_t deadline_ns,
                        std::weak_ptr<wal::Log> log) const {
  NewTicket ticket{
      .state = std::make_shared<TicketState>(
          world_, options.queue == nullptr ? nullptr : options.queue->state(), options.user_data)};
  ticket.state->started_ns = started_ns;
  if (options.durability == Durability::kMemory) return ticket;
  ticket.state->help = [weak = std::move(log), state = ticket.state.get(),
                        durable = options.durability == Durability::kPower](uint64_t until_ns) {
    const auto alive = weak.lock();
    return alive == nullptr ? Status::Ok() : alive->Wait(state->sequence, durable, until_ns);
  };
  ticket.deadline_ns = deadline_ns;
  if (ticket.deadline_ns != io::kNoDeadline) ticket.timeout = TimeOutLater(ticket.state);
  return ticket;
}

Ticket Tickets::GiveToLog(NewTicket ticket, const Applied& applied, Durability durability) {
  const std::shared_ptr<TicketState>& state = ticket.state;
  state->length = applied.length;
  state->kv_shed = applied.kv_shed;
  state->Release();  // The payload has been copied.
  if (durability == Durability::kMemory) {
    state->Finish(Status::Ok());
    RecordSave(state->started_ns);
  } else {
    Register(applied.sequence, durability, state);
    log_->Request(applied.sequence, durability == Durability::kPower);
    if (!ticket.timeout.empty()) timer_->At(ticket.deadline_ns, std::move(ticket.timeout));
  }
  return Ticket(std::move(ticket.state));
}

Timer::Entry Tickets::TimeOutLater(const std::shared_ptr<TicketState>& ticket) const {
  return Timer::Make([this, weak = std::weak_ptr<TicketState>(ticket)] {
    if (const auto alive = weak.lock(); alive != nullptr) alive->Finish(timed_out_);
    return io::kNoDeadline;
  });
}

Status Tickets::WaitFor(uint64_t sequence, Durability durability, uint64_t deadline_ns) {
  if (durability == Durability::kMemory) return Status::Ok();
  const bool durable = durability == Durability::kPower;
  // A thread that leads a group cannot leave at its deadline, so the log thread leads. If there is
  // no memory to wait for that thread, being late is better than reporting nothing about an applied
  // change.
  std::shared_ptr<TicketState> state;
  if (deadline_ns != io::kNoDeadline) {
    static_cast<void>(
        CatchBadAlloc([&] { state = std::make_shared<TicketState>(world_, nullptr, 0); }));
  }
  if (state == nullptr) return log_->Wait(sequence, durable, io::kNoDeadline);
  Register(sequence, durability, state);
  log_->Request(sequence, durable);
  return state->WaitDone(deadline_ns) ? state->status() : timed_out_;
}

// ---------------------------------------------------------------- the rows

void Tickets::Register(uint64_t sequence, Durability durability,
                       std::shared_ptr<TicketState> ticket) {
  {
    const MutexLock lock(&mutex_);
    Row& row = durability == Durability::kPower ? durable_ : written_;
    ticket->sequence = sequence;
    // Threads may arrive here in another order than they reserved.
    TicketState* before = row.last();
    while (before != nullptr && before->sequence > sequence) before = before->waiting.previous;
    row.AddBehind(before, std::move(ticket));
  }
  // The log may have got there between the reservation and now; then nothing else would end the
  // ticket.
  log_told_->OnProgress(log_->written_sequence(), log_->durable_sequence());
  if (Status status = log_->poisoned(); !status.ok()) {
    log_told_->OnPoison(status, log_->written_sequence());
  }
}

void Tickets::Finish(uint64_t written_sequence, uint64_t durable_sequence) {
  // One by one, since nothing may be allocated here.
  const auto take = [&](Row Tickets::*of, uint64_t sequence) -> std::shared_ptr<TicketState> {
    const MutexLock lock(&mutex_);
    Row& row = this->*of;
    const TicketState* const first = row.first();
    return first != nullptr && first->sequence <= sequence ? row.TakeFirst() : nullptr;
  };
  const auto finish = [&](Row Tickets::*of, uint64_t sequence) {
    while (const std::shared_ptr<TicketState> ticket = take(of, sequence)) {
      if (ticket->Finish(Status::Ok()) && ticket->started_ns != 0) RecordSave(ticket->started_ns);
    }
  };
  finish(&Tickets::written_, written_sequence);
  finish(&Tickets::durable_, durable_sequence);
}

void Tickets::EndByPoison(const Status& cause) {
  Status told = poisoned_;
  static_cast<void>(CatchBadAlloc([&] {
    told = Status(StatusCode::kUnknownOutcome,
                  "the log failed: " + cause.ToString() +
                      "; reopen the store, then expected_length settles it");
  }));
  EndAll(told);
}

void Tickets::EndAll(const Status& status) {
  const auto take = [&] {
    const MutexLock lock(&mutex_);
    return (written_.first() == nullptr ? durable_ : written_).TakeFirst();
  };
  while (const std::shared_ptr<TicketState> ticket = take()) ticket->Finish(status);
}

}  // namespace cairn::engine
