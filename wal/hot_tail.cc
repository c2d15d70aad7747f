// SPDX-License-Identifier: Apache-2.0
#include "wal/hot_tail.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "wal/constants.h"
#include "wal/format.h"

namespace cairn::wal {

static_assert(kPrefaultBytes % kBlock == 0);

HotTail::Chunk::Chunk(std::shared_ptr<Memory> owner, AlignedBuffer memory, uint64_t in_segment,
                      uint32_t at_offset)
    : home(std::move(owner)), buffer(std::move(memory)), segment(in_segment), offset(at_offset) {}

// Runs after the last reference is gone, and the reference count orders it after every reader's
// last access: only then may the memory be written again.
HotTail::Chunk::~Chunk() {
  CAIRN_CHECK(used.load(std::memory_order_relaxed) <= end());
  MutexLock lock(&home->mutex);
  if (buffer.size() == home->chunk_bytes && home->free.size() < home->keep) {
    CAIRN_CHECK(home->free.size() < home->free.capacity());  // It must not throw.
    home->free.push_back(std::move(buffer));
  }
}

HotTail::HotTail(const Allocator& allocator, uint64_t limit_bytes, uint64_t chunk_bytes)
    : allocator_(allocator),
      limit_bytes_(limit_bytes),
      memory_(std::make_shared<Memory>(chunk_bytes, limit_bytes)) {}

AlignedBuffer HotTail::TakeBuffer(uint64_t bytes) {
  if (bytes <= memory_->chunk_bytes) {
    bytes = memory_->chunk_bytes;
    MutexLock lock(&memory_->mutex);
    if (!memory_->free.empty()) {
      AlignedBuffer buffer = std::move(memory_->free.back());
      memory_->free.pop_back();
      CAIRN_CHECK(buffer.size() == bytes);
      return buffer;
    }
  }
  return AlignedBuffer::TryAllocate(allocator_, bytes, kBlock);
}

uint64_t HotTail::touched() {
  MutexLock lock(&memory_->mutex);
  return memory_->free.size();
}

void HotTail::MakeRoom(uint64_t bytes, uint64_t limit) {
  // A count of one means that only this deque holds the chunk, and only Find, under this lock,
  // could make a second reference.
  for (auto oldest = chunks_.begin(); bytes_ + bytes > limit && oldest != chunks_.end();) {
    if (oldest->use_count() > 1) {
      ++oldest;
      continue;
    }
    CAIRN_CHECK(bytes_ >= (*oldest)->buffer.size());
    bytes_ -= (*oldest)->buffer.size();
    oldest = chunks_.erase(oldest);
  }
}

std::shared_ptr<HotTail::Chunk> HotTail::Add(uint64_t segment, uint32_t offset, uint64_t bytes,
                                             bool* pinned) {
  CAIRN_CHECK(segment != 0);
  CAIRN_CHECK(offset % kBlock == 0);
  bytes = AlignUp(std::max(bytes, memory_->chunk_bytes), kBlock);
  MutexLock lock(&mutex_);
  const uint64_t at_once = kHotTailAtOnce * memory_->chunk_bytes;
  if (touched() != 0) {
    missed_ -= std::min<uint64_t>(missed_, 1);
  } else if (bytes == memory_->chunk_bytes && bytes_ >= at_once) {
    missed_ += bytes_ + bytes <= limit_bytes_ ? 1 : 0;
    MakeRoom(bytes, bytes_);  // If all are pinned the limit may still have room.
  }
  MakeRoom(bytes, limit_bytes_);
  *pinned = bytes_ + bytes > limit_bytes_;
  if (*pinned) return nullptr;
  AlignedBuffer buffer = TakeBuffer(bytes);
  if (buffer.empty()) return nullptr;
  auto chunk = std::make_shared<Chunk>(memory_, std::move(buffer), segment, offset);
  chunk->used.store(offset, std::memory_order_relaxed);
  chunks_.push_back(chunk);  // First: what finds no memory is not counted.
  bytes_ += chunk->buffer.size();
  CAIRN_CHECK(bytes_ <= limit_bytes_);
  return chunk;
}

Pinned HotTail::Find(uint64_t segment, uint32_t offset, uint32_t bytes) {
  MutexLock lock(&mutex_);
  // Newest first: most requests are for records just written.
  for (auto chunk = chunks_.rbegin(); chunk != chunks_.rend(); ++chunk) {
    const Chunk& found = **chunk;
    if (found.segment != segment || offset < found.offset) continue;
    if (uint64_t{offset} + bytes > found.used.load(std::memory_order_acquire)) return {};
    return {*chunk, {found.At(offset), bytes}};
  }
  return {};
}

bool HotTail::WantsTouched() {
  MutexLock lock(&mutex_);
  const uint64_t ahead = touched();
  return bytes_ + (ahead + 1) * memory_->chunk_bytes <= limit_bytes_ &&
         ahead < std::max<uint64_t>(missed_, 1);
}

bool HotTail::Prefault() {
  if (touching_.empty()) {
    if (!WantsTouched()) return false;
    touching_ =
        AlignedBuffer::TryAllocate(allocator_, static_cast<size_t>(memory_->chunk_bytes), kBlock);
    touched_ = 0;
  }
  const size_t end = std::min(touching_.size(), touched_ + kPrefaultBytes);
  for (; touched_ < end; touched_ += kBlock) touching_.data()[touched_] = std::byte{0};
  if (end < touching_.size()) return true;
  AlignedBuffer whole = std::move(touching_);
  if (whole.empty()) return false;  // There was no memory.
  {
    MutexLock lock(&memory_->mutex);
    CAIRN_CHECK(memory_->free.size() < memory_->free.capacity());
    memory_->free.push_back(std::move(whole));
  }
  return WantsTouched();
}

void HotTail::Clear() {
  touching_ = AlignedBuffer();
  std::vector<AlignedBuffer> free;
  {
    MutexLock lock(&memory_->mutex);
    memory_->keep = 0;
    free.swap(memory_->free);
  }
  // Memory that chunks return is freed, too. Without the lock, and without memory for a second
  // deque.
  for (bool left = true; left;) {
    std::shared_ptr<Chunk> chunk;
    MutexLock lock(&mutex_);
    left = !chunks_.empty();
    if (!left) break;
    chunk.swap(chunks_.back());
    bytes_ -= chunk->buffer.size();
    chunks_.pop_back();
    CAIRN_CHECK(bytes_ == 0 || !chunks_.empty());
  }
}

uint64_t HotTail::bytes() {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace cairn::wal
