// SPDX-License-Identifier: Apache-2.0
#include "engine/space/pack_frames.h"

#include <utility>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "engine/constants.h"

namespace cairn::engine {

void FramePacker::Prepare(std::span<const RawFrame> frames, Batch* batch) {
  batch->offsets.clear();
  size_t bytes = 0;
  for (const RawFrame& frame : frames) {
    batch->offsets.push_back(bytes);
    bytes += MaxFrameBytes(frame.shape);
  }
  if (batch->room.size() < bytes) batch->room.resize(bytes);
  batch->packed.resize(frames.size());
}

Status FramePacker::Pack(std::span<const RawFrame> frames,
                         const std::function<Status(const PackedFrame&)>& add) {
  Batch* packing = &batches_[0];
  Batch* packed = &batches_[1];
  packed->packed.clear();
  const auto add_packed = [&]() -> Status {
    for (const PackedFrame& frame : packed->packed) CAIRN_RETURN_IF_ERROR(add(frame));
    return Status::Ok();
  };
  while (!frames.empty()) {
    size_t count = 0;
    for (uint64_t bytes = 0; count < frames.size() && bytes < kFrameBatchBytes; ++count) {
      bytes += frames[count].raw.size();
    }
    const std::span<const RawFrame> some = frames.first(count);
    Prepare(some, packing);
    CAIRN_RETURN_IF_ERROR(parallel_for_->Run(add_packed, count, [&](size_t i) {
      const std::span<std::byte> room = std::span(packing->room).subspan(packing->offsets[i]);
      if (some[i].scales != FrameScales::kNone) {
        QuantiseFrame(some[i].shape, some[i].scales, some[i].raw);
      }
      const size_t stored =
          EncodeFrame(some[i].shape, some[i].raw, room, {.scales = some[i].scales});
      packing->packed[i] = {room.first(stored), some[i].raw.size(), Hash(some[i].raw)};
      return Status::Ok();
    }));
    std::swap(packing, packed);
    frames = frames.subspan(count);
  }
  return add_packed();
}

}  // namespace cairn::engine
