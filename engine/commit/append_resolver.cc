// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/append_resolver.h"

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/commit/quota.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

Status CheckExpected(const Head& head, const Expected& expected) {
  if (CAIRN_KEPT(kLengthExpected)) {
    CAIRN_RETURN_IF_ERROR(CheckLength(head.lengths[kTokenLane], expected.length));
  }
  if (expected.version.has_value() && *expected.version != head.version) {
    return Status(StatusCode::kConflict,
                  "the branch changed after BeginAppend; what was Put may belong to other tokens");
  }
  return Status::Ok();
}

AppendResolver::AppendResolver(const WriteDeps& deps, CoalescedAppends* coalesced, BranchId id,
                               const Delta& delta, const Expected& expected, DeltaPayload* payload,
                               const Written* written)
    : deps_(deps),
      coalesced_(coalesced),
      id_(id),
      delta_(delta),
      expected_(expected),
      payload_(payload),
      written_(written) {
  record_.strips = payload->strips();
  record_.unit = written == nullptr ? 0 : written->unit;
  record_.token_strip_bytes = payload->token_strip_bytes();
  // Appends that were accepted, or have begun, are not held any more: others wait for them.
  record_.held_by_limit = is_whole();
  hashes_.reserve(payload->strips().size());  // Publishing must not allocate.
}

Attempt AppendResolver::Prepare(Lock* lock) {
  while (true) {
    CAIRN_RETURN_IF_ERROR(deps_.access->LoadToChange(id_, lock).status());
    // Appends that were accepted to be coalesced since the caller looked come first.
    if (written_ != nullptr || !coalesced_->Has(id_)) return {};
    lock->unlock();
    if (Status flushed = coalesced_->TryFlush(id_); !flushed.ok()) {
      return Attempt::Refused(std::move(flushed));
    }
    lock->lock();
  }
}

Status AppendResolver::Resolve(CommitOps* ops) {
  head_ = ops->tree().FindHead(static_cast<uint64_t>(id_));
  CAIRN_CHECK(head_ != nullptr);
  CAIRN_RETURN_IF_ERROR(CheckExpected(*head_, expected_));
  payload_->SetLength(head_->lengths[kTokenLane]);
  CommittedOp& append = ops->Next();
  CAIRN_ASSIGN_OR_RETURN(
      append.op, written_ == nullptr
                     ? ResolveAppend(ops->tree(), head_->id, payload_->lanes(), SpansOf(delta_))
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

// The op that makes the parts written before count. Nobody else can have changed the branch since,
// but a failed log takes the tree back.
Result<Op> AppendResolver::ResolveWritten(const Tree& tree) {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->PoisonStatus());
  CAIRN_ASSIGN_OR_RETURN(
      Op op,
      ResolveAppend(tree, head_->id, LanesOf(delta_, head_->lengths[kTokenLane]), SpansOf(delta_)));
  op.lanes = payload_->lanes();
  return op;
}

Status AppendResolver::CheckQuotas() const {
  return expected_.coalesced ? Status::Ok() : CheckQuota(*head_);
}

void AppendResolver::Publish(wal::Log* log) {
  payload_->Fill(slot_.payload, slot_.strip_offsets, &hashes_, [&](uint64_t filled) {
    if (is_whole()) log->PieceReady(slot_, filled);
    return true;
  });
  log->Publish(slot_, hashes_);
}

void AppendResolver::OnRefused(const Status& status) {
  if (status.code() != StatusCode::kBusy || written_ != nullptr) return;
  deps_.counters->busy.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace cairn::engine
