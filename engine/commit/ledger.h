// SPDX-License-Identifier: Apache-2.0
//
// Counts the bytes of every file of a store against max_bytes. Space is taken before a block is
// allocated and returned after it is freed, so the cap holds at every moment.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "wal/log.h"

namespace cairn::engine {

class ByteLedger final : public wal::SpaceGrant {
 public:
  explicit ByteLedger(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  Status Take(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    if (used_bytes_ > max_bytes_ || bytes > max_bytes_ - used_bytes_) {
      return Status(StatusCode::kNoSpace, "max_bytes " + std::to_string(max_bytes_) + ": " +
                                              std::to_string(used_bytes_) + " are used and " +
                                              std::to_string(bytes) + " more are needed");
    }
    used_bytes_ += bytes;
    return Status::Ok();
  }

  // What is there already, whatever the cap says.
  void TakeAnyway(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    used_bytes_ += bytes;
  }

  void Return(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    used_bytes_ -= bytes < used_bytes_ ? bytes : used_bytes_;
  }

  uint64_t used_bytes() const {
    std::lock_guard lock(mutex_);
    return used_bytes_;
  }

 private:
  mutable std::mutex mutex_;
  const uint64_t max_bytes_;
  uint64_t used_bytes_ = 0;
};

}  // namespace cairn::engine
