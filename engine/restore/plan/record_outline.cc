// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/record_outline.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "engine/commit/kv_layout.h"

namespace cairn::engine {

Result<std::shared_ptr<const RecordOutline>> RecordOutline::Make(std::span<const std::byte> bytes,
                                                                 const wal::Location& location,
                                                                 const StoreId& store) {
  CAIRN_ASSIGN_OR_RETURN(const wal::RecordView view, wal::ParseRecord(bytes, location, store));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Op> ops, DecodeRecord(view));
  std::shared_ptr<RecordOutline> outline(new RecordOutline);
  outline->location_ = location;
  outline->sequence_ = view.sequence;
  outline->strips_ = wal::PlacesOfStrips(view);
  for (size_t i = 0; i < view.strip_count(); ++i) {
    if (TagOf(view.strip(i).tag) != StripTag::kPackedKv) continue;
    outline->packed_.resize(view.strip_count());
    outline->packed_[i] = true;
  }
  outline->ends_.reserve(ops.size());
  size_t with_strips = 0;
  bool in_order = true;
  for (const Op& op : ops) {
    with_strips += op.lanes.empty() ? 0 : 1;
    for (const LaneRange& lane : op.lanes) {
      in_order &= outline->lanes_.empty() || outline->lanes_.back().strip < lane.strip;
      outline->lanes_.push_back(lane);
    }
    outline->ends_.push_back(static_cast<uint32_t>(outline->lanes_.size()));
  }
  const bool has_many = with_strips > 1 || outline->strips_.size() >= kKeptOutlineStrips;
  outline->keeps_ = with_strips > 0 && has_many && in_order;
  return std::shared_ptr<const RecordOutline>(std::move(outline));
}

std::span<const LaneRange> RecordOutline::LanesOf(size_t op) const {
  CAIRN_CHECK(op < ends_.size());
  const size_t begin = op == 0 ? 0 : ends_[op - 1];
  return std::span(lanes_).subspan(begin, ends_[op] - begin);
}

const wal::StripPlace& RecordOutline::strip(size_t index) const {
  CAIRN_CHECK(index < strips_.size());
  return strips_[index];
}

Status RecordOutline::VerifyStrip(size_t index, std::span<const std::byte> bytes,
                                  const StoreId& store) const {
  return wal::VerifyStrip({location_, sequence_, index}, strip(index), bytes, store);
}

const LaneRange* RecordOutline::Find(size_t op, uint32_t lane, uint64_t begin) const {
  if (op >= ends_.size()) return nullptr;
  const LaneRange* found = nullptr;
  for (const LaneRange& range : LanesOf(op)) {
    if (range.lane == lane && range.begin == begin) found = &range;
  }
  return found;
}

size_t RecordOutline::EndOfStrips(const LaneRange& range) const {
  CAIRN_CHECK(keeps_);
  const auto next = static_cast<size_t>(&range - lanes_.data()) + 1;
  CAIRN_CHECK(next <= lanes_.size());
  return next < lanes_.size() ? lanes_[next].strip : strips_.size();
}

uint64_t RecordOutline::memory_bytes() const {
  return kOutlineEntryBytes + sizeof(*this) + ends_.capacity() * sizeof(uint32_t) +
         lanes_.capacity() * sizeof(LaneRange) + strips_.capacity() * sizeof(wal::StripPlace) +
         packed_.capacity() / 8;
}

namespace {

// The strips that a job wants: [first, second). Nothing if the record does not have them; then the
// sink that gets all of the record says so.
std::optional<std::pair<size_t, size_t>> StripsOf(const RecordJob& job,
                                                  const RecordOutline& outline) {
  size_t first = SIZE_MAX, end = 0;
  if (job.state_strip.has_value()) {
    first = *job.state_strip;
    end = first + 1;
  }
  for (const RecordPiece& piece : job.pieces) {
    const LaneRange* const range = outline.Find(piece.op_index, piece.lane, piece.extent_begin);
    if (range == nullptr) return std::nullopt;
    first = std::min<size_t>(first, range->strip);
    end = std::max(end, outline.EndOfStrips(*range));
  }
  if (first >= end || end > outline.strip_count()) return std::nullopt;
  return std::pair(first, end);
}

}  // namespace

void RecordOutlines::Narrow(std::span<RecordJob> jobs) {
  for (RecordJob& job : jobs) {
    std::shared_ptr<const RecordOutline> outline = Find(job.location);
    if (outline == nullptr) continue;
    const auto strips = StripsOf(job, *outline);
    if (!strips.has_value()) continue;
    const wal::StripPlace& last = outline->strip(strips->second - 1);
    const uint32_t begin = outline->strip(strips->first).offset;
    if (last.offset + last.bytes == begin) continue;  // There is nothing to be read.
    job.read_offset = begin;
    job.read_bytes = last.offset + last.bytes - begin;
    job.outline = std::move(outline);
  }
}

Result<std::shared_ptr<const RecordOutline>> RecordOutlines::Of(const RecordJob& job,
                                                                std::span<const std::byte> bytes,
                                                                const StoreId& store) {
  if (job.outline != nullptr) return job.outline;
  // Another job of this call may have just brought it.
  if (auto outline = Find(job.location); outline != nullptr) return outline;
  CAIRN_ASSIGN_OR_RETURN(auto outline, RecordOutline::Make(bytes, job.location, store));
  if (outline->keeps()) Keep(outline);
  return outline;
}

size_t RecordOutlines::HashOf::operator()(const wal::Location& at) const {
  constexpr uint64_t kMix = 0x9E3779B97F4A7C15;  // Spreads what differs in a few bits.
  return ((at.segment * kMix + at.epoch) * kMix + at.offset) * kMix >> 16;
}

std::shared_ptr<const RecordOutline> RecordOutlines::Find(const wal::Location& location) {
  const MutexLock lock(&mutex_);
  const auto found = places_.find(location);
  if (found == places_.end()) return nullptr;
  outlines_.splice(outlines_.begin(), outlines_, found->second);
  return outlines_.front();
}

void RecordOutlines::Keep(std::shared_ptr<const RecordOutline> outline) {
  const uint64_t bytes = outline->memory_bytes();
  if (bytes > bytes_max_) return;
  Outlines old;  // Freed without the lock.
  Outlines one = {std::move(outline)};
  const MutexLock lock(&mutex_);
  // Another thread may have been faster.
  if (!places_.emplace(one.front()->location(), one.begin()).second) return;
  outlines_.splice(outlines_.begin(), one);
  bytes_ += bytes;
  while (bytes_ > bytes_max_) {
    bytes_ -= outlines_.back()->memory_bytes();
    places_.erase(outlines_.back()->location());
    old.splice(old.begin(), outlines_, std::prev(outlines_.end()));
  }
}

void RecordOutlines::Clear() {
  Outlines old;
  const MutexLock lock(&mutex_);
  places_.clear();
  old.swap(outlines_);
  bytes_ = 0;
}

uint64_t RecordOutlines::bytes() {
  const MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace cairn::engine
