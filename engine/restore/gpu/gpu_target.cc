// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/gpu_target.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "engine/device/gpu_ports.h"

namespace cairn::engine {

GpuTarget::GpuTarget(const Gpu& gpu, const io::World& world, uint64_t bytes_max,
                     uint64_t keep_bytes, MemoryBudget* budget)
    : gpu_(gpu),
      budget_(budget),
      keep_bytes_(keep_bytes),
      frames_of_launch_(WarpsOfLaunch(gpu, kGpuSlots)),  // One warp for each frame.
      waits_(gpu.device(), world.scheduler),
      ring_(&waits_),
      staging_(&waits_,
               {.bytes = kGpuStagingBytes, .kept_bytes = kGpuStagingKeptBytes, .kept = kGpuSlots}),
      arena_({.allocate = Allocate, .deallocate = Deallocate, .context = gpu.device().get()},
             keep_bytes),
      pool_(world, arena_.allocator(), bytes_max, budget) {
  budget_->Take(keep_bytes_);
}

GpuTarget::~GpuTarget() {
  budget_->Return(keep_bytes_);
  if (cache_ != nullptr) budget_->Return(cache_->capacity());
}

Status GpuTarget::OpenCache(const Allocator& allocator) {
  const uint64_t bytes = gpu_.options().pinned_bytes;
  if (bytes == 0) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(auto arena, PinnedArena::Make(gpu_.device(), allocator, bytes));
  cache_ = std::make_unique<PinnedCache>(std::move(arena), gpu_.options());
  budget_->Take(cache_->capacity());
  return Status::Ok();
}

void GpuTarget::Clear() {
  if (cache_ != nullptr) cache_->Close();
  pool_.queues().Clear();
  arena_.Clear();
  staging_.Clear();
}

// A device aligns pinned memory to pages if it is made of pages, as all buffers of an arena are.
void* GpuTarget::Allocate(void* context, size_t bytes, size_t alignment) {
  const Result<std::byte*> pinned =
      static_cast<gpu::Device*>(context)->Allocate(gpu::Memory::kPinned, bytes);
  if (!pinned.ok()) return nullptr;
  CAIRN_CHECK(reinterpret_cast<uintptr_t>(*pinned) % alignment == 0);
  return *pinned;
}

void GpuTarget::Deallocate(void* context, void* memory, size_t /*bytes*/, size_t /*alignment*/) {
  static_cast<gpu::Device*>(context)->Free(static_cast<std::byte*>(memory));
}

}  // namespace cairn::engine
