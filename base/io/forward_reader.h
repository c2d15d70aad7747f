// SPDX-License-Identifier: Apache-2.0
//
// Reads a file from front to back, for callers that need most of its bytes roughly in order:
// neighbouring bytes come with one read.
#pragma once

#include <cstdint>
#include <span>

#include "base/core/aligned_buffer.h"
#include "base/io/world.h"

namespace cairn::io {

// A device is near its best rate with this size, and one such buffer for each reader is no burden.
inline constexpr uint64_t kForwardReadBytes = 1u << 20;
static_assert(kForwardReadBytes % kBlockBytes == 0);

class ForwardReader {
 public:
  explicit ForwardReader(const Allocator& allocator) : allocator_(allocator) {}

  // Sets the file that Read reads; it must stay open as long. Nothing at or beyond `end`, or the
  // block that it lies in, is read unless a caller asks for it.
  void Open(File* file, uint64_t end);
  // `bytes` from `offset` on, valid until the next call: from the buffer, or read together with
  // what follows them. If that fails they are read alone, so an error is about them.
  Result<std::span<const std::byte>> Read(uint64_t offset, uint64_t bytes);

  uint64_t reads() const { return reads_; }  // Reads of the device, and their bytes.
  uint64_t read_bytes() const { return read_bytes_; }

 private:
  Status Fill(uint64_t begin, uint64_t end);

  const Allocator allocator_;
  File* file_ = nullptr;
  uint64_t file_end_ = 0;
  uint64_t begin_ = 0, end_ = 0;  // The bytes in memory.
  AlignedBuffer memory_;
  uint64_t reads_ = 0, read_bytes_ = 0;
};

}  // namespace cairn::io
