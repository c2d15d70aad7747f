// SPDX-License-Identifier: Apache-2.0
#include "engine/shadow/shadow_memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "base/core/align.h"
#include "base/core/check.h"
#include "engine/shadow/constants.h"
#include "engine/shadow/shadow_table.h"

namespace cairn::engine {

namespace {

// Kernels load 16 bytes at a time, and read whole blocks.
constexpr uint64_t kStrideAlignment = 16;

}  // namespace

ShadowMemory::ShadowMemory(const GpuWaits* waits, const ShadowShape& shape, const ShadowUse& use)
    : waits_(*waits), shape_(shape), use_(use) {
  const uint64_t heads = shape_.heads, chunks = shape_.plan.chunks;
  const auto add = [](uint64_t* end, uint64_t bytes) {
    const uint64_t at = *end;
    *end = AlignUp(at + bytes, gpu::kDeviceAlignment);
    return at;
  };
  landmarks_stride_ = AlignUp(chunks / shadow::kBlockRows * shape_.landmark_layout().block_bytes(),
                              kStrideAlignment);
  tail_stride_ = AlignUp(uint64_t{shadow::kBlockRows} * shape_.key_bytes, kStrideAlignment);
  always_stride_ = AlignUp((chunks + 31) / 32 * sizeof(uint32_t), kStrideAlignment);
  if (shape_.has_codes()) {
    keys_stride_ =
        AlignUp(shape_.plan.covered / shadow::kBlockRows * shape_.key_layout().block_bytes(),
                kStrideAlignment);
  }
  landmarks_at_ = add(&layer_bytes_, heads * landmarks_stride_);
  tail_at_ = add(&layer_bytes_, heads * tail_stride_);
  always_at_ = add(&layer_bytes_, heads * always_stride_);
  keys_at_ = add(&layer_bytes_, heads * keys_stride_);
  resident_keys_at_ = add(&layer_bytes_, heads * resident_key_stride());
  resident_values_at_ = add(&layer_bytes_, heads * resident_value_stride());

  const uint64_t budget = shape_.plan.budget_chunks, group = use_.query_heads / heads;
  end_ = shape_.layers * layer_bytes_;
  heads_at_ = add(&end_, shape_.rows() * sizeof(gpu::ShadowHead));
  scores_at_ = add(&end_, heads * group * chunks * sizeof(float));
  sums_at_ =
      add(&end_, heads * group * shadow::TileCount(shape_.plan.chunks) * sizeof(shadow::TileSum));
  order_keys_at_ = add(&end_, heads * chunks * sizeof(uint32_t));
  chunks_at_ = add(&end_, heads * budget * sizeof(uint32_t));
  counts_at_ = add(&end_, heads * sizeof(uint32_t));
  in_order_at_ = add(&end_, heads * budget * sizeof(int32_t));
  rebuilt_at_ = add(&end_, shape_.has_codes() ? heads * rebuilt_stride() : 0);
}

ShadowMemory::~ShadowMemory() {
  if (memory_ != nullptr) waits_.device().Free(memory_);
}

uint64_t ShadowMemory::rebuilt_stride() const {
  return uint64_t{shape_.plan.budget_chunks} * shape_.spec.chunk_tokens * shape_.key_bytes;
}

Status ShadowMemory::Allocate() {
  CAIRN_ASSIGN_OR_RETURN(memory_, waits_.device().Allocate(gpu::Memory::kDevice, end_));
  return Status::Ok();
}

std::byte* ShadowMemory::resident_keys(uint32_t layer, uint32_t head, uint64_t token) const {
  return Of<std::byte>(uint64_t{layer} * shape_.heads + head, resident_keys_at_,
                       resident_key_stride()) +
         token * shape_.key_bytes;
}

std::byte* ShadowMemory::resident_values(uint32_t layer, uint32_t head, uint64_t token) const {
  return Of<std::byte>(uint64_t{layer} * shape_.heads + head, resident_values_at_,
                       resident_value_stride()) +
         token * shape_.value_bytes;
}

gpu::ShadowHead ShadowMemory::HeadOf(uint64_t row) const {
  return {.landmarks = Of<const uint8_t>(row, landmarks_at_, landmarks_stride_),
          .tail = Of<const uint16_t>(row, tail_at_, tail_stride_),
          .always = Of<const uint32_t>(row, always_at_, always_stride_),
          .keys = shape_.has_codes() ? Of<const uint8_t>(row, keys_at_, keys_stride_) : nullptr,
          .chunks = shape_.plan.chunks,
          .budget = shape_.plan.budget_chunks};
}

Status ShadowMemory::Begin(DeviceUpload* upload) const {
  std::vector<gpu::ShadowHead> heads;
  for (size_t row = 0; row < shape_.rows(); ++row) heads.push_back(HeadOf(row));
  CAIRN_RETURN_IF_ERROR(upload->Add(At<std::byte>(heads_at_), std::as_bytes(std::span(heads))));
  const std::vector<std::byte> none(always_stride_);
  for (size_t row = 0; row < shape_.rows(); ++row) {
    CAIRN_RETURN_IF_ERROR(upload->Add(Of<std::byte>(row, always_at_, always_stride_), none));
  }
  std::vector<int32_t> in_order(shape_.plan.budget_chunks);
  std::iota(in_order.begin(), in_order.end(), 0);
  const auto bytes = std::as_bytes(std::span(in_order));
  for (uint32_t head = 0; head < shape_.heads; ++head) {
    CAIRN_RETURN_IF_ERROR(upload->Add(At<std::byte>(in_order_at_) + head * bytes.size(), bytes));
  }
  return Status::Ok();
}

Status ShadowMemory::Load(sstable::SnapshotTable* table, DeviceUpload* upload) const {
  const auto on_part = [&](const ShadowPartLayout& part, size_t row,
                           std::span<const std::byte> frame) -> Status {
    constexpr uint32_t kRows = shadow::kBlockRows;
    const uint64_t before = part.first / shape_.spec.chunk_tokens / kRows;
    CAIRN_RETURN_IF_ERROR(upload->Add(Of<std::byte>(row, landmarks_at_, landmarks_stride_) +
                                          before * shape_.landmark_layout().block_bytes(),
                                      frame.subspan(0, part.landmarks_bytes)));
    CAIRN_RETURN_IF_ERROR(upload->Add(Of<std::byte>(row, tail_at_, tail_stride_),
                                      frame.subspan(part.tail_at(), part.tail_bytes)));
    if (part.keys_bytes == 0) return Status::Ok();
    return upload->Add(Of<std::byte>(row, keys_at_, keys_stride_) +
                           part.first / kRows * shape_.key_layout().block_bytes(),
                       frame.subspan(part.keys_at(), part.keys_bytes));
  };
  std::vector<uint32_t> always((size_t{shape_.plan.chunks} + 31) / 32);
  uint32_t taken = 0;
  const auto on_always = [&](uint32_t first, uint32_t chunks, size_t row,
                             std::span<const std::byte> frame) -> Status {
    std::vector<uint32_t> which(chunks);
    std::memcpy(which.data(), frame.data(), chunks * sizeof(uint32_t));
    if (first == 0) std::fill(always.begin(), always.end(), 0);
    for (const uint32_t chunk : which) {
      if (chunk >= shape_.plan.chunks || shadow::IsAlways(always.data(), chunk)) {
        return Status(StatusCode::kCorruption, "a shadow attends to a chunk that cannot be");
      }
      always[chunk / 32] |= 1u << chunk % 32;
    }
    taken += chunks;
    const uint64_t token = uint64_t{first} * shape_.spec.chunk_tokens;
    const uint64_t tokens = uint64_t{chunks} * shape_.spec.chunk_tokens;
    const auto layer = static_cast<uint32_t>(row / shape_.heads);
    const auto head = static_cast<uint32_t>(row % shape_.heads);
    const size_t keys_at = chunks * sizeof(uint32_t), keys = tokens * shape_.key_bytes;
    CAIRN_RETURN_IF_ERROR(
        upload->Add(resident_keys(layer, head, token), frame.subspan(keys_at, keys)));
    CAIRN_RETURN_IF_ERROR(
        upload->Add(resident_values(layer, head, token), frame.subspan(keys_at + keys)));
    return upload->Add(Of<std::byte>(row, always_at_, always_stride_),
                       std::as_bytes(std::span(always)));
  };
  CAIRN_RETURN_IF_ERROR(ReadShadow(shape_, shape_.plan.covered, table, {on_part, on_always}));
  if (taken == shape_.always_chunks() * shape_.rows()) return Status::Ok();
  return Status(StatusCode::kCorruption, "a shadow lacks rows that are always attended to");
}

gpu::ScoreChunks ShadowMemory::Score(uint32_t layer) const {
  gpu::ScoreChunks k;
  k.heads = At<const gpu::ShadowHead>(heads_at_) + size_t{layer} * shape_.heads;
  k.scores = At<float>(scores_at_);
  k.sums = At<shadow::TileSum>(sums_at_);
  k.score_stride = shape_.plan.chunks;
  k.pairs = shape_.heads;
  k.tiles = shadow::TileCount(shape_.plan.chunks);
  k.group = use_.query_heads / shape_.heads;
  k.channels = shape_.channels;
  k.landmark_bits = shape_.spec.landmark_bits;
  k.fp16 = shape_.fp16;
  return k;
}

gpu::SelectChunks ShadowMemory::Select(uint32_t layer) const {
  gpu::SelectChunks k;
  k.heads = At<const gpu::ShadowHead>(heads_at_) + size_t{layer} * shape_.heads;
  k.scores = At<const float>(scores_at_);
  k.sums = At<const shadow::TileSum>(sums_at_);
  k.keys = At<uint32_t>(order_keys_at_);
  k.chunks = At<uint32_t>(chunks_at_);
  k.counts = At<uint32_t>(counts_at_);
  k.score_stride = shape_.plan.chunks;
  k.chunk_stride = shape_.plan.budget_chunks;
  k.pairs = shape_.heads;
  k.tiles = shadow::TileCount(shape_.plan.chunks);
  k.group = use_.query_heads / shape_.heads;
  return k;
}

gpu::RebuildKeys ShadowMemory::Rebuild(uint32_t layer) const {
  CAIRN_CHECK(shape_.has_codes());
  gpu::RebuildKeys k;
  k.heads = At<const gpu::ShadowHead>(heads_at_) + size_t{layer} * shape_.heads;
  k.chunks = chunks();
  k.counts = At<const uint32_t>(counts_at_);
  k.slots = in_order();
  k.into = At<uint16_t>(rebuilt_at_);
  k.pair_stride = rebuilt_stride() / 2;
  k.row_stride = shape_.channels;
  k.chunk_stride = shape_.plan.budget_chunks;
  k.pairs = shape_.heads;
  k.most = shape_.plan.budget_chunks;
  k.chunk_tokens = shape_.spec.chunk_tokens;
  k.channels = shape_.channels;
  k.key_bits = shape_.key_layout().bits;
  k.fp16 = shape_.fp16;
  return k;
}

}  // namespace cairn::engine
