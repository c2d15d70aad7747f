// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/large_appends.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/codec/hash.h"
#include "base/core/out_of_memory.h"
#include "engine/commit/quota.h"
#include "engine/config/constants.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

namespace {

// Whether a view of the same group comes before this one and is not at its end.
bool WaitsForFirst(const Delta& delta, const DeltaWindow& rest, size_t view) {
  for (size_t other = 0; other < view; ++other) {
    if (delta.kv->groups[other].group == delta.kv->groups[view].group &&
        rest.kv[other].count != 0) {
      return true;
    }
  }
  return false;
}

// The next window of at most `max_bytes`, or of one position of one group if that is larger; cut
// from the front of `rest`. The same number of positions is taken of every lane, so that tokens and
// their KV stay together, unless one position of all groups is larger than a window: then groups
// follow each other. A group's second view waits for the end of its first.
DeltaWindow TakeWindow(const ModelSpec& model, const Delta& delta, DeltaWindow* rest,
                       uint64_t max_bytes) {
  uint64_t position_bytes = sizeof(TokenId);
  bool has_kv = false;  // The first group is taken whatever its size is.
  std::vector<bool> taken(rest->kv.size(), false);
  for (size_t i = 0; i < rest->kv.size(); ++i) {
    if (rest->kv[i].count == 0 || WaitsForFirst(delta, *rest, i)) continue;
    const uint64_t bytes = KvLayoutBytes(model.groups[delta.kv->groups[i].group], 1);
    if (has_kv && position_bytes + bytes > max_bytes) continue;
    taken[i] = has_kv = true;
    position_bytes += bytes;
  }
  const uint64_t positions = std::max<uint64_t>(1, max_bytes / position_bytes);
  DeltaWindow window = *rest;
  window.token_count = std::min(rest->token_count, positions);
  rest->token_first += window.token_count;
  rest->token_count -= window.token_count;
  for (size_t i = 0; i < rest->kv.size(); ++i) {
    window.kv[i].count = taken[i] ? std::min(rest->kv[i].count, positions) : 0;
    rest->kv[i].position += window.kv[i].count;
    rest->kv[i].count -= window.kv[i].count;
  }
  return window;
}

bool IsEmpty(const DeltaWindow& window) {
  return window.token_count == 0 && std::all_of(window.kv.begin(), window.kv.end(),
                                                [](const auto& kv) { return kv.count == 0; });
}

Status Cancelled() { return Status(StatusCode::kCancelled, "cancelled while being gathered"); }

StagedWindow* StagedOf(const LargeAppends::Large& large) {
  return large.source == nullptr ? nullptr : large.source->staged.get();
}

}  // namespace

// ---------------------------------------------------------------- begun

// The bytes of the log that an append waits for before it begins: a segment at most, since its
// parts go on from there whatever the log's limit is.
uint64_t LargeAppends::LogBytes(const ModelSpec& model, const Delta& delta) const {
  return std::min(PayloadBytes(model, delta), deps_.options->segment_bytes);
}

// Returns the branch's length. `bytes` will go into the log.
Result<uint64_t> LargeAppends::Begin(BranchId id, uint64_t bytes, const Expected& expected,
                                     bool wait, uint64_t deadline_ns) {
  RetryPolicy policy{.branch = id, .log_bytes = bytes, .deadline_ns = deadline_ns};
  if (wait) policy.busy = RetryPolicy::Busy::kAwaitLog;
  uint64_t length = 0;
  const auto begin = [&]() -> Attempt {
    while (true) {
      // An append that has begun goes on, whatever the log's limit is: its parts keep the log from
      // shrinking.
      if (deps_.callbacks->LogIsHeld(bytes)) {
        return Attempt::Refused(
            Status(StatusCode::kBusy, "the log is as long as log_bytes_max allows"));
      }
      Committer::Lock lock(deps_.mutex());
      CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadToChange(id, &lock));
      if (deps_.committer->HasLargeAppend(id)) {
        return Attempt::Held(Committer::LargeAppendUnderWay());
      }
      if (!coalesced_->Has(id)) {
        CAIRN_RETURN_IF_ERROR(CheckExpected(*head, expected));
        deps_.committer->BeginLargeAppend(id);
        length = head->lengths[kTokenLane];
        return {};
      }
      lock.unlock();
      CAIRN_RETURN_IF_ERROR(wait ? coalesced_->Flush(id) : coalesced_->TryFlush(id));
    }
  };
  CAIRN_RETURN_IF_ERROR(deps_.committer->Retrying(policy, begin));
  return length;
}

Result<Applied> LargeAppends::Append(const Large& large) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length,
                         Begin(large.branch, LogBytes(large.model, large.delta), large.expected,
                               true, large.deadline_ns));
  return Gather(large, length);
}

Result<Ticket> LargeAppends::Post(Borrowed borrowed, const AppendOptions& options) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  const BranchId id = borrowed.branch;
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length, Begin(id, LogBytes(*borrowed.model, borrowed.delta),
                                                      borrowed.expected, false, 0));
  Result<Ticket> posted =
      CatchBadAlloc([&] { return PostBegun(std::move(borrowed), options, length); });
  if (!posted.ok()) deps_.committer->EndLargeAppend(id);
  return posted;
}

Result<Ticket> LargeAppends::PostBegun(Borrowed borrowed, const AppendOptions& options,
                                       uint64_t length) {
  auto state = std::make_shared<TicketState>(
      deps_.world, options.queue == nullptr ? nullptr : options.queue->state(), options.user_data);
  state->is_job = true;
  state->kv_shed = borrowed.kv_shed;
  const auto number = std::make_shared<std::atomic<uint64_t>>(0);  // Names its wait for arrival.
  state->abandoned = [weak = std::weak_ptr<void>(deps_.callbacks->Hold()), this, number,
                      id = borrowed.branch, give_up = borrowed.source.arrival.give_up] {
    const auto store = weak.lock();
    if (store == nullptr) return;
    deps_.ready_poller->Withdraw(number->load());
    if (give_up != nullptr) give_up();
    deps_.committer->EndLargeAppend(id);
  };
  state->length = length + borrowed.delta.tokens.size();
  state->started_ns = deps_.world.scheduler->MonotonicNs();
  const uint64_t deadline_ns = deps_.lifecycle->Deadline(options.timeout_ns);
  std::shared_ptr<Timer::Entry> timeout;  // Shared: posted functions must be copyable.
  if (deadline_ns != io::kNoDeadline) {
    timeout = std::make_shared<Timer::Entry>(deps_.tickets->TimeOutLater(state));
  }
  AppendOptions own = options;
  own.queue = nullptr;
  const auto arrived = borrowed.source.arrival.arrived;
  const auto job = [this, store = deps_.callbacks->Hold(), borrowed = std::move(borrowed), own,
                    length, deadline_ns, timeout, state] {
    if (state->BeginJob()) Run(borrowed, own, length, deadline_ns, state, timeout.get());
  };
  if (arrived == nullptr) {
    deps_.executor->Post(job);
  } else {
    number->store(deps_.ready_poller->Post({.arrived = arrived,
                                            .run = std::make_shared<std::function<void()>>(job),
                                            .deadline_ns = deadline_ns}));
  }
  return Ticket(state);
}

// The job. `timeout`: entry for the ticket's deadline, if it has one.
void LargeAppends::Run(const Borrowed& borrowed, const AppendOptions& options, uint64_t length,
                       uint64_t deadline_ns, const std::shared_ptr<TicketState>& state,
                       Timer::Entry* timeout) {
  const Large large{.branch = borrowed.branch,
                    .delta = borrowed.delta,
                    .expected = borrowed.expected,
                    .model = *borrowed.model,
                    .deadline_ns = deadline_ns,
                    .ticket = state.get(),
                    .source = &borrowed.source};
  const auto applied = CatchBadAlloc([&] { return Gather(large, length); });
  if (!applied.ok()) {
    if (applied.status().code() == StatusCode::kCancelled) {
      deps_.counters->cancelled.fetch_add(1, std::memory_order_relaxed);
    }
    if (borrowed.source.arrival.give_up != nullptr) borrowed.source.arrival.give_up();
    state->Finish(CatchBadAlloc([&] {
      return deps_.callbacks->WhileRoomIsMade(large.branch, PayloadBytes(large.model, large.delta),
                                              applied.status());
    }));
    return;
  }
  state->Release();
  if (options.durability == Durability::kMemory) {
    state->Finish(Status::Ok());
    return;
  }
  deps_.tickets->Register(applied->sequence, options.durability, state);
  deps_.log->Request(applied->sequence, options.durability == Durability::kPower);
  state->FinishIfCancelled();
  if (timeout != nullptr) deps_.timer->At(deadline_ns, std::move(*timeout));
}

// ---------------------------------------------------------------- gathered

// Waits until the source may be read and kernels have its description.
Status LargeAppends::AwaitSource(const Large& large) {
  if (large.source == nullptr) return Status::Ok();
  if (large.source->arrival.await != nullptr) {
    CAIRN_RETURN_IF_ERROR(large.source->arrival.await(large.deadline_ns, [&] {
      return large.ticket == nullptr || !large.ticket->cancel_requested();
    }));
  }
  return large.source->gpu == nullptr ? Status::Ok() : large.source->gpu->Prepare();
}

// Call after Begin, which returned `length`; ends what Begin began.
Result<Applied> LargeAppends::Gather(const Large& large, uint64_t length) {
  struct End {
    Committer* committer;
    BranchId id;
    ~End() { committer->EndLargeAppend(id); }
  } end{deps_.committer, large.branch};
  CAIRN_RETURN_IF_ERROR(AwaitSource(large));
  {
    // A delta that does not fit the branch is refused before a byte is written.
    Committer::Lock lock(deps_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadToChange(large.branch, &lock));
    CAIRN_RETURN_IF_ERROR(ResolveAppend(deps_.tree(), static_cast<uint64_t>(large.branch),
                                        LanesOf(large.delta, length), SpansOf(large.delta))
                              .status());
    CAIRN_RETURN_IF_ERROR(CheckQuota(*head, RawBytes(large.model, large.delta)));
  }
  return FitsWhole(large) ? WriteWhole(large) : WriteParts(large, length);
}

// The last record of a large append, which makes it count.
Result<Applied> LargeAppends::WriteLast(const Large& large, DeltaPayload* payload,
                                        const Written& written) {
  AppendResolver append(deps_, coalesced_, large.branch, large.delta, large.expected, payload,
                        &written);
  const Attempt ended = deps_.committer->Commit(
      &append, {.busy = RetryPolicy::Busy::kAwaitMemory, .deadline_ns = large.deadline_ns});
  if (!ended.done()) return ended.status;
  return append.applied();
}

// ---------------------------------------------------------------- whole

bool LargeAppends::FitsWhole(const Large& large) const {
  const StagedWindow* const staged = StagedOf(large);
  return large.source != nullptr && deps_.limits->FitsRecord(large.model, large.delta) &&
         (staged == nullptr || WindowKvBytes(large.model, large.delta,
                                             DeltaWindow::Whole(large.delta)) <= staged->bytes());
}

Result<Applied> LargeAppends::WriteWhole(const Large& large) {
  const DeltaWindow whole = DeltaWindow::Whole(large.delta);
  CAIRN_ASSIGN_OR_RETURN(const Delta* delta, OnHost(large, whole));
  if (large.ticket != nullptr && large.ticket->cancel_requested()) return Cancelled();
  DeltaPayload payload(large.model, *delta, whole, StatesOf(large.delta));
  payload.Pack(PackingOf(deps_));
  if (large.ticket == nullptr) deps_.callbacks->SlowDown(payload.bytes(), large.deadline_ns);
  return WriteLast(large, &payload, {});
}

// The delta with the KV of the window in host memory.
Result<const Delta*> LargeAppends::OnHost(const Large& large, const DeltaWindow& window) const {
  StagedWindow* const staged = StagedOf(large);
  if (staged == nullptr) return &large.delta;
  CAIRN_RETURN_IF_ERROR(staged->Gather(*large.source->gpu, large.model, large.delta, window));
  return &staged->delta();
}

// ---------------------------------------------------------------- in parts

// A record that carries payload of a large append and changes nothing alone.
class LargeAppends::PartResolver final : public Resolver {
 public:
  PartResolver(const DeltaPayload& payload, uint64_t unit, const TicketState* ticket)
      : payload_(payload), ticket_(ticket) {
    record_.held_by_limit = false;
    record_.unit = unit;
    record_.strips = payload.strips();
    hashes_.reserve(payload.strips().size());
  }

  Attempt Prepare(Lock* /*lock*/) override { return {}; }
  Status Resolve(CommitOps* ops) override {
    Op& part = ops->Next().op;
    part.kind = OpKind::kPart;
    part.lanes = payload_.lanes();
    return ops->Add();
  }
  void Publish(wal::Log* log) override {
    payload_.Fill(slot_.payload, slot_.strip_offsets, &hashes_, [&](uint64_t filled) {
      log->PieceReady(slot_, filled);
      cancelled_ = ticket_ != nullptr && ticket_->cancel_requested();
      return !cancelled_;
    });
    // The record must still be complete; parts that were not copied become zeros, and never count.
    for (size_t i = hashes_.size(); i < payload_.strips().size(); ++i) {
      const std::span<std::byte> strip(slot_.payload + slot_.strip_offsets[i],
                                       payload_.strips()[i].bytes);
      std::fill(strip.begin(), strip.end(), std::byte{0});
      hashes_.push_back(Hash(strip));
    }
    log->Publish(slot_, hashes_);
  }

  bool cancelled() const { return cancelled_; }
  Part part() const {
    Part part{slot_.location, payload_.lanes(), {}};
    const auto header_bytes = static_cast<uint32_t>(slot_.payload - slot_.record);
    for (const LaneRange& lane : part.lanes) {
      part.prefix_bytes.push_back(lane.lane == kTokenLane
                                      ? header_bytes +
                                            static_cast<uint32_t>(payload_.token_strip_bytes())
                                      : slot_.location.bytes);
    }
    return part;
  }

 private:
  const DeltaPayload& payload_;
  const TicketState* const ticket_;
  std::vector<uint64_t> hashes_;
  bool cancelled_ = false;
};

// Asked before each part: a cancelled call, or one that has no time left, stops there.
Status LargeAppends::GoOn(const Large& large) const {
  if (large.ticket != nullptr && large.ticket->cancel_requested()) return Cancelled();
  if (large.deadline_ns != io::kNoDeadline &&
      deps_.world.scheduler->MonotonicNs() >= large.deadline_ns) {
    return Status(StatusCode::kDeadlineExceeded, "not all parts were written in time");
  }
  return deps_.lifecycle->PoisonStatus();
}

Result<Part> LargeAppends::WritePart(const Large& large, const DeltaWindow& window, uint64_t length,
                                     uint64_t unit, uint64_t* sequence, uint64_t* kv_bytes) {
  CAIRN_ASSIGN_OR_RETURN(const Delta* delta, OnHost(large, window));
  DeltaPayload payload(large.model, *delta, window, {});
  payload.SetLength(length);
  payload.Pack(PackingOf(deps_));
  PartResolver record(payload, unit, large.ticket);
  // A job does not keep a thread waiting.
  if (large.ticket == nullptr) deps_.callbacks->SlowDown(payload.bytes(), large.deadline_ns);
  const Attempt ended = deps_.committer->Commit(
      &record, {.busy = RetryPolicy::Busy::kAwaitMemory, .deadline_ns = large.deadline_ns});
  if (!ended.done()) return ended.status;
  if (record.cancelled()) return Cancelled();
  *sequence = record.sequence();
  *kv_bytes += payload.kv_bytes();
  return record.part();
}

Result<Applied> LargeAppends::WriteParts(const Large& large, uint64_t length) {
  // Nothing in the tree names the parts until the last record is committed.
  const std::shared_ptr<void> kept = deps_.callbacks->KeepNewestSegment();
  uint64_t part_bytes = deps_.limits->PayloadBytesMax();
  if (const StagedWindow* const staged = StagedOf(large); staged != nullptr) {
    part_bytes = std::min(part_bytes, staged->bytes());
  }
  std::vector<DeltaWindow> windows;
  std::vector<uint64_t> record_bytes;
  for (DeltaWindow rest = DeltaWindow::Whole(large.delta); !IsEmpty(rest);) {
    windows.push_back(TakeWindow(large.model, large.delta, &rest, part_bytes));
    record_bytes.push_back(windows.back().token_count * sizeof(TokenId) +
                           WindowKvBytes(large.model, large.delta, windows.back()));
  }
  // If some parts are refused, those before them fill the log in vain: a caller that retries would
  // take all space that is being freed for them.
  if (const Status full = deps_.log->CheckRoom(record_bytes); !full.ok()) {
    deps_.callbacks->OnRefused(full);
    return full;
  }
  Written written;
  for (const DeltaWindow& window : windows) {
    CAIRN_RETURN_IF_ERROR(GoOn(large));
    uint64_t sequence = 0;
    CAIRN_ASSIGN_OR_RETURN(
        Part part, WritePart(large, window, length, written.unit, &sequence, &written.kv_bytes));
    if (written.unit == 0) written.unit = sequence;
    deps_.log->Request(sequence, false);  // The disk works while the next part is gathered.
    written.parts.push_back(std::move(part));
  }
  DeltaPayload last(large.model, large.delta, DeltaWindow{}, StatesOf(large.delta));
  return WriteLast(large, &last, written);
}

}  // namespace cairn::engine
