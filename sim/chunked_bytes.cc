// SPDX-License-Identifier: Apache-2.0
#include "sim/chunked_bytes.h"

#include <algorithm>
#include <cstring>

namespace cairn::io {
namespace {

// The piece of [at, end) that lies in one chunk.
struct Part {
  Part(uint64_t at, uint64_t end)
      : index(at / NoDisk::kChunkBytes),
        within(at % NoDisk::kChunkBytes),
        bytes(std::min<uint64_t>(NoDisk::kChunkBytes - within, end - at)) {}
  const size_t index, within, bytes;
};

}  // namespace

uint64_t ChunkedBytes::size() const {
  ReaderLock lock(&mutex_);
  return size_;
}

uint64_t ChunkedBytes::allocated_bytes() const {
  ReaderLock lock(&mutex_);
  return std::max(held_ * NoDisk::kChunkBytes, allocated_);
}

size_t ChunkedBytes::Read(uint64_t offset, std::span<std::byte> into) const {
  ReaderLock lock(&mutex_);
  const uint64_t end = std::min<uint64_t>(offset + into.size(), std::max(size_, offset));
  for (uint64_t at = offset; at < end;) {
    const Part part(at, end);
    std::byte* const to = into.data() + (at - offset);
    if (part.index < chunks_.size() && chunks_[part.index] != nullptr) {
      std::memcpy(to, chunks_[part.index].get() + part.within, part.bytes);
    } else {
      std::memset(to, 0, part.bytes);
    }
    at += part.bytes;
  }
  return end - offset;
}

bool ChunkedBytes::Write(uint64_t offset, std::span<const std::byte> data, bool drop) {
  WriterLock lock(&mutex_);
  const uint64_t end = offset + data.size();
  if (drop) ZeroLocked(offset, end);
  for (uint64_t at = offset; at < end && !drop;) {
    const Part part(at, end);
    std::byte* const chunk = OwnLocked(part.index, part.bytes);
    if (chunk == nullptr) return false;
    std::memcpy(chunk + part.within, data.data() + (at - offset), part.bytes);
    at += part.bytes;
  }
  size_ = std::max(size_, end);
  return true;
}

void ChunkedBytes::Resize(uint64_t bytes) {
  WriterLock lock(&mutex_);
  const size_t count = (bytes + NoDisk::kChunkBytes - 1) / NoDisk::kChunkBytes;
  for (size_t i = count; i < chunks_.size(); ++i) {
    if (chunks_[i] == nullptr) continue;
    machine_->Give(std::move(chunks_[i]));
    --held_;
  }
  chunks_.resize(std::min(chunks_.size(), count));
  ZeroLocked(bytes, count * NoDisk::kChunkBytes);
  size_ = bytes;
  allocated_ = std::min(allocated_, bytes);
}

void ChunkedBytes::Allocate(uint64_t end) {
  WriterLock lock(&mutex_);
  size_ = std::max(size_, end);
  allocated_ = std::max(allocated_, end);
}

// The chunk, made if it is missing; with zeros unless `written` bytes cover it. Null without
// memory.
std::byte* ChunkedBytes::OwnLocked(size_t index, size_t written) {
  if (chunks_.size() <= index) chunks_.resize(index + 1);
  NoDisk::Chunk& chunk = chunks_[index];
  if (chunk != nullptr) return chunk.get();
  chunk = machine_->Take();
  if (chunk == nullptr) return nullptr;
  ++held_;
  if (written < NoDisk::kChunkBytes) std::memset(chunk.get(), 0, NoDisk::kChunkBytes);
  return chunk.get();
}

// Writes zeros into the chunks that exist.
void ChunkedBytes::ZeroLocked(uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end;) {
    const Part part(at, end);
    if (part.index >= chunks_.size()) return;
    std::byte* const chunk = chunks_[part.index].get();
    if (chunk != nullptr) std::memset(chunk + part.within, 0, part.bytes);
    at += part.bytes;
  }
}

}  // namespace cairn::io
