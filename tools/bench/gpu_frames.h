// SPDX-License-Identifier: Apache-2.0
//
// Paged memory on a device as engines have it, blocks of 16 tokens in shuffled order with the heads
// of a token adjacent; and frames on the device that are unpacked into it.
#pragma once

#include <string>
#include <vector>

#include "base/codec/kv_frame.h"
#include "gpu/describe.h"
#include "tools/bench/gpu_bench.h"

namespace cairn::bench {

inline constexpr FrameShape kGpuFrame = {256, 128, Dtype::kBf16};
inline constexpr uint64_t kGpuRowBytes = 256;
inline constexpr uint64_t kGpuFrameBytes = kGpuFrame.rows * kGpuRowBytes;
inline constexpr uint32_t kGpuHeads = 8;

// Frame f is head f % 8 of layer f / 8; all layers share a table of blocks.
class PagedFrames {
 public:
  Status Make(GpuBench& bench, uint32_t frames);
  std::byte* Base(uint32_t frame) const;  // The base of its layer and head.
  gpu::WantedRows Rows(uint32_t count) const { return gpu::DescribeRows(group_, 0, 0, count); }
  const gpu::PagedView& plane() const { return plane_; }
  const gpu::PagedView* views() const { return views_; }  // On the device; the one.
  // Where a row of a frame lies in its layer's memory.
  uint64_t OffsetOf(uint32_t row, uint32_t head) const;

 private:
  std::byte* memory_ = nullptr;
  std::vector<int32_t> entries_;
  GroupView group_;
  gpu::PagedView plane_;
  const gpu::PagedView* views_ = nullptr;
};

struct GpuCoding {
  const char* name;
  const char* meaning;
  FrameCodec codec;
  FrameOptions options;
};

// Frames of one coding, made from the source over and over, each at a place of its own: more than
// any cache of a card holds.
class PackedFrames {
 public:
  // kCorruption when they do not unpack to what they were made of.
  Status Make(GpuBench& bench, const PagedFrames& paged, const KvPool& source,
              const GpuCoding& coding, uint32_t count);
  double packed_share() const { return packed_share_; }  // Packed bytes to raw ones.
  // Unpacks the first `count` this many times.
  Arm MakeArm(GpuBench& bench, const std::string& name, uint32_t count, uint32_t launches) const;

 private:
  struct Place {
    uint64_t offset, bytes;
  };
  std::vector<Place> Pack(const KvPool& source, const GpuCoding& coding, uint32_t distinct);
  Status Check(GpuBench& bench, const PagedFrames& paged) const;

  std::vector<std::byte> stored_;
  std::vector<std::vector<std::byte>> expected_;
  gpu::DecodeScatter launch_;
  double packed_share_ = 1;
};

}  // namespace cairn::bench
