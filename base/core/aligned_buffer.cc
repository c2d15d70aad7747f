// SPDX-License-Identifier: Apache-2.0
#include "base/core/aligned_buffer.h"

#include "base/core/check.h"

namespace cairn {

AlignedBuffer AlignedBuffer::TryAllocate(const Allocator& allocator, size_t bytes,
                                         size_t alignment) {
  CAIRN_CHECK(bytes > 0);
  CAIRN_CHECK((alignment & (alignment - 1)) == 0);
  AlignedBuffer buffer;
  void* memory = allocator.allocate(allocator.context, bytes, alignment);
  if (memory == nullptr) return buffer;
  buffer.allocator_ = allocator;
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  buffer.alignment_ = alignment;
  return buffer;
}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(alignment_, other.alignment_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) allocator_.deallocate(allocator_.context, data_, size_, alignment_);
}

}  // namespace cairn
