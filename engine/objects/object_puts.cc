// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_puts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/commit/batch_payloads.h"
#include "engine/commit/quota.h"
#include "engine/config/constants.h"
#include "engine/objects/constants.h"
#include "engine/objects/object_fate.h"
#include "engine/objects/object_names.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

namespace {

Status CheckObject(const ObjectPut& put) {
  CAIRN_RETURN_IF_ERROR(CheckKey(put.key));
  if (put.value.size() <= kMaxObjectBytes) return Status::Ok();
  return Status(StatusCode::kInvalidArgument, "the object has " + std::to_string(put.value.size()) +
                                                  " bytes, at most " +
                                                  std::to_string(kMaxObjectBytes));
}

std::span<std::byte> Mutable(std::span<const std::byte> value) {  // Appends only read.
  return {const_cast<std::byte*>(value.data()), value.size()};
}

}  // namespace

ObjectPuts::Put::Put(size_t index_in, const ObjectPut& put, const ModelSpec& spec)
    : index(index_in),
      object(put),
      name(NameOfKey(put.key)),
      keep{.priority = PriorityOf(put.depth)},
      rows(Mutable(put.value), spec.groups[0].planes[0].row_bytes) {
  rows.TakeBytes();
}

Status ObjectPuts::Cancelled() {
  return Status(StatusCode::kCancelled, "cancelled before the object was there");
}

// ---------------------------------------------------------------- small ones

// Decides under the lock what becomes of each, and puts those that come into one record.
class ObjectPuts::Resolver final : public engine::Resolver {
 public:
  Resolver(const WriteDeps& deps, const Into& into, Puts* puts)
      : deps_(deps), into_(into), puts_(*puts) {
    record_.batch = true;
  }

  Attempt Prepare(Lock* lock) override {
    TreeNeeds needs;
    for (const auto& put : puts_) needs.names.emplace_back(into_.space, put->name);
    CAIRN_RETURN_IF_ERROR(deps_.access->LoadToChange(needs, lock));
    bool any = false;
    for (const auto& put : puts_) {
      put->cancelled = put->CancelRequested();
      const Fate fate = Decide(deps_.tree(), put.get());
      any |= IsStored(fate);
    }
    return any ? Attempt() : Attempt::Nothing();
  }
  Status Resolve(CommitOps* ops) override {
    payloads_.Clear();
    replaces_ = false;
    ops->Reserve(3 * puts_.size());
    for (const auto& put : puts_) CAIRN_RETURN_IF_ERROR(Add(put.get(), ops));
    payloads_.Seal();
    record_.strips = payloads_.strips();
    return Status::Ok();
  }
  void Publish(wal::Log* log) override { payloads_.Publish(&slot_, log); }
  bool replaces() const { return replaces_; }

 private:
  // Decides by the present state: the record may have two objects of one key.
  Fate Decide(const Tree& tree, Put* put) const {
    if (put->cancelled) {
      put->outcome = {.status = Cancelled()};
      return Fate::kKept;
    }
    const Head* const there = tree.FindHead(into_.space, put->name);
    const Fate fate = FateOf(there, into_.model, into_.options.if_present);
    put->outcome = {.stored = IsStored(fate)};
    if (fate == Fate::kRefused) put->outcome.status = OfAnotherClass(tree, *there);
    return fate;
  }

  Status Add(Put* put, CommitOps* ops) {
    const Tree& tree = ops->tree();
    const Fate fate = Decide(tree, put);
    if (!IsStored(fate)) return Status::Ok();
    if (fate == Fate::kReplaces) {
      ops->Next().op = DropOf(*tree.FindHead(into_.space, put->name));
      CAIRN_RETURN_IF_ERROR(ops->Add());
      replaces_ = true;
    }
    Keep keep = put->keep;
    keep.pinned = into_.options.pinned;
    keep.ttl_ns = into_.options.ttl_ns;
    CommittedOp& create = ops->Next();
    CAIRN_ASSIGN_OR_RETURN(create.op, ResolveCreate(tree, static_cast<uint64_t>(into_.model),
                                                    put->name, into_.space, keep));
    const uint64_t branch = create.op.branch;
    CAIRN_RETURN_IF_ERROR(ops->Add());
    CommittedOp& append = ops->Next();
    CAIRN_ASSIGN_OR_RETURN(
        append.op,
        ResolveAppend(tree, branch, payloads_.Add(into_.spec, put->rows.delta(), 0), {}));
    append.ids = put->rows.ids();
    append.kv_bytes = payloads_.last_kv_bytes();
    CAIRN_RETURN_IF_ERROR(ops->Add());
    // Not with the committer's question, which would have room made in the store: what is refused
    // here waits for its namespace, as a large one.
    return CheckQuota(*tree.FindHead(branch));
  }

  const WriteDeps& deps_;
  const Into& into_;
  const Puts& puts_;
  BatchPayloads payloads_;
  bool replaces_ = false;
};

void ObjectPuts::RunSmall(const Into& into, Puts* puts, const Ended& ended) {
  if (puts->empty()) return;
  uint64_t bytes = 0;
  for (const auto& put : *puts) bytes += put->record_bytes;
  std::optional<Resolver> resolver;
  Attempt attempt;
  const Status ran = CatchBadAlloc([&] {
    resolver.emplace(deps_, into, puts);
    deps_.callbacks->SlowDown(bytes, into.deadline_ns);
    attempt = deps_.committer->Commit(&*resolver, {.busy = RetryPolicy::Busy::kAwaitLog,
                                                   .no_space = RetryPolicy::NoSpace::kEvict,
                                                   .log_bytes = bytes,
                                                   .room_bytes = bytes,
                                                   .deadline_ns = into.deadline_ns});
  });
  if (!ran.ok()) attempt = Attempt(ran);
  if (puts->size() > 1 && IsOfOneObject(*deps_.log, attempt.status)) {
    return RunOneByOne(into, puts, ended);
  }
  const bool quota = attempt.status.reason() == StatusReason::kNamespaceQuota;
  const uint64_t sequence =
      attempt.done() ? resolver->sequence() : deps_.log->last_reserved_sequence();
  for (const auto& put : *puts) {
    if (quota) {
      RunLarge(into, put.get(), ended);
      continue;
    }
    if (!attempt.status.ok() && !put->cancelled) put->outcome = {.status = attempt.status};
    put->outcome.sequence = sequence;
    End(put.get(), ended);
  }
  puts->clear();
  if (attempt.done() && resolver->replaces()) deps_.callbacks->WakeSpaceThread();
}

void ObjectPuts::RunOneByOne(const Into& into, Puts* puts, const Ended& ended) {
  for (auto& put : *puts) {
    Puts one;
    one.push_back(std::move(put));
    RunSmall(into, &one, ended);
  }
  puts->clear();
}

void ObjectPuts::Count(const Outcome& outcome, size_t value_bytes) {
  if (!outcome.status.ok()) {
    counters_.not_put.fetch_add(1, std::memory_order_relaxed);
  } else if (!outcome.stored) {
    counters_.kept.fetch_add(1, std::memory_order_relaxed);
  } else {
    counters_.put.fetch_add(1, std::memory_order_relaxed);
    counters_.put_bytes.fetch_add(value_bytes, std::memory_order_relaxed);
  }
}

void ObjectPuts::End(Put* put, const Ended& ended) {
  Count(put->outcome, put->object.value.size());
  ended(put->index, std::move(put->outcome));
}

// ---------------------------------------------------------------- all of a call

Result<std::unique_ptr<ObjectPuts::Put>> ObjectPuts::Begin(const Into& into, size_t index,
                                                           const ObjectPut& object) const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckWritable(into.options.durability));
  CAIRN_RETURN_IF_ERROR(CheckObject(object));
  auto put = std::make_unique<Put>(index, object, *into.spec);
  const Delta delta = put->rows.delta();
  CAIRN_RETURN_IF_ERROR(CheckShape(*into.spec, delta, /*fill=*/false));
  CAIRN_RETURN_IF_ERROR(deps_.limits->CheckFits(*into.spec, delta));
  put->record_bytes = PayloadBytes(*into.spec, delta) + put->name.size() + kPutFieldsBytes;
  return put;
}

void ObjectPuts::Run(const Into& into, std::span<const ObjectPut> puts, const Begins& begins,
                     const Ended& ended) {
  const uint64_t bytes_max = std::min(kBatchBytesMax, deps_.limits->PayloadBytesMax());
  DropLeft();
  Puts record;
  record.reserve(std::min(puts.size(), kObjectsAtOnce));
  uint64_t bytes = 0;
  for (size_t i = 0; i < puts.size(); ++i) {
    const TicketState* ticket = nullptr;
    if (!begins(i, &ticket)) {
      Count({.status = Cancelled()}, 0);
      continue;
    }
    Result<std::unique_ptr<Put>> begun = CatchBadAlloc([&] { return Begin(into, i, puts[i]); });
    if (!begun.ok()) {
      Count({.status = begun.status()}, 0);
      ended(i, {.status = begun.status()});
      continue;
    }
    Put& put = **begun;
    put.ticket = ticket;
    const bool fits = deps_.limits->FitsRecord(*into.spec, put.rows.delta());
    if (!fits || record.size() == kObjectsAtOnce || bytes + put.record_bytes > bytes_max) {
      RunSmall(into, &record, ended);
      bytes = 0;
    }
    if (fits) {
      bytes += put.record_bytes;
      record.push_back(std::move(*begun));
    } else {
      RunLarge(into, &put, ended);
    }
  }
  RunSmall(into, &record, ended);
}

}  // namespace cairn::engine
