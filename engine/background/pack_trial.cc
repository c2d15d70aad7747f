// SPDX-License-Identifier: Apache-2.0
#include "engine/background/pack_trial.h"

#include <algorithm>

#include "base/codec/kv_copy.h"
#include "base/codec/kv_frame.h"
#include "base/core/aligned_buffer.h"
#include "base/core/out_of_memory.h"
#include "engine/background/seal_reader.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/fragment_layout.h"

namespace cairn::engine {

bool PackTrial::GetsSmaller(uint64_t segment) const {
  Sizes sizes;
  const Status tried = CatchBadAlloc([&] { return Try(segment, &sizes); });
  if (!tried.ok() || sizes.raw_bytes == 0) return true;
  return static_cast<double>(sizes.packed_bytes) <
         kPackedShareMax * static_cast<double>(sizes.raw_bytes);
}

Status PackTrial::Try(uint64_t segment, Sizes* sizes) const {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<uint64_t> nodes,
                         sealer_->NodesIn({.first = segment, .last = segment}));
  const size_t count = std::min(nodes.size(), kTrialFrames);
  for (size_t i = 0; i < count; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const auto sources, SourcesOf(segment, nodes[i * nodes.size() / count]));
    if (sources.empty()) continue;
    // A node alone is tried in several of its parts.
    for (size_t part = 0; part < kTrialFrames / count; ++part) {
      const size_t at = part * sources.size() / (kTrialFrames / count);
      CAIRN_RETURN_IF_ERROR(TryOne(sources[at], static_cast<uint32_t>(i + part), sizes));
    }
  }
  return Status::Ok();
}

// KV of the node that lies in the segment.
Result<std::vector<SealSource>> PackTrial::SourcesOf(uint64_t segment, uint64_t node) const {
  std::vector<SealSource> sources;
  Committer::Lock lock(deps_.mutex());
  CAIRN_RETURN_IF_ERROR(deps_.access->Load({.branches = {}, .nodes = {node}, .names = {}}, &lock));
  if (deps_.tree().FindNode(node) == nullptr) return sources;
  CollectSealSources(
      deps_.tree(), node, [segment](const Place& place) { return place.log.segment == segment; },
      kSealSourceBytes, &sources);
  std::erase_if(sources, [](const SealSource& source) {
    return source.lane == kTokenLane || source.lane > source.model->groups.size();
  });
  return sources;
}

// Packs one head of some rows as a table would have it.
Status PackTrial::TryOne(const SealSource& source, uint32_t number, Sizes* sizes) const {
  const FragmentLayout layout(*source.model, source.lane);
  const uint32_t rows = std::min({source.count, layout.page_rows(), kTrialRows});
  const HeadSlice at = layout.At(number % layout.slices());
  const std::vector<Plane>& planes = layout.group().planes;
  uint64_t bytes = 0;
  for (const Plane& plane : planes) bytes += SliceBytes(plane, rows);
  const FrameShape shape = layout.Shape(layout.SliceOf(at), rows);
  const Allocator& allocator = deps_.options->allocator;
  const auto raw = AlignedBuffer::TryAllocate(allocator, bytes, io::kBlockBytes);
  const auto packed = AlignedBuffer::TryAllocate(allocator, MaxFrameBytes(shape), io::kBlockBytes);
  if (raw.empty() || packed.empty()) return OutOfMemory();

  std::vector<std::byte*> bases;
  std::vector<PlaneView> views;
  bases.reserve(planes.size());  // Views refer to it.
  std::byte* next = raw.data();
  for (const Plane& plane : planes) {
    bases.push_back(next);
    views.push_back({.layer_bases = {&bases.back(), 1},
                     .token_stride = plane.row_bytes,
                     .head_stride = plane.row_bytes * static_cast<int64_t>(rows)});
    next += SliceBytes(plane, rows);
  }
  const GroupView group{.group = source.lane - 1,
                        .layer_begin = at.layer,
                        .position = source.begin,
                        .count = rows,
                        .planes = views};
  StoreSealReader reader(deps_.reader, [](uint64_t) { return Status::Ok(); });
  reader.Expect({&source, 1});
  CAIRN_RETURN_IF_ERROR(reader.ReadKv(source, group));

  const std::span<std::byte> head(bases[at.plane] + at.head * shape.raw_bytes(), shape.raw_bytes());
  const FrameScales scales = layout.Scales(layout.SliceOf(at));
  if (scales != FrameScales::kNone) QuantiseFrame(shape, scales, head);
  sizes->raw_bytes += head.size();
  sizes->packed_bytes += EncodeFrame(shape, head, packed.span(), {.scales = scales});
  return Status::Ok();
}

}  // namespace cairn::engine
