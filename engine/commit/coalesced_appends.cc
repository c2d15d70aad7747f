// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/coalesced_appends.h"

#include <algorithm>
#include <new>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/commit/append_resolver.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

namespace {

// Visits groups that have KV.
template <typename Visit>
void ForEachView(const Delta& delta, const Visit& visit) {
  for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
    if (delta.kv->groups[i].count != 0) visit(delta.kv->groups[i]);
  }
}

// One token, at most the next position of each group, no state.
bool CanCoalesce(const Delta& delta, const ModelSpec& model) {
  if (delta.tokens.size() != 1 || !delta.spans.empty()) return false;
  bool can = true;
  ForEachView(delta, [&](const GroupView& view) {
    can &= view.count == 1 && !KeepsStates(model.groups[view.group]);
  });
  return can;
}

bool HasKv(const Delta& delta) {
  bool has = false;
  ForEachView(delta, [&](const GroupView&) { has = true; });
  return has;
}

}  // namespace

struct CoalescedAppends::Incoming {
  const Delta& delta;
  const AppendOptions& options;
  const std::shared_ptr<const ModelSpec> model;
  const uint64_t tokens_max;  // The most that one record takes.
  const bool has_kv;
  const uint64_t bytes;  // Raw.
  const std::shared_ptr<TicketState> ticket;
  std::vector<DeltaState> states;
  Timer::Entry flush{};  // If it is the first that waits.
  bool full = false;     // After this one.
};

uint64_t CoalescedAppends::TokensWaiting(BranchId id) const {
  const auto found = batches_.find(id);
  return found == batches_.end() ? 0 : found->second->tokens.size();
}

// ---------------------------------------------------------------- accepted

std::optional<Result<Ticket>> CoalescedAppends::Append(BranchId id, const Delta& delta,
                                                       const AppendOptions& options,
                                                       std::shared_ptr<const ModelSpec> model,
                                                       bool kv_shed) {
  const uint64_t tokens_max = deps_.limits->CoalescedTokensMax(*model);
  if (!CanCoalesce(delta, *model) || tokens_max < 2) return std::nullopt;
  // Once an append is accepted the caller must hear so: everything that needs memory comes before.
  const uint64_t deadline_ns = deps_.lifecycle->Deadline(options.timeout_ns);
  Incoming one{.delta = delta,
               .options = options,
               .model = model,
               .tokens_max = tokens_max,
               .has_kv = HasKv(delta),
               .bytes = RawBytes(*model, delta),
               .ticket = MakeTicket(id, options, kv_shed),
               .states = StatesOf(delta)};
  Timer::Entry timeout;
  if (deadline_ns != io::kNoDeadline) timeout = deps_.tickets->TimeOutLater(one.ticket);
  const Result<bool> accepted = Accept(id, &one);
  if (!accepted.ok()) return accepted.status();
  if (!*accepted) return std::nullopt;
  if (!timeout.empty()) deps_.timer->At(deadline_ns, std::move(timeout));
  if (!one.flush.empty()) {
    deps_.timer->At(deps_.world.scheduler->MonotonicNs() + deps_.options->delta_batch_wait_ns,
                    std::move(one.flush));
  }
  // If there is no room or memory for it now, the timer that the first of them set tries again.
  if (one.full) static_cast<void>(CatchBadAlloc([&] { return TryFlush(id); }));
  return Ticket(one.ticket);
}

std::shared_ptr<TicketState> CoalescedAppends::MakeTicket(BranchId id, const AppendOptions& options,
                                                          bool kv_shed) {
  auto state = std::make_shared<TicketState>(
      deps_.world, options.queue == nullptr ? nullptr : options.queue->state(), options.user_data);
  state->started_ns = deps_.world.scheduler->MonotonicNs();
  state->kv_shed = kv_shed;
  state->help = [weak = std::weak_ptr<void>(deps_.callbacks->Hold()), this, id](uint64_t) {
    const auto store = weak.lock();
    return store == nullptr ? Status::Ok() : Flush(id);
  };
  return state;
}

// False: the ordinary way takes it, or refuses it with the reason.
Result<bool> CoalescedAppends::Accept(BranchId id, Incoming* one) {
  Lock lock(deps_.mutex());
  CAIRN_ASSIGN_OR_RETURN(const Head* const head, deps_.access->LoadToChange(id, &lock));
  // Under the lock: an append accepted after Close's last flush would wait for ever.
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  if (deps_.committer->HasLargeAppend(id)) return Committer::LargeAppendUnderWay();
  const auto found = batches_.find(id);
  Batch* batch = found == batches_.end() ? nullptr : found->second.get();
  CAIRN_ASSIGN_OR_RETURN(const bool fits, FitsBehind(*head, batch, *one));
  if (!fits) return false;
  std::unique_ptr<Batch> fresh;
  if (batch == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(fresh, Begin(*head, one));
    batch = fresh.get();
  }
  if (!one->states.empty()) {
    batch->states.reserve(deps_.options->delta_batch_tokens * kStatesOfDeltaMax);
  }
  ForEachView(one->delta, [&](const GroupView& view) {
    for (uint32_t layer = 0; layer < batch->model->groups[view.group].layers; ++layer) {
      batch->staging->Put(view, layer, layer);
    }
  });
  if (fresh != nullptr) {
    one->flush = FlushLater(id);
    batches_.emplace(id, std::move(fresh));
    count_.fetch_add(1, std::memory_order_release);
  }
  // Nothing allocates from here on.
  ForEachView(one->delta,
              [&](const GroupView& view) { batch->kv_counts[view.group] += view.count; });
  if (one->has_kv) batch->exact = one->delta.exact;
  batch->tokens.push_back(one->delta.tokens[0]);
  batch->bytes += one->bytes;
  deps_.tree().sums().CountCoalesced(head->ns, one->bytes, 1);
  for (DeltaState& state : one->states) {
    state.tokens = batch->tokens.size();
    batch->states.push_back(std::move(state));
  }
  one->ticket->length = head->lengths[kTokenLane] + batch->tokens.size();
  one->ticket->Release();
  batch->tickets.emplace_back(one->options.durability, one->ticket);
  one->full = batch->tokens.size() >= one->tokens_max;
  return true;
}

// `waiting`: null when it is the first.
Result<bool> CoalescedAppends::FitsBehind(const Head& head, const Batch* waiting,
                                          const Incoming& one) const {
  const uint64_t tokens = waiting == nullptr ? 0 : waiting->tokens.size();
  // It is full, and the log had no room for it yet: the ordinary way returns that.
  if (tokens >= one.tokens_max) return false;
  // Exact and approximate KV are not coalesced: an append is one or the other.
  if (waiting != nullptr && one.has_kv &&
      waiting->exact.value_or(one.delta.exact) != one.delta.exact) {
    return false;
  }
  // States are not coalesced if one record has no room for them.
  if (waiting != nullptr && !deps_.limits->StatesFit(waiting->states, one.states)) return false;
  const uint64_t length = head.lengths[kTokenLane] + tokens;
  CAIRN_RETURN_IF_ERROR(CheckLength(length, one.options.expected_length));
  bool goes_on = true;
  ForEachView(one.delta, [&](const GroupView& view) {
    const uint64_t staged = waiting == nullptr ? 0 : waiting->kv_counts[view.group];
    // Positions that do not just continue leave a gap, or are refused with words, by the ordinary
    // way.
    goes_on &= view.position == head.lengths[1 + view.group] + staged &&
               view.position + view.count <= length + 1;
  });
  // An accepted append must be applied later in any case. If there is no room the ordinary way
  // refuses it.
  return goes_on && head.use->HasRoom(one.bytes) && !deps_.callbacks->LogIsHeld(one.bytes);
}

Result<std::unique_ptr<CoalescedAppends::Batch>> CoalescedAppends::Begin(const Head& head,
                                                                         Incoming* one) {
  const uint32_t tokens = deps_.options->delta_batch_tokens;
  auto fresh = std::make_unique<Batch>();
  std::vector<uint64_t> positions(head.lengths.begin() + 1, head.lengths.end());
  CAIRN_ASSIGN_OR_RETURN(fresh->staging,
                         KvStaging::Make(deps_.staging, one->model, std::move(positions), tokens));
  fresh->kv_counts.assign(one->model->groups.size(), 0);
  fresh->model = one->model;
  fresh->length = head.lengths[kTokenLane];
  fresh->ns = head.ns;
  fresh->tokens.reserve(tokens);
  fresh->tickets.reserve(tokens);
  return fresh;
}

Timer::Entry CoalescedAppends::FlushLater(BranchId id) {
  return Timer::Make([this, id] {
    const StatusCode code = CatchBadAlloc([&] { return TryFlush(id); }).code();
    const bool again = code == StatusCode::kBusy || code == StatusCode::kOutOfMemory;
    return again ? deps_.world.scheduler->MonotonicNs() + deps_.options->delta_batch_wait_ns
                 : io::kNoDeadline;
  });
}

// ---------------------------------------------------------------- flushed

// The record refers to this until it is published.
struct CoalescedAppends::Flushing {
  std::unique_ptr<Batch> batch;
  std::vector<GroupView> views;
  KvView kv;
  Delta delta;
  Expected expected{.length = {}, .version = {}, .coalesced = true};
  std::optional<DeltaPayload> payload;
  std::optional<AppendResolver> append;
};

Status CoalescedAppends::TryFlush(BranchId id, bool stays_if_full) {
  if (count_.load(std::memory_order_acquire) == 0) return Status::Ok();
  Flushing flushing;
  Status committed;
  {
    Lock lock(deps_.mutex());
    if (!batches_.contains(id)) return Status::Ok();
    const Status loaded = deps_.access->LoadToChange(id, &lock).status();
    const auto found = batches_.find(id);  // Another thread may have flushed it.
    if (found == batches_.end()) return Status::Ok();
    Batch& waiting = *found->second;
    committed = Commit(id, loaded, &waiting, &flushing);
    if (committed.code() == StatusCode::kBusy ||
        (stays_if_full && committed.code() == StatusCode::kNoSpace)) {
      waiting.states = flushing.payload->TakeStates();
      return committed;
    }
    deps_.tree().sums().CountCoalesced(waiting.ns, waiting.bytes, -1);
    flushing.batch = std::move(found->second);
    batches_.erase(found);
    count_.fetch_sub(1, std::memory_order_release);
  }
  if (!committed.ok()) {
    const Status told = CatchBadAlloc(
        [&] { return deps_.callbacks->WhileRoomIsMade(id, flushing.batch->bytes, committed); });
    for (auto& [durability, ticket] : flushing.batch->tickets) ticket->Finish(told);
    return committed;
  }
  deps_.committer->Publish(&*flushing.append);
  GiveToLog(flushing.append->sequence(), *flushing.batch);
  return Status::Ok();
}

// Under the lock. `loaded`: status of loading the branch. If there is no memory all appends stay.
Status CoalescedAppends::Commit(BranchId id, const Status& loaded, Batch* waiting,
                                Flushing* flushing) {
  for (uint32_t group = 0; group < waiting->kv_counts.size(); ++group) {
    if (waiting->kv_counts[group] == 0) continue;
    flushing->views.push_back(waiting->staging->View(group, waiting->kv_counts[group]));
  }
  flushing->kv.groups = flushing->views;
  flushing->delta.tokens = waiting->tokens;
  if (!flushing->views.empty()) flushing->delta.kv = &flushing->kv;
  flushing->delta.exact = waiting->exact.value_or(true);
  flushing->payload.emplace(*waiting->model, flushing->delta, DeltaWindow::Whole(flushing->delta),
                            std::move(waiting->states));
  flushing->expected.length = waiting->length;
  try {
    flushing->append.emplace(deps_, this, id, flushing->delta, flushing->expected,
                             &*flushing->payload, nullptr);
    Status committed =
        loaded.ok() ? deps_.committer->CommitLocked(&*flushing->append).status : loaded;
    // Handle the log's out-of-memory like our own.
    if (committed.code() == StatusCode::kOutOfMemory) throw std::bad_alloc();
    return committed;
  } catch (const std::bad_alloc&) {
    waiting->states = flushing->payload->TakeStates();
    throw;
  }
}

void CoalescedAppends::GiveToLog(uint64_t sequence, const Batch& batch) {
  bool written = false;
  bool durable = false;
  for (const auto& [durability, ticket] : batch.tickets) {
    written |= durability != Durability::kMemory;
    durable |= durability == Durability::kPower;
    if (durability == Durability::kMemory) {
      if (ticket->Finish(Status::Ok())) deps_.tickets->RecordSave(ticket->started_ns);
    } else {
      deps_.tickets->Register(sequence, durability, ticket);
    }
  }
  if (written) deps_.log->Request(sequence, durable);
}

Status CoalescedAppends::Flush(BranchId id) {
  return deps_.committer->Retrying({.busy = RetryPolicy::Busy::kAwaitMemory},
                                   [&] { return Attempt::Of(TryFlush(id)); });
}

Status CoalescedAppends::FlushWithRoom(BranchId id, uint64_t deadline_ns) {
  const RetryPolicy policy{.busy = RetryPolicy::Busy::kAwaitMemory,
                           .no_space = RetryPolicy::NoSpace::kEvict,
                           .branch = id,
                           .deadline_ns = deadline_ns};
  while (true) {
    const Status status = deps_.committer->Retrying(
        policy, [&] { return Attempt::Of(TryFlush(id, /*stays_if_full=*/true)); });
    if (status.code() != StatusCode::kNoSpace) return status;
    const Status ended = TryFlush(id);  // No room comes: ends the tickets with that.
    if (ended.code() != StatusCode::kBusy) return ended;
  }
}

Result<const Head*> CoalescedAppends::LookAt(BranchId id, Lock* lock) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  static_cast<void>(Flush(id));  // Its tickets end with a failure.
  *lock = Lock(deps_.mutex());
  return deps_.access->LoadBranch(id, lock);
}

bool CoalescedAppends::FlushTo(std::span<const uint64_t> branches, Lock* lock) {
  const auto waiting = std::find_if(branches.begin(), branches.end(), [this](uint64_t branch) {
    return batches_.contains(BranchId{branch});
  });
  if (waiting == branches.end() || !CAIRN_KEPT(kFlushBeforeExpected)) return false;
  lock->unlock();
  // A failure ended the tickets; no other caller waits for it.
  static_cast<void>(Flush(BranchId{*waiting}));
  lock->lock();
  return true;
}

void CoalescedAppends::FlushAll() {
  while (count_.load(std::memory_order_acquire) != 0) {
    BranchId id{};
    {
      std::lock_guard lock(deps_.mutex());
      if (batches_.empty()) return;
      id = batches_.begin()->first;
    }
    // A failure ended the tickets; no other caller waits for it.
    static_cast<void>(Flush(id));
  }
}

Status CoalescedAppends::EndAll() {
  Status first;
  while (true) {
    const Status flushed = CatchBadAlloc([&] { FlushAll(); });
    if (flushed.ok()) return first;
    first = flushed;
    std::unique_ptr<Batch> batch;
    {
      std::lock_guard lock(deps_.mutex());
      if (batches_.empty()) continue;
      batch = std::move(batches_.begin()->second);
      batches_.erase(batches_.begin());
      count_.fetch_sub(1, std::memory_order_release);
    }
    for (auto& [durability, ticket] : batch->tickets) ticket->Finish(flushed);
  }
}

}  // namespace cairn::engine
