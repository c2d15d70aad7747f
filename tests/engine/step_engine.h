// SPDX-License-Identifier: Apache-2.0
//
// An engine that generates: a pool of token slots on a device, and the table of the step, both of
// which its stream rewrites for every step.
#pragma once

#include <cstring>
#include <vector>

#include "tests/engine/gpu_test.h"

namespace cairn::testing {

inline constexpr uint32_t kSequences = 5, kRows = 6, kSlotsOfPool = 40;  // One row is padding.

// An engine: a pool of token slots, and the table of the step, both on the device.
class StepEngine {
 public:
  StepEngine(gpu::Device* device, gpu::Stream stream, const ModelSpec& model)
      : device_(*device), model_(model), stream_(stream) {
    for (const LayerGroup& group : model.groups) {
      Pool& pool = pools_.emplace_back();
      uint64_t bytes = 0;
      for (const Plane& plane : group.planes) {
        bytes += uint64_t{group.layers} * kSlotsOfPool * plane.heads * plane.row_bytes;
      }
      pool.bytes = bytes;
      pool.on_device = Take(gpu::Memory::kDevice, bytes);
      pool.next = Take(gpu::Memory::kPinned, bytes);
      std::byte* at = pool.on_device;
      for (const Plane& plane : group.planes) {
        std::vector<std::byte*>& bases = pool.bases.emplace_back();
        const uint64_t token_bytes = uint64_t{plane.heads} * plane.row_bytes;
        for (uint32_t layer = 0; layer < group.layers; ++layer) {
          bases.push_back(at);
          at += kSlotsOfPool * token_bytes;
        }
        pool.planes.push_back(
            {.token_stride = static_cast<int64_t>(token_bytes), .head_stride = plane.row_bytes});
      }
      for (size_t p = 0; p < pool.planes.size(); ++p) pool.planes[p].layer_bases = pool.bases[p];
    }
    table_ = Take(gpu::Memory::kDevice, kRows * sizeof(int64_t));
    next_table_ = Take(gpu::Memory::kPinned, kRows * sizeof(int64_t));
    for (uint32_t g = 0; g < model.groups.size(); ++g) {
      GroupView& view = groups_.emplace_back();
      view.group = g;
      view.count = kRows;
      view.tokens_per_block = kSlotsOfPool;
      view.blocks = 1;
      view.planes = pools_[g].planes;
      view.table = {.kind = TableKind::kSlots,
                    .entries = table_,
                    .on_device = true,
                    .count = kRows,
                    .is_64_bit = true};
    }
    view_ = {.groups = groups_, .memory = MemoryKind::kCuda, .device = kOrdinal};
  }
  ~StepEngine() {
    const auto end = device_.NewEvent();
    EXPECT_OK(end);
    EXPECT_OK(device_.Record(stream_, *end));
    EXPECT_OK(device_.Wait(*end, io::kNoDeadline));
    device_.Return(*end);
    Settle();
    for (std::byte* const at : taken_) device_.Free(at);
  }
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  // Computes position `at` of all sequences, each in a slot of the pool that nobody names yet.
  void Step(uint64_t at) {
    Settle();
    auto* const entries = reinterpret_cast<int64_t*>(next_table_);
    for (uint32_t row = 0; row < kRows; ++row) {
      entries[row] =
          row < kSequences ? static_cast<int64_t>((at * kSequences + row) * 7 % kSlotsOfPool) : -1;
    }
    for (uint32_t g = 0; g < model_.groups.size(); ++g) {
      const LayerGroup& group = model_.groups[g];
      for (uint32_t row = 0; row < kSequences; ++row) {
        KvPool rows(group, g, Layout::kContiguous, at, 1);
        rows.Write(kSeed + row, at, at + 1);
        const GroupView from = rows.View(at, 1);
        for (size_t p = 0; p < group.planes.size(); ++p) {
          const Plane& plane = group.planes[p];
          for (uint32_t layer = 0; layer < group.layers; ++layer) {
            for (uint32_t head = 0; head < plane.heads; ++head) {
              std::byte* const to =
                  pools_[g].next + (pools_[g].bases[p][layer] - pools_[g].on_device) +
                  entries[row] * pools_[g].planes[p].token_stride + head * plane.row_bytes;
              std::memcpy(to, from.planes[p].layer_bases[layer] + head * from.planes[p].head_stride,
                          plane.row_bytes);
            }
          }
        }
      }
      const gpu::CopyPiece piece{pools_[g].on_device, pools_[g].next, pools_[g].bytes};
      EXPECT_OK(device_.Copy(stream_, {&piece, 1}));
    }
    const gpu::CopyPiece table{table_, next_table_, kRows * sizeof(int64_t)};
    EXPECT_OK(device_.Copy(stream_, {&table, 1}));
    const auto event = device_.NewEvent();
    EXPECT_OK(event);
    staged_ = *event;
    EXPECT_OK(device_.Record(stream_, staged_));
    settled_ = false;
  }
  // Waits until the last step has read the host's memory.
  void Settle() {
    if (settled_) return;
    EXPECT_OK(device_.Wait(staged_, io::kNoDeadline));
    device_.Return(staged_);
    settled_ = true;
  }
  const KvView& view() const { return view_; }
  gpu::Stream stream() const { return stream_; }

 private:
  struct Pool {
    std::byte* on_device = nullptr;
    std::byte* next = nullptr;
    uint64_t bytes = 0;
    std::vector<std::vector<std::byte*>> bases{};
    std::vector<PlaneView> planes{};
  };
  std::byte* Take(gpu::Memory memory, uint64_t bytes) {
    const auto at = device_.Allocate(memory, bytes);
    EXPECT_OK(at);
    taken_.push_back(*at);
    if (memory == gpu::Memory::kPinned) {
      std::memset(*at, 0, bytes);
    } else {
      EXPECT_OK(device_.Fill(stream_, {*at, bytes}, std::byte{0}));
    }
    return *at;
  }

  gpu::Device& device_;
  const ModelSpec model_;
  const gpu::Stream stream_;
  std::vector<Pool> pools_;
  std::vector<std::byte*> taken_;
  std::byte* table_ = nullptr;
  std::byte* next_table_ = nullptr;
  std::vector<GroupView> groups_;
  KvView view_;
  gpu::Event staged_;
  bool settled_ = true;
};

}  // namespace cairn::testing
