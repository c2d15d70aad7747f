// SPDX-License-Identifier: Apache-2.0
//
// Sparse sessions on a simulated device, whose memory the host may look at.
#pragma once

#include <vector>

#include "base/core/seeded_random.h"
#include "cairn/sparse.h"
#include "tests/engine/gpu_test.h"
#include "tests/engine/sparse_kv.h"

namespace cairn::testing {

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
            .stream = gpu::SimDevice::HandleOf(stream_)};
  }
  // For both heads.
  std::vector<uint32_t> Draw(SeededRandom* random, uint64_t pieces, uint32_t count) const {
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

  // Compares the content that the stream shows, once it has come so far, with `content`. Returns
  // how many pieces were left out.
  uint64_t Compare(const SparseView& view, const SparseWanted& wanted,
                   const Content& content = {{0, kSeed}}, const SparseOptions& options = Small()) {
    const auto event = device_->NewEvent();
    EXPECT_OK(event);
    EXPECT_OK(device_->Record(stream_, *event));
    EXPECT_OK(device_->Wait(*event, io::kNoDeadline));
    device_->Return(*event);
    uint64_t left_out = 0;
    EXPECT_EQ("", kv_.Compare(view, wanted, options, content, &left_out));
    return left_out;
  }

  const ModelSpec model_ = SparseModel();
  SparseArena arena_;
  gpu::Stream stream_;
  StoredKv kv_;
};

}  // namespace cairn::testing
