// SPDX-License-Identifier: Apache-2.0
//
// Unpacks frames on the host in place of a kernel on the device. Raw and const frames stay as they
// are. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/status.h"
#include "gpu/describe.h"

namespace cairn::engine {

// The room that UnpackFrames needs.
uint64_t UnpackedBytes(std::span<const gpu::FrameToScatter> frames);

// Unpacks payloads, which are host addresses, into `room`, aligned to gpu::kLargestUnit, and points
// the frames there. kCorruption: base/codec refuses a frame as well; the frames are of no use then.
Status UnpackFrames(std::span<gpu::FrameToScatter> frames, std::span<std::byte> room);

}  // namespace cairn::engine
