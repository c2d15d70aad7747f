// SPDX-License-Identifier: Apache-2.0
//
// The memory of one shadow session on the device.
//
//   a layer    landmarks, their rows behind the last block, which chunks are always attended to,
//              codes of keys; rows that are attended to in any case     [head]
//   shared     scores, sums, what was selected, rebuilt keys: of the layer that is worked on
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/gpu_waits.h"
#include "engine/sessions/shadow/device_upload.h"
#include "engine/sessions/shadow/key_rows.h"
#include "engine/sessions/shadow/shadow_shape.h"
#include "engine/sessions/shadow/shadow_table.h"
#include "gpu/kernels/rebuild_keys.h"
#include "gpu/kernels/rebuild_low_rank.h"
#include "gpu/kernels/score_chunks.h"
#include "gpu/kernels/select_chunks.h"

namespace cairn::engine {

// The largest shape that the memory has room for.
struct ShadowCapacity {
  ShadowShape most{};            // The longest context's.
  uint32_t query_heads = 0;      // Per layer.
  uint32_t resident_tokens = 0;  // Tokens that are always attended to.
  uint32_t rank = 0;             // The largest rank of a layer; low-rank keys only.
  uint32_t turned = 0;           // Pairs of elements of a key that turn; low-rank keys only.
};

class ShadowMemory {
 public:
  // `waits` outlives this.
  ShadowMemory(const GpuWaits* waits, const ShadowCapacity& room);
  ~ShadowMemory();  // Nothing enqueued touches it.
  ShadowMemory(const ShadowMemory&) = delete;
  ShadowMemory& operator=(const ShadowMemory&) = delete;

  uint64_t device_bytes() const { return end_; }
  Status Allocate();
  void Leak() { memory_ = nullptr; }  // The device is lost.

  // --- What the shadow is from now on. Nothing enqueued uses the old one.
  // Its parts and rows are put there before or after. REQUIRES: there is room for it.
  Status Reset(const ShadowShape& shape, DeviceUpload* upload);
  Status PutPart(const ShadowPartLayout& part, size_t row, std::span<const std::byte> frame,
                 DeviceUpload* upload) const;
  Status PutBasis(uint32_t layer, const shadow::LowRankBasis& basis, DeviceUpload* upload);
  Status PutRows(const ShadowPartLayout& part, uint32_t layer, std::span<const std::byte> frame,
                 DeviceUpload* upload) const;
  // Puts the turns of positions from `first` on, [token][pair].
  Status PutTurns(uint64_t first, std::span<const RotaryTurn> turns, DeviceUpload* upload) const;
  Status PutAlways(size_t row, std::span<const uint32_t> chunks, DeviceUpload* upload) const;

  // --- By layer
  std::byte* resident_keys(uint32_t layer, uint32_t head, uint64_t token) const;
  std::byte* resident_values(uint32_t layer, uint32_t head, uint64_t token) const;
  uint64_t resident_key_stride() const {
    return uint64_t{room_.resident_tokens} * room_.most.key_bytes;
  }
  uint64_t resident_value_stride() const {
    return uint64_t{room_.resident_tokens} * room_.most.value_bytes;
  }
  gpu::ScoreChunks Score(uint32_t layer) const;
  gpu::SelectChunks Select(uint32_t layer) const;
  // REQUIRES: keys have codes.
  gpu::RebuildKeys Rebuild(uint32_t layer) const;
  // REQUIRES: keys are low-rank.
  gpu::RebuildLowRank RebuildLowRank(uint32_t layer, const KeyRows& keys) const;

  // --- Shared. [head][budget_stride()].
  uint32_t budget_stride() const { return room_.most.plan.budget_chunks; }
  const uint32_t* chunks() const { return At<uint32_t>(chunks_at_); }
  const int32_t* in_order() const { return At<int32_t>(in_order_at_); }  // 0, 1, 2, ...
  const std::byte* rebuilt() const { return At<std::byte>(rebuilt_at_); }
  uint64_t rebuilt_stride() const;  // Bytes, from head to head.

 private:
  template <typename T>
  T* At(uint64_t at) const {
    return reinterpret_cast<T*>(memory_ + at);
  }
  template <typename T>
  T* Of(uint64_t row, uint64_t at, uint64_t stride) const {
    const uint64_t layer = row / room_.most.heads, head = row % room_.most.heads;
    return reinterpret_cast<T*>(memory_ + layer * layer_bytes_ + at + head * stride);
  }
  gpu::ShadowHead HeadOf(uint64_t row) const;

  const GpuWaits& waits_;
  const ShadowCapacity room_;
  ShadowShape shape_;
  // Offsets in the part of a layer, and from head to head.
  uint64_t landmarks_at_ = 0, tail_at_ = 0, always_at_ = 0, keys_at_ = 0;
  uint64_t resident_keys_at_ = 0, resident_values_at_ = 0;
  uint64_t vectors_at_ = 0, coefficients_at_ = 0;  // Low-rank keys only; for all heads.
  uint64_t landmarks_stride_ = 0, tail_stride_ = 0, always_stride_ = 0, keys_stride_ = 0;
  uint64_t layer_bytes_ = 0;
  // Offsets behind the last layer.
  uint64_t heads_at_ = 0, scores_at_ = 0, sums_at_ = 0, order_keys_at_ = 0, chunks_at_ = 0;
  uint64_t counts_at_ = 0, in_order_at_ = 0, rebuilt_at_ = 0, turns_at_ = 0, end_ = 0;
  std::vector<uint32_t> ranks_;  // By layer.
  std::byte* memory_ = nullptr;
};

}  // namespace cairn::engine
