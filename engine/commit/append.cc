// SPDX-License-Identifier: Apache-2.0
//
// The hot path: check without a lock, decide and reserve under it, copy without it, publish.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/store_core.h"
#include "engine/tree/retention.h"

namespace cairn {

namespace {

std::string GroupName(const ModelSpec& model, const GroupView& view) {
  return "kv of group " + std::to_string(view.group) + " (\"" + model.groups[view.group].name +
         "\")";
}

}  // namespace

Result<std::shared_ptr<const ModelSpec>> StoreCore::CheckDelta(BranchId id, const Delta& delta,
                                                               const AppendOptions& options,
                                                               bool fill, bool* keeps_kv) {
  CAIRN_RETURN_IF_ERROR(CheckWritable(options.durability));
  if (options.overload > Overload::kShedKv) {
    return Status(StatusCode::kInvalidArgument, "overload is neither kFail nor kShedKv");
  }
  std::shared_ptr<const ModelSpec> model;
  {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
    model = tree_.FindModel(head->model);
    if (keeps_kv != nullptr) *keeps_kv = delta.kv == nullptr || KeepsKv(*head, options);
  }
  CAIRN_RETURN_IF_ERROR(CheckShape(*model, delta, fill));
  return model;
}

Status StoreCore::CheckShape(const ModelSpec& model, const Delta& delta, bool fill) {
  if (delta.tokens.empty() && !fill) {
    return Status(StatusCode::kInvalidArgument,
                  "an append needs at least one token; Fill attaches KV alone");
  }
  if (fill && (delta.kv == nullptr || delta.kv->groups.empty())) {
    return Status(StatusCode::kInvalidArgument, "nothing to fill");
  }
  if (delta.sampler != nullptr && delta.sampler->generator > GeneratorKind::kNamed) {
    return Status(StatusCode::kInvalidArgument, "sampler.generator is none that exists");
  }
  if (delta.kv == nullptr) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(ValidateKvView(model, *delta.kv, KvUse::kAppend));
  for (const GroupView& view : delta.kv->groups) {
    const bool one_state = model.groups[view.group].retention.kind == Retention::kPerRequest;
    if (one_state && view.count != 0 && (view.position != 0 || view.count != 1)) {
      return Status(StatusCode::kInvalidArgument,
                    GroupName(model, view) +
                        " is one state, in the row of position 0; positions [" +
                        std::to_string(view.position) + ", " +
                        std::to_string(view.position + view.count) + ") were given");
    }
    if (fill && view.count == 0) {
      return Status(StatusCode::kInvalidArgument, GroupName(model, view) + " fills no position");
    }
  }
  return Status::Ok();
}

Status StoreCore::CheckExpected(const engine::Head& head, const Expected& expected) const {
  const uint64_t length = head.lengths[engine::kTokenLane];
  if (CAIRN_KEPT(kLengthExpected) && expected.length.has_value() && *expected.length != length) {
    return Status(StatusCode::kConflict, "expected_length is " + std::to_string(*expected.length) +
                                             ", the branch has " + std::to_string(length) +
                                             " tokens");
  }
  if (expected.version.has_value() && *expected.version != head.version) {
    return Status(StatusCode::kConflict,
                  "the branch changed after BeginAppend; what was Put may belong to other tokens");
  }
  return Status::Ok();
}

// `before`: what it had until now.
void StoreCore::NoteLength(BranchId id, uint64_t before, uint64_t length, uint64_t sequence) {
  lengths_.Note(id, before, length, sequence, log_->durable_sequence());
}

uint64_t StoreCore::PayloadBytes(const ModelSpec& model, const Delta& delta) const {
  uint64_t bytes = delta.tokens.size() * sizeof(TokenId);
  if (delta.kv == nullptr) return bytes;
  for (const GroupView& view : delta.kv->groups) {
    bytes += engine::KvLayoutBytes(model.groups[view.group], view.count);
  }
  return bytes;
}

// Half of what a segment can hold, so that a part always finds room in a fresh one.
uint64_t StoreCore::PayloadBytesMax() const {
  return std::min<uint64_t>(engine::kPartBytesMax, log_->max_record_bytes() / 2);
}

// What goes through the log in one piece.
bool StoreCore::FitsRecord(uint64_t bytes) const {
  return bytes <= PayloadBytesMax() && !IsIngested(bytes);
}

bool StoreCore::IsIngested(uint64_t bytes) const {
  return options_.direct_ingest_bytes != 0 && bytes >= options_.direct_ingest_bytes;
}

Result<wal::Log::Slot> StoreCore::ReserveDeltaLocked(BranchId id, const Delta& delta,
                                                     const Expected& expected,
                                                     engine::DeltaPayload* payload,
                                                     Applied* applied, const Written* written,
                                                     uint64_t now_ns) {
  // Encoded in memory that is kept, so that an append allocates nothing here.
  thread_local FieldWriter fields;
  if (written == nullptr && !gathering_.empty() && gathering_.contains(id)) {
    return Status(StatusCode::kBusy, "a large append of this branch is being gathered");
  }
  const engine::Head* head = tree_.FindHead(static_cast<uint64_t>(id));
  CAIRN_CHECK(head != nullptr);
  CAIRN_RETURN_IF_ERROR(CheckExpected(*head, expected));
  payload->SetLength(head->lengths[engine::kTokenLane]);
  CAIRN_ASSIGN_OR_RETURN(
      engine::Op op, written == nullptr
                         ? tree_.ResolveAppend(head->id, payload->lanes(), engine::SpansOf(delta))
                         : ResolveWritten(*head, delta, *payload, *written));
  op.time_ns = now_ns;
  const std::span<const engine::Part> parts =
      written == nullptr ? std::span<const engine::Part>() : written->parts;
  engine::Transaction transaction(&tree_);
  CAIRN_RETURN_IF_ERROR(transaction.Apply(op, parts));
  if (!expected.joined) CAIRN_RETURN_IF_ERROR(CheckQuota(*head));
  fields.Clear();
  EncodeOp(op, &fields);
  const wal::RecordSpec spec{.kind = static_cast<uint16_t>(op.kind),
                             .more = false,
                             .unit = written == nullptr ? 0 : written->unit,
                             .fields = fields.bytes(),
                             .strips = payload->strips()};
  // What was accepted, or has begun, is not held any more: others wait for it.
  auto reserved = written == nullptr && !expected.joined
                      ? ReserveData(spec)
                      : log_->Reserve(spec, wal::Log::Purpose::kData);
  if (!reserved.ok()) {
    NoteRefused(reserved.status());
    return reserved.status();
  }
  wal::Log::Slot slot = std::move(*reserved);
  NoteLogged(slot);
  const uint32_t header_bytes = static_cast<uint32_t>(slot.payload - slot.record);
  const uint64_t tokens = payload->token_strip_bytes();
  transaction.Commit(slot.location, tokens == 0 ? slot.location.bytes
                                                : header_bytes + static_cast<uint32_t>(tokens));
  applied->sequence = slot.sequence;
  applied->length = head->lengths[engine::kTokenLane];
  NoteLength(id, op.position, applied->length, slot.sequence);
  return slot;
}

Result<wal::Log::Slot> StoreCore::ReserveDelta(BranchId id, const Delta& delta,
                                               const Expected& expected,
                                               engine::DeltaPayload* payload, Applied* applied,
                                               const Written* written) {
  const uint64_t now_ns = world_.scheduler->WallNs();
  while (true) {
    Lock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(LoadToChange(id, &lock).status());
    // What was accepted to be joined since the caller looked comes first.
    if (written != nullptr || !joined_.contains(id)) {
      return ReserveDeltaLocked(id, delta, expected, payload, applied, written, now_ns);
    }
    lock.unlock();
    CAIRN_RETURN_IF_ERROR(TryFlushJoined(id));
  }
}

// One record: reserve, copy, publish. `wait`: sleep while group memory is full.
Result<StoreCore::Applied> StoreCore::AppendRecord(BranchId id, const Delta& delta,
                                                   const Expected& expected, const ModelSpec& model,
                                                   bool wait, uint64_t deadline_ns) {
  engine::DeltaPayload payload(model, delta, engine::DeltaWindow::Whole(delta),
                               engine::StatesOf(delta));
  thread_local std::vector<uint64_t> hashes;
  hashes.reserve(payload.strips().size());  // Publishing must not allocate.
  Applied applied;
  if (wait) SlowDown(payload.bytes(), deadline_ns);
  while (true) {
    auto slot = ReserveDelta(id, delta, expected, &payload, &applied, nullptr);
    if (slot.ok()) {
      payload.Fill(slot->payload, slot->strip_offsets, &hashes, [&](uint64_t filled) {
        log_->PieceReady(*slot, filled);
        return true;
      });
      log_->Publish(*slot, hashes);
      counters_.appends.fetch_add(1, std::memory_order_relaxed);
      counters_.tokens.fetch_add(delta.tokens.size(), std::memory_order_relaxed);
      counters_.kv_bytes.fetch_add(payload.kv_bytes(), std::memory_order_relaxed);
      return applied;
    }
    if (slot.status().code() != StatusCode::kBusy) return slot.status();
    counters_.busy.fetch_add(1, std::memory_order_relaxed);
    if (!wait) return slot.status();
    CAIRN_RETURN_IF_ERROR(WaitWhileBusy(id, payload.bytes(), deadline_ns));
  }
}

// After a kBusy: until it may be otherwise.
Status StoreCore::WaitWhileBusy(BranchId id, uint64_t bytes, uint64_t deadline_ns) {
  const uint32_t seen = gathering_version_.load(std::memory_order_acquire);
  bool gathering = false;
  {
    std::lock_guard lock(mutex_);
    gathering = gathering_.contains(id);
  }
  if (!gathering) return WaitForLog(bytes, deadline_ns);
  if (!world_.scheduler->Wait(gathering_version_, seen, deadline_ns)) {
    return Status(StatusCode::kDeadlineExceeded, "a large append of this branch took too long");
  }
  return Status::Ok();
}

Status StoreCore::WaitFor(uint64_t sequence, Durability durability, uint64_t deadline_ns) {
  if (durability == Durability::kMemory) return Status::Ok();
  const bool durable = durability == Durability::kPower;
  // Who leads a group cannot leave when its time is up, so the log thread does that. Without memory
  // to wait for that thread it is better to be late than to tell nothing of what is applied.
  std::shared_ptr<TicketState> state;
  if (deadline_ns != io::kNoDeadline) {
    static_cast<void>(Guarded([&] { state = std::make_shared<TicketState>(world_, nullptr, 0); }));
  }
  if (state == nullptr) return log_->Wait(sequence, durable, io::kNoDeadline);
  Register(sequence, durability, state);
  log_->Request(sequence, durable);
  return state->WaitDone(deadline_ns) ? state->status() : cut_by_deadline_;
}

Result<uint64_t> StoreCore::AppendSync(BranchId id, const Delta& delta,
                                       const AppendOptions& options) {
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  const uint64_t deadline_ns = Deadline(options.timeout_ns);
  bool keeps_kv = true;
  CAIRN_ASSIGN_OR_RETURN(const auto model, CheckDelta(id, delta, options, false, &keeps_kv));
  CAIRN_RETURN_IF_ERROR(FlushJoinedWithRoom(id, deadline_ns));
  Delta kept = delta;
  if (!keeps_kv) kept.kv = nullptr;
  const Result<Applied> applied =
      AppendWithRoom(id, kept, {options.expected_length, {}}, *model, deadline_ns);
  if (!applied.ok()) return applied.status();
  CAIRN_RETURN_IF_ERROR(WaitFor(applied->sequence, options.durability, deadline_ns));
  RecordSave(started_ns);
  return applied->length;
}

Result<Ticket> StoreCore::Append(BranchId id, const Delta& delta, const AppendOptions& options,
                                 std::shared_ptr<void> keep, std::optional<uint64_t> version) {
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  const Expected expected{options.expected_length, version};
  bool keeps_kv = true;
  CAIRN_ASSIGN_OR_RETURN(auto model, CheckDelta(id, delta, options, false, &keeps_kv));
  Delta kept = delta;
  if (!keeps_kv) kept.kv = nullptr;
  if (options_.delta_batch_tokens > 1 && !version.has_value()) {
    if (auto ticket = AppendJoined(id, kept, options, model, !keeps_kv)) return std::move(*ticket);
  }
  if (const Status flushed = TryFlushJoined(id); !flushed.ok()) {
    return WhileRoomIsMade(id, 0, flushed);
  }
  const uint64_t bytes = PayloadBytes(*model, kept);
  if (bytes > options_.submit_copy_max_bytes || !FitsRecord(bytes)) {
    return AppendBorrowed(id, kept, options, expected, std::move(model), std::move(keep),
                          !keeps_kv);
  }
  NewTicket ticket = MakeTicket(options, started_ns);
  auto applied = AppendRecord(id, kept, expected, *model, false, io::kNoDeadline);
  if (applied.ok()) {
    applied->kv_shed = !keeps_kv;
    return GiveToLog(std::move(ticket), *applied, options.durability);
  }
  if (options.overload == Overload::kShedKv) {
    return AppendShedding(id, kept, options, expected, applied.status());
  }
  return WhileRoomIsMade(id, bytes, applied.status());
}

Result<StoreCore::Applied> StoreCore::AppendWithRoom(BranchId id, const Delta& delta,
                                                     const Expected& expected,
                                                     const ModelSpec& model, uint64_t deadline_ns) {
  const uint64_t bytes = PayloadBytes(model, delta);
  while (true) {
    Result<Applied> applied = FitsRecord(bytes)
                                  ? AppendRecord(id, delta, expected, model, true, deadline_ns)
                                  : AppendLarge(id, delta, expected, model, deadline_ns);
    if (applied.ok() || applied.status().code() != StatusCode::kNoSpace) return applied;
    CAIRN_RETURN_IF_ERROR(MakeRoom(id, bytes, applied.status(), deadline_ns));
  }
}

// Tokens are small enough to go where KV does not; and once KV was shed, later KV does not connect
// and is shed as well, until Fill closes the gap, where the group may have none.
Result<Ticket> StoreCore::AppendShedding(BranchId id, const Delta& delta,
                                         const AppendOptions& options, const Expected& expected,
                                         const Status& cause) {
  bool gap = false;
  if (delta.kv != nullptr) {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
    const std::vector<LayerGroup>& groups = tree_.FindModel(head->model)->groups;
    for (const GroupView& view : delta.kv->groups) {
      gap |=
          view.position > head->lengths[1 + view.group] && !engine::MayHaveGaps(groups[view.group]);
    }
  }
  const bool full = cause.code() == StatusCode::kBusy || cause.code() == StatusCode::kNoSpace;
  if (delta.kv == nullptr || (!full && !gap)) return cause;
  Delta tokens_only = delta;
  tokens_only.kv = nullptr;
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  std::shared_ptr<const ModelSpec> model;
  CAIRN_ASSIGN_OR_RETURN(model, CheckDelta(id, tokens_only, options, false, nullptr));
  NewTicket ticket = MakeTicket(options, started_ns);
  CAIRN_ASSIGN_OR_RETURN(Applied applied,
                         AppendRecord(id, tokens_only, expected, *model, false, io::kNoDeadline));
  counters_.kv_shed.fetch_add(1, std::memory_order_relaxed);
  applied.kv_shed = true;
  return GiveToLog(std::move(ticket), applied, options.durability);
}

StoreCore::NewTicket StoreCore::MakeTicket(const AppendOptions& options, uint64_t started_ns) {
  NewTicket ticket{
      .state = std::make_shared<TicketState>(
          world_, options.queue == nullptr ? nullptr : options.queue->state(), options.user_data)};
  ticket.state->started_ns = started_ns;
  if (options.durability == Durability::kMemory) return ticket;
  ticket.state->help = [weak = weak_from_this(), state = ticket.state.get(),
                        durable = options.durability == Durability::kPower](uint64_t deadline_ns) {
    const auto core = weak.lock();
    return core == nullptr ? Status::Ok() : core->log_->Wait(state->sequence, durable, deadline_ns);
  };
  ticket.deadline_ns = Deadline(options.timeout_ns);
  if (ticket.deadline_ns != io::kNoDeadline) ticket.cut = CutLater(ticket.state);
  return ticket;
}

Ticket StoreCore::GiveToLog(NewTicket ticket, const Applied& applied, Durability durability) {
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
    if (!ticket.cut.empty()) timer_->At(ticket.deadline_ns, std::move(ticket.cut));
  }
  return Ticket(std::move(ticket.state));
}

// For tickets of what was given to the log.
engine::Timer::Entry StoreCore::CutLater(const std::shared_ptr<TicketState>& ticket) {
  return engine::Timer::Make([this, weak = std::weak_ptr<TicketState>(ticket)] {
    if (const auto alive = weak.lock(); alive != nullptr) alive->Finish(cut_by_deadline_);
    return io::kNoDeadline;
  });
}

}  // namespace cairn
