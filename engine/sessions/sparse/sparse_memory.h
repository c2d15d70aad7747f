// SPDX-License-Identifier: Apache-2.0
//
// The memory of one sparse session, on the device and pinned beside it, and its parts for each
// layer. On the device: slots, which piece is in which, their order of use, the wanted pieces.
// Pinned, where host and kernels both look: the table of pages, faults, and pieces on their way.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/gpu_waits.h"
#include "engine/sessions/sparse/sparse_layout.h"
#include "gpu/kernels/gather_pieces.h"
#include "gpu/kernels/resolve_slots.h"

namespace cairn::engine {

class SparseMemory {
 public:
  // `waits` outlives this.
  SparseMemory(const GpuWaits* waits, const SparseLayout& layout);
  ~SparseMemory();  // No enqueued work touches it.
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  uint64_t device_bytes() const { return device_bytes_; }
  // Allocates it, and waits until the device has its initial state: empty slots.
  Status Allocate();
  // Sets how many pieces may be wanted. Waits for the device; no work is enqueued. After an error
  // it must be called again before any is.
  Status SetPieces(uint32_t pieces);
  // By head the pieces in slots, the one wanted longest ago first. Waits for the device; no work of
  // the layer is enqueued.
  Status ReadPieces(uint32_t layer, std::vector<std::vector<uint32_t>>* pieces) const;
  // A copy could not be waited for: the device may still use this memory.
  bool is_lost() const { return is_lost_; }
  void Leak() { device_memory_ = pinned_memory_ = nullptr; }  // The device is lost.

  // --- By layer, then by head and page, or by head and wanted piece.
  uint64_t* pages(uint32_t layer) const { return Pinned<uint64_t>(layer, pages_at_); }
  uint8_t* used(uint32_t layer) const { return Pinned<uint8_t>(layer, used_at_); }
  const uint32_t* faults(uint32_t layer) const { return Pinned<uint32_t>(layer, faults_at_); }
  const uint32_t* fault_counts(uint32_t layer) const {
    return Pinned<uint32_t>(layer, fault_counts_at_);
  }
  uint64_t* wrong(uint32_t layer) const { return Pinned<uint64_t>(layer, wrong_at_); }
  uint32_t* staged(uint32_t layer) const { return Pinned<uint32_t>(layer, staged_at_); }
  uint32_t* staged_counts(uint32_t layer) const {
    return Pinned<uint32_t>(layer, staged_counts_at_);
  }
  // Counts for replayed fetches. Never changes once it is set.
  uint32_t* captured_counts(uint32_t layer) const {
    return Pinned<uint32_t>(layer, captured_counts_at_);
  }
  uint32_t* wanted(uint32_t layer) const { return Device<uint32_t>(layer, wanted_at_); }
  uint32_t* counts(uint32_t layer) const { return Device<uint32_t>(layer, counts_at_); }
  std::span<std::byte> pieces_in(uint32_t layer) const {
    return {Device<std::byte>(layer, pieces_in_at_), orders_at_ - pieces_in_at_};
  }
  const int32_t* slot_of(uint32_t layer) const { return Device<int32_t>(layer, slot_of_at_); }
  const std::byte* slots(uint32_t layer, uint32_t plane) const {
    return Device<std::byte>(layer, slots_at_[plane]);
  }
  gpu::ResolveSlots Resolve(uint32_t layer, uint32_t count) const;
  gpu::GatherPieces Gather(uint32_t layer, uint32_t count) const;

 private:
  template <typename T>
  T* Device(uint32_t layer, uint64_t at) const {
    return reinterpret_cast<T*>(device_memory_ + layer * device_layer_bytes_ + at);
  }
  template <typename T>
  T* Pinned(uint32_t layer, uint64_t at) const {
    return reinterpret_cast<T*>(pinned_memory_ + layer * pinned_layer_bytes_ + at);
  }
  gpu::SlotRow RowOf(uint32_t layer, uint32_t head) const;
  Status Begin(std::byte* image);
  Status CopyAndWait(const gpu::CopyPiece& piece) const;

  const GpuWaits& waits_;
  SparseLayout layout_;
  // Offsets in a layer's part. Those with an initial state lie together, from rows_at_ to
  // begun_end_.
  uint64_t rows_at_ = 0, buffers_at_ = 0, pieces_in_at_ = 0, orders_at_ = 0, turns_at_ = 0;
  uint64_t begun_end_ = 0, counts_at_ = 0, wanted_at_ = 0, slot_of_at_ = 0, source_at_ = 0;
  std::array<uint64_t, gpu::kPiecePlanesMax> slots_at_{};
  uint64_t pages_at_ = 0, used_at_ = 0, faults_at_ = 0, fault_counts_at_ = 0, wrong_at_ = 0;
  uint64_t staged_at_ = 0, staged_counts_at_ = 0, captured_counts_at_ = 0;
  uint64_t device_layer_bytes_ = 0, pinned_layer_bytes_ = 0, device_bytes_ = 0;
  mutable bool is_lost_ = false;
  std::byte* device_memory_ = nullptr;
  std::byte* pinned_memory_ = nullptr;
};

}  // namespace cairn::engine
