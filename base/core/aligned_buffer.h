// SPDX-License-Identifier: Apache-2.0
//
// Memory that direct I/O accepts, taken from the allocator that the host process chose.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "cairn/allocator.h"

namespace cairn {

// Owns `size` bytes aligned to `alignment`. Contents start undefined. Empty when allocation failed
// (TryAllocate) or when moved from.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  static AlignedBuffer TryAllocate(const Allocator& allocator, size_t bytes, size_t alignment);
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return data_ == nullptr; }
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  Allocator allocator_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t alignment_ = 0;
};

}  // namespace cairn
