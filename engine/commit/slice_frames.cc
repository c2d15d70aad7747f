// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/slice_frames.h"

#include <algorithm>
#include <string>

#include "base/core/align.h"
#include "base/core/check.h"
#include "engine/commit/kv_layout.h"

namespace cairn::engine {

bool MayBePacked(const Plane& plane) {
  return (plane.dtype == Dtype::kBf16 || plane.dtype == Dtype::kF16) &&
         plane.sealed_as == SealedAs::kLossless;
}

SliceFrames::SliceFrames(const Plane& plane, uint64_t count) : plane_(plane), count_(count) {
  CAIRN_CHECK(MayBePacked(plane) && count != 0);
  const uint64_t rows_max = std::max<uint64_t>(1, kPackedFrameBytes / plane.row_bytes);
  parts_ = static_cast<uint32_t>((count + rows_max - 1) / rows_max);
  positions_ = (count + parts_ - 1) / parts_;  // Parts of equal length.
  parts_ = static_cast<uint32_t>((count + positions_ - 1) / positions_);
  heads_ = static_cast<uint32_t>(
      parts_ > 1 ? 1 : std::clamp<uint64_t>(rows_max / count, 1, plane.heads));
  steps_ = (plane.heads + heads_ - 1) / heads_;
}

SliceFrames::Frame SliceFrames::At(uint32_t index) const {
  CAIRN_CHECK(index < size());
  Frame frame;
  frame.first_head = index / parts_ * heads_;
  frame.heads = std::min(heads_, plane_.heads - frame.first_head);
  frame.first = index % parts_ * positions_;
  frame.positions = std::min(positions_, count_ - frame.first);
  frame.shape = {.rows = static_cast<uint32_t>(frame.heads * frame.positions),
                 .channels = plane_.row_bytes / static_cast<uint32_t>(DtypeBytes(plane_.dtype)),
                 .dtype = plane_.dtype};
  frame.offset = (frame.first_head * count_ + frame.first) * plane_.row_bytes;
  return frame;
}

uint64_t SliceFrames::PackedBytesMax() const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < size(); ++i) {
    bytes += AlignUp(MaxFrameBytes(At(i).shape), kSliceAlignment);
  }
  return bytes;
}

Result<std::span<const std::byte>> StripFrames::Next(const FrameShape& shape) {
  const std::span<const std::byte> left = strip_.subspan(std::min(next_, strip_.size()));
  CAIRN_ASSIGN_OR_RETURN(const FrameHeader header, ReadFrameHeader(left));
  const uint64_t bytes = kFrameHeaderBytes + uint64_t{header.payload_bytes};
  if (bytes > left.size() || bytes > MaxFrameBytes(shape)) {
    return Status(StatusCode::kCorruption, "KV frame: of " + std::to_string(bytes) +
                                               " bytes, where at most " +
                                               std::to_string(left.size()) + " are left");
  }
  next_ += AlignUp(bytes, uint64_t{kSliceAlignment});
  const std::span<const std::byte> frame = left.first(bytes);
  CAIRN_RETURN_IF_ERROR(ReadFrameHeaderOf(shape, frame).status());
  return frame;
}

Status StripFrames::End() const {
  if (next_ == strip_.size()) return Status::Ok();
  return Status(StatusCode::kCorruption, "KV frames: they end at " + std::to_string(next_) +
                                             " of " + std::to_string(strip_.size()) + " bytes");
}

}  // namespace cairn::engine
