// SPDX-License-Identifier: Apache-2.0
//
// The content of a file without a disk (sim/no_disk.h): chunks that a NoDisk lends. One that is
// missing reads as zeros. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/core/mutex.h"
#include "sim/no_disk.h"

namespace cairn::io {

class ChunkedBytes {
 public:
  explicit ChunkedBytes(std::shared_ptr<NoDisk> machine) : machine_(std::move(machine)) {}
  ChunkedBytes(const ChunkedBytes&) = delete;
  ChunkedBytes& operator=(const ChunkedBytes&) = delete;
  ~ChunkedBytes() { Resize(0); }

  NoDisk& machine() const { return *machine_; }
  uint64_t size() const;
  uint64_t allocated_bytes() const;

  // Copies the existing part of [offset, offset + into.size()); returns its size.
  size_t Read(uint64_t offset, std::span<std::byte> into) const;
  // False without memory. `drop`: what is written reads as zeros.
  bool Write(uint64_t offset, std::span<const std::byte> data, bool drop);
  void Resize(uint64_t bytes);  // Shrinks, or grows with a hole.
  void Allocate(uint64_t end);  // Grows, never shrinks. Counts as allocated, and takes no memory.

 private:
  std::byte* OwnLocked(size_t index, size_t written) CAIRN_REQUIRES(mutex_);
  void ZeroLocked(uint64_t begin, uint64_t end) CAIRN_REQUIRES(mutex_);

  const std::shared_ptr<NoDisk> machine_;
  mutable SharedMutex mutex_;
  std::vector<NoDisk::Chunk> chunks_ CAIRN_GUARDED_BY(mutex_);
  uint64_t size_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t held_ CAIRN_GUARDED_BY(mutex_) = 0;       // Chunks that exist.
  uint64_t allocated_ CAIRN_GUARDED_BY(mutex_) = 0;  // As far as Allocate was called for.
};

}  // namespace cairn::io
