// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/pinned_arena.h"

#include <string>
#include <utility>

#include "base/core/check.h"
#include "base/io/fork_memory.h"

namespace cairn::engine {

Result<std::unique_ptr<PinnedArena>> PinnedArena::Make(std::shared_ptr<gpu::Device> device,
                                                       const Allocator& allocator, uint64_t bytes) {
  AlignedBuffer memory = AlignedBuffer::TryAllocate(
      allocator, bytes / kPinnedCellBytes * kPinnedCellBytes, kPinnedCellBytes);
  if (memory.empty()) {
    return Status(StatusCode::kOutOfMemory,
                  "the allocator has no " + std::to_string(bytes) + " bytes");
  }
  std::unique_ptr<PinnedArena> arena(new PinnedArena(std::move(device), std::move(memory)));
  io::KeepFromChildren(arena->memory_.span());
  CAIRN_RETURN_IF_ERROR(arena->device_->Register(arena->memory_.span()));
  arena->registered_ = true;
  return arena;
}

PinnedArena::PinnedArena(std::shared_ptr<gpu::Device> device, AlignedBuffer memory)
    : device_(std::move(device)),
      memory_(std::move(memory)),
      cells_(static_cast<uint32_t>(memory_.size() / kPinnedCellBytes)),
      runs_(cells_) {}

PinnedArena::~PinnedArena() {
  CAIRN_CHECK(used_bytes() == 0);
  if (registered_) device_->Unregister(memory_.span());
  io::GiveToChildren(memory_.span());
}

std::byte* PinnedArena::Take(uint64_t bytes) {
  const uint64_t wanted = CostOf(bytes) / kPinnedCellBytes;
  CAIRN_CHECK(wanted != 0);
  const MutexLock lock(&mutex_);
  if (wanted > cells_ - used_) return nullptr;
  const auto search = [&](uint32_t from, uint32_t end) CAIRN_REQUIRES(mutex_) {
    uint32_t free = 0;
    for (uint32_t i = from; i < end && free < wanted;) {
      free = runs_[i] == 0 ? free + 1 : 0;
      i += runs_[i] == 0 ? 1 : runs_[i];
      if (free == wanted) return i - free;
    }
    return cells_;
  };
  uint32_t first = search(next_, cells_);
  if (first == cells_) first = search(0, cells_);
  if (first == cells_) return nullptr;
  runs_[first] = static_cast<uint32_t>(wanted);
  used_ += runs_[first];
  next_ = first + runs_[first] == cells_ ? 0 : first + runs_[first];
  return memory_.data() + uint64_t{first} * kPinnedCellBytes;
}

void PinnedArena::Return(std::byte* at) {
  const auto first = static_cast<uint64_t>(at - memory_.data()) / kPinnedCellBytes;
  const MutexLock lock(&mutex_);
  CAIRN_CHECK(first < cells_ && runs_[first] != 0);
  used_ -= runs_[first];
  runs_[first] = 0;
}

uint64_t PinnedArena::used_bytes() const {
  const MutexLock lock(&mutex_);
  return uint64_t{used_} * kPinnedCellBytes;
}

}  // namespace cairn::engine
