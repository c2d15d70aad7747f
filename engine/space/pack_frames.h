// SPDX-License-Identifier: Apache-2.0
//
// Packs the frames of one KV fragment side by side, and hands them on in their order.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/codec/kv_frame.h"
#include "base/io/parallel_for.h"

namespace cairn::engine {

struct RawFrame {
  FrameShape shape{};
  std::span<std::byte> raw{};  // Quantised in place if there are scales.
  FrameScales scales = FrameScales::kNone;
};

struct PackedFrame {
  std::span<const std::byte> stored;  // Until the call returns.
  uint64_t raw_bytes = 0;
  // Of what was packed (base/codec/hash.h): of the quantised elements where there are scales, which
  // packing keeps bit for bit. So the proof of a table compares with what the codec made of them.
  uint64_t raw_hash = 0;
};

// Reusable; keeps memory for two batches of kFrameBatchBytes.
class FramePacker {
 public:
  explicit FramePacker(io::ParallelFor* parallel_for) : parallel_for_(parallel_for) {}

  // `add` gets every frame in order, on this thread, while the next are being packed. What it gets
  // does not depend on who packed.
  Status Pack(std::span<const RawFrame> frames,
              const std::function<Status(const PackedFrame&)>& add);

 private:
  struct Batch {
    std::vector<std::byte> room;
    std::vector<size_t> offsets;  // Of the frames in it.
    std::vector<PackedFrame> packed;
  };
  static void Prepare(std::span<const RawFrame> frames, Batch* batch);

  io::ParallelFor* const parallel_for_;
  Batch batches_[2];
};

}  // namespace cairn::engine
