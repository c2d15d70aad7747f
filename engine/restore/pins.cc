// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/pins.h"

#include <algorithm>

namespace cairn::engine {

Pins::Pin::Pin(Pins* pins, uint64_t lowest_segment, std::vector<uint64_t> tables)
    : pins_(pins), lowest_segment_(lowest_segment), tables_(std::move(tables)) {
  std::lock_guard lock(pins_->mutex_);
  pins_->segments_.insert(lowest_segment_);
  for (const uint64_t table : tables_) ++pins_->tables_[table];
}

Pins::Pin::~Pin() {
  std::lock_guard lock(pins_->mutex_);
  pins_->segments_.erase(pins_->segments_.find(lowest_segment_));
  for (const uint64_t table : tables_) {
    if (--pins_->tables_[table] == 0) pins_->tables_.erase(table);
  }
}

std::unique_ptr<Pins::Pin> Pins::Take(const RestorePlan& plan) {
  const uint64_t lowest = plan.jobs.empty() ? UINT64_MAX : plan.jobs.front().location.segment;
  std::vector<uint64_t> tables;
  for (const SealedPiece& piece : plan.sealed) tables.push_back(piece.table);
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  return Take(lowest, std::move(tables));
}

uint64_t Pins::LowestSegment() const {
  std::lock_guard lock(mutex_);
  return segments_.empty() ? UINT64_MAX : *segments_.begin();
}

bool Pins::Needs(uint64_t table) const {
  std::lock_guard lock(mutex_);
  return tables_.contains(table);
}

}  // namespace cairn::engine
