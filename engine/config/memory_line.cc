// SPDX-License-Identifier: Apache-2.0
#include "engine/config/memory_line.h"

#include <algorithm>

#include "base/core/check.h"
#include "engine/config/constants.h"

namespace cairn::engine {

Result<MemoryLine::Share> MemoryLine::Take(uint64_t bytes, const std::function<Status()>& go_on) {
  uint64_t number = 0;
  {
    const MutexLock lock(&mutex_);
    if (line_.empty() && Fits(bytes)) return Give(bytes);
    number = ++came_;
    line_.push_back(number);
  }
  while (true) {
    const uint32_t seen = word_.load();
    Status status = go_on();
    {
      MutexLock lock(&mutex_);
      const bool first = line_.front() == number;
      if (status.ok() && first && Fits(bytes)) {
        line_.pop_front();
        Share share = Give(bytes);
        lock.Unlock();
        Changed();  // There may be enough for the next one as well.
        return share;
      }
      if (!status.ok()) {
        line_.erase(std::find(line_.begin(), line_.end(), number));
        lock.Unlock();
        Changed();
        return status;
      }
    }
    scheduler_.Wait(word_, seen, scheduler_.MonotonicNs() + kLineLookAgainNs);
  }
}

MemoryLine::Share MemoryLine::Give(uint64_t bytes) {
  taken_ += bytes;
  if (budget_ != nullptr) budget_->Take(bytes);
  return {this, bytes};
}

void MemoryLine::Return(uint64_t bytes) {
  {
    const MutexLock lock(&mutex_);
    CAIRN_CHECK(taken_ >= bytes);
    taken_ -= bytes;
  }
  if (budget_ != nullptr) budget_->Return(bytes);
  Changed();
}

void MemoryLine::Changed() {
  word_.fetch_add(1);
  scheduler_.WakeAll(word_);
}

}  // namespace cairn::engine
