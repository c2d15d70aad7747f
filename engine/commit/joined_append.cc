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
#include "engine/store_core.h"
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

}  // namespace

std::optional<Result<Ticket>> StoreCore::AppendJoined(BranchId id, const Delta& delta,
                                                      const AppendOptions& options,
                                                      std::shared_ptr<const ModelSpec> model,
                                                      bool kv_shed) {
  if (!CanJoin(delta, *model)) return std::nullopt;
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
  if (deadline_ns != io::kNoDeadline) cut = CutLater(state);
  std::vector<engine::DeltaState> states = engine::StatesOf(delta);
  bool full = false;
  {
    Lock lock(mutex_);
    const auto loaded = LoadToChange(id, &lock);
    if (!loaded.ok()) return loaded.status();
    // Under the lock: what comes behind the last flush of Close would wait for ever.
    CAIRN_RETURN_IF_ERROR(CheckUsable());
    const engine::Head* const head = *loaded;
    if (gathering_.contains(id)) {
      return Status(StatusCode::kBusy, "a large append of this branch is being gathered");
    }
    auto found = joined_.find(id);
    const uint64_t waiting = found == joined_.end() ? 0 : found->second->tokens.size();
    // Full, and the log had no room for it yet: the ordinary way says so.
    if (waiting >= options_.delta_batch_tokens) return std::nullopt;
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
    joined.tokens.push_back(delta.tokens[0]);
    joined.bytes += bytes;
    tree_.NoteJoined(head->ns, bytes, 1);
    for (engine::DeltaState& one : states) {
      one.tokens = joined.tokens.size();
      joined.states.push_back(std::move(one));
    }
    state->length = length + 1;
    state->Release();
    joined.tickets.emplace_back(options.durability, state);
    full = joined.tokens.size() >= options_.delta_batch_tokens;
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
  const uint64_t now_ns = world_.scheduler->WallNs();
  std::unique_ptr<engine::Joined> joined;
  std::optional<engine::DeltaPayload> payload;
  Delta delta;
  KvView kv;
  std::vector<GroupView> views;
  std::vector<uint64_t> hashes;
  Applied applied;
  Result<wal::Log::Slot> slot(Status(StatusCode::kNotFound, "nothing to flush"));
  const auto stays = [stays_if_full](const Status& status) {
    return status.code() == StatusCode::kBusy ||
           (stays_if_full && status.code() == StatusCode::kNoSpace);
  };
  {
    Lock lock(mutex_);
    if (!joined_.contains(id)) return Status::Ok();
    const Result<const engine::Head*> loaded = LoadToChange(id, &lock);
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
    payload.emplace(*waiting.model, delta, engine::DeltaWindow::Whole(delta),
                    std::move(waiting.states));
    try {
      hashes.reserve(payload->strips().size());
      slot = !loaded.ok()
                 ? loaded.status()
                 : ReserveDeltaLocked(id, delta,
                                      {.length = waiting.length, .version = {}, .joined = true},
                                      &*payload, &applied, nullptr, now_ns);
      // That the log had none is as if there was none here.
      if (slot.status().code() == StatusCode::kOutOfMemory) throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
      waiting.states = payload->TakeStates();  // All of it stays.
      throw;
    }
    if (stays(slot.status())) {
      waiting.states = payload->TakeStates();
      return slot.status();
    }
    tree_.NoteJoined(waiting.ns, waiting.bytes, -1);
    joined = std::move(found->second);
    joined_.erase(found);
    joined_count_.fetch_sub(1, std::memory_order_release);
  }
  if (!slot.ok()) {
    const Status told = Guarded([&] { return WhileRoomIsMade(id, joined->bytes, slot.status()); });
    for (auto& [durability, ticket] : joined->tickets) ticket->Finish(told);
    return slot.status();
  }
  payload->Fill(slot->payload, slot->strip_offsets, &hashes, [](uint64_t) { return true; });
  log_->Publish(*slot, hashes);
  counters_.appends.fetch_add(1, std::memory_order_relaxed);
  counters_.tokens.fetch_add(joined->tokens.size(), std::memory_order_relaxed);
  counters_.kv_bytes.fetch_add(payload->kv_bytes(), std::memory_order_relaxed);
  bool written = false;
  bool durable = false;
  for (auto& [durability, ticket] : joined->tickets) {
    written |= durability != Durability::kMemory;
    durable |= durability == Durability::kPower;
    if (durability == Durability::kMemory) {
      if (ticket->Finish(Status::Ok())) RecordSave(ticket->started_ns);
    } else {
      Register(applied.sequence, durability, ticket);
    }
  }
  if (written) log_->Request(applied.sequence, durable);
  return Status::Ok();
}

Status StoreCore::FlushJoined(BranchId id) {
  while (true) {
    const Status status = TryFlushJoined(id);
    if (status.code() != StatusCode::kBusy) return status;
    CAIRN_RETURN_IF_ERROR(log_->WaitForRoom(io::kNoDeadline));
  }
}

// For whoever waits for room: what was accepted before waits with it.
Status StoreCore::FlushJoinedWithRoom(BranchId id, uint64_t deadline_ns) {
  while (true) {
    const Status status = TryFlushJoined(id, /*stays_if_full=*/true);
    if (status.code() == StatusCode::kBusy) {
      CAIRN_RETURN_IF_ERROR(log_->WaitForRoom(deadline_ns));
      continue;
    }
    if (status.code() != StatusCode::kNoSpace) return status;
    const Status made = MakeRoom(id, 0, status, deadline_ns);
    if (made.ok()) continue;
    if (made.code() != StatusCode::kNoSpace) return made;
    const Status ended = TryFlushJoined(id);  // None comes, and its tickets are told.
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
