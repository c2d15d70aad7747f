// SPDX-License-Identifier: Apache-2.0
//
// Copies between the memory of a serving engine and the canonical order, of tokens of 128 KiB in
// 512 slices: what an append gathers and a restore scatters. Memory is a moving part of 32 MiB.
#include <cstring>

#include "base/codec/kv_copy.h"
#include "base/core/check.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;

template <typename CopySlice>
void CopyAll(const ModelSpec& model, const GroupView& view, const CopySlice& copy) {
  const LayerGroup& group = model.groups[0];
  const PositionMap map(view, view.position, view.count);
  uint64_t offset = 0;
  for (uint32_t layer = 0; layer < group.layers; ++layer) {
    for (size_t p = 0; p < group.planes.size(); ++p) {
      copy(group.planes[p], view.planes[p], layer, map, offset);
      offset += SliceBytes(group.planes[p], view.count);
    }
  }
}

void Copy(::benchmark::State& state, Layout layout, uint64_t tokens, bool scatter) {
  const KvPool& pool = SharedPool(kTokenBytes, layout);
  KvCursor cursor(pool, 0);
  std::vector<std::byte> flat(tokens * kTokenBytes, std::byte{1});
  uint64_t position = 0;
  const Meter meter(&state, tokens, flat.size());
  for (auto _ : state) {
    const GroupView& view = cursor.At(position, tokens).groups[0];
    CopyAll(pool.model(), view,
            [&](const Plane& plane, const PlaneView& plane_view, uint32_t layer,
                const PositionMap& map, uint64_t offset) {
              std::byte* const at = flat.data() + offset;
              if (scatter) {
                ScatterSlice(plane, plane_view, layer, map, at, tokens, 0);
              } else {
                GatherSlice(plane, plane_view, layer, map, at);
              }
            });
    ::benchmark::ClobberMemory();
    position = (position + tokens) % pool.tokens();
  }
}

// Beside them: as many bytes in one piece.
void CopyFlat(::benchmark::State& state, uint64_t tokens) {
  const KvPool& pool = SharedPool(kTokenBytes, Layout::kTokenMajor);
  std::vector<std::byte> flat(tokens * kTokenBytes, std::byte{1});
  uint64_t position = 0;
  const Meter meter(&state, tokens, flat.size());
  for (auto _ : state) {
    std::memcpy(flat.data(), pool.bytes().data() + position * kTokenBytes, flat.size());
    ::benchmark::ClobberMemory();
    position = (position + tokens) % pool.tokens();
  }
}

}  // namespace

void RegisterCopies() {
  constexpr std::pair<const char*, Layout> kLayouts[] = {
      {"nhd", Layout::kNhd}, {"hnd", Layout::kHnd}, {"token_major", Layout::kTokenMajor}};
  for (const uint64_t tokens : {1, 16}) {
    const std::string suffix = "/tokens:" + std::to_string(tokens);
    for (const auto& [name, layout] : kLayouts) {
      for (const bool scatter : {false, true}) {
        const std::string what = std::string("copy/") + (scatter ? "scatter/" : "gather/") + name;
        ::benchmark::RegisterBenchmark((what + suffix).c_str(), Copy, layout, tokens, scatter);
      }
    }
    ::benchmark::RegisterBenchmark(("copy/memcpy" + suffix).c_str(), CopyFlat, tokens);
  }
}

}  // namespace cairn::bench::micro
