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

#include "base/core/out_of_memory.h"
#include "engine/commit/append_resolver.h"
#include "engine/commit/ingest_table.h"
#include "engine/tree/decisions.h"

namespace cairn {

// What is ingested takes next to nothing; of the rest no more is waited for than a segment.
uint64_t StoreCore::LogBytesOfLarge(const ModelSpec& model, const Delta& delta) const {
  const uint64_t bytes = engine::PayloadBytes(model, delta);
  return limits_.IsIngested(bytes) ? 0 : std::min(bytes, options_.segment_bytes);
}

Result<uint64_t> StoreCore::BeginLargeAppend(BranchId id, uint64_t bytes, const Expected& expected,
                                             bool wait, uint64_t deadline_ns) {
  engine::RetryPolicy policy{.branch = id, .log_bytes = bytes, .deadline_ns = deadline_ns};
  if (wait) policy.busy = engine::RetryPolicy::Busy::kAwaitLog;
  uint64_t length = 0;
  const auto begin = [&]() -> engine::Attempt {
    while (true) {
      // What has begun goes on, whatever the log's limit says: its parts keep the log as it is.
      if (LogIsHeld(bytes)) {
        return engine::Attempt::Refused(
            Status(StatusCode::kBusy, "the log is as long as log_bytes_max allows"));
      }
      Lock lock(mutex_);
      CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadToChange(id, &lock));
      if (committer_.HasLargeAppend(id)) {
        return engine::Attempt::Held(engine::Committer::LargeAppendUnderWay());
      }
      if (!joined_.contains(id)) {
        CAIRN_RETURN_IF_ERROR(CheckExpected(*head, expected));
        committer_.BeginLargeAppend(id);
        length = head->lengths[engine::kTokenLane];
        return {};
      }
      lock.unlock();
      CAIRN_RETURN_IF_ERROR(wait ? FlushJoined(id) : TryFlushJoined(id));
    }
  };
  CAIRN_RETURN_IF_ERROR(committer_.Retrying(policy, begin));
  return length;
}

// A record that carries payload of a large append and changes nothing by itself.
class StoreCore::PartResolver final : public engine::Resolver {
 public:
  PartResolver(const engine::DeltaPayload& payload, uint64_t unit, const TicketState* ticket)
      : payload_(payload), ticket_(ticket) {
    record_.held_by_limit = false;
    record_.unit = unit;
    record_.strips = payload.strips();
    hashes_.reserve(payload.strips().size());
  }

  engine::Attempt Prepare(Lock* /*lock*/) override { return {}; }
  Status Resolve(engine::CommitOps* ops) override {
    engine::Op& part = ops->Next().op;
    part.kind = engine::OpKind::kPart;
    part.lanes = payload_.lanes();
    return ops->Add();
  }
  void Publish(wal::Log* log) override {
    payload_.Fill(slot_.payload, slot_.strip_offsets, &hashes_, [&](uint64_t filled) {
      log->PieceReady(slot_, filled);
      cancelled_ = ticket_ != nullptr && ticket_->cancel_requested();
      return !cancelled_;
    });
    // The record must still be whole; what was not copied becomes zeros, and counts for nobody.
    for (size_t i = hashes_.size(); i < payload_.strips().size(); ++i) {
      const std::span<std::byte> strip(slot_.payload + slot_.strip_offsets[i],
                                       payload_.strips()[i].bytes);
      std::fill(strip.begin(), strip.end(), std::byte{0});
      hashes_.push_back(Hash(strip));
    }
    log->Publish(slot_, hashes_);
  }

  bool cancelled() const { return cancelled_; }
  engine::Part part() const {
    engine::Part part{slot_.location, payload_.lanes(), {}};
    const auto header_bytes = static_cast<uint32_t>(slot_.payload - slot_.record);
    for (const engine::LaneRange& lane : part.lanes) {
      part.prefix_bytes.push_back(lane.lane == engine::kTokenLane
                                      ? header_bytes +
                                            static_cast<uint32_t>(payload_.token_strip_bytes())
                                      : slot_.location.bytes);
    }
    return part;
  }

 private:
  const engine::DeltaPayload& payload_;
  const TicketState* const ticket_;
  std::vector<uint64_t> hashes_;
  bool cancelled_ = false;
};

Result<engine::Part> StoreCore::WritePart(const ModelSpec& model, const Delta& delta,
                                          const engine::DeltaWindow& window, uint64_t length_before,
                                          uint64_t unit, uint64_t deadline_ns, TicketState* ticket,
                                          uint64_t* sequence, uint64_t* kv_bytes) {
  engine::DeltaPayload payload(model, delta, window, {});
  payload.SetLength(length_before);
  PartResolver record(payload, unit, ticket);
  if (ticket == nullptr)
    space_.throttle().SlowDown(payload.bytes(), deadline_ns);  // A job keeps no thread waiting.
  const engine::Attempt ended = committer_.Commit(
      &record, {.busy = engine::RetryPolicy::Busy::kAwaitMemory, .deadline_ns = deadline_ns});
  if (!ended.done()) return ended.status;
  if (record.cancelled()) return Status(StatusCode::kCancelled, "cancelled while being gathered");
  *sequence = record.sequence();
  *kv_bytes += payload.kv_bytes();
  return record.part();
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
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length, BeginLargeAppend(id, LogBytesOfLarge(model, delta),
                                                                 expected, true, deadline_ns));
  return AppendGathered(id, delta, expected, model, length, deadline_ns, nullptr);
}

// Follows BeginLargeAppend, which gave `length`, and ends it.
Result<StoreCore::Applied> StoreCore::AppendGathered(BranchId id, const Delta& delta,
                                                     const Expected& expected,
                                                     const ModelSpec& model, uint64_t length,
                                                     uint64_t deadline_ns, TicketState* ticket) {
  struct End {
    StoreCore* core;
    BranchId id;
    ~End() { core->committer_.EndLargeAppend(id); }
  } end{this, id};
  uint64_t node = 0;
  const bool ingested = limits_.IsIngested(model, delta);
  {
    // What does not fit the branch is refused before a byte is written.
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, access_.LoadToChange(id, &lock));
    CAIRN_ASSIGN_OR_RETURN(const engine::Op op,
                           ResolveAppend(tree_, static_cast<uint64_t>(id),
                                         engine::LanesOf(delta, length), engine::SpansOf(delta)));
    // How much a table makes of it is known when it is there.
    if (!ingested) CAIRN_RETURN_IF_ERROR(engine::CheckQuota(*head, HeldBytes(model, delta)));
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
  AppendResolver append(this, id, delta, expected, payload, &written);
  const engine::Attempt ended = committer_.Commit(
      &append, {.busy = engine::RetryPolicy::Busy::kAwaitMemory, .deadline_ns = deadline_ns});
  if (!ended.done()) return ended.status;
  return append.applied();
}

Result<StoreCore::Applied> StoreCore::AppendIngested(BranchId id, const Delta& delta,
                                                     const Expected& expected,
                                                     const ModelSpec& model, uint64_t length,
                                                     uint64_t node, uint64_t deadline_ns,
                                                     TicketState* ticket) {
  engine::DeltaWindow window = engine::DeltaWindow::Whole(delta);
  window.kv.clear();
  const bool tokens = limits_.IdsGoIntoTable(delta);
  if (tokens) window.token_count = 0;
  engine::DeltaPayload last(model, delta, window, engine::StatesOf(delta));
  const engine::IngestContext context{
      .tables = space_.DataContext(),
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
  const Written written{.parts = {},
                        .unit = 0,
                        .table = ingested.table,
                        .ranges = std::move(ingested.ranges),
                        .kv_bytes = ingested.raw_bytes - (tokens ? delta.tokens.size_bytes() : 0)};
  const Result<Applied> applied = Guarded([&]() -> Result<Applied> {
    CAIRN_RETURN_IF_ERROR(context.go_on());
    return AppendLast(id, delta, expected, &last, written, deadline_ns);
  });
  if (!applied.ok()) {
    // No record names it. What cannot be removed is an orphan, counted until it goes.
    static_cast<void>(space_.dead_tables().Delete(written.table.number, written.table.bytes));
    return applied;
  }
  // Small ones are to be merged.
  if (counters_.ingests.fetch_add(1, std::memory_order_relaxed) % engine::kSmallTablesMax == 0) {
    space_.Kick();
  }
  counters_.ingested_bytes.fetch_add(ingested.raw_bytes, std::memory_order_relaxed);
  return applied;
}

Result<StoreCore::Applied> StoreCore::AppendParts(BranchId id, const Delta& delta,
                                                  const Expected& expected, const ModelSpec& model,
                                                  uint64_t length, uint64_t deadline_ns,
                                                  TicketState* ticket) {
  // Nothing in the tree names the parts until the last record is there.
  const auto pin = reader_.pins().Take(engine::Pins::Of::kParts, space_.newest_segment());
  const uint64_t part_bytes = limits_.PayloadBytesMax();
  std::vector<engine::DeltaWindow> windows;
  std::vector<uint64_t> record_bytes;
  for (engine::DeltaWindow rest = engine::DeltaWindow::Whole(delta); !IsEmpty(rest);) {
    windows.push_back(TakeWindow(model, delta, &rest, part_bytes));
    record_bytes.push_back(engine::DeltaPayload(model, delta, windows.back(), {}).bytes());
  }
  // Parts that are followed by a refusal fill the log for nothing: whoever tries again and again
  // would take what is being freed for it.
  if (const Status full = log_->CheckRoom(record_bytes); !full.ok()) {
    OnRefused(full);
    return full;
  }
  Written written;
  for (const engine::DeltaWindow& window : windows) {
    uint64_t sequence = 0;
    CAIRN_ASSIGN_OR_RETURN(engine::Part part,
                           WritePart(model, delta, window, length, written.unit, deadline_ns,
                                     ticket, &sequence, &written.kv_bytes));
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
                         BeginLargeAppend(id, LogBytesOfLarge(*model, delta), expected, false, 0));
  Result<Ticket> posted = Guarded([&] {
    return PostGathered(id, delta, options, expected, length, std::move(model), std::move(keep),
                        kv_shed);
  });
  if (!posted.ok()) committer_.EndLargeAppend(id);
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
    if (const auto core = weak.lock(); core != nullptr) core->committer_.EndLargeAppend(id);
  };
  state->length = length + delta.tokens.size();
  state->started_ns = world_.scheduler->MonotonicNs();
  const uint64_t deadline_ns = Deadline(options.timeout_ns);
  std::shared_ptr<engine::Timer::Entry> cut;  // Shared: what is posted can be copied.
  if (deadline_ns != io::kNoDeadline) {
    cut = std::make_shared<engine::Timer::Entry>(tickets_.CutLater(state));
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
        return self->space_.asks().WhileRoomIsMade(id, engine::PayloadBytes(*model, delta),
                                                   applied.status());
      }));
      return;
    }
    state->Release();
    if (own.durability == Durability::kMemory) {
      state->Finish(Status::Ok());
      return;
    }
    self->tickets_.Register(applied->sequence, own.durability, state);
    self->log_->Request(applied->sequence, own.durability == Durability::kPower);
    state->FinishIfCancelled();
    if (cut != nullptr) self->timer_->At(deadline_ns, std::move(*cut));
  });
  return Ticket(state);
}

}  // namespace cairn
