// SPDX-License-Identifier: Apache-2.0
//
// delta_batch_tokens: one-token appends to a branch wait in staging until enough have come, a timer
// runs out, or anything else touches the branch; then they go into the log as one record. Tickets
// complete with that record, so joining costs latency (delta_batch_wait_ns at most), never meaning.
#include <algorithm>
#include <new>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/commit/append_resolver.h"
#include "engine/tree/retention.h"

namespace cairn {

namespace {

// One token, and of each group at most the next position, no state.
bool CanJoin(const Delta& delta, const ModelSpec& model) {
  if (delta.tokens.size() != 1 || !delta.spans.empty()) return false;
  if (delta.kv == nullptr) return true;
  for (const GroupView& view : delta.kv->groups) {
    if (view.count > 1) return false;
    if (view.count != 0 && engine::KeepsStates(model.groups[view.group])) return false;
  }
  return true;
}

bool HasKv(const Delta& delta) {
  return delta.kv != nullptr && std::any_of(delta.kv->groups.begin(), delta.kv->groups.end(),
                                            [](const GroupView& view) { return view.count != 0; });
}

}  // namespace

std::optional<Result<Ticket>> StoreCore::AppendJoined(BranchId id, const Delta& delta,
                                                      const AppendOptions& options,
                                                      std::shared_ptr<const ModelSpec> model,
                                                      bool kv_shed) {
  const uint64_t tokens_max = limits_.JoinedTokensMax(*model);
  if (!CanJoin(delta, *model) || tokens_max < 2) return std::nullopt;
  auto state = std::make_shared<TicketState>(
      world_, options.queue == nullptr ? nullptr : options.queue->state(), options.user_data);
  state->started_ns = world_.scheduler->MonotonicNs();
  state->kv_shed = kv_shed;
  state->help = [weak = weak_from_this(), id](uint64_t) {
    const auto core = weak.lock();
    return core == nullptr ? Status::Ok() : core->FlushJoined(id);
  };
  // What was accepted is told as that: all that needs memory comes before.
  const uint64_t deadline_ns = Deadline(options.timeout_ns);
  engine::Timer::Entry cut, flush;
  if (deadline_ns != io::kNoDeadline) cut = tickets_.CutLater(state);
  std::vector<engine::DeltaState> states = engine::StatesOf(delta);
  bool full = false;
  {
    Lock lock(mutex_);
    const auto loaded = access_.LoadToChange(id, &lock);
    if (!loaded.ok()) return loaded.status();
    // Under the lock: what comes behind the last flush of Close would wait for ever.
    CAIRN_RETURN_IF_ERROR(CheckUsable());
    const engine::Head* const head = *loaded;
    if (committer_.HasLargeAppend(id)) return engine::Committer::LargeAppendUnderWay();
    auto found = joined_.find(id);
    const uint64_t waiting = found == joined_.end() ? 0 : found->second->tokens.size();
    // Full, and the log had no room for it yet: the ordinary way says so.
    if (waiting >= tokens_max) return std::nullopt;
    // Nor is KV joined that is exact to such that is not: an append is the one or the other.
    const bool has_kv = HasKv(delta);
    if (waiting != 0 && has_kv && found->second->exact.value_or(delta.exact) != delta.exact) {
      return std::nullopt;
    }
    // Nor are states joined that one record has no room for.
    if (waiting != 0 && !limits_.StatesFit(found->second->states, states)) return std::nullopt;
    const uint64_t length = head->lengths[engine::kTokenLane] + waiting;
    if (options.expected_length.has_value() && *options.expected_length != length) {
      return Status(StatusCode::kConflict,
                    "expected_length is " + std::to_string(*options.expected_length) +
                        ", the branch has " + std::to_string(length) + " tokens");
    }
    for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
      const GroupView& view = delta.kv->groups[i];
      if (view.count == 0) continue;
      const uint64_t staged = waiting == 0 ? 0 : found->second->kv_counts[view.group];
      // What does not simply go on leaves a gap, or is refused, in words, by the ordinary way.
      if (view.position != head->lengths[1 + view.group] + staged ||
          view.position + view.count > length + 1) {
        return std::nullopt;
      }
    }
    // What was accepted is applied later, come what may. Without room the ordinary way refuses it.
    uint64_t bytes = sizeof(TokenId);
    for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
      const GroupView& view = delta.kv->groups[i];
      bytes += view.count * model->groups[view.group].token_bytes();
    }
    if (!head->use->HasRoom(bytes) || LogIsHeld(bytes)) return std::nullopt;
    std::unique_ptr<engine::Joined> fresh;
    if (found == joined_.end()) {
      fresh = std::make_unique<engine::Joined>();
      std::vector<uint64_t> positions(head->lengths.begin() + 1, head->lengths.end());
      auto staging = engine::KvStaging::Make(&staging_, model, std::move(positions),
                                             options_.delta_batch_tokens);
      if (!staging.ok()) return staging.status();
      fresh->staging = std::move(*staging);
      fresh->kv_counts.assign(model->groups.size(), 0);
      fresh->model = std::move(model);
      fresh->length = length;
      fresh->ns = head->ns;
      fresh->tokens.reserve(options_.delta_batch_tokens);
      fresh->tickets.reserve(options_.delta_batch_tokens);
    }
    engine::Joined& joined = fresh != nullptr ? *fresh : *found->second;
    if (!states.empty()) {
      joined.states.reserve(options_.delta_batch_tokens * engine::kStatesOfDeltaMax);
    }
    for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
      const GroupView& view = delta.kv->groups[i];
      if (view.count == 0) continue;
      for (uint32_t layer = 0; layer < joined.model->groups[view.group].layers; ++layer) {
        joined.staging->Put(view, layer, layer);
      }
    }
    if (fresh != nullptr) {
      flush = FlushLater(id);
      joined_.emplace(id, std::move(fresh));
      joined_count_.fetch_add(1, std::memory_order_release);
    }
    // Nothing allocates from here on.
    for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
      const GroupView& view = delta.kv->groups[i];
      joined.kv_counts[view.group] += view.count;
    }
    if (has_kv) joined.exact = delta.exact;
    joined.tokens.push_back(delta.tokens[0]);
    joined.bytes += bytes;
    tree_.sums().NoteJoined(head->ns, bytes, 1);
    for (engine::DeltaState& one : states) {
      one.tokens = joined.tokens.size();
      joined.states.push_back(std::move(one));
    }
    state->length = length + 1;
    state->Release();
    joined.tickets.emplace_back(options.durability, state);
    full = joined.tokens.size() >= tokens_max;
  }
  if (!cut.empty()) timer_->At(deadline_ns, std::move(cut));
  if (!flush.empty()) {
    timer_->At(world_.scheduler->MonotonicNs() + options_.delta_batch_wait_ns, std::move(flush));
  }
  // Without room or memory for it now, the timer that the first of them set tries again.
  if (full) static_cast<void>(Guarded([&] { return TryFlushJoined(id); }));
  return Ticket(state);
}

engine::Timer::Entry StoreCore::FlushLater(BranchId id) {
  return engine::Timer::Make([this, id] {
    const StatusCode code = Guarded([&] { return TryFlushJoined(id); }).code();
    const bool again = code == StatusCode::kBusy || code == StatusCode::kOutOfMemory;
    return again ? world_.scheduler->MonotonicNs() + options_.delta_batch_wait_ns : io::kNoDeadline;
  });
}

Status StoreCore::TryFlushJoined(BranchId id, bool stays_if_full) {
  if (joined_count_.load(std::memory_order_acquire) == 0) return Status::Ok();
  std::unique_ptr<engine::Joined> joined;
  std::optional<engine::DeltaPayload> payload;
  Delta delta;
  KvView kv;
  std::vector<GroupView> views;
  Expected expected{.length = {}, .version = {}, .joined = true};
  std::optional<AppendResolver> append;
  Status committed;
  const auto stays = [stays_if_full](const Status& status) {
    return status.code() == StatusCode::kBusy ||
           (stays_if_full && status.code() == StatusCode::kNoSpace);
  };
  {
    Lock lock(mutex_);
    if (!joined_.contains(id)) return Status::Ok();
    const Result<const engine::Head*> loaded = access_.LoadToChange(id, &lock);
    const auto found = joined_.find(id);  // Another thread may have been faster.
    if (found == joined_.end()) return Status::Ok();
    engine::Joined& waiting = *found->second;
    for (uint32_t group = 0; group < waiting.kv_counts.size(); ++group) {
      if (waiting.kv_counts[group] != 0) {
        views.push_back(waiting.staging->View(group, waiting.kv_counts[group]));
      }
    }
    kv.groups = views;
    delta.tokens = waiting.tokens;
    if (!views.empty()) delta.kv = &kv;
    delta.exact = waiting.exact.value_or(true);
    payload.emplace(*waiting.model, delta, engine::DeltaWindow::Whole(delta),
                    std::move(waiting.states));
    expected.length = waiting.length;
    try {
      append.emplace(this, id, delta, expected, &*payload, nullptr);
      committed = loaded.ok() ? committer_.CommitLocked(&*append).status : loaded.status();
      // Handle the log's out-of-memory like our own.
      if (committed.code() == StatusCode::kOutOfMemory) throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
      waiting.states = payload->TakeStates();  // All of it stays.
      throw;
    }
    if (stays(committed)) {
      waiting.states = payload->TakeStates();
      return committed;
    }
    tree_.sums().NoteJoined(waiting.ns, waiting.bytes, -1);
    joined = std::move(found->second);
    joined_.erase(found);
    joined_count_.fetch_sub(1, std::memory_order_release);
  }
  if (!committed.ok()) {
    const Status told =
        Guarded([&] { return space_.asks().WhileRoomIsMade(id, joined->bytes, committed); });
    for (auto& [durability, ticket] : joined->tickets) ticket->Finish(told);
    return committed;
  }
  committer_.Publish(&*append);
  bool written = false;
  bool durable = false;
  for (auto& [durability, ticket] : joined->tickets) {
    written |= durability != Durability::kMemory;
    durable |= durability == Durability::kPower;
    if (durability == Durability::kMemory) {
      if (ticket->Finish(Status::Ok())) tickets_.RecordSave(ticket->started_ns);
    } else {
      tickets_.Register(append->sequence(), durability, ticket);
    }
  }
  if (written) log_->Request(append->sequence(), durable);
  return Status::Ok();
}

Status StoreCore::FlushJoined(BranchId id) {
  return committer_.Retrying({.busy = engine::RetryPolicy::Busy::kAwaitMemory},
                             [&] { return engine::Attempt::Of(TryFlushJoined(id)); });
}

// For calls that wait for room: what was accepted before waits with them.
Status StoreCore::FlushJoinedWithRoom(BranchId id, uint64_t deadline_ns) {
  const engine::RetryPolicy policy{.busy = engine::RetryPolicy::Busy::kAwaitMemory,
                                   .no_space = engine::RetryPolicy::NoSpace::kEvict,
                                   .branch = id,
                                   .deadline_ns = deadline_ns};
  while (true) {
    const Status status = committer_.Retrying(
        policy, [&] { return engine::Attempt::Of(TryFlushJoined(id, /*stays_if_full=*/true)); });
    if (status.code() != StatusCode::kNoSpace) return status;
    const Status ended = TryFlushJoined(id);  // No room comes, and its tickets are told.
    if (ended.code() != StatusCode::kBusy) return ended;
  }
}

// Whether anything waited to be joined to one of these: not any more, and the lock was let go
// meanwhile.
bool StoreCore::FlushJoinedTo(std::span<const uint64_t> branches, Lock* lock) {
  const auto waiting = std::find_if(branches.begin(), branches.end(), [this](uint64_t branch) {
    return joined_.contains(BranchId{branch});
  });
  if (waiting == branches.end() || !CAIRN_KEPT(kFlushBeforeExpected)) return false;
  lock->unlock();
  // A failure ended the tickets; there is nobody else to tell.
  static_cast<void>(FlushJoined(BranchId{*waiting}));
  lock->lock();
  return true;
}

void StoreCore::FlushAllJoined() {
  while (joined_count_.load(std::memory_order_acquire) != 0) {
    BranchId id{};
    {
      std::lock_guard lock(mutex_);
      if (joined_.empty()) return;
      id = joined_.begin()->first;
    }
    // A failure ended the tickets; there is nobody else to tell.
    static_cast<void>(FlushJoined(id));
  }
}

Status StoreCore::EndAllJoined() {
  Status first;
  while (true) {
    const Status flushed = Guarded([&] { FlushAllJoined(); });
    if (flushed.ok()) return first;
    first = flushed;
    std::unique_ptr<engine::Joined> joined;
    {
      std::lock_guard lock(mutex_);
      if (joined_.empty()) continue;
      joined = std::move(joined_.begin()->second);
      joined_.erase(joined_.begin());
      joined_count_.fetch_sub(1, std::memory_order_release);
    }
    for (auto& [durability, ticket] : joined->tickets) ticket->Finish(flushed);
  }
}

}  // namespace cairn
