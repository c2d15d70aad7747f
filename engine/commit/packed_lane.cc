// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/packed_lane.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>

#include "base/codec/hash.h"
#include "base/core/align.h"
#include "base/core/check.h"
#include "base/io/parallel_for.h"
#include "engine/commit/slice_frames.h"
#include "engine/config/constants.h"

namespace cairn::engine {

bool PackingPays(const LayerGroup& group, uint64_t count) {
  return BestCodecPath() != CodecPath::kScalar &&
         std::all_of(group.planes.begin(), group.planes.end(), [count](const Plane& plane) {
           return MayBePacked(plane) && SliceBytes(plane, count) >= kPackedSliceBytesMin;
         });
}

// Packs runs of strips, each independent of the others.
class PackedLane::Packer {
 public:
  Packer(const Source& source, PackedLane* lane, size_t threads)
      : source_(source), lane_(*lane), free_((uint64_t{1} << threads) - 1) {
    for (const Plane& plane : source.group.planes) {
      const SliceFrames frames(plane, source.count);
      std::vector<PositionMap>& maps = maps_.emplace_back();
      for (uint32_t i = 0; i < frames.size(); ++i) {
        const SliceFrames::Frame frame = frames.At(i);
        scratch_bytes_ = std::max(scratch_bytes_, frame.shape.raw_bytes());
        if (frame.first_head != 0 || frame.positions == source.count) continue;
        maps.emplace_back(source.view, source.position + frame.first, frame.positions);
      }
    }
    scratch_bytes_ = AlignUp(scratch_bytes_, kSliceAlignment);
    uint64_t offset = scratch_bytes_ * threads;
    for (const KvLayout::Slice& slice : source.layout.slices()) {
      if (slice.strip == lane_.strips_.size()) {
        lane_.strips_.push_back({.offset = offset, .first_slice = next_slice_});
      }
      offset += SliceFrames(source.group.planes[slice.plane], source.count).PackedBytesMax();
      lane_.strips_.back().end_slice = ++next_slice_;
    }
    buffer_bytes_ = offset;
    const size_t strips = lane_.strips_.size();
    run_strips_ = std::max<size_t>(1, strips * kPackedLayersOfRun / source.group.layers);
    runs_ = (strips + run_strips_ - 1) / run_strips_;
  }

  uint64_t buffer_bytes() const { return buffer_bytes_; }
  size_t runs() const { return runs_; }

  void Pack(size_t run) {
    Flags flags(source_.group.planes.size());  // The last that may throw.
    const int thread = TakeScratch();
    const std::span<std::byte> scratch =
        lane_.buffer_.span().subspan(scratch_bytes_ * static_cast<size_t>(thread), scratch_bytes_);
    uint64_t packed_bytes = 0, raw_bytes = 0;
    const size_t end = std::min(lane_.strips_.size(), (run + 1) * run_strips_);
    for (size_t index = run * run_strips_; index < end; ++index) {
      Strip& strip = lane_.strips_[index];
      std::byte* at = lane_.buffer_.data() + strip.offset;
      for (size_t i = strip.first_slice; i < strip.end_slice; ++i) {
        at = PackSlice(source_.layout.slices()[i], scratch, at, &flags);
      }
      strip.bytes = static_cast<uint64_t>(at - lane_.buffer_.data()) - strip.offset;
      strip.hash = Hash(lane_.strip(index));
      packed_bytes += strip.bytes;
      raw_bytes += source_.layout.strip_bytes()[index];
    }
    free_.fetch_or(uint64_t{1} << thread, std::memory_order_release);
    packed_bytes_.fetch_add(packed_bytes, std::memory_order_relaxed);
    raw_bytes_.fetch_add(raw_bytes, std::memory_order_relaxed);
  }
  bool GotSmaller() const {
    return static_cast<double>(packed_bytes_.load(std::memory_order_relaxed)) <=
           kPackedShareOfRecord * static_cast<double>(raw_bytes_.load(std::memory_order_relaxed));
  }

 private:
  // By plane: the flags that its first frame of a run chose. Layers beside each other are alike,
  // and choosing is a large part of the work.
  using Flags = std::vector<std::optional<uint8_t>>;

  int TakeScratch() {
    uint64_t free = free_.load(std::memory_order_acquire);
    while (true) {
      CAIRN_CHECK(free != 0);  // One for each thread.
      const int lowest = std::countr_zero(free);
      if (free_.compare_exchange_weak(free, free & ~(uint64_t{1} << lowest),
                                      std::memory_order_acquire)) {
        return lowest;
      }
    }
  }

  // Returns the end of its frames.
  std::byte* PackSlice(const KvLayout::Slice& slice, std::span<std::byte> scratch, std::byte* at,
                       Flags* flags) {
    std::optional<uint8_t>& chosen = (*flags)[slice.plane];
    const Plane& plane = source_.group.planes[slice.plane];
    const SliceFrames frames(plane, source_.count);
    const std::vector<PositionMap>& maps = maps_[slice.plane];
    for (uint32_t i = 0; i < frames.size(); ++i) {
      const SliceFrames::Frame frame = frames.At(i);
      const std::span<std::byte> raw = scratch.first(frame.shape.raw_bytes());
      Plane heads = plane;
      heads.heads = frame.heads;
      PlaneView of_heads = source_.view.planes[slice.plane];
      std::byte* const base = of_heads.layer_bases[slice.layer] +
                              static_cast<int64_t>(frame.first_head) * of_heads.head_stride;
      of_heads.layer_bases = {&base, 1};
      GatherSlice(heads, of_heads, 0, maps.empty() ? source_.map : maps[i % maps.size()],
                  raw.data());
      const std::span<std::byte> into(at, MaxFrameBytes(frame.shape));
      const size_t bytes = EncodeFrame(frame.shape, raw, into, {.flags = chosen});
      const Result<FrameHeader> header = ReadFrameHeader(into.first(bytes));
      CAIRN_CHECK(header.ok());
      if (header->codec == FrameCodec::kKv64) chosen = header->flags;
      const size_t padded = AlignUp(bytes, kSliceAlignment);
      std::memset(at + bytes, 0, padded - bytes);  // No stray memory reaches the disk.
      at += padded;
    }
    return at;
  }

  const Source& source_;
  PackedLane& lane_;
  size_t next_slice_ = 0;
  uint64_t scratch_bytes_ = 0, buffer_bytes_ = 0;
  size_t run_strips_ = 0, runs_ = 0;
  std::atomic<uint64_t> packed_bytes_{0}, raw_bytes_{0};
  std::vector<std::vector<PositionMap>> maps_;  // By plane, of the parts of a head.
  std::atomic<uint64_t> free_;                  // Scratch memory, a bit each.
};

PackedLane::~PackedLane() {
  if (!buffer_.empty()) staging_->Return(std::move(buffer_));
}

std::unique_ptr<PackedLane> PackedLane::Make(const PackDeps& deps, const Source& source) {
  if (!PackingPays(source.group, source.count)) return nullptr;
  std::unique_ptr<PackedLane> lane(new PackedLane(deps.staging));
  const size_t helpers = std::min(deps.helpers, kPackHelpersMax);
  Packer packer(source, lane.get(), helpers + 1);
  Result<AlignedBuffer> buffer = deps.staging->Take(packer.buffer_bytes());
  if (!buffer.ok()) return nullptr;
  lane->buffer_ = std::move(*buffer);
  packer.Pack(0);
  if (!packer.GotSmaller()) return nullptr;  // The first layers show it.
  if (packer.runs() > 1) {
    io::ParallelFor parallel_for(*deps.scheduler, deps.executor, helpers);
    const Status packed = parallel_for.Run([] { return Status::Ok(); }, packer.runs() - 1,
                                           [&](size_t i) {
                                             packer.Pack(1 + i);
                                             return Status::Ok();
                                           });
    if (!packed.ok()) return nullptr;  // No memory.
  }
  return packer.GotSmaller() ? std::move(lane) : nullptr;
}

}  // namespace cairn::engine
