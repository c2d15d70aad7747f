// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/shadow_memory.h"

#include <numeric>
#include <vector>

#include "base/core/align.h"
#include "base/core/check.h"

namespace cairn::engine {

namespace {

// Kernels load 16 bytes at a time, and read whole blocks.
constexpr uint64_t kStrideAlignment = 16;

}  // namespace

ShadowMemory::ShadowMemory(const GpuWaits* waits, const ShadowCapacity& room)
    : waits_(*waits), room_(room), ranks_(room.most.layers) {
  const ShadowShape& most = room_.most;
  const uint64_t heads = most.heads, chunks = most.plan.chunks;
  const auto add = [](uint64_t* end, uint64_t bytes) {
    const uint64_t at = *end;
    *end = AlignUp(at + bytes, gpu::kDeviceAlignment);
    return at;
  };
  landmarks_stride_ =
      AlignUp(chunks / shadow::kBlockRows * most.landmark_layout().block_bytes(), kStrideAlignment);
  tail_stride_ = AlignUp(uint64_t{shadow::kBlockRows} * most.key_bytes, kStrideAlignment);
  always_stride_ = AlignUp((chunks + 31) / 32 * sizeof(uint32_t), kStrideAlignment);
  if (most.has_codes()) {
    keys_stride_ = AlignUp(most.plan.covered / shadow::kBlockRows * most.key_layout().block_bytes(),
                           kStrideAlignment);
  }
  landmarks_at_ = add(&layer_bytes_, heads * landmarks_stride_);
  tail_at_ = add(&layer_bytes_, heads * tail_stride_);
  always_at_ = add(&layer_bytes_, heads * always_stride_);
  keys_at_ = add(&layer_bytes_, heads * keys_stride_);
  resident_keys_at_ = add(&layer_bytes_, heads * resident_key_stride());
  resident_values_at_ = add(&layer_bytes_, heads * resident_value_stride());

  if (most.is_low_rank()) {
    vectors_at_ = add(&layer_bytes_, uint64_t{room_.rank} * most.all_channels() * 2);
    coefficients_at_ = add(&layer_bytes_, most.plan.covered * room_.rank * 2);
  }

  const uint64_t budget = budget_stride(), group = room_.query_heads / heads;
  end_ = most.layers * layer_bytes_;
  heads_at_ = add(&end_, most.rows() * sizeof(gpu::ShadowHead));
  scores_at_ = add(&end_, heads * group * chunks * sizeof(float));
  sums_at_ =
      add(&end_, heads * group * shadow::TileCount(most.plan.chunks) * sizeof(shadow::TileSum));
  order_keys_at_ = add(&end_, heads * chunks * sizeof(uint32_t));
  chunks_at_ = add(&end_, heads * budget * sizeof(uint32_t));
  counts_at_ = add(&end_, heads * sizeof(uint32_t));
  in_order_at_ = add(&end_, heads * budget * sizeof(int32_t));
  rebuilt_at_ = add(&end_, most.spec.keys != ShadowKeys::kExact ? heads * rebuilt_stride() : 0);
  turns_at_ = add(&end_, most.plan.covered * room_.turned * sizeof(RotaryTurn));
}

ShadowMemory::~ShadowMemory() {
  if (memory_ != nullptr) waits_.device().Free(memory_);
}

uint64_t ShadowMemory::rebuilt_stride() const {
  return uint64_t{budget_stride()} * room_.most.spec.chunk_tokens * room_.most.key_bytes;
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

// ---------------------------------------------------------------- what the shadow is

Status ShadowMemory::Reset(const ShadowShape& shape, DeviceUpload* upload) {
  CAIRN_CHECK(shape.plan.chunks <= room_.most.plan.chunks &&
              shape.plan.budget_chunks <= budget_stride());
  shape_ = shape;
  std::vector<gpu::ShadowHead> heads;
  for (size_t row = 0; row < shape_.rows(); ++row) heads.push_back(HeadOf(row));
  CAIRN_RETURN_IF_ERROR(upload->Add(At<std::byte>(heads_at_), std::as_bytes(std::span(heads))));
  std::vector<int32_t> in_order(budget_stride());
  std::iota(in_order.begin(), in_order.end(), 0);
  const auto bytes = std::as_bytes(std::span(in_order));
  for (uint32_t head = 0; head < shape_.heads; ++head) {
    CAIRN_RETURN_IF_ERROR(upload->Add(At<std::byte>(in_order_at_) + head * bytes.size(), bytes));
  }
  return Status::Ok();
}

Status ShadowMemory::PutPart(const ShadowPartLayout& part, size_t row,
                             std::span<const std::byte> frame, DeviceUpload* upload) const {
  constexpr uint32_t kRows = shadow::kBlockRows;
  const uint64_t before = part.first / room_.most.spec.chunk_tokens / kRows;
  CAIRN_RETURN_IF_ERROR(upload->Add(Of<std::byte>(row, landmarks_at_, landmarks_stride_) +
                                        before * room_.most.landmark_layout().block_bytes(),
                                    frame.first(part.landmarks_bytes)));
  CAIRN_RETURN_IF_ERROR(upload->Add(Of<std::byte>(row, tail_at_, tail_stride_),
                                    frame.subspan(part.tail_at(), part.tail_bytes)));
  if (part.keys_bytes == 0) return Status::Ok();
  return upload->Add(Of<std::byte>(row, keys_at_, keys_stride_) +
                         part.first / kRows * room_.most.key_layout().block_bytes(),
                     frame.subspan(part.keys_at(), part.keys_bytes));
}

Status ShadowMemory::PutBasis(uint32_t layer, const shadow::LowRankBasis& basis,
                              DeviceUpload* upload) {
  CAIRN_CHECK(basis.rank <= room_.rank && basis.channels == room_.most.all_channels());
  ranks_[layer] = basis.rank;
  return upload->Add(At<std::byte>(layer * layer_bytes_ + vectors_at_),
                     std::as_bytes(std::span(basis.vectors)));
}

Status ShadowMemory::PutRows(const ShadowPartLayout& part, uint32_t layer,
                             std::span<const std::byte> frame, DeviceUpload* upload) const {
  return upload->Add(
      At<std::byte>(layer * layer_bytes_ + coefficients_at_ + part.first * ranks_[layer] * 2),
      frame);
}

Status ShadowMemory::PutTurns(uint64_t first, std::span<const RotaryTurn> turns,
                              DeviceUpload* upload) const {
  return upload->Add(At<std::byte>(turns_at_ + first * room_.turned * sizeof(RotaryTurn)),
                     std::as_bytes(turns));
}

Status ShadowMemory::PutAlways(size_t row, std::span<const uint32_t> chunks,
                               DeviceUpload* upload) const {
  std::vector<uint32_t> always((size_t{shape_.plan.chunks} + 31) / 32);
  for (const uint32_t chunk : chunks) always[chunk / 32] |= 1u << chunk % 32;
  return upload->Add(Of<std::byte>(row, always_at_, always_stride_),
                     std::as_bytes(std::span(always)));
}

// ---------------------------------------------------------------- kernels

gpu::ScoreChunks ShadowMemory::Score(uint32_t layer) const {
  gpu::ScoreChunks k;
  k.heads = At<const gpu::ShadowHead>(heads_at_) + size_t{layer} * shape_.heads;
  k.scores = At<float>(scores_at_);
  k.sums = At<shadow::TileSum>(sums_at_);
  k.score_stride = shape_.plan.chunks;
  k.pairs = shape_.heads;
  k.tiles = shadow::TileCount(shape_.plan.chunks);
  k.group = room_.query_heads / shape_.heads;
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
  k.chunk_stride = budget_stride();
  k.pairs = shape_.heads;
  k.tiles = shadow::TileCount(shape_.plan.chunks);
  k.group = room_.query_heads / shape_.heads;
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
  k.chunk_stride = budget_stride();
  k.pairs = shape_.heads;
  k.most = shape_.plan.budget_chunks;
  k.chunk_tokens = shape_.spec.chunk_tokens;
  k.channels = shape_.channels;
  k.key_bits = shape_.key_layout().bits;
  k.fp16 = shape_.fp16;
  return k;
}

gpu::RebuildLowRank ShadowMemory::RebuildLowRank(uint32_t layer, const KeyRows& keys) const {
  static_assert(sizeof(RotaryTurn) == 2 * sizeof(float));
  CAIRN_CHECK(shape_.is_low_rank());
  gpu::RebuildLowRank k;
  k.coefficients = At<const uint16_t>(layer * layer_bytes_ + coefficients_at_);
  k.vectors = At<const uint16_t>(layer * layer_bytes_ + vectors_at_);
  k.turns = At<const float>(turns_at_);
  k.chunks = chunks();
  k.counts = At<const uint32_t>(counts_at_);
  k.slots = in_order();
  k.into = At<uint16_t>(rebuilt_at_);
  k.pair_stride = rebuilt_stride() / 2;
  k.chunk_stride = budget_stride();
  k.pairs = shape_.heads;
  k.most = shape_.plan.budget_chunks;
  k.chunk_tokens = shape_.spec.chunk_tokens;
  k.channels = shape_.channels;
  k.rank = ranks_[layer];
  k.turned = keys.pairs();
  k.window = keys.window();
  k.adjacent = keys.is_adjacent();
  k.fp16 = shape_.fp16;
  return k;
}

}  // namespace cairn::engine
