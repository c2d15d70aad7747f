// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels.h"

#include <algorithm>

namespace cairn::gpu {
namespace {

constexpr uint32_t kWarpsOfBlock = kBlockThreads / kWarp;

LaunchShape OfWarps(uint32_t count, uint32_t shared_bytes) {
  return {.blocks = std::max(1u, (count + kWarpsOfBlock - 1) / kWarpsOfBlock),
          .threads = kBlockThreads,
          .shared_bytes = kWarpsOfBlock * shared_bytes};
}

}  // namespace

LaunchShape ShapeOf(const DecodeScatter& k) {
  return OfWarps(k.count, DecodeScatter::kSharedBytes);
}

LaunchShape ShapeOf(const GatherSave& k) { return OfWarps(k.count, GatherSave::kSharedBytes); }

LaunchShape ShapeOf(const GatherStep& k) {
  return OfWarps(k.strips_count + k.rows_count, GatherStep::kSharedBytes);
}

LaunchShape ShapeOf(const EndStep& /*k*/) { return {}; }

LaunchShape ShapeOf(const CheckTable& k) {
  return {.blocks = std::max(1u, (k.end - k.first + kBlockThreads - 1) / kBlockThreads),
          .threads = kBlockThreads,
          .shared_bytes = 0};
}

LaunchShape ShapeOf(const ResolveSlots& k) {
  return {.blocks = std::max(1u, k.row_count),
          .threads = kBlockThreads,
          .shared_bytes = ResolveSharedBytes(k)};
}

LaunchShape ShapeOf(const GatherPieces& k) { return OfWarps(k.row_count * k.count_max, 0); }

LaunchShape ShapeOf(const ScoreChunks& k) {
  return {.blocks = std::max(1u, k.pairs * k.tiles),
          .threads = kBlockThreads,
          .shared_bytes = k.shared_bytes(kWarpsOfBlock)};
}

LaunchShape ShapeOf(const SelectChunks& k) {
  return {.blocks = std::max(1u, k.pairs),
          .threads = SelectChunks::kThreads,
          .shared_bytes = static_cast<uint32_t>(sizeof(SelectShared) + k.group * sizeof(float))};
}

LaunchShape ShapeOf(const RebuildKeys& k) { return OfWarps(k.pairs * k.most, 0); }

LaunchShape ShapeOf(const RotateKeys& k) { return OfWarps(k.count, RotateKeys::kSharedBytes); }

LaunchShape ShapeOf(const RebuildLowRank& k) {
  return {.blocks = std::max(1u, k.pairs * k.most),
          .threads = kBlockThreads,
          .shared_bytes = k.shared_bytes()};
}

}  // namespace cairn::gpu
