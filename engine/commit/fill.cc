// SPDX-License-Identifier: Apache-2.0
//
// KV that comes later than its tokens: at the end of what a group has, which is an append without
// tokens, and where it was evicted or never given. Such positions get it record by record: each is
// whole and right by itself, so nothing has to hold them together, and a prefill of any size needs
// no more memory than one record.
#include <algorithm>
#include <optional>

#include "base/core/check.h"
#include "engine/store_core.h"

namespace cairn {

Status StoreCore::Fill(BranchId id, const KvView& kv, const AppendOptions& options) {
  const uint64_t deadline_ns = Deadline(options.timeout_ns);
  Delta delta;
  delta.kv = &kv;
  CAIRN_ASSIGN_OR_RETURN(const auto model, CheckDelta(id, delta, options, true, nullptr));
  CAIRN_RETURN_IF_ERROR(FlushJoinedWithRoom(id, deadline_ns));
  const Expected expected{options.expected_length, {}};
  bool goes_on = true;  // From kv_length on: one delta.
  {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
    CAIRN_RETURN_IF_ERROR(CheckExpected(*head, expected));
    for (const GroupView& view : kv.groups) {
      goes_on &= view.position >= head->lengths[1 + view.group];
    }
  }
  if (goes_on) {
    CAIRN_ASSIGN_OR_RETURN(const Applied applied,
                           AppendWithRoom(id, delta, expected, *model, deadline_ns));
    return WaitFor(applied.sequence, options.durability, deadline_ns);
  }
  // With nothing left to do it is as safe as was asked for all the same: who did it may not have
  // waited.
  uint64_t sequence = log_->last_reserved_sequence();
  for (size_t view = 0; view < kv.groups.size(); ++view) {
    uint64_t from = kv.groups[view].position;
    while (from < kv.groups[view].position + kv.groups[view].count) {
      CAIRN_ASSIGN_OR_RETURN(sequence,
                             FillNext(id, delta, view, &from, *model, options, deadline_ns));
    }
  }
  return WaitFor(sequence, options.durability, deadline_ns);
}

// The next positions of a group's view that have no KV: a part of a hole, or of what lies beyond
// kv_length. One record. What they are is looked for anew each time, since another branch may have
// filled them meanwhile, or was forked from the middle of them.
Result<uint64_t> StoreCore::FillNext(BranchId id, const Delta& delta, size_t view_index,
                                     uint64_t* from, const ModelSpec& model,
                                     const AppendOptions& options, uint64_t deadline_ns) {
  const GroupView& view = delta.kv->groups[view_index];
  const uint32_t lane = 1 + view.group;
  const uint64_t view_end = view.position + view.count;
  const uint64_t positions_max =
      std::max<uint64_t>(1, PayloadBytesMax() / engine::KvLayoutBytes(model.groups[view.group], 1));
  engine::DeltaWindow window;
  window.kv.resize(delta.kv->groups.size());
  std::optional<engine::DeltaPayload> payload;  // Of `window`.
  std::vector<uint64_t> hashes;
  FieldWriter fields;
  while (true) {
    Status refused;
    {
      const uint64_t now_ns = world_.scheduler->WallNs();
      Lock lock(mutex_);
      CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
      CAIRN_RETURN_IF_ERROR(CheckExpected(*head, {options.expected_length, {}}));
      const uint64_t length = head->lengths[lane];
      const auto holes = tree_.Holes(*head, lane, *from, std::min(view_end, length));
      const bool is_hole = !holes.empty();
      const uint64_t begin = is_hole ? holes[0].begin : std::max(*from, length);
      const uint64_t end = std::min(begin + positions_max, is_hole ? holes[0].end : view_end);
      if (begin >= view_end) {
        *from = view_end;
        return log_->last_reserved_sequence();
      }
      if (!is_hole && begin > length && begin > view.position) {
        return Status(StatusCode::kConflict, "positions [" + std::to_string(length) + ", " +
                                                 std::to_string(begin) +
                                                 ") were cut by another meanwhile");
      }
      if (engine::DeltaWindow::Kv& wanted = window.kv[view_index];
          !payload.has_value() || wanted.position != begin || wanted.count != end - begin) {
        lock.unlock();
        wanted = {begin, end - begin};
        payload.emplace(model, delta, window, std::vector<engine::DeltaState>());
        SlowDown(payload->bytes(), deadline_ns);
        hashes.reserve(payload->strips().size());
        continue;
      }
      // What goes on at kv_length comes after what was accepted to be joined, and waits for a large
      // append, which may have written a table for the node that this would make.
      if (!is_hole && joined_.contains(id)) {
        lock.unlock();
        CAIRN_RETURN_IF_ERROR(FlushJoinedWithRoom(id, deadline_ns));
        continue;
      }
      if (!is_hole && gathering_.contains(id)) {
        lock.unlock();
        CAIRN_RETURN_IF_ERROR(WaitWhileBusy(id, payload->bytes(), deadline_ns));
        continue;
      }
      CAIRN_ASSIGN_OR_RETURN(engine::Op op,
                             is_hole ? tree_.ResolveFill(head->id, payload->lanes())
                                     : tree_.ResolveAppend(head->id, payload->lanes(), {}));
      op.time_ns = now_ns;
      engine::Transaction transaction(&tree_);
      CAIRN_RETURN_IF_ERROR(transaction.Apply(op));
      refused = CheckQuota(*head);
      if (refused.ok()) {
        EncodeOp(op, &fields);
        auto slot = ReserveData({.kind = static_cast<uint16_t>(op.kind),
                                 .more = false,
                                 .unit = 0,
                                 .fields = fields.bytes(),
                                 .strips = payload->strips()});
        if (slot.ok()) {
          NoteLogged(*slot);
          transaction.Commit(slot->location, slot->location.bytes);
          if (!is_hole) NoteLength(id, op.position, op.position, slot->sequence);
          lock.unlock();
          payload->Fill(slot->payload, slot->strip_offsets, &hashes, [](uint64_t) { return true; });
          log_->Publish(*slot, hashes);
          counters_.kv_bytes.fetch_add(payload->kv_bytes(), std::memory_order_relaxed);
          counters_.filled_bytes.fetch_add(payload->kv_bytes(), std::memory_order_relaxed);
          *from = end;
          return slot->sequence;
        }
        refused = slot.status();
      }
    }
    fields.Clear();
    if (refused.code() == StatusCode::kBusy) {
      CAIRN_RETURN_IF_ERROR(WaitWhileBusy(id, payload->bytes(), deadline_ns));
    } else if (refused.code() == StatusCode::kNoSpace) {
      CAIRN_RETURN_IF_ERROR(MakeRoom(id, payload->bytes(), refused, deadline_ns));
    } else {
      return refused;
    }
  }
}

}  // namespace cairn
