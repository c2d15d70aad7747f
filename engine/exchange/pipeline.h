// SPDX-License-Identifier: Apache-2.0
//
// Two buffers and two steps: while this thread fills or empties one, a helper does the other step
// with the one before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/core/aligned_buffer.h"
#include "base/io/executor.h"
#include "engine/commit/staging.h"

namespace cairn {
class StoreCore;
}

namespace cairn::engine {

// The memory of an export or import: a part of what the store has for staging.
class ExchangeBuffers {
 public:
  // Each of the two holds `bytes`. kBusy: staging memory is used up. kInvalidArgument: it never has
  // as much.
  static Result<ExchangeBuffers> Take(StagingPool* pool, uint64_t bytes);
  ExchangeBuffers(ExchangeBuffers&& other) noexcept = default;
  ExchangeBuffers& operator=(ExchangeBuffers&&) = delete;
  ~ExchangeBuffers();
  std::span<std::byte> span(size_t index) const { return buffers_[index % 2].span(); }

 private:
  explicit ExchangeBuffers(StagingPool* pool) : pool_(pool) {}
  StagingPool* pool_;
  AlignedBuffer buffers_[2];
};

// Bytes of one buffer that leave most of the pool to others; a caller may ask for more.
uint64_t ExchangeBufferBytes(const StagingPool& pool);

// Runs one job at a time on a thread of the store's.
class Helper {
 public:
  explicit Helper(StoreCore* core) : core_(core) {}
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() { (void)Wait(); }
  // Waits for the job before, and returns its error instead of starting this one.
  Status Start(std::function<Status()> job);
  Status Wait();

 private:
  struct Job;
  StoreCore* const core_;
  std::shared_ptr<Job> job_;
};

}  // namespace cairn::engine
