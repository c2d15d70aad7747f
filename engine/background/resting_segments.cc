// SPDX-License-Identifier: Apache-2.0
#include "engine/background/resting_segments.h"

#include <algorithm>

#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/path.h"
#include "engine/config/constants.h"

namespace cairn::engine {

namespace {

constexpr double kAny = 2;  // More than any share.

}  // namespace

// The share of its content that is still needed.
double RestingSegments::LiveShare(const SegmentUsage& use) const {
  return static_cast<double>(use.live_bytes) /
         static_cast<double>(std::max(use.most_live_bytes, deps_.options->segment_bytes));
}

bool RestingSegments::IsPacked(const SegmentUsage& use) const {
  return static_cast<double>(use.most_live_bytes) >
         kPackedContent * static_cast<double>(deps_.options->segment_bytes);
}

// REQUIRES: the commit lock.
bool RestingSegments::MayRest(const wal::SegmentInfo& segment) const {
  const uint64_t segment_bytes = deps_.options->segment_bytes;
  const SegmentUsage* const use = tree_.segment_usages().Find(segment.number);
  if (segment.file_bytes != segment_bytes || use == nullptr || use->lied) return false;
  return LiveShare(*use) >= kLiveShareMin && IsInLargePieces(*use);
}

bool RestingSegments::IsInLargePieces(const SegmentUsage& use) const {
  return use.live_bytes >= use.kv_extents * (deps_.options->segment_bytes / kRestingPiecesMax);
}

// As far as that is known. REQUIRES: the commit lock.
bool RestingSegments::GetsNoSmaller(uint64_t segment, const SegmentUsage& use) const {
  if (IsPacked(use)) return true;
  const auto tried = gets_smaller_.find(segment);
  return tried != gets_smaller_.end() && !tried->second && IsInLargePieces(use);
}

// What is packed needs no trial, nor what is to be sealed whatever a trial says.
void RestingSegments::TryAll(std::span<const uint64_t> segments) {
  for (const uint64_t segment : segments) {
    {
      std::lock_guard lock(mutex_);
      const SegmentUsage* const use = tree_.segment_usages().Find(segment);
      if (use == nullptr || gets_smaller_.contains(segment) || IsPacked(*use)) continue;
      if (LiveShare(*use) < kLiveShareMinAtCap || !IsInLargePieces(*use)) continue;
    }
    gets_smaller_.emplace(segment, trial_.GetsSmaller(segment));
  }
}

std::vector<wal::RestingSegment> RestingSegments::Choose(
    SpaceRound::Kind kind, std::span<const wal::SegmentInfo> leaving) {
  std::vector<wal::RestingSegment> chosen;
  const bool packed_alone = kind == SpaceRound::Kind::kAll || IsShort();
  std::lock_guard lock(mutex_);
  for (const wal::SegmentInfo& segment : leaving) {
    if (!MayRest(segment)) continue;
    const SegmentUsage& use = *tree_.segment_usages().Find(segment.number);
    const bool stays = GetsNoSmaller(segment.number, use) && LiveShare(use) >= kLiveShareMinAtCap;
    if (packed_alone && !stays) continue;
    chosen.push_back({segment.number, segment.end_offset});
  }
  return chosen;
}

std::vector<uint64_t> RestingSegments::WellPacked() {
  std::vector<uint64_t> segments = FullInLog();
  for (const wal::RestingSegment& one : deps_.manifest->resting()) segments.push_back(one.number);
  TryAll(segments);
  std::lock_guard lock(mutex_);
  std::erase_if(segments, [this](uint64_t segment) {
    const SegmentUsage* const use = tree_.segment_usages().Find(segment);
    return use == nullptr || !GetsNoSmaller(segment, *use) || LiveShare(*use) < kLiveShareMinAtCap;
  });
  std::sort(segments.begin(), segments.end());
  return segments;
}

// They died up to `sequence`, which is durable. A follower that reads this manifest reads the log
// at least up to there, or it would look for them.
Status RestingSegments::ForgetInManifest(std::span<const uint64_t> dead, uint64_t sequence) {
  return deps_.manifest->Edit([dead, sequence](Manifest* next) {
    next->last_sequence = std::max(next->last_sequence, sequence);
    std::erase_if(next->resting, [dead](const wal::RestingSegment& segment) {
      return std::binary_search(dead.begin(), dead.end(), segment.number);
    });
  });
}

// What died in the tree is durable before the manifest forgets the file, and the manifest forgets
// it before it goes: an opening finds all that it needs, or a file that it removes.
Status RestingSegments::GiveBackDead() {
  std::vector<uint64_t> dead;
  uint64_t sequence = 0;
  {
    const std::vector<wal::RestingSegment> resting = deps_.manifest->resting();
    std::lock_guard lock(mutex_);
    std::erase_if(gets_smaller_, [this](const auto& tried) {
      return tree_.segment_usages().Find(tried.first) == nullptr;
    });
    for (const wal::RestingSegment& segment : resting) {
      const SegmentUsage* const use = tree_.segment_usages().Find(segment.number);
      if (use != nullptr && use->live_bytes != 0) continue;
      const bool held = deps_.reader->pins().HoldSegment(segment.number);
      deps_.round->MarkHeld(held);
      if (held) continue;
      dead.push_back(segment.number);
      flusher_->OnSealed({.first = segment.number, .last = segment.number});
    }
    sequence = deps_.log->last_reserved_sequence();
  }
  if (!dead.empty()) {
    if (CAIRN_KEPT(kLogBeforeSegmentDies)) {
      CAIRN_RETURN_IF_ERROR(deps_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
    }
    unremoved_.reserve(unremoved_.size() + dead.size());
    if (CAIRN_KEPT(kManifestBeforeSegmentDies))
      CAIRN_RETURN_IF_ERROR(ForgetInManifest(dead, sequence));
    unremoved_.insert(unremoved_.end(), dead.begin(), dead.end());
    deps_.callbacks->PublishHint();  // First: a follower that misses a file finds out why.
  }
  if (unremoved_.empty()) return Status::Ok();
  std::erase_if(unremoved_, [&](uint64_t segment) {
    const Status removed = deps_.log->RemoveResting(segment);
    if (!removed.ok()) deps_.round->KeepGoing(removed);
    return removed.ok();
  });
  if (!CAIRN_KEPT(kManifestBeforeSegmentDies))
    CAIRN_RETURN_IF_ERROR(ForgetInManifest(dead, sequence));
  return dead_tables_->FreeRemoved(io::JoinPath(deps_.directory, kLogDirectory));
}

// A segment of which less than this share is needed is sealed.
RestingSegments::ShareMin RestingSegments::LiveShareMin(SpaceRound::Kind kind) const {
  if (kind == SpaceRound::Kind::kAll) return {kAny, kLiveShareMinAtCap};
  if (IsShort()) return {kAny, kLiveShareMinAtCap};
  if (kind == SpaceRound::Kind::kIdle) return {kAny, kLiveShareMinIdle};
  return {kLiveShareMin, kLiveShareMin};
}

std::vector<uint64_t> RestingSegments::FullInLog() const {
  std::vector<uint64_t> full;
  std::vector<wal::SegmentInfo> segments = deps_.log->Segments();
  if (!segments.empty()) segments.pop_back();  // It is written to.
  for (const wal::SegmentInfo& segment : segments) {
    if (segment.file_bytes == deps_.options->segment_bytes) full.push_back(segment.number);
  }
  return full;
}

// 0: there is none. REQUIRES: the commit lock.
uint64_t RestingSegments::EmptiestBelow(const ShareMin& share, std::span<const uint64_t> more,
                                        SegmentUsage* found) const {
  uint64_t emptiest = 0;
  double least = kAny;
  const auto look = [&](uint64_t segment) {
    const SegmentUsage* const use = tree_.segment_usages().Find(segment);
    if (use == nullptr || use->live_bytes == 0 || damaged_.contains(segment)) return;
    const double live = LiveShare(*use);
    if (live >= least || live >= (GetsNoSmaller(segment, *use) ? share.packed : share.unpacked))
      return;
    emptiest = segment;
    *found = *use;
    least = live;
  };
  for (const wal::RestingSegment& segment : deps_.manifest->resting()) look(segment.number);
  for (const uint64_t segment : more) look(segment);
  return emptiest;
}

Status RestingSegments::PackEmptiest(SpaceRound::Kind kind, bool* packed) {
  *packed = false;
  const ShareMin share = LiveShareMin(kind);
  std::vector<uint64_t> more;
  if (kind == SpaceRound::Kind::kIdle) more = FullInLog();
  uint64_t segment = 0;
  SegmentUsage before;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      segment = EmptiestBelow(share, more, &before);
    }
    if (segment == 0) return Status::Ok();
    TryAll({&segment, 1});
    std::lock_guard lock(mutex_);
    const double least = GetsNoSmaller(segment, before) ? share.packed : share.unpacked;
    if (LiveShare(before) < least) break;
  }
  const Status sealed = sealer_->Seal({.first = segment, .last = segment});
  if (sealed.code() == StatusCode::kCorruption) damaged_.insert(segment);
  CAIRN_RETURN_IF_ERROR(sealed);
  std::lock_guard lock(mutex_);
  const SegmentUsage* const use = tree_.segment_usages().Find(segment);
  const uint64_t live_after = use == nullptr ? 0 : use->live_bytes;
  *packed = live_after < before.live_bytes;
  if (!*packed) {
    damaged_.insert(segment);  // The count is wrong: it would be chosen again and again.
    return Status::Ok();
  }
  deps_.round->CountReclaimed(before.live_bytes);
  deps_.counters->packed_segments.fetch_add(1, std::memory_order_relaxed);
  return Status::Ok();
}

// Without memory there is nothing to do in idle time.
bool RestingSegments::IdleWorkIsDue() const {
  bool due = false;
  static_cast<void>(CatchBadAlloc([&] {
    const ShareMin share = LiveShareMin(SpaceRound::Kind::kIdle);
    const std::vector<uint64_t> more = FullInLog();
    SegmentUsage found;
    std::lock_guard lock(mutex_);
    due = EmptiestBelow(share, more, &found) != 0;
  }));
  return due;
}

}  // namespace cairn::engine
