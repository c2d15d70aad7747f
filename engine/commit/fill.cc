// SPDX-License-Identifier: Apache-2.0
//
// KV that comes later than its tokens: at the end of a group's KV, which is an append without
// tokens, and where KV was evicted or never given. Such positions are filled record by record. Each
// record is whole and right on its own, so nothing has to hold them together, and a prefill of any
// size needs memory for one record only.
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/commit/appender.h"
#include "engine/commit/quota.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

namespace {

// The next positions of a group's view that have no KV, as one record: a part of a hole, or of what
// lies beyond kv_length. They are looked up again each time, since another branch may have filled
// them meanwhile, or was forked from the middle of them.
class FillResolver final : public Resolver {
 public:
  // Sets how much room to wait for.
  FillResolver(const WriteDeps& deps, CoalescedAppends* coalesced, BranchId id, const Delta& delta,
               size_t view_index, uint64_t from, const ModelSpec& model, const Expected& expected,
               RetryPolicy* policy)
      : deps_(deps),
        coalesced_(coalesced),
        id_(id),
        delta_(delta),
        view_index_(view_index),
        from_(from),
        model_(model),
        expected_(expected),
        policy_(policy) {
    window_.kv.resize(delta.kv->groups.size());
  }

  Attempt Prepare(Lock* lock) override {
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(head_, deps_.access->LoadToChange(id_, lock));
      CAIRN_RETURN_IF_ERROR(CheckExpected(*head_, expected_));
      CAIRN_ASSIGN_OR_RETURN(const DeltaWindow::Kv next, Next(deps_.tree()));
      if (next.count == 0) return Attempt::Nothing();
      if (DeltaWindow::Kv& wanted = window_.kv[view_index_];
          !payload_.has_value() || wanted.position != next.position || wanted.count != next.count) {
        lock->unlock();
        wanted = next;
        Describe();
        lock->lock();
        continue;
      }
      // Appends accepted to be coalesced come before KV that continues at kv_length.
      if (is_hole_ || !coalesced_->Has(id_)) return {};
      lock->unlock();
      CAIRN_RETURN_IF_ERROR(coalesced_->FlushWithRoom(id_, policy_->deadline_ns));
      lock->lock();
    }
  }
  // A large append may have written a table for the node that continuing would make.
  std::optional<BranchId> free_branch() const override {
    return is_hole_ ? std::nullopt : std::optional(id_);
  }
  Status Resolve(CommitOps* ops) override {
    CommittedOp& fill = ops->Next();
    CAIRN_ASSIGN_OR_RETURN(fill.op,
                           is_hole_ ? ResolveFill(ops->tree(), head_->id, payload_->lanes())
                                    : ResolveAppend(ops->tree(), head_->id, payload_->lanes(), {}));
    fill.op.exact = delta_.exact;
    fill.kv_bytes = payload_->kv_bytes();
    fill.fills = true;
    return ops->Add();
  }
  Status CheckQuotas() const override { return CheckQuota(*head_); }
  void Publish(wal::Log* log) override {
    payload_->Fill(slot_.payload, slot_.strip_offsets, &hashes_, [](uint64_t) { return true; });
    log->Publish(slot_, hashes_);
  }

  // The end of what is filled, or of the view if nothing is left to fill.
  uint64_t end(const Attempt& ended) const {
    const DeltaWindow::Kv& filled = window_.kv[view_index_];
    return ended.done() ? filled.position + filled.count : view().position + view().count;
  }

 private:
  const GroupView& view() const { return delta_.kv->groups[view_index_]; }

  // An empty window: nothing is left to fill.
  Result<DeltaWindow::Kv> Next(const Tree& tree) {
    const uint32_t lane = 1 + view().group;
    const uint64_t view_end = view().position + view().count;
    const uint64_t positions_max = std::max<uint64_t>(
        1, deps_.limits->PayloadBytesMax() / KvLayoutBytes(model_.groups[view().group], 1));
    const uint64_t length = head_->lengths[lane];
    const auto holes = FindHoles(tree, *head_, lane, from_, std::min(view_end, length));
    is_hole_ = !holes.empty();
    const uint64_t begin = is_hole_ ? holes[0].begin : std::max(from_, length);
    const uint64_t end = std::min(begin + positions_max, is_hole_ ? holes[0].end : view_end);
    if (begin >= view_end) return DeltaWindow::Kv();
    if (!is_hole_ && begin > length && begin > view().position) {
      return Status(StatusCode::kConflict, "positions [" + std::to_string(length) + ", " +
                                               std::to_string(begin) +
                                               ") were cut by another meanwhile");
    }
    return DeltaWindow::Kv{begin, end - begin};
  }
  void Describe() {
    payload_.emplace(model_, delta_, window_, std::vector<DeltaState>());
    payload_->Pack(PackingOf(deps_));
    record_.strips = payload_->strips();
    policy_->log_bytes = policy_->room_bytes = payload_->bytes();
    deps_.callbacks->SlowDown(payload_->bytes(), policy_->deadline_ns);
    hashes_.reserve(payload_->strips().size());
  }

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
  const BranchId id_;
  const Delta& delta_;
  const size_t view_index_;
  const uint64_t from_;
  const ModelSpec& model_;
  const Expected& expected_;
  RetryPolicy* const policy_;
  const Head* head_ = nullptr;  // While the lock is held.
  bool is_hole_ = false;
  DeltaWindow window_;
  std::optional<DeltaPayload> payload_;  // The payload of `window_`.
  std::vector<uint64_t> hashes_;
};

}  // namespace

Status Appender::Fill(BranchId id, const KvView& kv, const AppendOptions& options) {
  const uint64_t deadline_ns = deps_.lifecycle->Deadline(options.timeout_ns);
  Delta delta;
  delta.kv = &kv;
  delta.exact = options.exact;
  CAIRN_ASSIGN_OR_RETURN(const auto model, CheckDelta(id, delta, options, true, nullptr));
  CAIRN_RETURN_IF_ERROR(coalesced_->FlushWithRoom(id, deadline_ns));
  const Expected expected{options.expected_length, {}};
  bool goes_on = true;  // From kv_length on: one delta.
  {
    Committer::Lock lock(deps_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Head* head, deps_.access->LoadToChange(id, &lock));
    CAIRN_RETURN_IF_ERROR(CheckExpected(*head, expected));
    for (const GroupView& view : kv.groups) {
      goes_on &= view.position >= head->lengths[1 + view.group];
    }
  }
  if (goes_on) {
    CAIRN_RETURN_IF_ERROR(deps_.limits->CheckFits(*model, delta));
    CAIRN_ASSIGN_OR_RETURN(const Applied applied,
                           AppendWithRoom(id, delta, expected, *model, options, deadline_ns));
    return deps_.tickets->WaitFor(applied.sequence, options.durability, deadline_ns);
  }
  for (const GroupView& view : kv.groups) {
    CAIRN_RETURN_IF_ERROR(deps_.limits->CheckPosition(KvLayoutBytes(model->groups[view.group], 1)));
  }
  uint64_t sequence = 0;
  if (IsOnGpu(delta)) {
    CAIRN_ASSIGN_OR_RETURN(sequence, FillFromGpu(id, delta, *model, options, deadline_ns));
  } else {
    for (size_t view = 0; view < kv.groups.size(); ++view) {
      CAIRN_ASSIGN_OR_RETURN(sequence, FillView(id, delta, view, *model, options, deadline_ns));
    }
  }
  return deps_.tickets->WaitFor(sequence, options.durability, deadline_ns);
}

// Waits for the durability that was asked for, even if nothing was left to fill: the call that
// filled it may not have waited.
Result<uint64_t> Appender::FillView(BranchId id, const Delta& delta, size_t view_index,
                                    const ModelSpec& model, const AppendOptions& options,
                                    uint64_t deadline_ns) {
  const GroupView& view = delta.kv->groups[view_index];
  uint64_t sequence = deps_.log->last_reserved_sequence();
  for (uint64_t from = view.position; from < view.position + view.count;) {
    CAIRN_ASSIGN_OR_RETURN(sequence,
                           FillNext(id, delta, view_index, &from, model, options, deadline_ns));
  }
  return sequence;
}

// Returns the sequence that has everything up to `from`, which is moved on.
Result<uint64_t> Appender::FillNext(BranchId id, const Delta& delta, size_t view_index,
                                    uint64_t* from, const ModelSpec& model,
                                    const AppendOptions& options, uint64_t deadline_ns) {
  const Expected expected{options.expected_length, {}};
  RetryPolicy policy{.busy = RetryPolicy::Busy::kAwaitLog,
                     .no_space = RetryPolicy::NoSpace::kEvict,
                     .branch = id,
                     .deadline_ns = deadline_ns};
  FillResolver fill(deps_, coalesced_, id, delta, view_index, *from, model, expected, &policy);
  const Attempt ended = deps_.committer->Commit(&fill, policy);
  if (!ended.status.ok()) return ended.status;
  *from = fill.end(ended);
  return ended.done() ? fill.sequence() : deps_.log->last_reserved_sequence();
}

}  // namespace cairn::engine
