// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/key_turns.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

KeyTurns::Shifted::~Shifted() {
  for (const auto& table : tables_) delete table.load(std::memory_order_relaxed);
}

void KeyTurns::Shifted::Prepare() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> apart;
  for (const Range& range : ranges_) {
    if (!apart.empty() && range.begin <= apart.back().end) {
      apart.back().end = std::max(apart.back().end, range.end);
    } else {
      apart.push_back(range);
    }
  }
  ranges_ = std::move(apart);
  first_stretch_ = ranges_.front().begin / kTurnTokens;
  const uint64_t last = (ranges_.back().end - 1) / kTurnTokens;
  tables_ = std::vector<std::atomic<const RotaryTable*>>(last - first_stretch_ + 1);
}

void KeyTurns::Shifted::TurnsOf(uint64_t position, std::span<RotaryTurn> turns) const {
  // Where no content stands all positions of a token are one.
  const std::vector<uint64_t> from(rotation_.positions(), position);
  const std::vector<uint64_t> to(rotation_.positions(), TargetOf(position, shift_));
  rotation_.Between(from, to, turns);
}

// Two threads may make the same one; the first stays.
const RotaryTable& KeyTurns::Shifted::TableOf(uint64_t stretch) const {
  std::atomic<const RotaryTable*>& place = tables_[stretch - first_stretch_];
  const RotaryTable* known = place.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  std::vector<uint64_t> from, to;
  for (uint64_t i = 0; i < kTurnTokens; ++i) {
    const uint64_t position = stretch * kTurnTokens + i;
    from.insert(from.end(), rotation_.positions(), position);
    to.insert(to.end(), rotation_.positions(), TargetOf(position, shift_));
  }
  auto made = std::make_unique<RotaryTable>(rotation_, kTurnTokens);
  made->SetBetween(from, to);
  if (place.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *known;
}

void KeyTurns::Shifted::Turn(const RowRun& run, uint64_t position, uint32_t heads) const {
  for (uint64_t done = 0; done < run.count;) {
    const uint64_t at = position + done;
    const uint64_t first = at % kTurnTokens;
    const uint64_t count = std::min(run.count - done, kTurnTokens - first);
    RotaryRows<const std::byte> from = run.from;
    RotaryRows<std::byte> into = run.into;
    from.data += static_cast<ptrdiff_t>(done) * from.token_stride;
    into.data += static_cast<ptrdiff_t>(done) * into.token_stride;
    TableOf(at / kTurnTokens).Turn(first, count, heads, from, into);
    done += count;
  }
}

Result<std::unique_ptr<KeyTurns>> KeyTurns::Make(const RestorePlan& plan) {
  auto turns = std::make_unique<KeyTurns>();
  if (!plan.turns_keys) return turns;
  for (const RecordJob& job : plan.jobs) {
    for (const RecordPiece& piece : job.pieces) {
      CAIRN_RETURN_IF_ERROR(
          turns->Add(*plan.model, piece.lane, piece.begin, piece.end, piece.shift));
    }
  }
  for (const SealedPiece& piece : plan.sealed) {
    CAIRN_RETURN_IF_ERROR(turns->Add(*plan.model, piece.lane, piece.begin, piece.end, piece.shift));
  }
  for (const auto& [key, shifted] : turns->shifted_) shifted->Prepare();
  return turns;
}

Status KeyTurns::Add(const ModelSpec& model, uint32_t lane, uint64_t begin, uint64_t end,
                     int64_t shift) {
  if (shift == 0 || lane == kTokenLane) return Status::Ok();
  const uint32_t group_index = lane - 1;
  const LayerGroup& group = model.groups[group_index];
  for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
    if (group.planes[plane].rotary.state != RotaryState::kApplied) continue;
    std::unique_ptr<Shifted>& shifted = shifted_[{group_index, plane, shift}];
    if (shifted == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(const Rotation rotation, Rotation::Of(group, plane));
      shifted = std::make_unique<Shifted>(rotation, shift);
    }
    shifted->ranges_.push_back({begin, end});
  }
  return Status::Ok();
}

}  // namespace cairn::engine
