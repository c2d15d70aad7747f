// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/gpu_fallback.h"

#include <cstring>

#include "base/codec/kv_frame.h"
#include "base/core/align.h"
#include "base/core/check.h"

namespace cairn::engine {

namespace {

bool IsPacked(const gpu::FrameToScatter& frame) {
  return frame.codec == FrameCodec::kKv64 || frame.codec == FrameCodec::kInt8;
}

// Bytes of 16-bit floats, if they are packed.
uint32_t BytesThen(const gpu::FrameToScatter& frame) {
  return IsPacked(frame) ? frame.rows * frame.channels * 2 : frame.payload_bytes;
}

uint64_t RoomOf(const gpu::FrameToScatter& frame) {
  return AlignUp(uint64_t{BytesThen(frame)}, uint64_t{gpu::kLargestUnit});
}

}  // namespace

uint64_t UnpackedBytes(std::span<const gpu::FrameToScatter> frames) {
  uint64_t bytes = 0;
  for (const gpu::FrameToScatter& frame : frames) bytes += RoomOf(frame);
  return bytes;
}

Status UnpackFrames(std::span<gpu::FrameToScatter> frames, std::span<std::byte> room) {
  CAIRN_CHECK(UnpackedBytes(frames) <= room.size());
  for (gpu::FrameToScatter& frame : frames) {
    const auto* const payload = reinterpret_cast<const std::byte*>(frame.payload);
    const std::span<std::byte> into = room.first(BytesThen(frame));
    room = room.subspan(RoomOf(frame));
    frame.payload = reinterpret_cast<const uint8_t*>(into.data());
    if (!IsPacked(frame)) {
      std::memcpy(into.data(), payload, into.size());
      continue;
    }
    // A packed frame came as stored, so its header lies before the payload.
    const FrameShape shape{frame.rows, frame.channels, frame.fp16 ? Dtype::kF16 : Dtype::kBf16};
    CAIRN_RETURN_IF_ERROR(DecodeFrame(
        shape, {payload - kFrameHeaderBytes, kFrameHeaderBytes + frame.payload_bytes}, into));
    frame.payload_bytes = BytesThen(frame);
    frame.codec = FrameCodec::kRaw;
    frame.flags = 0;
  }
  return Status::Ok();
}

}  // namespace cairn::engine
