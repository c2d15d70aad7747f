// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/append_resolver.h"

#include "base/core/check.h"
#include "engine/tree/decisions.h"

namespace cairn {

namespace {

// Kept, so that an append allocates nothing for them; used while a record is published.
std::vector<uint64_t>& HashesOfThread() {
  thread_local std::vector<uint64_t> hashes;
  return hashes;
}

}  // namespace

StoreCore::AppendResolver::AppendResolver(StoreCore* core, BranchId id, const Delta& delta,
                                          const Expected& expected, engine::DeltaPayload* payload,
                                          const Written* written)
    : core_(core),
      id_(id),
      delta_(delta),
      expected_(expected),
      payload_(payload),
      written_(written) {
  record_.strips = payload->strips();
  record_.unit = written == nullptr ? 0 : written->unit;
  record_.token_strip_bytes = payload->token_strip_bytes();
  // What was accepted, or has begun, is not held any more: others wait for it.
  record_.held_by_limit = is_whole();
  HashesOfThread().reserve(payload->strips().size());  // Publishing must not allocate.
}

engine::Attempt StoreCore::AppendResolver::Prepare(Lock* lock) {
  while (true) {
    CAIRN_RETURN_IF_ERROR(core_->access_.LoadToChange(id_, lock).status());
    // What was accepted to be coalesced since the caller looked comes first.
    if (written_ != nullptr || !core_->joined_.contains(id_)) return {};
    lock->unlock();
    if (Status flushed = core_->TryFlushJoined(id_); !flushed.ok()) {
      return engine::Attempt::Refused(std::move(flushed));
    }
    lock->lock();
  }
}

Status StoreCore::AppendResolver::Resolve(engine::CommitOps* ops) {
  head_ = ops->tree().FindHead(static_cast<uint64_t>(id_));
  CAIRN_CHECK(head_ != nullptr);
  CAIRN_RETURN_IF_ERROR(core_->CheckExpected(*head_, expected_));
  payload_->SetLength(head_->lengths[engine::kTokenLane]);
  engine::CommittedOp& append = ops->Next();
  CAIRN_ASSIGN_OR_RETURN(append.op, written_ == nullptr
                                        ? ResolveAppend(ops->tree(), head_->id, payload_->lanes(),
                                                        engine::SpansOf(delta_))
                                        : ResolveWritten(ops->tree()));
  append.op.exact = delta_.kv == nullptr || delta_.exact;
  append.ids = delta_.tokens;
  append.kv_bytes = payload_->kv_bytes();
  if (written_ != nullptr) {
    append.parts = written_->parts;
    append.kv_bytes += written_->kv_bytes;
  }
  return ops->Add();
}

// The op that makes what was written before count. Nobody has changed the branch since, but a log
// that failed has taken the tree back (ReloadTree).
Result<engine::Op> StoreCore::AppendResolver::ResolveWritten(const engine::Tree& tree) {
  CAIRN_RETURN_IF_ERROR(core_->PoisonStatus());
  CAIRN_ASSIGN_OR_RETURN(
      engine::Op op,
      ResolveAppend(tree, head_->id, engine::LanesOf(delta_, head_->lengths[engine::kTokenLane]),
                    engine::SpansOf(delta_)));
  op.lanes = payload_->lanes();
  if (written_->table.number == 0) return op;
  const uint64_t node = written_->ranges.front().node;
  if (op.node != node) {
    // It was to be a new one. Meanwhile that of the branch may have been cut to where it ends.
    op.flags |= engine::kOpNewNode;
    op.other = head_->node;
    op.node = node;
  }
  op.sealed = written_->ranges;
  op.table = written_->table;
  return op;
}

Status StoreCore::AppendResolver::CheckQuotas() const {
  return expected_.joined ? Status::Ok() : engine::CheckQuota(*head_);
}

void StoreCore::AppendResolver::Publish(wal::Log* log) {
  std::vector<uint64_t>& hashes = HashesOfThread();
  payload_->Fill(slot_.payload, slot_.strip_offsets, &hashes, [&](uint64_t filled) {
    if (is_whole()) log->PieceReady(slot_, filled);
    return true;
  });
  log->Publish(slot_, hashes);
}

void StoreCore::AppendResolver::OnRefused(const Status& status) {
  if (status.code() != StatusCode::kBusy || written_ != nullptr) return;
  core_->counters_.busy.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace cairn
