// SPDX-License-Identifier: Apache-2.0
//
// Unpacks on the host what a kernel would have unpacked on the device. What is raw or const stays
// as it is. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/status.h"
#include "gpu/describe.h"

namespace cairn::engine {

// The room that UnpackFrames needs.
uint64_t UnpackedBytes(std::span<const gpu::FrameToScatter> frames);

// Payloads, which are host addresses, go into `room`, aligned to gpu::kLargestUnit, and frames tell
// of them there. kCorruption: base/codec refuses one as well; frames are of no use then.
Status UnpackFrames(std::span<gpu::FrameToScatter> frames, std::span<std::byte> room);

}  // namespace cairn::engine
