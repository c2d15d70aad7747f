// SPDX-License-Identifier: Apache-2.0
//
// How a lane lies in a fragment of a snapshot table:
//
//   tokens   one slice; pages of 4096 ids, packed as token blocks
//   KV       a slice for every (layer, plane, head), in this order, so that a layer lies together;
//            pages of page_rows positions, a frame [position][row]
//   states   one page: the encoded sampler or metadata as it is, in slices of kStateFrameBytes
//
// The layout follows from model and lane alone, except the number of a state's slices. A fragment
// stores its page_rows and slices, which must agree with it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/codec/kv_frame.h"
#include "cairn/model.h"
#include "engine/tree/memory/op.h"

namespace cairn::engine {

// One head of one plane of one layer.
struct HeadSlice {
  uint32_t layer = 0, plane = 0, head = 0;
};

class FragmentLayout {
 public:
  FragmentLayout(const ModelSpec& model, uint32_t lane);

  uint32_t slices() const { return slices_; }
  uint32_t page_rows() const { return page_rows_; }
  // Bytes of one position before it is packed; 0 for states.
  uint64_t position_bytes() const { return position_bytes_; }

  // --- KV lanes only
  const LayerGroup& group() const { return *group_; }
  uint32_t slices_per_layer() const { return static_cast<uint32_t>(heads_.size()); }
  HeadSlice At(uint32_t slice) const;
  uint32_t SliceOf(const HeadSlice& at) const;
  // Shape of a frame of `rows` positions of this slice.
  FrameShape Shape(uint32_t slice, uint32_t rows) const;
  // Whether and how the slice is quantised before it is packed; kNone: it is packed as it is.
  FrameScales Scales(uint32_t slice) const;
  // Whether some slice is quantised.
  bool lossy() const { return lossy_; }

 private:
  const LayerGroup* group_ = nullptr;
  uint32_t slices_ = 1;
  uint32_t page_rows_ = 1;
  uint64_t position_bytes_ = 0;
  bool lossy_ = false;
  std::vector<HeadSlice> heads_;  // The heads of one layer.
};

}  // namespace cairn::engine
