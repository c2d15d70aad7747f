// SPDX-License-Identifier: Apache-2.0
//
// The blocks of the pool's files: those that the log's segment and the next one get as they fill,
// and those that are written with zeros ahead of small groups.
#include <algorithm>
#include <utility>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "wal/segment_pool.h"

namespace cairn::wal {

// ---------------------------------------------------------------- requested blocks

bool SegmentPool::NextHasBlocks(uint64_t wanted, bool* refused) {
  std::shared_ptr<io::File> file;
  uint64_t segment = 0, allocated = 0;
  {
    MutexLock lock(&mutex_);
    if (next_.file == nullptr || next_.allocated >= std::min(wanted, options_.segment_bytes)) {
      return true;
    }
    file = next_.file;
    segment = next_.segment;
    allocated = next_.allocated;
  }
  *refused = !Grow(file, segment, allocated, wanted);
  return false;
}

bool SegmentPool::Grow(const std::shared_ptr<io::File>& file, uint64_t segment, uint64_t allocated,
                       uint64_t wanted) {
  CAIRN_CHECK(file != nullptr);
  CAIRN_CHECK(segment != 0);
  CAIRN_CHECK(allocated < options_.segment_bytes);
  MutexLock lock(&mutex_);
  growth_.wanted = std::max(growth_.segment == segment ? growth_.wanted : 0, wanted);
  growth_.segment = segment;
  growth_.allocated = allocated;
  growth_.file = file;
  return !growth_is_refused_;
}

// Allocates the blocks of the file that becomes the next segment, and has `allocated` of them: all,
// once the log has filled another segment. Returns how far they reach.
Result<uint64_t> SegmentPool::AllocateNext(io::File& file, uint64_t allocated) {
  bool whole = false;
  {
    MutexLock lock(&mutex_);
    whole = history_.any();
  }
  const uint64_t first = std::min(FirstBytes(), options_.segment_bytes);
  const uint64_t bytes = whole ? options_.segment_bytes : first;
  Status status;
  if (bytes > allocated && !HasDiskRoom(bytes - allocated)) {
    status = Status(StatusCode::kNoSpace, "");
  } else {
    status = file.Allocate(0, bytes);
  }
  if (status.ok()) return bytes;
  if (status.code() != StatusCode::kNoSpace || allocated < first) return status;
  disk_is_full_.store(true, std::memory_order_release);
  return first;  // It has these.
}

// A refused allocation may take a part of the space, at the expense of work that gives space back.
bool SegmentPool::HasDiskRoom(uint64_t bytes) {
  const Result<io::DiskSpace> space = world_.files->Space(options_.directory);
  return !space.ok() || space->free_bytes >= bytes;
}

uint64_t* SegmentPool::BytesOfLocked(uint64_t segment) {
  if (next_.file != nullptr && next_.segment == segment) return &next_.allocated;
  return grown_segment_ == segment ? &grown_bytes_ : nullptr;
}

Status SegmentPool::GrowSegment() {
  Growth growth;
  uint64_t from = 0;
  {
    MutexLock lock(&mutex_);
    std::swap(growth, growth_);
    const uint64_t* has = BytesOfLocked(growth.segment);
    if (growth.file == nullptr || has == nullptr) return Status::Ok();
    from = *has;
    CAIRN_CHECK(from <= options_.segment_bytes);
  }
  const uint64_t bytes = std::min(
      options_.segment_bytes, AlignUp(std::max(kGrowth * growth.allocated, growth.wanted), kBlock));
  if (bytes <= from) return Status::Ok();
  if (!HasDiskRoom(bytes - from)) {
    return Status(StatusCode::kNoSpace, "the disk has no blocks for more of the segment");
  }
  CAIRN_RETURN_IF_ERROR(growth.file->Allocate(from, bytes));
  {
    MutexLock lock(&mutex_);
    growth_is_refused_ = false;
    uint64_t* has = BytesOfLocked(growth.segment);
    if (has == nullptr) return Status::Ok();  // The log has left it meanwhile.
    CAIRN_CHECK(*has == from);                // No other thread makes it grow.
    *has = bytes;
  }
  Keep(bytes - from);
  callbacks_.on_grown(growth.segment, bytes);
  return Status::Ok();
}

void SegmentPool::RefuseGrowth(const Status& status) {
  CAIRN_CHECK(!status.ok());
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = !growth_is_refused_;
    growth_is_refused_ = true;
    growth_ = Growth();
    grow_again_ns_ = world_.scheduler->MonotonicNs() + kSpaceRetryNs;
  }
  if (first) Report("log: the segment cannot grow: ", status);
}

// ---------------------------------------------------------------- the cushion

Status SegmentPool::MakeCushion() {
  const Status status = cushion_.MakeWhole();
  TryCushionLater();
  return status;
}

void SegmentPool::TryCushionLater() {
  MutexLock lock(&mutex_);
  cushion_again_ns_ = world_.scheduler->MonotonicNs() + kCushionRetryNs;
}

bool SegmentPool::GiveUpCushion() {
  const bool was_whole = cushion_.whole() && cushion_.pieces() > 0;
  TryCushionLater();
  if (!CAIRN_KEPT(kCushion) || !cushion_.GiveUpOne()) return false;
  if (was_whole) {
    ++times_refused_;
    Report("log: the disk is full: a write goes to room that was kept for it", Status::Ok());
  }
  Wake();
  return true;
}

// ---------------------------------------------------------------- zeros ahead

const SegmentPool::Spare* SegmentPool::SpareToWriteLocked(uint64_t now_ns) const {
  const size_t wanted = history_.segments_wanted(now_ns);
  size_t written = 0;
  const Spare* found = nullptr;
  for (const Spare& spare : spares_) {
    if (spare.written) {
      ++written;
    } else if (found == nullptr || spare.id == prewriter_.spare()) {
      found = &spare;
    }
  }
  return written < wanted ? found : nullptr;
}

Status SegmentPool::Prewrite() {
  uint64_t spare = 0, missing = 0;
  {
    MutexLock lock(&mutex_);
    const Spare* found = SpareToWriteLocked(world_.scheduler->MonotonicNs());
    if (found == nullptr) return Status::Ok();
    spare = found->id;
    missing = Unallocated(found->allocated);
  }
  placed_ = 0;
  // Zeros only serve speed: they take no room that others may need.
  if (prewriter_.spare() != spare && (IsShort() || !HasDiskRoom(missing))) return Status::Ok();
  const Result<uint64_t> written =
      prewriter_.Step(spare, SparePath(options_.directory, spare), options_.segment_bytes);
  if (!written.ok()) {
    prewriter_.Drop();
    Report("log: a segment is not written ahead: ", written.status());
  }
  MutexLock lock(&mutex_);
  CAIRN_CHECK(!written.ok() || *written <= kPrewriteStepBytes);
  if (written.ok()) bytes_prewritten_ += *written;
  if (written.ok() && !prewriter_.done()) return Status::Ok();
  for (Spare& one : spares_) {
    if (one.id != spare) continue;
    CAIRN_CHECK(!one.written);
    one.written = true;  // Also on failure: it is not tried again.
    if (written.ok()) {
      Keep(Unallocated(one.allocated));
      one.allocated = options_.segment_bytes;
    }
  }
  return Status::Ok();
}

}  // namespace cairn::wal
