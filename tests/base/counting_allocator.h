// SPDX-License-Identifier: Apache-2.0
//
// An allocator that counts, and checks that each block comes back as it went.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <new>

#include "cairn/allocator.h"

namespace cairn::testing {

class CountingAllocator {
 public:
  ~CountingAllocator() { EXPECT_TRUE(out_.empty()); }
  Allocator allocator() {
    return {.allocate = Allocate, .deallocate = Deallocate, .context = this};
  }
  uint64_t taken() const { return taken_; }
  uint64_t out_bytes() {
    const std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    for (const auto& [memory, size] : out_) bytes += size;
    return bytes;
  }
  bool refuses = false;

 private:
  static void* Allocate(void* context, size_t bytes, size_t alignment) {
    auto* self = static_cast<CountingAllocator*>(context);
    if (self->refuses) return nullptr;
    void* const memory = ::operator new(bytes, std::align_val_t(alignment));
    const std::lock_guard lock(self->mutex_);
    ++self->taken_;
    self->out_[memory] = bytes;
    return memory;
  }
  static void Deallocate(void* context, void* memory, size_t bytes, size_t alignment) {
    auto* self = static_cast<CountingAllocator*>(context);
    {
      const std::lock_guard lock(self->mutex_);
      EXPECT_EQ(self->out_.at(memory), bytes);
      self->out_.erase(memory);
    }
    ::operator delete(memory, std::align_val_t(alignment));
  }
  std::mutex mutex_;
  std::map<void*, size_t> out_;
  uint64_t taken_ = 0;
};

}  // namespace cairn::testing
