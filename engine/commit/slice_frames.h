// SPDX-License-Identifier: Apache-2.0
//
// How a slice of a record, one plane of one layer, is packed. Its rows, [head][position][row], are
// cut into frames of about kPackedFrameBytes, and each frame is one of
//
//   whole heads       all positions of neighbouring heads: they share the frame's model
//   a part of a head  some positions of one head, where a head alone is larger
//
// So a frame is a stretch of the unpacked slice, and its rows are those of base/codec/kv_frame.h:
// head after head. In the strip, frames lie in the order of the slice, each at a multiple of
// kSliceAlignment, and zeros fill what is between. A frame says in its header how long it is.
//
// Pure; follows from plane and count alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/codec/kv_frame.h"
#include "cairn/model.h"
#include "cairn/status.h"

namespace cairn::engine {

// Raw bytes of a frame: it is gathered and packed while it lies in the second level of the cache.
// Smaller frames take more, since each has states and a model (cairn-micro, codec/encode).
inline constexpr uint64_t kPackedFrameBytes = 64u << 10;

// Whether records keep this plane packed when they can: only 16-bit floats get smaller, and what
// tables keep with loss must stay exact in the log.
bool MayBePacked(const Plane& plane);

class SliceFrames {
 public:
  struct Frame {
    uint32_t first_head = 0, heads = 0;
    uint64_t first = 0, positions = 0;  // Counted from the first of the slice.
    FrameShape shape{};
    uint64_t offset = 0;  // In the unpacked slice, of shape.raw_bytes().
  };

  // REQUIRES: MayBePacked, and a slice of at most 1 GiB.
  SliceFrames(const Plane& plane, uint64_t count);
  uint32_t size() const { return steps_ * parts_; }
  Frame At(uint32_t index) const;
  uint64_t PackedBytesMax() const;

 private:
  const Plane& plane_;
  const uint64_t count_;
  uint32_t heads_;          // A frame has that many at most.
  uint64_t positions_;      // Likewise.
  uint32_t steps_, parts_;  // Frames: steps over the heads, parts of a step.
};

// Positions [first, end) of some heads.
struct WantedOfSlice {
  uint32_t first_head = 0, end_head = 0;
  uint64_t first = 0, end = 0;
  bool empty() const { return first_head >= end_head || first >= end; }
  // What a frame has of it.
  WantedOfSlice In(const SliceFrames::Frame& frame) const {
    return {.first_head = std::max(first_head, frame.first_head),
            .end_head = std::min(end_head, frame.first_head + frame.heads),
            .first = std::max(first, frame.first),
            .end = std::min(end, frame.first + frame.positions)};
  }
};

// The frames in the bytes of a strip, one after the other. kCorruption and kUnsupportedFormat, of a
// strip that was not verified or was written by another version: they say what is wrong, not where.
class StripFrames {
 public:
  explicit StripFrames(std::span<const std::byte> strip) : strip_(strip) {}
  // The next one, which must have this shape.
  Result<std::span<const std::byte>> Next(const FrameShape& shape);
  // After the last one: nothing else lies in the strip.
  Status End() const;

 private:
  std::span<const std::byte> strip_;
  size_t next_ = 0;
};

}  // namespace cairn::engine
