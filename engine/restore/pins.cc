// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/pins.h"

#include <algorithm>
#include <utility>

#include "base/core/mutation.h"

namespace cairn::engine {

// Taking the entry over cannot fail.
Pins::Pin::Pin(Pins* pins, Holder holder, uint64_t lowest_segment, std::vector<uint64_t> segments,
               std::vector<uint64_t> tables)
    : pins_(pins),
      holder_(holder),
      lowest_segment_(lowest_segment),
      segments_(std::move(segments)),
      tables_(std::move(tables)),
      since_ns_(pins->now_ns_()),
      alone_{this},
      entry_(alone_.begin()) {
  const MutexLock lock(&pins_->mutex_);
  pins_->all_.splice(pins_->all_.end(), alone_);
}

Pins::Pin::~Pin() {
  bool awaited = false;
  {
    const MutexLock lock(&pins_->mutex_);
    pins_->all_.erase(entry_);
    awaited = std::exchange(pins_->awaited_, false);
  }
  if (awaited) pins_->on_end_();
}

std::unique_ptr<Pins::Pin> Pins::Take(Holder holder, const RestorePlan& plan) {
  std::vector<uint64_t> segments, tables;
  for (const RecordJob& job : plan.jobs) {
    if (segments.empty() || segments.back() != job.location.segment) {
      segments.push_back(job.location.segment);
    }
  }
  for (const SealedPiece& piece : plan.sealed) tables.push_back(piece.table);
  for (auto* const files : {&segments, &tables}) {
    std::sort(files->begin(), files->end());
    files->erase(std::unique(files->begin(), files->end()), files->end());
  }
  return Take(holder, std::move(segments), std::move(tables));
}

uint64_t Pins::LowestOfParts() const {
  const MutexLock lock(&mutex_);
  uint64_t lowest = UINT64_MAX;
  if (!CAIRN_KEPT(kPinOfParts)) return lowest;
  for (const Pin* pin : all_) {
    if (pin->holder_.of == Of::kParts) lowest = std::min(lowest, pin->lowest_segment_);
  }
  return lowest;
}

const Pins::Pin* Pins::FirstOf(uint64_t segment) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [segment](const Pin* pin) {
    return pin->lowest_segment_ <= segment ||
           std::binary_search(pin->segments_.begin(), pin->segments_.end(), segment);
  });
  return found == all_.end() ? nullptr : *found;
}

bool Pins::HoldSegment(uint64_t segment) {
  const MutexLock lock(&mutex_);
  const bool held = CAIRN_KEPT(kPinOfReader) && FirstOf(segment) != nullptr;
  awaited_ |= held;
  return held;
}

bool Pins::HoldTable(uint64_t table) {
  const MutexLock lock(&mutex_);
  const bool held =
      CAIRN_KEPT(kPinOfTable) && std::any_of(all_.begin(), all_.end(), [table](const Pin* pin) {
        return std::binary_search(pin->tables_.begin(), pin->tables_.end(), table);
      });
  awaited_ |= held;
  return held;
}

std::optional<Pins::Held> Pins::HolderOf(uint64_t segment) const {
  const MutexLock lock(&mutex_);
  const Pin* const pin = FirstOf(segment);
  if (pin == nullptr) return std::nullopt;
  return Held{pin->holder_, segment, pin->since_ns_};
}

std::string Pins::Holder::ToString() const {
  switch (of) {
    case Of::kBranch: return "a read of branch " + std::to_string(id);
    case Of::kNode: return "a read of node " + std::to_string(id);
    case Of::kParts: return "a large append";
    case Of::kVerify: return "a verification";
    case Of::kReplay: return "a replay of the log";
  }
  return "nobody";
}

std::string Pins::Held::ToString(uint64_t now_ns) const {
  const uint64_t held_ns = now_ns - std::min(now_ns, since_ns);
  return "segment " + std::to_string(segment) + " of the log has been needed for " +
         std::to_string(held_ns / 1'000'000) + " ms by " + holder.ToString();
}

}  // namespace cairn::engine
