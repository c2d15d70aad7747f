// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/gpu_frames.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/core/check.h"

namespace cairn::bench {
namespace {

constexpr uint32_t kBlocks = kGpuFrame.rows / kTokensPerBlock;
constexpr uint64_t kTokenBytes = kGpuHeads * kGpuRowBytes;
constexpr uint64_t kLayerBytes = kGpuFrame.rows * kTokenBytes;
constexpr size_t kFrameAlignment = 64;  // As tables lay them.

Status Wrong(uint32_t frame, const char* what) {
  return Status(StatusCode::kCorruption,
                "frame " + std::to_string(frame) + " on the device: " + what);
}

}  // namespace

Status PagedFrames::Make(GpuBench& bench, uint32_t frames) {
  CAIRN_CHECK(frames % kGpuHeads == 0);
  entries_.resize(kBlocks);
  std::iota(entries_.begin(), entries_.end(), 0);
  for (uint32_t i = 0; i < kBlocks; ++i) std::swap(entries_[i], entries_[(i * 7 + 3) % kBlocks]);
  CAIRN_ASSIGN_OR_RETURN(memory_,
                         bench.Allocate(gpu::Memory::kDevice, frames / kGpuHeads * kLayerBytes));
  CAIRN_ASSIGN_OR_RETURN(const int32_t* const on_device, bench.PutAll(entries_));
  group_.count = kGpuFrame.rows;
  group_.tokens_per_block = kTokensPerBlock;
  group_.table = {.kind = TableKind::kBlocks, .entries = entries_.data(), .count = kBlocks};
  const PlaneView view{.block_stride = kTokensPerBlock * kTokenBytes,
                       .token_stride = kTokenBytes,
                       .head_stride = kGpuRowBytes};
  CAIRN_ASSIGN_OR_RETURN(plane_,
                         gpu::DescribePlane(group_, view, kGpuFrame.dtype, on_device, kBlocks));
  CAIRN_ASSIGN_OR_RETURN(views_, bench.PutAll(std::vector<gpu::PagedView>{plane_}));
  return Status::Ok();
}

std::byte* PagedFrames::Base(uint32_t frame) const {
  return memory_ + frame / kGpuHeads * kLayerBytes + frame % kGpuHeads * kGpuRowBytes;
}

uint64_t PagedFrames::OffsetOf(uint32_t row, uint32_t head) const {
  const auto block = static_cast<uint64_t>(entries_[row / kTokensPerBlock]);
  return (block * kTokensPerBlock + row % kTokensPerBlock) * kTokenBytes + head * kGpuRowBytes;
}

std::vector<PackedFrames::Place> PackedFrames::Pack(const KvPool& source, const GpuCoding& coding,
                                                    uint32_t distinct) {
  std::vector<Place> places;
  std::vector<std::byte> frame(MaxFrameBytes(kGpuFrame));
  for (uint32_t i = 0; i < distinct; ++i) {
    const auto raw = source.bytes().subspan(i * kGpuFrameBytes, kGpuFrameBytes);
    std::vector<std::byte>& elements = expected_.emplace_back(raw.begin(), raw.end());
    uint64_t bytes = kGpuFrameBytes;
    if (coding.codec == FrameCodec::kRaw) {
      std::copy(raw.begin(), raw.end(), frame.begin());
    } else {
      const FrameScales scales = coding.options.scales;
      if (scales != FrameScales::kNone) CAIRN_CHECK(QuantiseFrame(kGpuFrame, scales, elements));
      bytes = EncodeFrame(kGpuFrame, elements, frame, coding.options);
    }
    stored_.resize((stored_.size() + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment);
    places.push_back({stored_.size(), bytes});
    stored_.insert(stored_.end(), frame.begin(), frame.begin() + static_cast<ptrdiff_t>(bytes));
  }
  return places;
}

Status PackedFrames::Make(GpuBench& bench, const PagedFrames& paged, const KvPool& source,
                          const GpuCoding& coding, uint32_t count) {
  const auto distinct =
      static_cast<uint32_t>(std::min<uint64_t>(count, source.bytes().size() / kGpuFrameBytes));
  const std::vector<Place> places = Pack(source, coding, distinct);
  packed_share_ =
      static_cast<double>(stored_.size()) / static_cast<double>(distinct * kGpuFrameBytes);
  const uint32_t times = (count + distinct - 1) / distinct;
  CAIRN_ASSIGN_OR_RETURN(std::byte* const at,
                         bench.Allocate(gpu::Memory::kDevice, times * stored_.size()));
  for (uint32_t i = 0; i < times; ++i) {
    CAIRN_RETURN_IF_ERROR(
        bench.gpu().CopyIn(at + i * stored_.size(), stored_.data(), stored_.size()));
  }
  std::vector<gpu::FrameToScatter> described;
  const gpu::WantedRows rows = paged.Rows(kGpuFrame.rows);
  for (uint32_t i = 0; i < count; ++i) {
    const Place& place = places[i % distinct];
    std::byte* const there = at + i / distinct * stored_.size() + place.offset;
    if (coding.codec == FrameCodec::kRaw) {
      described.push_back(gpu::DescribeRaw(kGpuFrame.rows, kGpuFrame.channels, there, paged.Base(i),
                                           paged.plane(), 0, rows));
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const gpu::FrameToScatter one,
                           gpu::DescribeFrame(kGpuFrame, {&stored_[place.offset], place.bytes},
                                              there, paged.Base(i), paged.plane(), 0, rows));
    CAIRN_CHECK(one.codec == coding.codec);
    described.push_back(one);
  }
  CAIRN_ASSIGN_OR_RETURN(launch_.frames, bench.PutAll(described));
  CAIRN_ASSIGN_OR_RETURN(launch_.faults, bench.PutAll(std::vector<gpu::Fault>(count)));
  launch_.views = paged.views();
  launch_.count = count;
  return Check(bench, paged);
}

// No frame has a fault, and the first and the last layer are as they should be.
Status PackedFrames::Check(GpuBench& bench, const PagedFrames& paged) const {
  CAIRN_RETURN_IF_ERROR(bench.device().Launch(bench.stream(), launch_));
  CAIRN_RETURN_IF_ERROR(bench.Finish());
  std::vector<gpu::Fault> faults(launch_.count);
  CAIRN_RETURN_IF_ERROR(bench.gpu().CopyOut(reinterpret_cast<std::byte*>(faults.data()),
                                            reinterpret_cast<const std::byte*>(launch_.faults),
                                            faults.size() * sizeof(gpu::Fault)));
  for (uint32_t i = 0; i < launch_.count; ++i) {
    if (faults[i] != gpu::Fault::kNone) return Wrong(i, "a fault");
  }
  std::vector<std::byte> layer(kLayerBytes);
  for (const uint32_t first : {0u, launch_.count - kGpuHeads}) {
    CAIRN_RETURN_IF_ERROR(bench.gpu().CopyOut(layer.data(), paged.Base(first), kLayerBytes));
    for (uint32_t head = 0; head < kGpuHeads; ++head) {
      const std::vector<std::byte>& want = expected_[(first + head) % expected_.size()];
      for (uint32_t row = 0; row < kGpuFrame.rows; ++row) {
        if (std::memcmp(&layer[paged.OffsetOf(row, head)], &want[row * kGpuRowBytes],
                        kGpuRowBytes) != 0) {
          return Wrong(first + head, "a row differs");
        }
      }
    }
  }
  return Status::Ok();
}

Arm PackedFrames::MakeArm(GpuBench& bench, const std::string& name, uint32_t count,
                          uint32_t launches) const {
  gpu::DecodeScatter launch = launch_;
  launch.count = count;
  Arm arm{.name = name, .bytes_per_op = uint64_t{launches} * count * kGpuFrameBytes};
  arm.op = [&bench, launch, launches](double*) {
    for (uint32_t i = 0; i < launches; ++i) {
      CAIRN_RETURN_IF_ERROR(bench.device().Launch(bench.stream(), launch));
    }
    return bench.Finish();
  };
  return arm;
}

}  // namespace cairn::bench
