// SPDX-License-Identifier: Apache-2.0
//
// The KV of one lane of a record, packed before the record gets its place, so that its size is
// exact. Each strip holds the frames (slice_frames.h) of the slices that it would hold unpacked.
//
//   pays      enough rows for a frame, 16-bit floats, a processor that packs fast, and the first
//             layer gets smaller; else the rows stay as they are
//   packed    some layers at a time, on the calling thread and on helpers: gathered and packed
//             frame by frame, and hashed strip by strip, while they lie in the cache
//
// Its memory is staging memory: without it the rows stay as they are, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/codec/kv_copy.h"
#include "base/core/aligned_buffer.h"
#include "base/io/executor.h"
#include "cairn/kv_view.h"
#include "engine/commit/kv_layout.h"
#include "engine/commit/staging.h"

namespace cairn::engine {

struct PackDeps {
  StagingPool* staging = nullptr;
  io::Scheduler* scheduler = nullptr;
  io::Executor* executor = nullptr;  // Runs the helpers.
  uint32_t helpers = 0;
};

class PackedLane {
 public:
  // `count` positions of the view, at the places that `map` has; all outlive the call alone.
  struct Source {
    const GroupView& view;
    const LayerGroup& group;
    const KvLayout& layout;
    const PositionMap& map;
    uint64_t position = 0, count = 0;
  };
  // Null: the rows stay as they are.
  static std::unique_ptr<PackedLane> Make(const PackDeps& deps, const Source& source);
  ~PackedLane();
  PackedLane(const PackedLane&) = delete;
  PackedLane& operator=(const PackedLane&) = delete;

  std::span<const std::byte> strip(size_t index) const {
    return buffer_.span().subspan(strips_[index].offset, strips_[index].bytes);
  }
  uint64_t hash(size_t index) const { return strips_[index].hash; }

 private:
  struct Strip {
    uint64_t offset = 0;  // In the buffer.
    uint64_t bytes = 0;
    uint64_t hash = 0;
    size_t first_slice = 0, end_slice = 0;
  };
  class Packer;

  explicit PackedLane(StagingPool* staging) : staging_(staging) {}

  StagingPool* const staging_;
  AlignedBuffer buffer_;
  std::vector<Strip> strips_;
};

// Whether records keep so many positions of the group packed, if they get smaller.
bool PackingPays(const LayerGroup& group, uint64_t count);

}  // namespace cairn::engine
