// SPDX-License-Identifier: Apache-2.0
//
// Sparse sessions on a simulated device, whose memory the host may look at.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/io/sim_random.h"
#include "cairn/sparse.h"
#include "tests/engine/gpu_test.h"

namespace cairn::testing {

// Pieces of 4 tokens have 128 bytes of each plane.
inline ModelSpec SparseModel() {
  ModelSpec model;
  model.identity.name = "sparse";
  model.groups = {
      LayerGroup::FullAttention(/*layers=*/3, /*kv_heads=*/2, /*head_dim=*/16, Dtype::kBf16)};
  return model;
}

class SparseTest : public GpuTest {
 protected:
  // Sixteen pages: each takes 64 KiB, however small it is.
  static constexpr uint64_t kSmallArena = 1 << 20;

  void Make(uint64_t pinned_bytes = kSmallArena, uint64_t device_bytes = 8 << 20) {
    const auto arena = SparseArena::Make(
        store_, *gpu_, {.pinned_bytes = pinned_bytes, .device_bytes = device_bytes});
    ASSERT_OK(arena);
    arena_ = *arena;
    if (stream_.id == 0) {
      ASSERT_OK_ASSIGN(stream_, device_->NewStream(gpu::Priority::kHigh));
    }
  }
  // Nothing of it is left; before another device is started.
  void Unmake() {
    arena_ = {};
    if (stream_.id != 0) device_->Return(stream_);
    stream_ = {};
  }
  void TearDown() override { Unmake(); }

  static SparseOptions Small() {
    return {.planes = 3, .piece_tokens = 4, .page_tokens = 16, .slots = 24, .wanted_max = 12};
  }
  SparseWanted WantedOf(uint32_t layer, const std::vector<uint32_t>& pieces, uint32_t count) const {
    return {.layer = layer,
            .pieces = pieces.data(),
            .count = count,
            .stride = count,
            .stream = gpu::HostDevice::HandleOf(stream_)};
  }
  // For both heads.
  std::vector<uint32_t> Draw(io::SimRandom* random, uint64_t pieces, uint32_t count) const {
    std::vector<uint32_t> drawn;
    for (uint32_t head = 0; head < 2; ++head) {
      std::vector<uint32_t> all(pieces);
      for (uint32_t i = 0; i < pieces; ++i) all[i] = i;
      for (uint32_t i = 0; i < count; ++i) {
        std::swap(all[i], all[i + random->Below(pieces - i)]);
        drawn.push_back(all[i]);
      }
    }
    return drawn;
  }

  // What the stream shows, once it has come so far, against what was appended with `seed`. How many
  // pieces were left out.
  uint64_t Compare(const SparseView& view, const SparseWanted& wanted, uint64_t seed = kSeed,
                   const SparseOptions& options = Small()) {
    const auto event = device_->NewEvent();
    EXPECT_OK(event);
    EXPECT_OK(device_->Record(stream_, *event));
    EXPECT_OK(device_->Wait(*event, io::kNoDeadline));
    device_->Return(*event);
    uint64_t left_out = 0;
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t i = 0; i < wanted.count; ++i) {
        const int32_t slot = view.slot_of[head * view.slot_of_stride + i];
        const uint32_t piece = wanted.pieces[head * wanted.stride + i];
        left_out += slot < 0 ? 1 : 0;
        for (uint32_t plane = 0, at = 0; plane < 2 && slot >= 0; ++plane) {
          if ((options.planes >> plane & 1) == 0) continue;
          const SparseView::PlaneSlots& slots = view.planes[at++];
          const std::byte* const got = slots.base + head * slots.head_stride +
                                       static_cast<uint64_t>(slot) * slots.piece_bytes;
          const std::vector<std::byte> want = Stored(
              seed, wanted.layer, plane, head, piece * options.piece_tokens, options.piece_tokens);
          EXPECT_EQ(want.size(), slots.piece_bytes);
          EXPECT_TRUE(std::equal(want.begin(), want.end(), got))
              << "layer " << wanted.layer << ", head " << head << ", piece " << piece << ", plane "
              << plane;
        }
      }
    }
    return left_out;
  }
  // Rows of one head, one behind the other.
  std::vector<std::byte> Stored(uint64_t seed, uint32_t layer, uint32_t plane, uint32_t head,
                                uint64_t begin, uint64_t count) {
    if (stored_.find(seed) == stored_.end()) {
      auto set = std::make_unique<KvSet>(model_, Layout::kContiguous, 0, kTokensMax);
      set->Write(seed, 0, kTokensMax);
      stored_.emplace(seed, std::move(set));
    }
    const GroupView& group = stored_.at(seed)->View(0, kTokensMax)->groups[0];
    const PlaneView& view = group.planes[plane];
    const uint64_t row_bytes = model_.groups[0].planes[plane].row_bytes;
    std::vector<std::byte> rows;
    for (uint64_t position = begin; position < begin + count; ++position) {
      const std::byte* const row = view.layer_bases[layer] +
                                   static_cast<int64_t>(position) * view.token_stride +
                                   static_cast<int64_t>(head) * view.head_stride;
      rows.insert(rows.end(), row, row + row_bytes);
    }
    return rows;
  }

  static constexpr uint64_t kTokensMax = 1024;
  const ModelSpec model_ = SparseModel();
  SparseArena arena_;
  gpu::Stream stream_;
  std::map<uint64_t, std::unique_ptr<KvSet>> stored_;
};

}  // namespace cairn::testing
