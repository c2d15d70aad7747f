// SPDX-License-Identifier: Apache-2.0
//
// Appends larger than one record, and asynchronous ones on borrowed memory. What is written first
// counts with the append record that comes last. Until that one is reserved nothing is applied, so
// cancelling is a matter of stopping.
//
//   parts      a *unit*: records of kind kPart carry the payload, and the unit's last record, an
//              ordinary append, makes it count. What recovery finds of an unfinished unit it drops.
//   ingested   from direct_ingest_bytes on: the KV goes into a snapshot table of its own
//              (ingest_table.h), which is durable before the append record that names it is placed.
//              A table that no record names is an orphan, which the next opening removes.
//
// While a branch's unit is being gathered, other appends to it are kBusy (asynchronous) or wait.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/commit/ingest_table.h"
#include "engine/store_core.h"

namespace cairn {

// What is ingested takes next to nothing; of the rest no more is waited for than a segment.
uint64_t StoreCore::LogBytesOfLarge(const ModelSpec& model, const Delta& delta) const {
  const uint64_t bytes = PayloadBytes(model, delta);
  return IsIngested(bytes) ? 0 : std::min(bytes, options_.segment_bytes);
}

Result<uint64_t> StoreCore::BeginGathering(BranchId id, uint64_t bytes, const Expected& expected,
                                           bool wait, uint64_t deadline_ns) {
  while (true) {
    // What has begun goes on, whatever the log's limit says: its parts keep the log as it is.
    if (LogIsHeld(bytes)) {
      if (!wait) return Status(StatusCode::kBusy, "the log is as long as log_bytes_max allows");
      CAIRN_RETURN_IF_ERROR(WaitForLog(bytes, deadline_ns));
      continue;
    }
    const uint32_t seen = gathering_version_.load(std::memory_order_acquire);
    {
      Lock lock(mutex_);
      CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
      if (joined_.contains(id) && !gathering_.contains(id)) {
        lock.unlock();
        CAIRN_RETURN_IF_ERROR(wait ? FlushJoined(id) : TryFlushJoined(id));
        continue;
      }
      if (!gathering_.contains(id)) {
        CAIRN_RETURN_IF_ERROR(CheckExpected(*head, expected));
        gathering_.insert(id);
        return head->lengths[engine::kTokenLane];
      }
    }
    if (!wait) {
      return Status(StatusCode::kBusy, "a large append of this branch is being gathered");
    }
    if (!world_.scheduler->Wait(gathering_version_, seen, deadline_ns)) {
      return Status(StatusCode::kDeadlineExceeded, "a large append of this branch took too long");
    }
  }
}

void StoreCore::EndGathering(BranchId id) {
  {
    std::lock_guard lock(mutex_);
    gathering_.erase(id);
    gathering_version_.fetch_add(1, std::memory_order_release);
  }
  world_.scheduler->WakeAll(gathering_version_);
}

Result<engine::Part> StoreCore::WritePart(const ModelSpec& model, const Delta& delta,
                                          const engine::DeltaWindow& window, uint64_t length_before,
                                          uint64_t unit, uint64_t deadline_ns, TicketState* ticket,
                                          uint64_t* sequence) {
  engine::DeltaPayload payload(model, delta, window, {});
  payload.SetLength(length_before);
  engine::Op op;
  op.kind = engine::OpKind::kPart;
  op.lanes = payload.lanes();
  FieldWriter fields;
  EncodeOp(op, &fields);
  std::vector<uint64_t> hashes;
  hashes.reserve(payload.strips().size());
  if (ticket == nullptr) SlowDown(payload.bytes(), deadline_ns);  // A job keeps no thread waiting.
  const wal::RecordSpec spec{.kind = static_cast<uint16_t>(op.kind),
                             .more = true,
                             .unit = unit,
                             .fields = fields.bytes(),
                             .strips = payload.strips()};
  while (true) {
    Result<wal::Log::Slot> slot = [&] {
      std::lock_guard lock(mutex_);  // Sequences are given under the commit lock only.
      Result<wal::Log::Slot> reserved = log_->Reserve(spec, wal::Log::Purpose::kData);
      if (reserved.ok()) NoteLogged(*reserved);
      return reserved;
    }();
    if (!slot.ok() && slot.status().code() == StatusCode::kBusy) {
      CAIRN_RETURN_IF_ERROR(log_->WaitForRoom(deadline_ns));
      continue;
    }
    if (!slot.ok()) {
      NoteRefused(slot.status());
      return slot.status();
    }
    *sequence = slot->sequence;
    bool cancelled = false;
    payload.Fill(slot->payload, slot->strip_offsets, &hashes, [&](uint64_t filled) {
      log_->PieceReady(*slot, filled);
      cancelled = ticket != nullptr && ticket->cancel_requested();
      return !cancelled;
    });
    if (cancelled) {
      // The record must still be whole; what was not gathered becomes zeros, and counts for nobody.
      for (size_t i = hashes.size(); i < payload.strips().size(); ++i) {
        const std::span<std::byte> strip(slot->payload + slot->strip_offsets[i],
                                         payload.strips()[i].bytes);
        std::fill(strip.begin(), strip.end(), std::byte{0});
        hashes.push_back(Hash(strip));
      }
    }
    log_->Publish(*slot, hashes);
    if (cancelled) return Status(StatusCode::kCancelled, "cancelled while being gathered");
    engine::Part part{slot->location, op.lanes, {}};
    const auto header_bytes = static_cast<uint32_t>(slot->payload - slot->record);
    for (const engine::LaneRange& lane : op.lanes) {
      part.prefix_bytes.push_back(lane.lane == engine::kTokenLane
                                      ? header_bytes +
                                            static_cast<uint32_t>(payload.token_strip_bytes())
                                      : slot->location.bytes);
    }
    counters_.kv_bytes.fetch_add(payload.kv_bytes(), std::memory_order_relaxed);
    return part;
  }
}

namespace {

// The next window of at most `max_bytes`, cut from the front of `rest`. The same number of
// positions is taken of every lane, so that tokens and their KV stay together.
engine::DeltaWindow TakeWindow(const ModelSpec& model, const Delta& delta,
                               engine::DeltaWindow* rest, uint64_t max_bytes) {
  uint64_t position_bytes = sizeof(TokenId);
  for (size_t i = 0; i < rest->kv.size(); ++i) {
    if (rest->kv[i].count == 0) continue;
    position_bytes += engine::KvLayoutBytes(model.groups[delta.kv->groups[i].group], 1);
  }
  const uint64_t positions = std::max<uint64_t>(1, max_bytes / position_bytes);
  engine::DeltaWindow window = *rest;
  window.token_count = std::min(rest->token_count, positions);
  rest->token_first += window.token_count;
  rest->token_count -= window.token_count;
  for (size_t i = 0; i < rest->kv.size(); ++i) {
    window.kv[i].count = std::min(rest->kv[i].count, positions);
    rest->kv[i].position += window.kv[i].count;
    rest->kv[i].count -= window.kv[i].count;
  }
  return window;
}

bool IsEmpty(const engine::DeltaWindow& window) {
  return window.token_count == 0 && std::all_of(window.kv.begin(), window.kv.end(),
                                                [](const auto& kv) { return kv.count == 0; });
}

// As namespaces count what is in the log.
uint64_t HeldBytes(const ModelSpec& model, const Delta& delta) {
  uint64_t bytes = delta.tokens.size() * sizeof(TokenId);
  for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
    const GroupView& view = delta.kv->groups[i];
    bytes += view.count * model.groups[view.group].token_bytes();
  }
  return bytes;
}

}  // namespace

Result<StoreCore::Applied> StoreCore::AppendLarge(BranchId id, const Delta& delta,
                                                  const Expected& expected, const ModelSpec& model,
                                                  uint64_t deadline_ns) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length, BeginGathering(id, LogBytesOfLarge(model, delta),
                                                               expected, true, deadline_ns));
  return AppendGathered(id, delta, expected, model, length, deadline_ns, nullptr);
}

// Follows a BeginGathering, which gave `length`, and ends the gathering.
Result<StoreCore::Applied> StoreCore::AppendGathered(BranchId id, const Delta& delta,
                                                     const Expected& expected,
                                                     const ModelSpec& model, uint64_t length,
                                                     uint64_t deadline_ns, TicketState* ticket) {
  struct End {
    StoreCore* core;
    BranchId id;
    ~End() { core->EndGathering(id); }
  } end{this, id};
  uint64_t node = 0;
  const bool ingested = IsIngested(PayloadBytes(model, delta));
  {
    // What does not fit the branch is refused before a byte is written.
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
    CAIRN_ASSIGN_OR_RETURN(const engine::Op op, tree_.ResolveAppend(static_cast<uint64_t>(id),
                                                                    engine::LanesOf(delta, length),
                                                                    engine::SpansOf(delta)));
    // How much a table makes of it is known when it is there.
    if (!ingested) CAIRN_RETURN_IF_ERROR(CheckQuota(*head, HeldBytes(model, delta)));
    // A table names the node; one that is still to be made has its id from here on.
    node = ingested && (op.flags & engine::kOpNewNode) != 0 ? tree_.TakeId() : op.node;
  }
  return ingested ? AppendIngested(id, delta, expected, model, length, node, deadline_ns, ticket)
                  : AppendParts(id, delta, expected, model, length, deadline_ns, ticket);
}

// The last record of a large append, which makes it count.
Result<StoreCore::Applied> StoreCore::AppendLast(BranchId id, const Delta& delta,
                                                 const Expected& expected,
                                                 engine::DeltaPayload* payload,
                                                 const Written& written, uint64_t deadline_ns) {
  std::vector<uint64_t> hashes;
  hashes.reserve(payload->strips().size());
  Applied applied;
  while (true) {
    auto slot = ReserveDelta(id, delta, expected, payload, &applied, &written);
    if (!slot.ok() && slot.status().code() == StatusCode::kBusy) {
      CAIRN_RETURN_IF_ERROR(log_->WaitForRoom(deadline_ns));
      continue;
    }
    if (!slot.ok()) return slot.status();
    payload->Fill(slot->payload, slot->strip_offsets, &hashes, [](uint64_t) { return true; });
    log_->Publish(*slot, hashes);
    counters_.appends.fetch_add(1, std::memory_order_relaxed);
    counters_.tokens.fetch_add(delta.tokens.size(), std::memory_order_relaxed);
    return applied;
  }
}

// Under the commit lock: the op that makes what was written before count. Nobody has changed the
// branch since, but a log that failed has taken the tree back (ReloadTree).
Result<engine::Op> StoreCore::ResolveWritten(const engine::Head& head, const Delta& delta,
                                             const engine::DeltaPayload& payload,
                                             const Written& written) {
  CAIRN_RETURN_IF_ERROR(PoisonStatus());
  CAIRN_ASSIGN_OR_RETURN(
      engine::Op op,
      tree_.ResolveAppend(head.id, engine::LanesOf(delta, head.lengths[engine::kTokenLane]),
                          engine::SpansOf(delta)));
  op.lanes = payload.lanes();
  if (written.table.number == 0) return op;
  const uint64_t node = written.ranges.front().node;
  if (op.node != node) {
    // It was to be a new one. Meanwhile that of the branch may have been cut to where it ends.
    op.flags |= engine::kOpNewNode;
    op.other = head.node;
    op.node = node;
  }
  op.sealed = written.ranges;
  op.table = written.table;
  return op;
}

Result<StoreCore::Applied> StoreCore::AppendIngested(BranchId id, const Delta& delta,
                                                     const Expected& expected,
                                                     const ModelSpec& model, uint64_t length,
                                                     uint64_t node, uint64_t deadline_ns,
                                                     TicketState* ticket) {
  engine::DeltaWindow window = engine::DeltaWindow::Whole(delta);
  window.kv.clear();
  // Ids are read first and often: the record keeps them, unless they are too many for one.
  const bool tokens = window.token_count * sizeof(TokenId) > PayloadBytesMax() / 2;
  if (tokens) window.token_count = 0;
  engine::DeltaPayload last(model, delta, window, engine::StatesOf(delta));
  const engine::IngestContext context{
      .tables = DataContext(),
      .allocator = options_.allocator,
      .scheduler = world_.scheduler.get(),
      .executor = executor_.get(),
      .memory = &ingest_line_,
      .helpers = std::min(executor_threads_, engine::kIngestHelpersMax),
      .go_on = [&]() -> Status {
        if (ticket != nullptr && ticket->cancel_requested()) {
          return Status(StatusCode::kCancelled, "cancelled while being gathered");
        }
        if (deadline_ns != io::kNoDeadline && world_.scheduler->MonotonicNs() >= deadline_ns) {
          return Status(StatusCode::kDeadlineExceeded, "the table was not written in time");
        }
        return PoisonStatus();
      }};
  const engine::IngestSource source{
      .model = &model, .delta = &delta, .node = node, .length = length, .tokens = tokens};
  CAIRN_ASSIGN_OR_RETURN(engine::Ingested ingested, engine::WriteIngestTable(context, source));
  const Written written{
      .parts = {}, .unit = 0, .table = ingested.table, .ranges = std::move(ingested.ranges)};
  const Result<Applied> applied = Guarded([&]() -> Result<Applied> {
    CAIRN_RETURN_IF_ERROR(context.go_on());
    return AppendLast(id, delta, expected, &last, written, deadline_ns);
  });
  if (!applied.ok()) {
    // No record names it. What cannot be removed is an orphan, counted until it goes.
    static_cast<void>(DeleteTable(written.table.number, written.table.bytes));
    return applied;
  }
  counters_.ingests.fetch_add(1, std::memory_order_relaxed);
  counters_.ingested_bytes.fetch_add(ingested.raw_bytes, std::memory_order_relaxed);
  counters_.kv_bytes.fetch_add(ingested.raw_bytes - (tokens ? delta.tokens.size_bytes() : 0),
                               std::memory_order_relaxed);
  return applied;
}

Result<StoreCore::Applied> StoreCore::AppendParts(BranchId id, const Delta& delta,
                                                  const Expected& expected, const ModelSpec& model,
                                                  uint64_t length, uint64_t deadline_ns,
                                                  TicketState* ticket) {
  // Nothing in the tree names the parts until the last record is there.
  const auto pin = pins_.Take(engine::Pins::Of::kParts, newest_segment_.load());
  const uint64_t part_bytes = PayloadBytesMax();
  uint64_t position_bytes = 0;
  for (size_t i = 0; delta.kv != nullptr && i < delta.kv->groups.size(); ++i) {
    const GroupView& view = delta.kv->groups[i];
    if (view.count != 0) position_bytes += model.groups[view.group].token_bytes();
  }
  if (position_bytes > part_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  "one position holds " + std::to_string(position_bytes) +
                      " bytes of KV; with this segment_bytes at most " +
                      std::to_string(part_bytes) + " fit a record");
  }
  std::vector<engine::DeltaWindow> windows;
  std::vector<uint64_t> record_bytes;
  for (engine::DeltaWindow rest = engine::DeltaWindow::Whole(delta); !IsEmpty(rest);) {
    windows.push_back(TakeWindow(model, delta, &rest, part_bytes));
    record_bytes.push_back(engine::DeltaPayload(model, delta, windows.back(), {}).bytes());
  }
  // Parts that are followed by a refusal fill the log for nothing: whoever tries again and again
  // would take what is being freed for it.
  if (const Status full = log_->CheckRoom(record_bytes); !full.ok()) {
    NoteRefused(full);
    return full;
  }
  Written written;
  for (const engine::DeltaWindow& window : windows) {
    uint64_t sequence = 0;
    CAIRN_ASSIGN_OR_RETURN(engine::Part part, WritePart(model, delta, window, length, written.unit,
                                                        deadline_ns, ticket, &sequence));
    if (written.unit == 0) written.unit = sequence;
    log_->Request(sequence, false);  // The disk works while the next part is gathered.
    written.parts.push_back(std::move(part));
  }
  engine::DeltaPayload last(model, delta, engine::DeltaWindow{}, engine::StatesOf(delta));
  return AppendLast(id, delta, expected, &last, written, deadline_ns);
}

Result<Ticket> StoreCore::AppendBorrowed(BranchId id, const Delta& delta,
                                         const AppendOptions& options, const Expected& expected,
                                         std::shared_ptr<const ModelSpec> model,
                                         std::shared_ptr<void> keep, bool kv_shed) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length,
                         BeginGathering(id, LogBytesOfLarge(*model, delta), expected, false, 0));
  Result<Ticket> posted = Guarded([&] {
    return PostGathered(id, delta, options, expected, length, std::move(model), std::move(keep),
                        kv_shed);
  });
  if (!posted.ok()) EndGathering(id);
  return posted;
}

Result<Ticket> StoreCore::PostGathered(BranchId id, const Delta& delta,
                                       const AppendOptions& options, const Expected& expected,
                                       uint64_t length, std::shared_ptr<const ModelSpec> model,
                                       std::shared_ptr<void> keep, bool kv_shed) {
  auto state = std::make_shared<TicketState>(
      world_, options.queue == nullptr ? nullptr : options.queue->state(), options.user_data);
  state->is_job = true;
  state->kv_shed = kv_shed;
  state->abandoned = [weak = weak_from_this(), id] {
    if (const auto core = weak.lock(); core != nullptr) core->EndGathering(id);
  };
  state->length = length + delta.tokens.size();
  state->started_ns = world_.scheduler->MonotonicNs();
  const uint64_t deadline_ns = Deadline(options.timeout_ns);
  std::shared_ptr<engine::Timer::Entry> cut;  // Shared: what is posted can be copied.
  if (deadline_ns != io::kNoDeadline) {
    cut = std::make_shared<engine::Timer::Entry>(CutLater(state));
  }
  AppendOptions own = options;
  own.queue = nullptr;
  executor_->Post([self = shared_from_this(), id, delta, own, expected, model = std::move(model),
                   length, deadline_ns, cut, state, keep = std::move(keep)] {
    if (!state->BeginJob()) return;
    const auto applied = Guarded([&] {
      return self->AppendGathered(id, delta, expected, *model, length, deadline_ns, state.get());
    });
    if (!applied.ok()) {
      if (applied.status().code() == StatusCode::kCancelled) {
        self->counters_.cancelled.fetch_add(1, std::memory_order_relaxed);
      }
      state->Finish(Guarded([&] {
        return self->WhileRoomIsMade(id, self->PayloadBytes(*model, delta), applied.status());
      }));
      return;
    }
    state->Release();
    if (own.durability == Durability::kMemory) {
      state->Finish(Status::Ok());
      return;
    }
    self->Register(applied->sequence, own.durability, state);
    self->log_->Request(applied->sequence, own.durability == Durability::kPower);
    state->FinishIfCancelled();
    if (cut != nullptr) self->timer_->At(deadline_ns, std::move(*cut));
  });
  return Ticket(state);
}

}  // namespace cairn
