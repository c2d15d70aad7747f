// SPDX-License-Identifier: Apache-2.0
//
// What a restore reads with, kept for the next one: buffers and queues. A ring costs some 50 us to
// make and to give back, half of what a small restore takes.
//
// Thread-safe; no lock is held while something is made.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/io/world.h"
#include "cairn/allocator.h"
#include "engine/commit/constants.h"

namespace cairn::engine {

class ReadPool {
 public:
  ReadPool(std::shared_ptr<io::FileSystem> files, const Allocator& allocator)
      : files_(std::move(files)), allocator_(allocator) {}

  // `bytes` or more, aligned to blocks; empty when memory is short.
  AlignedBuffer TakeBuffer(uint64_t bytes);
  void ReturnBuffer(AlignedBuffer buffer);
  // For kReadsInFlightMax requests.
  std::unique_ptr<io::Queue> TakeQueue();
  // REQUIRES: nothing is in flight.
  void ReturnQueue(std::unique_ptr<io::Queue> queue);

 private:
  const std::shared_ptr<io::FileSystem> files_;
  const Allocator allocator_;
  std::mutex mutex_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<std::unique_ptr<io::Queue>> queues_;
};

}  // namespace cairn::engine
