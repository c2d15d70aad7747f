// SPDX-License-Identifier: Apache-2.0
//
// KV that comes later than its tokens: at the end of what a group has, which is an append without
// tokens, and where it was evicted or never given. Such positions get it record by record: each is
// whole and right by itself, so nothing has to hold them together, and a prefill of any size needs
// no more memory than one record.
#include <algorithm>

#include "base/core/check.h"
#include "engine/store_core.h"

namespace cairn {

namespace {

// Positions without KV within the view of a group: a hole on one node, or beyond kv_length.
struct Gap {
  size_t view = 0;
  uint64_t begin = 0, end = 0;
  uint64_t kv_length = 0;  // As long as nothing of it is filled.
};

}  // namespace

Status StoreCore::Fill(BranchId id, const KvView& kv, const AppendOptions& options) {
  const uint64_t deadline_ns = Deadline(options.timeout_ns);
  Delta delta;
  delta.kv = &kv;
  CAIRN_ASSIGN_OR_RETURN(const auto model, CheckDelta(id, delta, options, true, nullptr));
  CAIRN_RETURN_IF_ERROR(FlushJoined(id));
  const Expected expected{options.expected_length, {}};
  std::vector<Gap> gaps;
  bool goes_on = true;  // From kv_length on: one delta.
  {
    Lock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
    CAIRN_RETURN_IF_ERROR(CheckExpected(*head, expected));
    for (size_t i = 0; i < kv.groups.size(); ++i) {
      const GroupView& view = kv.groups[i];
      const uint64_t length = head->lengths[1 + view.group];
      const uint64_t end = view.position + view.count;
      if (view.position >= length) {
        gaps.push_back({i, view.position, end, length});
        continue;
      }
      goes_on = false;
      for (const auto& hole : tree_.Holes(*head, 1 + view.group, view.position, end)) {
        gaps.push_back({i, hole.begin, hole.end, length});
      }
      if (end > length) gaps.push_back({i, length, end, length});
    }
  }
  if (goes_on) {
    CAIRN_ASSIGN_OR_RETURN(const Applied applied,
                           AppendWithRoom(id, delta, expected, *model, deadline_ns));
    return WaitFor(applied.sequence, options.durability, deadline_ns);
  }
  const uint64_t record_bytes = PayloadBytesMax();
  uint64_t sequence = 0;
  for (const Gap& gap : gaps) {
    const LayerGroup& group = model->groups[kv.groups[gap.view].group];
    const uint64_t positions =
        std::max<uint64_t>(1, record_bytes / engine::KvLayoutBytes(group, 1));
    for (uint64_t begin = gap.begin; begin < gap.end; begin += positions) {
      engine::DeltaWindow window;
      window.kv.resize(kv.groups.size());
      window.kv[gap.view] = {begin, std::min(positions, gap.end - begin)};
      const uint64_t kv_length = begin == gap.begin ? gap.kv_length : begin;
      CAIRN_ASSIGN_OR_RETURN(sequence,
                             FillGap(id, delta, window, *model, kv_length, options, deadline_ns));
    }
  }
  // With nothing left to do it is as safe as was asked for all the same: who did it may not have
  // waited.
  if (sequence == 0) sequence = log_->last_reserved_sequence();
  return WaitFor(sequence, options.durability, deadline_ns);
}

// One record, of one lane. `kv_length`: what it goes on from, if it is no hole.
Result<uint64_t> StoreCore::FillGap(BranchId id, const Delta& delta,
                                    const engine::DeltaWindow& window, const ModelSpec& model,
                                    uint64_t kv_length, const AppendOptions& options,
                                    uint64_t deadline_ns) {
  engine::DeltaPayload payload(model, delta, window, {});
  std::vector<uint64_t> hashes;
  hashes.reserve(payload.strips().size());
  FieldWriter fields;
  while (true) {
    Status refused;
    {
      const uint64_t now_ns = world_.scheduler->WallNs();
      Lock lock(mutex_);
      CAIRN_ASSIGN_OR_RETURN(const engine::Head* head, LoadToChange(id, &lock));
      CAIRN_RETURN_IF_ERROR(CheckExpected(*head, {options.expected_length, {}}));
      const engine::LaneRange& lane = payload.lanes().front();
      const uint64_t end = lane.begin + lane.count;
      const auto holes = tree_.Holes(*head, lane.lane, lane.begin, end);
      const bool is_hole = holes.size() == 1 && holes[0].end - holes[0].begin == lane.count;
      if (!is_hole && head->lengths[lane.lane] != kv_length) {
        return Status(StatusCode::kConflict, "positions [" + std::to_string(lane.begin) + ", " +
                                                 std::to_string(end) +
                                                 ") were filled or cut by another meanwhile");
      }
      // What goes on at kv_length comes after what was accepted to be joined, and waits for a large
      // append, which may have written a table for the node that this would make.
      if (!is_hole && joined_.contains(id)) {
        lock.unlock();
        CAIRN_RETURN_IF_ERROR(FlushJoined(id));
        continue;
      }
      if (!is_hole && gathering_.contains(id)) {
        lock.unlock();
        CAIRN_RETURN_IF_ERROR(WaitWhileBusy(id, deadline_ns));
        continue;
      }
      CAIRN_ASSIGN_OR_RETURN(engine::Op op,
                             is_hole ? tree_.ResolveFill(head->id, payload.lanes())
                                     : tree_.ResolveAppend(head->id, payload.lanes(), {}));
      op.time_ns = now_ns;
      engine::Transaction transaction(&tree_);
      CAIRN_RETURN_IF_ERROR(transaction.Apply(op));
      refused = CheckQuota(*head);
      if (refused.ok()) {
        EncodeOp(op, &fields);
        auto slot = log_->Reserve({.kind = static_cast<uint16_t>(op.kind),
                                   .more = false,
                                   .unit = 0,
                                   .fields = fields.bytes(),
                                   .strips = payload.strips()},
                                  wal::Log::Purpose::kData);
        if (slot.ok()) {
          NoteLogged(*slot);
          transaction.Commit(slot->location, slot->location.bytes);
          if (!is_hole) NoteLength(id, op.position, op.position, slot->sequence);
          lock.unlock();
          payload.Fill(slot->payload, slot->strip_offsets, &hashes, [](uint64_t) { return true; });
          log_->Publish(*slot, hashes);
          counters_.kv_bytes.fetch_add(payload.kv_bytes(), std::memory_order_relaxed);
          counters_.filled_bytes.fetch_add(payload.kv_bytes(), std::memory_order_relaxed);
          return slot->sequence;
        }
        refused = slot.status();
      }
    }
    fields.Clear();
    if (refused.code() == StatusCode::kBusy) {
      CAIRN_RETURN_IF_ERROR(WaitWhileBusy(id, deadline_ns));
    } else if (refused.code() == StatusCode::kNoSpace) {
      CAIRN_RETURN_IF_ERROR(MakeRoom(id, payload.bytes(), refused, deadline_ns));
    } else {
      return refused;
    }
  }
}

}  // namespace cairn
