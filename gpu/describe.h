// SPDX-License-Identifier: Apache-2.0
//
// Turns views and frames into the arguments of kernels. Pure functions of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/codec/kv_frame.h"
#include "cairn/kv_view.h"
#include "cairn/status.h"
#include "gpu/kernels/decode_scatter.h"
#include "gpu/kernels/gather_save.h"
#include "gpu/kernels/paged_view.h"

namespace cairn::gpu {

// A plane of a (validated) view. `table`: the entries of its table where the device reads them;
// `entries_end`: the number of blocks, or slots; both are ignored without a table. kInvalidArgument
// when the view reaches over 2^32 - 1 positions, blocks or slots: kernels count in 32 bits.
Result<PagedView> DescribePlane(const GroupView& group, const PlaneView& plane, Dtype dtype,
                                const void* table, uint64_t entries_end);

// Rows whose first has position `position`; those of positions [begin, end) are wanted: rows for
// them exist and are within the view.
WantedRows DescribeRows(const GroupView& group, uint64_t position, uint64_t begin, uint64_t end);

// `stored` is a frame of this shape, which the device sees at `on_device`; `base` is that of its
// layer and head in the view. Finds the header errors of DecodeFrame; the kernel finds the others.
Result<FrameToScatter> DescribeFrame(const FrameShape& shape, std::span<const std::byte> stored,
                                     const std::byte* on_device, std::byte* base,
                                     const PagedView& view, uint32_t view_index,
                                     const WantedRows& wanted);

// Unpacked rows: `rows` of `channels` elements.
FrameToScatter DescribeRaw(uint32_t rows, uint32_t channels, const std::byte* on_device,
                           std::byte* base, const PagedView& view, uint32_t view_index,
                           const WantedRows& wanted);

// Rows of one head of a layer, from the view to `into`, the place of row 0.
StripToGather DescribeStrip(const Plane& plane, const std::byte* base, std::byte* into,
                            const PagedView& view, uint32_t view_index, const WantedRows& wanted);

}  // namespace cairn::gpu
