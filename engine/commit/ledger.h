// SPDX-License-Identifier: Apache-2.0
//
// Counts the bytes of every file of a store against max_bytes, and against the free space of the
// disk. Space is taken before a block is allocated and returned after it is freed, so the cap holds
// at every moment.
//
//   0            data may take up to here             max_bytes, or all that the disk has
//   |----------------------------------|-- the reserve --|
//
// The reserve is for work that gives space back (wal::Purpose::kReclaim): tables that take over the
// content of an old log segment or the live part of a table, and the index that must be written
// before. So a store that is full of data can be made smaller; afterwards the reserve is whole
// again. The ballast of the log, which keeps drops and rewinds possible, lies outside the reserve,
// in segments of its own.
//
// A store that was opened with a cap below its bytes takes no data. Work that gives space back may
// then use the size of the reserve on top of them, or the store could never become smaller.
//
// The reserve is not allocated on the disk, only left free; other programs may use it up. The
// disk's free space is asked for before data takes any, when something was returned, and in each
// round of the space thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string>

#include "base/core/check.h"
#include "base/core/mutex.h"
#include "base/core/text.h"
#include "cairn/limits.h"
#include "engine/config/constants.h"
#include "wal/log.h"

namespace cairn::engine {

// The reserve of max_bytes in a store with segments of this size, see kReserveShare: one segment
// for the log to go on if it has none left, the rest for tables.
constexpr uint64_t ReserveBytes(uint64_t max_bytes, uint64_t segment_bytes) {
  const uint64_t tables = std::clamp(max_bytes / kReserveShare, kReserveBytesMin, kReserveBytesMax);
  return std::min(2 * segment_bytes + tables, max_bytes / 2);
}

// The size of the segments of a new store that has this much room: a power of two.
constexpr uint64_t SegmentBytesFor(uint64_t room_bytes) {
  return std::bit_floor(std::clamp(room_bytes / kSegmentsInRoom, kMinSegmentBytes, kSegmentBytes));
}

class ByteLedger final : public wal::SpaceGrant {
 public:
  // `disk_free` is asked without a lock, by any thread.
  ByteLedger(uint64_t max_bytes, std::function<uint64_t()> disk_free)
      : max_bytes_(max_bytes), disk_free_(std::move(disk_free)), reclaim_max_(max_bytes) {}

  // Sets the reserve. Call before anything is taken; there is none until then.
  void Keep(uint64_t reserve_bytes) {
    const MutexLock lock(&mutex_);
    reserve_bytes_ = std::min(reserve_bytes, max_bytes_);
  }

  // A reclaim is not checked against the disk: the write fails if the disk has no room.
  Status Take(uint64_t bytes, wal::Purpose purpose) override {
    const bool reclaim = purpose == wal::Purpose::kReclaim;
    if (!reclaim) LookAtDisk();
    const MutexLock lock(&mutex_);
    const uint64_t kept = reclaim ? 0 : reserve_bytes_;
    if (!reclaim && bytes > DiskRoomLocked(purpose)) {
      return Status(StatusCode::kNoSpace, "the disk has " + BytesText(disk_seen_bytes_) +
                                              " available (" + BytesText(promised_bytes_) +
                                              " for files that are there, " + BytesText(kept) +
                                              " kept for giving space back), " + BytesText(bytes) +
                                              " more are needed");
    }
    if (bytes > CapRoomLocked(purpose)) {
      return Status(StatusCode::kNoSpace,
                    "max_bytes " + std::to_string(max_bytes_) + ": " + std::to_string(used_bytes_) +
                        " are used, " + std::to_string(kept) + " are kept for giving space back, " +
                        std::to_string(bytes) + " more are needed");
    }
    used_bytes_ += bytes;
    disk_free_bytes_ -= std::min(disk_free_bytes_, bytes);
    return Status::Ok();
  }

  void LookAtDisk() {
    const uint64_t free_bytes = disk_free_();
    const MutexLock lock(&mutex_);
    disk_seen_bytes_ = free_bytes;
    // Bytes that were taken and have no blocks yet are promised to their taker.
    disk_free_bytes_ = free_bytes - std::min(free_bytes, promised_bytes_);
  }

  // Counts bytes that exist already, whatever the cap says.
  void TakeAnyway(uint64_t bytes) override {
    const MutexLock lock(&mutex_);
    used_bytes_ += bytes;
    if (used_bytes_ > max_bytes_) reclaim_max_ = used_bytes_ + reserve_bytes_;
  }

  void Return(uint64_t bytes) override {
    LookAtDisk();
    const MutexLock lock(&mutex_);
    used_bytes_ -= bytes < used_bytes_ ? bytes : used_bytes_;
    reclaim_max_ = std::max(max_bytes_, std::min(reclaim_max_, used_bytes_ + reserve_bytes_));
  }

  void Promise(int64_t bytes) override {
    const MutexLock lock(&mutex_);
    CAIRN_CHECK(bytes >= 0 || promised_bytes_ >= static_cast<uint64_t>(-bytes));
    promised_bytes_ += static_cast<uint64_t>(bytes);
  }

  bool IsShort() const override {
    const MutexLock lock(&mutex_);
    return used_bytes_ > max_bytes_ - reserve_bytes_ || disk_free_bytes_ < reserve_bytes_;
  }

  // The disk itself, not only the cap, has less room than the reserve.
  bool DiskIsShort() const {
    const MutexLock lock(&mutex_);
    return disk_free_bytes_ < reserve_bytes_;
  }

  uint64_t used_bytes() const {
    const MutexLock lock(&mutex_);
    return used_bytes_;
  }
  // The most that data may take, including what it has taken.
  uint64_t data_bytes_max() const {
    const MutexLock lock(&mutex_);
    const uint64_t disk_room = DiskRoomLocked(wal::Purpose::kData);
    const uint64_t on_disk =
        disk_room < UINT64_MAX - used_bytes_ ? used_bytes_ + disk_room : UINT64_MAX;
    return std::min(max_bytes_ - reserve_bytes_, on_disk);
  }
  uint64_t reserve_bytes() const {
    const MutexLock lock(&mutex_);
    return reserve_bytes_;
  }
  uint64_t room(wal::Purpose purpose) const override {
    const MutexLock lock(&mutex_);
    return RoomLocked(purpose);
  }

 private:
  uint64_t RoomLocked(wal::Purpose purpose) const CAIRN_REQUIRES(mutex_) {
    return std::min(CapRoomLocked(purpose), DiskRoomLocked(purpose));
  }
  uint64_t DiskRoomLocked(wal::Purpose purpose) const CAIRN_REQUIRES(mutex_) {
    const uint64_t kept = purpose == wal::Purpose::kReclaim ? 0 : reserve_bytes_;
    return disk_free_bytes_ - std::min(disk_free_bytes_, kept);
  }
  uint64_t CapRoomLocked(wal::Purpose purpose) const CAIRN_REQUIRES(mutex_) {
    const bool reclaim = purpose == wal::Purpose::kReclaim;
    const uint64_t limit = reclaim ? reclaim_max_ : max_bytes_ - reserve_bytes_;
    return used_bytes_ < limit ? limit - used_bytes_ : 0;
  }

  mutable Mutex mutex_;
  const uint64_t max_bytes_;
  const std::function<uint64_t()> disk_free_;
  uint64_t promised_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;  // Taken, and not on the disk yet.
  uint64_t disk_free_bytes_ CAIRN_GUARDED_BY(mutex_) = UINT64_MAX;  // Less what was taken since.
  uint64_t disk_seen_bytes_ CAIRN_GUARDED_BY(mutex_) = UINT64_MAX;  // As df says: at the last look.
  uint64_t reclaim_max_ CAIRN_GUARDED_BY(mutex_);  // max_bytes_, or more while more is used.
  uint64_t reserve_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t used_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::engine
