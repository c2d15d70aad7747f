// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/pins.h"

#include <algorithm>

#include "base/core/mutation.h"

namespace cairn::engine {

Pins::Pin::Pin(Pins* pins, Of of, uint64_t lowest_segment, std::vector<uint64_t> tables)
    : pins_(pins), of_(of), lowest_segment_(lowest_segment), tables_(std::move(tables)) {
  const MutexLock lock(&pins_->mutex_);
  pins_->segments_.insert(lowest_segment_);
  if (of_ == Of::kParts) pins_->parts_.insert(lowest_segment_);
  for (const uint64_t table : tables_) ++pins_->tables_[table];
}

Pins::Pin::~Pin() {
  bool awaited = false;
  {
    const MutexLock lock(&pins_->mutex_);
    pins_->segments_.erase(pins_->segments_.find(lowest_segment_));
    if (of_ == Of::kParts) pins_->parts_.erase(pins_->parts_.find(lowest_segment_));
    for (const uint64_t table : tables_) {
      if (--pins_->tables_[table] == 0) pins_->tables_.erase(table);
    }
    awaited = std::exchange(pins_->awaited_, false);
  }
  if (awaited) pins_->on_end_();
}

std::unique_ptr<Pins::Pin> Pins::Take(const RestorePlan& plan) {
  const uint64_t lowest = plan.jobs.empty() ? UINT64_MAX : plan.jobs.front().location.segment;
  std::vector<uint64_t> tables;
  for (const SealedPiece& piece : plan.sealed) tables.push_back(piece.table);
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  return Take(Of::kReader, lowest, std::move(tables));
}

uint64_t Pins::LowestOfParts() const {
  const MutexLock lock(&mutex_);
  return parts_.empty() || !CAIRN_KEPT(kPinOfParts) ? UINT64_MAX : *parts_.begin();
}

bool Pins::HoldSegment(uint64_t segment) {
  const MutexLock lock(&mutex_);
  const bool held = CAIRN_KEPT(kPinOfReader) && !segments_.empty() && *segments_.begin() <= segment;
  awaited_ |= held;
  return held;
}

bool Pins::HoldTable(uint64_t table) {
  const MutexLock lock(&mutex_);
  const bool held = CAIRN_KEPT(kPinOfTable) && tables_.contains(table);
  awaited_ |= held;
  return held;
}

}  // namespace cairn::engine
